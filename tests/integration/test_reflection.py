"""The nightly reflection over a real journal: contradictions and stale facts become entries once; nothing is deleted."""

from __future__ import annotations

from typing import Any

from support.memory_node import WORKSPACE, MemoryNode

from crew_journal.consumers.facts.reactor import ReflectReactor
from crew_journal.schemas.core.entry import ActorType
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import FactAsserted, FactEntity, FactVerified
from crew_journal.schemas.facts.names import entity_id


async def decided(node: MemoryNode, said: ControlPayload) -> None:
    recorded = await node.journal.record(WORKSPACE, said, summary="a fact", actor_type=ActorType.AGENT, actor_id="ada")
    await node.caught_up(recorded.seq)


async def assert_fact(node: MemoryNode, fact_id: str, value: str, **also: Any) -> None:
    subject, object_ = (FactEntity(entity_id=entity_id(name), name=name) for name in ("Ann", value))
    await decided(node, FactAsserted(fact_id=fact_id, subject=subject, predicate="lives in", object=object_, **also))


async def reflect(node: MemoryNode) -> dict[str, Any]:
    node.advance(minutes=20)
    finished: dict[str, Any] = await node.swept("reflection", await node.tick("reflection"))
    assert finished["error"] is None
    counts: dict[str, Any] = finished["counts"]
    return counts


async def test_contradictions_are_recorded_once_and_their_facts_and_stale_ones_are_to_be_verified(
    live: MemoryNode,
) -> None:
    await live.react(ReflectReactor)
    await assert_fact(live, "t_1", "Berlin", single_valued=True)
    await assert_fact(live, "t_2", "Hamburg")
    await assert_fact(live, "t_3", "Rome", namespace="team", half_life_hours=0.000001)
    await assert_fact(live, "t_4", "Oslo", namespace="lasting", fact_type="permanent")
    live.advance(hours=1)
    assert await reflect(live) == {"facts": 4, "conflicts": 1, "new_conflicts": 1, "stale": 1}
    [conflict] = live.entries("fact.conflict_found")
    assert (conflict["fact_ids"], conflict["subject"], conflict["kind"]) == (["t_1", "t_2"], "Ann", "values")
    asked = {entry["cause"]: entry["fact_ids"] for entry in live.entries("fact.verification_requested")}
    assert asked == {"conflict": ["t_1", "t_2"], "stale": ["t_3"]}

    assert (await reflect(live))["new_conflicts"] == 0
    assert len(live.entries("fact.conflict_found")) == 1
    assert len(live.entries("fact.verification_requested")) == 2
    await decided(live, FactVerified(fact_id="t_3"))
    wanted = live.store.rows(
        "SELECT fact_id FROM kg_facts WHERE until_seq IS NULL AND verify_asked_ms IS NOT NULL ORDER BY 1"
    )
    assert [fact_id for (fact_id,) in wanted] == ["t_1", "t_2"]
    assert live.store.rows("SELECT count(*) FROM kg_facts WHERE until_seq IS NULL") == [(4,)]
