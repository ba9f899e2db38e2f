"""kill -9 of the service in the middle of an import: every acked entry is there once, and ``verify`` agrees.

The instants are drawn from a seeded schedule: after so many acks and so many milliseconds, wherever the service is then.
"""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import httpx
import pytest
from support.crash_import import Publisher, check_nothing_lost, small_entry
from support.processes import RUN_DEADLINE_S, Stack, wait_for
from support.schedule import KillSchedule

FILE_ENTRIES = 1_500
FILE_ENTRIES_NIGHTLY = 60_000


def write_file(path: Path, count: int) -> list[str]:
    """An import file; returns the ids in it."""
    entries = [small_entry(n, "file") for n in range(count)]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    return [str(entry["id"]) for entry in entries]


def kill_service_during_imports(tmp_path: Path, kills: int, file_entries: int, seed: int) -> None:
    """Kill and restart the service ``kills`` times under two publishers and ``crew-journal import``."""
    file = tmp_path / "entries.jsonl"
    ids = write_file(file, file_entries)
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        with Publisher(stack, "batch", 50) as batches, Publisher(stack, "single", 1) as singles:
            importing = stack.spawn("import", str(file), "--json")
            wait_for(
                lambda: is_stored(stack, ids[0]), "the import to begin"
            )  # earlier it would open the journal itself
            for instant in KillSchedule(seed, kills):
                batches.wait_for_acks(len(batches.account) + instant.acks)
                instant.elapse()
                stack.kill()
                if instant.with_broker:
                    stack.signal_nats(signal.SIGKILL)
                stack.up()
            out, err = importing.communicate(timeout=RUN_DEADLINE_S)
            accounts = (batches.finish(), singles.finish())
        assert importing.returncode == 0, f"import gave up: {err}"
        report = json.loads(out)
        assert report["imported"] + report["repeated"] == file_entries

        def file_is_there(found: dict[str, list[int]]) -> None:
            missing = [name for name in ids if name not in found]
            assert not missing, f"{len(missing)} entries of the file are missing, the first {missing[0]}"

        check_nothing_lost(stack, *accounts, also=file_is_there)
        assert stack.terminate() == 0


def test_kill_9_of_the_service_in_the_middle_of_an_import_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kill_service_during_imports(tmp_path, kills=1, file_entries=FILE_ENTRIES, seed=11)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_kill_9_of_the_service_twenty_times_in_the_middle_of_an_import(tmp_path: Path) -> None:
    kill_service_during_imports(tmp_path, kills=20, file_entries=FILE_ENTRIES_NIGHTLY, seed=12)


def is_stored(stack: Stack, entry_id: str) -> bool:
    headers = {"Authorization": f"Bearer {stack.token}"}
    return (
        httpx.get(f"{stack.url}/v1/journal/{entry_id}", headers=headers, timeout=60, trust_env=False).status_code == 200
    )


def is_visible(client: httpx.Client, entry_id: str) -> bool:
    return client.get(f"/v1/journal/{entry_id}").status_code == 200


def commit_whose_ack_is_lost(stack: Stack, entry_id: str) -> int | None:
    """Publish an entry, freeze the broker before it can hear the view's ack, and kill both once the view shows it.

    Returns:
        The entry's sequence, or None if the broker froze before it had delivered the entry: then nothing was tried.
    """
    headers = {"Authorization": f"Bearer {stack.token}"}
    with httpx.Client(base_url=stack.url, headers=headers, timeout=60, trust_env=False) as client:
        answer = client.post("/v1/journal", json=small_entry(0, "frozen") | {"id": entry_id})
        assert answer.status_code == 201
        stack.signal_nats(signal.SIGSTOP)
        try:
            wait_for(lambda: is_visible(client, entry_id), "the commit", deadline_s=5.0, poll_s=0.0005)
        except AssertionError:
            stack.signal_nats(signal.SIGCONT)
            return None
    stack.kill()
    stack.signal_nats(signal.SIGKILL)
    return int(answer.json()["entries"][0]["seq"])


def test_a_crash_between_commit_and_ack_folds_nothing_twice(tmp_path: Path) -> None:
    rng = random.Random(5)
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        crashed: dict[str, int] = {}
        for attempt in range(20):
            entry_id = f"frozen-{attempt}-{rng.randrange(10**6)}"
            seq = commit_whose_ack_is_lost(stack, entry_id)
            if seq is not None:
                crashed[entry_id] = seq
                stack.up()
            if len(crashed) == 2:
                break
        assert len(crashed) == 2, "the commit never came before the ack"
        with Publisher(stack, "after", 20) as publisher:
            publisher.wait_for_acks(100)
            account = publisher.finish()
        account.acked |= crashed
        check_nothing_lost(stack, account)
