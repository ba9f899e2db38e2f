"""What becomes of relations: who outweighs whom, which way an edge is stored, what a rule supports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control, entry, link
from support.views import node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.rebuild import verify
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.relations.events import RelationAsserted, RelationRetracted
from crew_journal.schemas.relations.rules import Authority, is_turned, outweighs
from crew_journal.schemas.relations.tables import RELATIONS

PAIR: dict[str, Any] = {"src_entry_id": "e2", "src_seq": 2, "dst_entry_id": "e1", "dst_seq": 1}
TOLD = [entry("e1"), entry("e2"), entry("e3")]


def asserted(
    event_id: str, relation: str = "similar", weight: float = 1.0, by: str = "user", **also: Any
) -> OutgoingMessage:
    said = RelationAsserted(**{**PAIR, "relation": relation, "weight": weight, "reason": "Ada saw it", **also})
    return control(said, event_id, workspace="w1", actor_type=by)


def retracted(event_id: str, relation: str = "similar", by: str = "user", **also: Any) -> OutgoingMessage:
    said = RelationRetracted(**{**PAIR, "relation": relation, "reason": "both hold", **also})
    return control(said, event_id, workspace="w1", actor_type=by)


def rule(evidence: object, rule_id: str = "r1", *, of_the_service: bool = True) -> OutgoingMessage:
    crew, agent = (None, None) if of_the_service else ("c1", "a1")
    return entry(
        rule_id,
        entry_type="memory.consolidated",
        control=of_the_service,
        crew=crew,
        agent=agent,
        refs={"evidence": evidence},
    )


async def edges(path: Path, *messages: OutgoingMessage) -> tuple[list[dict[str, Any]], set[int]]:
    """The rows by sequence, and what was parked; a rebuild must give the same."""
    stream = [at(seq, message) for seq, message in enumerate([*TOLD, *messages], 1)]
    relations = [one for one in discover_projections() if RELATIONS in one.tables]
    async with node(path / "v.duckdb", relations) as live:
        await live.host.fold(stream[: len(stream) // 2])
        await live.host.fold(stream[len(stream) // 2 :])
        parked = {p.message.seq for p in live.dead.parked}
        assert all(result.equal for result in await verify(live.host, source_of(stream), memory_mb=128))
        table = live.store.columns(
            "SELECT * EXCLUDE (key, authority) FROM memory_relations ORDER BY created_at, dst_entry_id"
        )
        return table.to_pylist(), parked


async def test_a_similar_fact_becomes_one_derived_edge_however_often_it_comes(tmp_path: Path) -> None:
    """Contract §7: idempotent, one-directional new to old (seed 1, "Memory relations"; contract §0 row 1)."""
    rows, parked = await edges(tmp_path, link(), link(), link())
    assert rows == [
        {
            "workspace_id": "w1", "src_entry_id": "e2", "dst_entry_id": "e1", "relation": "similar", "weight": 0.9,
            "state": "derived", "src_seq": 2, "dst_seq": 1, "crew_id": "c1", "reason": "",
            "created_at": EPOCH_MS + 40, "seq": 6, "since_ms": None,
        }
    ]  # fmt: skip
    assert not parked


async def test_a_symmetric_edge_leads_from_the_newer_entry_whoever_names_it(tmp_path: Path) -> None:
    backwards = link("e1", "e2", src_seq=1, dst_seq=2)
    other_way = asserted("n1", src_entry_id="e1", src_seq=1, dst_entry_id="e2", dst_seq=2)
    [row], _ = await edges(tmp_path, backwards, other_way)
    assert (row["src_entry_id"], row["src_seq"], row["dst_entry_id"], row["dst_seq"]) == ("e2", 2, "e1", 1)
    assert (row["state"], row["created_at"]) == ("asserted", EPOCH_MS + 40)


async def test_supports_keeps_its_direction(tmp_path: Path) -> None:
    backwards = link("e1", "e2", src_seq=1, dst_seq=2, relation="supports", weight=1.0)
    [row], _ = await edges(tmp_path, backwards)
    assert (row["src_entry_id"], row["dst_entry_id"], row["state"]) == ("e1", "e2", "derived")


async def test_a_contradiction_of_the_detector_is_only_proposed_with_its_confidence(tmp_path: Path) -> None:
    [row], _ = await edges(tmp_path, link(relation="contradicts", weight=0.7, reason="30 s is not 60 s"))
    assert (row["state"], row["weight"], row["reason"]) == ("proposed", 0.7, "30 s is not 60 s")


async def test_the_same_pair_may_be_similar_and_contradict(tmp_path: Path) -> None:
    rows, _ = await edges(tmp_path, link(), link(relation="contradicts"))
    assert [row["relation"] for row in rows] == ["similar", "contradicts"]


async def test_an_assertion_outweighs_what_a_reactor_says_before_and_after(tmp_path: Path) -> None:
    [row], _ = await edges(
        tmp_path,
        link(relation="contradicts", weight=0.6),
        asserted("n1", "contradicts", 0.95),
        link(relation="contradicts"),
    )
    assert (row["state"], row["weight"], row["reason"], row["seq"]) == ("asserted", 0.95, "Ada saw it", 5)
    assert (row["crew_id"], row["created_at"]) == ("c1", EPOCH_MS + 40)


async def test_what_is_retracted_comes_back_by_an_assertion_only(tmp_path: Path) -> None:
    [row], _ = await edges(tmp_path, link(), retracted("n1"), link(weight=0.99))
    assert (row["state"], row["weight"], row["reason"]) == ("retracted", 0.9, "both hold")
    again = tmp_path / "again"
    again.mkdir()
    [row], _ = await edges(again, link(), retracted("n1"), link(weight=0.99), asserted("n2", weight=0.5))
    assert (row["state"], row["weight"]) == ("asserted", 0.5)


async def test_a_fact_that_comes_after_its_retraction_does_not_count_either(tmp_path: Path) -> None:
    [row], _ = await edges(tmp_path, retracted("n1"), link())
    assert row["state"] == "retracted"


async def test_a_consolidated_rule_supports_each_entry_it_names_once(tmp_path: Path) -> None:
    """[TRAP] contract §7: ``LinkSupports`` had no caller; here the edges follow from the rule's own entry."""
    rows, parked = await edges(tmp_path, rule(["e1", "e2", "e1"]))
    assert [(r["src_entry_id"], r["dst_entry_id"], r["relation"], r["weight"], r["state"]) for r in rows] == [
        ("r1", "e1", "supports", 1.0, "derived"),
        ("r1", "e2", "supports", 1.0, "derived"),
    ]
    assert {(r["src_seq"], r["dst_seq"]) for r in rows} == {(4, None)}
    assert not parked


@pytest.mark.parametrize("evidence", [[], None, "e1", [7, None, "no id!", "_", "r1"], {"e1": 1}])
async def test_evidence_that_names_nothing_is_a_no_op(tmp_path: Path, evidence: object) -> None:
    assert await edges(tmp_path, rule(evidence)) == ([], set())


async def test_an_agent_cannot_make_a_rule(tmp_path: Path) -> None:
    rows, parked = await edges(tmp_path, rule(["e1"], of_the_service=False))
    assert (rows, parked) == ([], {4})


async def test_relations_with_oneself_or_the_future_are_parked(tmp_path: Path) -> None:
    rows, parked = await edges(
        tmp_path,
        asserted("n1", src_entry_id="e1", src_seq=1),
        retracted("n2", src_seq=99),
        asserted("n3", dst_seq=2),
        link("e1", "e1", src_seq=1, dst_seq=1),
    )
    assert (rows, parked) == ([], {4, 5, 6, 7})


async def test_two_workspaces_have_edges_of_their_own(tmp_path: Path) -> None:
    rows, _ = await edges(tmp_path, link(), link(workspace="w2", weight=0.8), retracted("n1"))
    assert {(row["workspace_id"], row["state"]) for row in rows} == {("w1", "retracted"), ("w2", "derived")}


async def test_an_agent_neither_lowers_nor_revives_what_an_operator_said(tmp_path: Path) -> None:
    rows, parked = await edges(
        tmp_path,
        asserted("n1", "contradicts", 0.95),
        asserted("n2", "contradicts", 0.1, by="agent"),
        retracted("n3", "contradicts", by="agent"),
        retracted("n4"),
        asserted("n5", by="agent"),
    )
    assert [(row["relation"], row["state"], row["weight"]) for row in rows] == [
        ("contradicts", "asserted", 0.95),
        ("similar", "retracted", 0.0),
    ]
    assert not parked


async def test_an_operator_overrules_an_agent_and_among_agents_the_last_word_holds(tmp_path: Path) -> None:
    [row], _ = await edges(tmp_path, asserted("n1", by="agent"), asserted("n2", weight=0.4, by="agent"))
    assert (row["state"], row["weight"]) == ("asserted", 0.4)
    again = tmp_path / "again"
    again.mkdir()
    [row], _ = await edges(again, link(), retracted("n1", by="agent"), asserted("n2", weight=0.7), link())
    assert (row["state"], row["weight"]) == ("asserted", 0.7)


AUTHORITIES = st.sampled_from(list(Authority))


@given(AUTHORITIES, st.one_of(st.none(), AUTHORITIES))
def test_operators_outweigh_agents_and_those_reactors_and_never_the_reverse(
    new: Authority, known: Authority | None
) -> None:
    order = [Authority.REACTOR, Authority.AGENT, Authority.OPERATOR]
    assert outweighs(new, known) == (known is None or order.index(new) >= order.index(known))


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_symmetric_edge_is_turned_exactly_if_its_destination_is_newer(src: int, dst: int) -> None:
    assert is_turned("similar", src, dst) == is_turned("contradicts", src, dst) == (dst > src)
    assert not is_turned("supports", src, dst)
    assert not is_turned("similar", src, None)
