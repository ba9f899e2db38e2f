"""A disk that fills up under load and has room again: nothing acked is lost, reads go on, all comes back by itself."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from support.crash_import import Publisher, check_nothing_lost, small_entry
from support.full_disk import Readers, SmallDisk
from support.processes import wait_for

LOAD = 2_000
"""Entries between two rounds: some MiB of write-ahead log, so that a checkpoint is due while the disk is full."""


def fill_and_free(tmp_path: Path, rounds: int) -> None:
    """Fill the disk ``rounds`` times under two publishers and a reader; nobody restarts anything by hand."""
    with SmallDisk(tmp_path / "disk") as stack:
        ready = stack.up()
        with (
            Publisher(stack, "batch", 50) as batches,
            Publisher(stack, "single", 1) as singles,
            Readers(stack) as readers,
        ):
            for number in range(rounds):
                batches.wait_for_acks(len(batches.account) + LOAD)
                with stack.full():
                    wait_for(lambda: ready_status(stack) == 503, "a node that says that its disk is full")
                    refused = append(stack, number)  # takes 30 s, in which the host finds nothing to fold and tidies up
                    assert refused.status_code == 503, refused.text
                    assert refused.json()["title"] == "The broker's storage is full"
                    asked = Counter(readers.answers)
                    wait_for(
                        lambda asked=asked: all(readers.good(path) > asked[path, 200] for path in readers.PATHS),
                        "every answer on a full disk",
                    )
                    shown = stack.run("status")
                    assert (shown.code, shown.err) == (0, ""), shown.err
                    assert "MiB of disk are free" in shown.out
                freed, before = time.monotonic(), (len(batches.account), len(singles.account))
                batches.wait_for_acks(before[0] + 50)
                singles.wait_for_acks(before[1] + 5)
                wait_for(lambda: ready_status(stack) == 200, "readiness")
                print(f"round {number + 1}: all is back {time.monotonic() - freed:.1f} s after the disk was freed")
            accounts = (batches.finish(), singles.finish())
            print(f"answers: {dict(readers.answers)}")
        assert readers.bad == []
        assert stack.runtime() == ready, "the service itself was not to restart"
        check_nothing_lost(stack, *accounts)
        assert stack.terminate() == 0


def ready_status(stack: SmallDisk) -> int:
    return httpx.get(f"{stack.url}/readyz", timeout=60, trust_env=False).status_code


def append(stack: SmallDisk, number: int) -> httpx.Response:
    headers = {"Authorization": f"Bearer {stack.token}"}
    entry = small_entry(number, "alone")
    return httpx.post(f"{stack.url}/v1/journal", json=entry, headers=headers, timeout=60, trust_env=False)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_disk_that_is_full_under_load_and_freed_five_times(tmp_path: Path) -> None:
    fill_and_free(tmp_path, rounds=5)
