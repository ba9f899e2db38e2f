"""Traps of the search of the original: what it lost, ranked too late, or let one entity or the last read decide."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from Stemmer import Stemmer
from support.memory_node import WORKSPACE, MemoryNode

from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.palace.events import DrawerFiled
from crew_journal.schemas.recall.events import MemoryReferenced, ReferencedEntry
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.palace.searching import DrawerSearch


@pytest.fixture
def drawers(live: MemoryNode) -> DrawerSearch:
    recall = live.recall_service
    return DrawerSearch(recall.cache, Analyzer(Stemmer), recall.queries, clock=lambda: datetime.now(UTC))


async def record(live: MemoryNode, *payloads: ControlPayload) -> list[str]:
    made = [await live.journal.record(WORKSPACE, one, summary="palace") for one in payloads]
    await live.caught_up(made[-1].seq)
    return [one.id for one in made]


def filed(name: str, content: str) -> DrawerFiled:
    return DrawerFiled(drawer_id=name, wing="w", room="r", content=content, memory_type="general")


def fact(number: int, subject: str, drawer: str) -> FactAsserted:
    one, other = (FactEntity(entity_id=entity_id(name), name=name) for name in (subject, f"thing {number}"))
    return FactAsserted(fact_id=f"f{number}", subject=one, predicate="has", object=other, source_drawer_id=drawer)


async def found(drawers: DrawerSearch, query: str, limit: int = 5) -> list[str]:
    return [hit.drawer.drawer_id for hit in (await drawers.search(WORKSPACE, query, limit))[0]]


async def test_a_drawer_of_the_graph_is_ranked_before_the_hits_are_cut(live: MemoryNode, drawers: DrawerSearch) -> None:
    await record(live, *(filed(f"word{n}", f"the terms of the deal, page {n}") for n in range(12)))
    await record(live, filed("offer", "she asked for 90 and got it"), fact(1, "Alice Smith", "offer"))
    assert "offer" in await found(drawers, "which terms did alice smith get in the deal?")


async def test_an_entity_of_many_facts_weighs_less_than_a_rare_one(live: MemoryNode, drawers: DrawerSearch) -> None:
    await record(live, *(filed(f"many{n}", f"page {n} of the report") for n in range(12)), filed("one", "it was late"))
    await record(live, *(fact(n, "Acme", f"many{n}") for n in range(12)), fact(12, "Alice Smith", "one"))
    assert (await found(drawers, "what about acme and alice smith?"))[0] == "one"


async def test_reading_a_drawer_does_not_put_it_before_a_new_one(live: MemoryNode, drawers: DrawerSearch) -> None:
    ids = await record(live, filed("a", "the disk ran over"), filed("b", "the disk ran over"))
    before = await found(drawers, "disk")
    for entry_id in ids:
        await record(live, MemoryReferenced(entries=(ReferencedEntry(entry_id=entry_id, count=9),)))
        assert await found(drawers, "disk") == before


async def test_identifiers_and_versions_are_found_by_their_characters(live: MemoryNode, drawers: DrawerSearch) -> None:
    await record(live, filed("a", "since 2.14.3 it fails with ERR_CONN_5021"), filed("b", "since 2.15.0 it is slow"))
    assert (await found(drawers, "2.14.3"))[0] == "a"
    assert await found(drawers, "ERR_CONN_5021") == ["a"]
