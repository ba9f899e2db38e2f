"""An import that goes on while its service is killed, keeping account of what was acked.

Invariant: an (id, seq) is recorded only after the service answered 201 with it; what was not acked is sent again with the
same ids, as a client would. So the account is what must be found afterwards, once each, at those sequences.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from support.processes import Stack, wait_for

GIVE_UP_S = 240.0
"""Seconds without any ack after which a publisher stops: the service is not coming back."""
PAUSE_S = 0.01
REQUEST_TIMEOUT_S = 60.0
"""Longer than the service's own deadline for an append."""


def small_entry(n: int, prefix: str) -> dict[str, Any]:
    """Entry ``n``; its words tell which one it is."""
    return {
        "id": f"{prefix}-{n:06d}",
        "ts": f"2026-11-21T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.000Z",
        "entry_type": "run.completed" if n % 5 else "peer.escalation",
        "crew_id": "night",
        "agent_id": f"agent-{n % 4}",
        "trace_id": f"s-{n // 40}",
        "summary": f"entry number {n} of {prefix} survives the crash",
        "payload": {"n": n},
    }


@dataclass
class Account:
    """What was acked: id → sequence; ``twice`` holds ids that were acked with two different sequences."""

    acked: dict[str, int] = field(default_factory=dict)
    twice: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, answers: Iterable[dict[str, Any]]) -> None:
        """Note acks."""
        with self._lock:
            for answer in answers:
                known = self.acked.setdefault(answer["id"], answer["seq"])
                if known != answer["seq"]:
                    self.twice[answer["id"]] = (known, answer["seq"])

    def __len__(self) -> int:
        return len(self.acked)


class Publisher:
    """A thread that publishes until it is told to stop, in batches and singly by turns, through every outage.

    Args:
        stack: Where; its address is read anew after every failure, for a restart may change it.
        prefix: Begins every id.
        batch: Entries of a batch; 1 publishes singly.
    """

    def __init__(self, stack: Stack, prefix: str, batch: int) -> None:
        self.account = Account()
        self._stack = stack
        self._prefix = prefix
        self._batch = batch
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"publisher {prefix}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(GIVE_UP_S)

    def finish(self) -> Account:
        """Stop after the batch in hand is acked and return the account.

        Raises:
            AssertionError: If it gave up, or the service refused an entry.
        """
        self._stop.set()
        self._thread.join(GIVE_UP_S + REQUEST_TIMEOUT_S)
        assert not self._thread.is_alive(), "the publisher hangs"
        if self._failure is not None:
            raise AssertionError(f"the publisher failed: {self._failure!r}") from self._failure
        assert self.account.refused == []
        assert self.account.twice == {}, "acked at two sequences"
        return self.account

    def wait_for_acks(self, count: int, deadline_s: float = GIVE_UP_S) -> None:
        """Wait until so many entries are acked."""
        wait_for(lambda: len(self.account) >= count or self._failure, f"{count} acks", deadline_s, poll_s=0.001)

    def _run(self) -> None:
        try:
            self._publish_all()
        except BaseException as error:  # told by finish()
            self._failure = error

    def _publish_all(self) -> None:
        number = 0
        client = self._client()
        try:
            while not self._stop.is_set():
                entries = [small_entry(n, self._prefix) for n in range(number, number + self._batch)]
                number += self._batch
                last_word = time.monotonic()
                while not self._sent(client, entries):
                    if time.monotonic() - last_word > GIVE_UP_S:
                        raise TimeoutError(f"no ack for {GIVE_UP_S:g} s")
                    time.sleep(PAUSE_S)  # the pause of a client that tries again
                    client.close()
                    client = self._client()
        finally:
            client.close()

    def _client(self) -> httpx.Client:
        said = wait_for(self._stack.runtime, "runtime.json", GIVE_UP_S)
        headers = {"Authorization": f"Bearer {self._stack.token}"}
        return httpx.Client(base_url=said.http, headers=headers, timeout=REQUEST_TIMEOUT_S, trust_env=False)

    def _sent(self, client: httpx.Client, entries: list[dict[str, Any]]) -> bool:
        try:
            answer = client.post("/v1/journal", json=entries if len(entries) > 1 else entries[0])
            if answer.status_code == 201:
                self.account.record(answer.json()["entries"])
                return True
        except httpx.HTTPError:
            return False  # the service went away; nothing is known about the batch, so it is sent again
        if answer.status_code != 503:
            self.account.refused.append(f"{answer.status_code} {answer.text[:300]}")
            raise AssertionError(self.account.refused[-1])
        return False


def all_entries(stack: Stack, min_seq: int) -> dict[str, list[int]]:
    """Every entry of the default workspace as GET /v1/journal shows it: id → its sequences."""
    found: dict[str, list[int]] = {}
    headers = {"Authorization": f"Bearer {stack.token}"}
    with httpx.Client(base_url=stack.url, headers=headers, timeout=60, trust_env=False) as client:
        wait_for(
            lambda: client.get("/v1/journal", params={"limit": 1, "min_seq": min_seq}).status_code == 200,
            f"the views to pass {min_seq}",
        )
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"limit": 500} | ({"cursor": cursor} if cursor else {})
            answer = client.get("/v1/journal", params=params)
            answer.raise_for_status()
            page = answer.json()
            for entry in page["entries"]:
                found.setdefault(entry["id"], []).append(entry["seq"])
            cursor = page["next_cursor"]
            if not cursor:
                return found


def count_entries(stack: Stack) -> int:
    """What GET /v1/journal/count says of the default workspace."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    answer = httpx.get(f"{stack.url}/v1/journal/count", headers=headers, timeout=60, trust_env=False)
    answer.raise_for_status()
    return int(answer.json()["count"])


def check_nothing_lost(
    stack: Stack, *accounts: Account, also: Callable[[dict[str, list[int]]], None] | None = None
) -> None:
    """Assert that every acked entry is there once, at the sequence that was acked, and that ``verify`` agrees."""
    acked: dict[str, int] = {}
    for account in accounts:
        acked |= account.acked
    found = all_entries(stack, max(acked.values()))
    lost = {name: seq for name, seq in acked.items() if name not in found}
    assert not lost, f"{len(lost)} of {len(acked)} acked entries are lost, the first {next(iter(lost.items()))}"
    doubled = {name: seqs for name, seqs in found.items() if len(seqs) > 1}
    assert not doubled, f"{len(doubled)} entries are there more than once: {next(iter(doubled.items()))}"
    moved = {name: (seq, found[name][0]) for name, seq in acked.items() if found[name] != [seq]}
    assert not moved, f"{len(moved)} entries are at another sequence than was acked: {next(iter(moved.items()))}"
    counted = count_entries(stack)
    assert len(found) <= counted <= len(all_entries(stack, max(acked.values()))), (
        "a sweep may record an entry meanwhile"
    )
    if also is not None:
        also(found)
    verified = stack.run("verify", "--json")
    assert verified.code == 0, f"verify: {verified.code}\n{verified.out}\n{verified.err}\n{stack.log_tail()}"
