"""What a live tail that is not read keeps in memory, and when it is cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.recall import recorded

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import TooManyTails
from crew_journal.schemas.core.ports import CommittedBatch
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.entries.tables import ENTRIES_PROJECTION
from crew_journal.services.entries import live_tail
from crew_journal.services.entries.filters import parse_filters
from crew_journal.services.entries.live_tail import Cut, Idle, LiveTail, TailEntry
from crew_journal.services.entries.queries import Replay
from crew_journal.services.entries.rows import StoredEntry

WORKSPACE = recorded(1, "any").workspace_id
ADMIN = Principal(token_id="t1", role=Role.ADMIN, workspace_id=WORKSPACE)
OWNER = Principal(token_id="t2", role=Role.OWNER, workspace_id=None)


class Journal:
    """Views that commit what a test says, and queries over as many entries as it says; remembers what was read at once."""

    def __init__(self, replayed: int = 0) -> None:
        self.entries = {seq: recorded(seq, f"old {seq}") for seq in range(1, replayed + 1)}
        self.read: list[int] = []
        self.listener: Callable[[CommittedBatch], None] | None = None

    def subscribe(self, listener: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        self.listener = listener
        return lambda: None

    def commit(self, events: Sequence[EntryRecorded]) -> None:
        assert self.listener is not None
        names = frozenset({ENTRIES_PROJECTION})
        self.listener(CommittedBatch(events[0].seq, events[-1].seq, events, names))

    async def replay(self, *_: object, **__: object) -> Replay:
        return Replay(tuple(self.entries), 0, len(self.entries))

    async def replayed(self, _: Principal, seqs: Sequence[int], *, workspace: str | None) -> tuple[StoredEntry, ...]:
        self.read.append(len(seqs))
        return tuple(StoredEntry.of_event(self.entries[seq]) for seq in seqs)


def tail_of(journal: Any, **given: int) -> LiveTail:
    async def head() -> int:
        return 0

    return LiveTail(journal, journal, head=head, **given)


@asynccontextmanager
async def watched(tail: LiveTail, principal: Principal = ADMIN) -> AsyncIterator[Any]:
    events = tail.watch(principal, parse_filters([]), workspace=WORKSPACE, after=None, heartbeat_s=0.01)
    try:
        yield events
    finally:
        await events.aclose()


def sized(first: int, count: int, size: int) -> list[EntryRecorded]:
    return [replace(recorded(seq, f"new {seq}"), size=size) for seq in range(first, first + count)]


async def test_tails_that_are_not_read_share_what_was_committed() -> None:
    journal = Journal()
    tail = tail_of(journal)
    async with watched(tail) as one, watched(tail) as other:
        assert isinstance(await anext(one), Idle)
        assert isinstance(await anext(other), Idle)
        events = sized(1, 100, 500)
        journal.commit(events)
        held = [watcher.waiting for watcher in tail._watchers]
        assert all(kept is event for waiting in held for kept, event in zip(waiting, events, strict=True))
        assert (await anext(one)).entry.seq == 1


async def test_a_tail_that_leaves_too_many_bytes_unread_is_cut_with_where_to_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_tail, "WATCHER_BYTES", 10_000)
    journal = Journal()
    tail = tail_of(journal)
    async with watched(tail) as events:
        assert isinstance(await anext(events), Idle)
        journal.commit(sized(1, 12, 1_000))
        journal.commit(sized(13, 5, 1_000))
        (watcher,) = tail._watchers
        assert len(watcher.waiting) == 12, "what comes after the bound is not kept"
        seen = [event async for event in events]
        assert [event.entry.seq for event in seen[:-1]] == list(range(1, 13))
        assert seen[-1] == Cut("slow", 12)
        assert watcher.waiting_bytes == 0


async def test_a_commit_of_any_size_reaches_a_tail_that_had_kept_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail, "WATCHER_BYTES", 10_000)
    journal = Journal()
    tail = tail_of(journal)
    async with watched(tail) as events:
        assert isinstance(await anext(events), Idle)
        for first in (1, 31):
            journal.commit(sized(first, 30, 1_000))
            assert [(await anext(events)).entry.seq for _ in range(30)] == list(range(first, first + 30))


async def test_a_replay_is_read_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail, "REPLAY_PAGE", 4)
    journal = Journal(replayed=10)
    async with watched(tail_of(journal)) as events:
        assert (await anext(events)).entry.seq == 1
        assert journal.read == [4], "what is not asked for is not read"
        rest = [await anext(events) for _ in range(9)]
        assert [event.entry.seq for event in rest if isinstance(event, TailEntry)] == list(range(2, 11))
        assert journal.read == [4, 4, 2]


async def test_a_token_has_its_own_number_of_tails_and_the_nodes_operators_have_all() -> None:
    tail = tail_of(Journal(), per_token=1)
    tail.admit(ADMIN)
    async with watched(tail) as one, watched(tail, OWNER) as two:
        assert isinstance(await anext(one), Idle)
        assert isinstance(await anext(two), Idle)
        with pytest.raises(TooManyTails, match="1 live tails open; at most 1"):
            tail.admit(ADMIN)
        tail.admit(OWNER)
        tail.admit(ADMIN.model_copy(update={"token_id": "t3"}))
        async with watched(tail) as late:  # admitted at the same moment as the first
            assert [event async for event in late] == []
        assert tail.watchers == 2
    assert tail.watchers == 0
    tail.admit(ADMIN)
