"""What becomes of facts and entities in the view, and what was known at a sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from Stemmer import Stemmer
from support.events import at, control
from support.views import node, source_of

from crew_journal.consumers.facts.fold import FactsProjection
from crew_journal.consumers.host.rebuild import verify
from crew_journal.consumers.models.activations_fold import ActivationsProjection
from crew_journal.consumers.models.chunk_vectors_fold import ChunkVectorsProjection
from crew_journal.consumers.models.vectors_fold import VectorsProjection
from crew_journal.consumers.projection import Projection
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import EntityNamed, FactAsserted, FactEnded, FactEntity, FactVerified
from crew_journal.schemas.facts.names import second_of, span_of
from crew_journal.schemas.palace.events import DrawerDeleted, DrawerRestored, DrawerSuperseded
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.facts.index import fact_indexes
from crew_journal.services.index.cache import HotCache


def entity(name: str, kind: str = "entity") -> FactEntity:
    return FactEntity(entity_id=f"e_{name.lower()}", name=name, type=kind)


def asserted(event_id: str, fact_id: str = "t1", **also: Any) -> OutgoingMessage:
    given: dict[str, Any] = {"subject": entity("Backend"), "predicate": "uses", "object": entity("MongoDB"), **also}
    workspace = given.pop("workspace", "w1")
    return control(FactAsserted(fact_id=fact_id, **given), event_id, workspace=workspace, actor_type="agent")


def ended(event_id: str, *fact_ids: str, on: str = "2025-01-14") -> OutgoingMessage:
    return control(FactEnded(fact_ids=fact_ids, ended=on), event_id, workspace="w1", actor_type="user")


async def rows(path: Path, sql: str, *messages: OutgoingMessage) -> list[dict[str, Any]]:
    """The result after all messages, folded in two batches; a rebuild must give the same."""
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "v.duckdb", [FactsProjection()]) as live:
        await live.host.fold(stream[: len(stream) // 2])
        await live.host.fold(stream[len(stream) // 2 :])
        assert not live.dead.parked
        assert all(result.equal for result in await verify(live.host, source_of(stream), memory_mb=128))
        found: list[dict[str, Any]] = live.store.columns(sql).to_pylist()
        return found


async def test_an_ended_fact_keeps_the_row_that_had_no_end(tmp_path: Path) -> None:
    sql = "SELECT valid_to, asserted_by_type, ended_by_type, since_seq, until_seq FROM kg_facts ORDER BY since_seq"
    open_row, closed = await rows(tmp_path, sql, asserted("n1"), ended("n2", "t1"))
    assert (open_row["valid_to"], open_row["since_seq"], open_row["until_seq"]) == (None, 1, 2)
    assert (closed["valid_to"], closed["since_seq"], closed["until_seq"]) == ("2025-01-14", 2, None)
    assert (closed["asserted_by_type"], closed["ended_by_type"]) == ("agent", "user")


async def test_what_ends_today_ended_when_that_was_said_and_other_days_are_whole(tmp_path: Path) -> None:
    said = at(1, asserted("n1")).published_ms
    today = second_of(said)[:10]
    sql = "SELECT valid_to, to_ms FROM kg_facts WHERE until_seq IS NULL ORDER BY fact_id"
    found = await rows(
        tmp_path,
        sql,
        asserted("n1"),
        asserted("n2", "t2"),
        ended("n3", "t1", on=today),
        ended("n4", "t2", on="2099-01-01"),
    )
    now, later = found
    assert now["valid_to"] == today
    assert now["to_ms"] < at(3, asserted("n1")).published_ms
    assert later["to_ms"] == span_of("2099-01-01").last_ms


async def test_the_first_assertion_and_the_first_end_count(tmp_path: Path) -> None:
    sql = "SELECT predicate, valid_to FROM kg_facts WHERE until_seq IS NULL"
    again = asserted("n2", predicate="loves")
    found = await rows(
        tmp_path, sql, asserted("n1"), again, ended("n3", "t1", "t9"), ended("n4", "t1", on="2026-01-01")
    )
    assert found == [{"predicate": "uses", "valid_to": "2025-01-14"}]


async def test_an_assertion_makes_an_entity_more_specific_and_never_less(tmp_path: Path) -> None:
    sql = "SELECT name, type, since_seq FROM kg_entities WHERE until_seq IS NULL AND entity_id = 'e_mongodb'"
    tool = asserted("n2", "t2", object=entity("MongoDB", "tool"))
    person = asserted("n4", "t4", object=entity("MongoDB", "person"))
    found = await rows(tmp_path, sql, asserted("n1"), tool, asserted("n3", "t3"), person)
    assert found == [{"name": "MongoDB", "type": "tool", "since_seq": 2}]


async def test_a_name_for_an_entity_replaces_its_type_and_moves_aliases(tmp_path: Path) -> None:
    sql = "SELECT entity_id, type, alias_of FROM kg_entities WHERE until_seq IS NULL ORDER BY entity_id"
    named = EntityNamed(entity=entity("MongoDB", "database"), aliases=(entity("Mongo"), entity("M")))
    dropped = EntityNamed(entity=entity("MongoDB", "database"), dropped_aliases=(entity("M"),))
    found = await rows(
        tmp_path, sql, asserted("n1"), control(named, "n2", workspace="w1"), control(dropped, "n3", workspace="w1")
    )
    assert [tuple(row.values()) for row in found] == [
        ("e_backend", "entity", None),
        ("e_m", "entity", None),
        ("e_mongo", "entity", "e_mongodb"),
        ("e_mongodb", "database", None),
    ]


async def test_the_facts_of_the_workspace_that_was_used_longest_ago_leave_memory_first(tmp_path: Path) -> None:
    stream = [at(n, asserted(f"n{n}", workspace=name)) for n, name in enumerate(("w1", "w2", "w3"), 1)]
    views: list[Projection] = [
        FactsProjection(),
        ActivationsProjection(),
        VectorsProjection(),
        ChunkVectorsProjection(),
    ]
    async with node(tmp_path / "v.duckdb", views) as live:
        await live.host.fold(stream)
        cache = HotCache(live.store, 1 << 20)
        indexes = fact_indexes(cache, Analyzer(Stemmer))
        first, second = [await indexes.get(name) for name in ("w1", "w2")]
        assert [await indexes.get(name) for name in ("w1", "w2", "w1")] == [first, second, first]
        cache.budget_bytes = cache.nbytes + first.nbytes // 2  # two workspaces of one fact
        await indexes.get("w3")
        assert await indexes.get("w1") is first
        assert await indexes.get("w2") is not second
        cache.close()


def found_in(drawer: str, event_id: str, fact_id: str, **also: Any) -> OutgoingMessage:
    """A fact that a reactor found in a drawer."""
    given: dict[str, Any] = {"subject": entity("Backend"), "predicate": "uses", "object": entity("MongoDB"), **also}
    said = FactAsserted(fact_id=fact_id, source_drawer_id=drawer, valid_from="2026-01-01", **given)
    return control(said, event_id, workspace="w1", actor_type="system")


def of_drawer(payload: ControlPayload, event_id: str) -> OutgoingMessage:
    return control(payload, event_id, workspace="w1", actor_type="system")


VALID = "SELECT fact_id, valid_to, end_reason FROM kg_facts WHERE until_seq IS NULL ORDER BY fact_id"
MAY_MS = 1_777_636_800_000  # 2026-05-01T12:00:00Z


async def test_what_a_reactor_found_ends_with_its_drawer_and_nothing_else_does(tmp_path: Path) -> None:
    superseded = DrawerSuperseded(drawer_id="d1", superseded_by="d2", until_ms=MAY_MS)
    found = await rows(
        tmp_path,
        VALID,
        found_in("d1", "n1", "t1"),
        found_in("d2", "n2", "t2"),
        asserted("n3", "t3", source_drawer_id="d1"),
        of_drawer(superseded, "n4"),
    )
    ends = {one["fact_id"]: one["valid_to"] for one in found}
    assert ends == {"t1": "2026-05-01T11:59:59Z", "t2": None, "t3": None}


async def test_facts_hold_again_once_their_drawer_is_restored_but_not_those_that_were_ended(tmp_path: Path) -> None:
    found = await rows(
        tmp_path,
        VALID,
        found_in("d1", "n1", "t1"),
        found_in("d1", "n2", "t2", object=entity("Redis")),
        ended("n3", "t2", on="2026-02-01"),
        of_drawer(DrawerDeleted(drawer_id="d1"), "n4"),
        of_drawer(DrawerRestored(drawer_id="d1"), "n5"),
    )
    assert {one["fact_id"]: one["valid_to"] for one in found} == {"t1": None, "t2": "2026-02-01"}
    assert found[0]["end_reason"] == ""


async def test_a_fact_that_a_later_drawer_states_outlives_the_first_one(tmp_path: Path) -> None:
    again = FactVerified(fact_id="t1", source_drawer_id="d2")
    gone = of_drawer(DrawerDeleted(drawer_id="d1"), "n3")
    first = await rows(tmp_path, VALID, found_in("d1", "n1", "t1"), of_drawer(again, "n2"), gone)
    assert first[0]["valid_to"] is None
