"""Writes of documents among entries: read, listed, streamed, counted by nudges, and left out of recall."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.events import document, entry
from support.recall import ANALYZER
from support.recalling import AGENT, NOW, Fixture, recalling

from bench.one_node import node_of
from crew_journal.schemas.access.operations import NudgesRequest
from crew_journal.schemas.core.errors import NotFound
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.services.context.nudges import NudgeService
from crew_journal.services.desk import Caller
from crew_journal.services.entries.filters import parse_filters
from crew_journal.services.entries.live_tail import LiveTail, TailEntry
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.recall.recall import RecallService

ADMIN = Principal(token_id="t", role=Role.ADMIN, workspace_id="w1")


@pytest.fixture
async def at_work(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with recalling(tmp_path) as made:
        yield made


def note(write_id: str, **given: Any) -> Any:
    return document(write_id, tier="AGENT", key=None, content="- the parser is green\n", **given)


async def test_recall_answers_alike_before_and_after_document_writes_and_after_a_load(at_work: Fixture) -> None:
    await at_work.fold(entry("e1", summary="the parser failed"), entry("e2", summary="the parser is slow"))
    before = await at_work.recall()
    assert {hit.entry_id for hit in before.hits} == {"e1", "e2"}
    await at_work.fold(note("w_1"), note("w_2", owner="c-c1"), note("w_1"))
    assert (await at_work.recall()).hits == before.hits
    await at_work.fold(note("w_3"), entry("e3", summary="the parser was rewritten"))
    followed = await at_work.recall()
    assert {hit.entry_id for hit in followed.hits} == {"e1", "e2", "e3"}
    at_work.service.close()
    at_work.service = RecallService(
        at_work.store, lambda _: None, analyzer=ANALYZER, budget_bytes=1 << 26, clock=lambda: NOW
    )
    assert (await at_work.recall()).hits == followed.hits


async def test_a_write_is_read_by_its_id_and_listed_where_its_owner_may_read_it(at_work: Fixture) -> None:
    await at_work.fold(entry("e1"), note("w_1"), note("w_2", owner="a-a2"), note("w_3", owner="c-c1"), note("w_1"))
    queries = JournalQueries(at_work.store)
    try:
        found = await queries.get(ADMIN, "w_1")
        assert (found.entry.seq, found.entry.record["entry_type"]) == (2, "memory.updated")
        assert found.entry.record["live_priority"] == "normal"
        updates = parse_filters([("types", "memory.updated")])
        listed = await queries.list(ADMIN, updates)
        assert [entry.id for entry in listed.entries] == ["w_3", "w_2", "w_1"]
        assert [entry.id for entry in (await queries.list(AGENT, updates)).entries] == ["w_1"]
        assert (await queries.count(ADMIN, parse_filters([]))).count == 4
        with pytest.raises(NotFound):
            await queries.get(AGENT, "w_2")
        assert (await queries.list(ADMIN, parse_filters([("q", "parser")]))).entries[0].id == "e1"
    finally:
        queries.close()


async def test_a_live_tail_shows_each_write_once_in_its_place(at_work: Fixture) -> None:
    await at_work.fold(entry("e1"))
    queries = JournalQueries(at_work.store)

    async def head() -> int:
        return at_work.seq

    tail = LiveTail(at_work.store, queries, head=head)
    events = tail.watch(ADMIN, parse_filters([]), workspace=None, after=1, heartbeat_s=0.01)
    try:
        await anext(events)  # idle: it watches
        await at_work.fold(note("w_1"), entry("e2"), note("w_1"), note("w_2"))
        await at_work.fold(note("w_2"), entry("e3"))
        seen: list[TailEntry] = []
        while len(seen) < 4:
            if isinstance(event := await anext(events), TailEntry):
                seen.append(event)
        assert [(one.entry.seq, one.entry.id) for one in seen] == [(2, "w_1"), (3, "e2"), (5, "w_2"), (7, "e3")]
        stored = await queries.get(ADMIN, "w_1")
        live, read = (json.loads(one.to_json()) for one in (seen[0].entry, stored.entry))
        assert live == read
    finally:
        await events.aclose()
        queries.close()


class OfferLog:
    """Records offers nowhere; each is the first."""

    async def record(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(id="n1", seq=1, duplicate=False)


@pytest.mark.parametrize(("owner", "offered"), [("a-a1", []), ("a-a2", ["memory"]), ("c-a1", ["memory"])])
async def test_a_write_of_the_agents_document_resets_its_nudge(
    at_work: Fixture, owner: str, offered: list[str]
) -> None:
    await at_work.fold(*(entry(f"e{i}") for i in range(40)))
    nudges = NudgeService(node_of(at_work.store, journal=OfferLog(), clock=lambda: NOW))
    caller = Caller.of(AGENT)
    before = await nudges.offer(caller, NudgesRequest(session_id="s1"))
    assert [nudge.kind for nudge in before.nudges] == ["memory"]
    await at_work.fold(note("w_1", owner=owner))
    after = await nudges.offer(caller, NudgesRequest(session_id="s2"))
    assert [nudge.kind for nudge in after.nudges] == offered
