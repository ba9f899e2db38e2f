"""kill -9 of nats-server in the middle of an import: the supervisor brings it back, and nothing acked is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from support.crash_import import Publisher, check_nothing_lost
from support.processes import Stack, wait_for
from support.schedule import KillSchedule


def kill_broker_during_imports(tmp_path: Path, kills: int, seed: int) -> None:
    """Kill nats-server ``kills`` times under two publishers; nobody restarts anything by hand."""
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        ready = stack.up()
        with Publisher(stack, "batch", 50) as batches, Publisher(stack, "single", 1) as singles:
            for instant in KillSchedule(seed, kills):
                batches.wait_for_acks(len(batches.account) + instant.acks)
                instant.elapse()
                died = stack.signal_nats(signal.SIGKILL)
                wait_for(lambda died=died: stack.nats_pid() not in (None, died), "a new nats-server")
            before = len(batches.account), len(singles.account)
            batches.wait_for_acks(before[0] + 50)
            singles.wait_for_acks(before[1] + 5)
            accounts = (batches.finish(), singles.finish())
        assert stack.runtime() == ready, "the service itself was not to restart"
        check_nothing_lost(stack, *accounts)
        wait_for(lambda: httpx.get(f"{stack.url}/readyz", timeout=60, trust_env=False).status_code == 200, "readiness")
        assert stack.terminate() == 0


def test_kill_9_of_nats_server_in_the_middle_of_an_import_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kill_broker_during_imports(tmp_path, kills=2, seed=21)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_kill_9_of_nats_server_ten_times_in_the_middle_of_an_import(tmp_path: Path) -> None:
    kill_broker_during_imports(tmp_path, kills=10, seed=22)
