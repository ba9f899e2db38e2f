"""One process owns a data directory; asking who does hinders nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import DataDirBusy
from crew_journal.services.data_dir import announce, is_owned, lock


def test_a_directory_is_owned_from_the_lock_to_its_release(tmp_path: Path) -> None:
    assert not is_owned(tmp_path / "none")
    assert not is_owned(tmp_path)
    release = lock(tmp_path)
    assert is_owned(tmp_path)
    release()
    assert not is_owned(tmp_path)


def test_a_starting_owner_is_distinguished_from_a_running_one(tmp_path: Path) -> None:
    release = lock(tmp_path)
    with pytest.raises(DataDirBusy, match="starting or ending"):
        lock(tmp_path)
    announce(tmp_path, "http://x", "nats://x", "cj_owner")
    with pytest.raises(DataDirBusy, match="another process owns"):
        lock(tmp_path)
    release()


def test_what_a_killed_process_announced_is_removed_by_the_next_owner(tmp_path: Path) -> None:
    announce(tmp_path, "http://x", "nats://x", "cj_owner")
    lock(tmp_path)()
    assert not (tmp_path / "runtime.json").exists()


def test_a_probe_of_a_directory_does_not_hinder_its_owner(tmp_path: Path) -> None:
    lock(tmp_path)()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            is_owned(tmp_path)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(200):
            lock(tmp_path)()
    finally:
        done.set()
        for thread in asking:
            thread.join()
