"""The files and folders that a mirror makes are for their owner only, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crew_journal.schemas.documents.rules import Scope
from crew_journal.services.cli.mirror.folder import Folder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.mark.parametrize(("read_only", "expected"), [(False, "0o600"), (True, "0o400")])
@pytest.mark.parametrize("label", ["AGENT.md", "daily/2026-05-14.md"])
def test_a_file_of_a_mirror_is_for_its_owner_only(tmp_path: Path, read_only: bool, expected: str, label: str) -> None:
    folder = Folder(tmp_path, Scope.AGENT)
    folder.make()
    assert folder.place(label, b"- one\n", None, "", read_only=read_only)
    path = folder.path_of(label)
    assert mode(path) == expected
    path.chmod(0o644)
    former = Folder.former_label(label, 1, path.stat().st_ino)
    assert folder.place(label, b"- two\n", folder.read(label)[0], former, read_only=read_only)
    assert (mode(path), path.read_bytes()) == (expected, b"- two\n")


def test_copies_beside_a_file_and_all_folders_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Scope.AGENT)
    folder.make()
    beside = folder.keep_beside("daily/2026-05-14.md", b"- mine\n", 0)
    assert mode(folder.path_of(beside)) == "0o600"
    assert {mode(path) for path in (folder.root, *folder.root.rglob("*")) if path.is_dir()} == {"0o700"}
