"""Recall walks one hop along edges: over real views, for real tokens, by request or by the agent's registration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.events import EPOCH_MS, control, entry, link, vector
from support.recalling import AGENT, LEAD, MINI, OWNER, Fixture, recalling

from crew_journal.schemas.access.events import AgentRegistered
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.relations.events import RelationAsserted, RelationRetracted


def told(entry_id: str, summary: str, **fields: Any):
    return entry(entry_id, summary=summary, entry_type="peer.escalation", **fields)


@pytest.fixture
async def at_work(tmp_path: Path) -> AsyncIterator[Fixture]:
    """Two entries that a query finds by its word, and three neighbours it does not."""
    async with recalling(tmp_path) as made:
        await made.fold(
            MINI,
            told("hit1", "the parser broke"),
            told("near", "the build is red", ts_ms=EPOCH_MS + 5),
            told("nearer", "tests fail at night"),
            told("hit2", "the parser is slow"),
            told("far", "the cache was stale"),
            link("near", "hit1", src_seq=3, dst_seq=2, weight=0.85),
            link("nearer", "hit1", src_seq=4, dst_seq=2, weight=0.93),
            link("hit2", "hit1", src_seq=5, dst_seq=2, weight=0.99),
            link("far", "near", src_seq=6, dst_seq=3, weight=0.97),
            link("far", "hit2", src_seq=6, dst_seq=5, weight=0.88, relation="contradicts"),
        )
        yield made


async def walked(made: Fixture, principal: Any = OWNER, **fields: Any) -> list[tuple[str, Any]]:
    answer = await made.recall(principal, **{"recipe": "lexical", "walk_depth": 1, **fields})
    return [(hit.entry_id, hit.via and (hit.via.entry_id, hit.via.relation, hit.via.weight)) for hit in answer.hits]


async def test_neighbours_follow_the_hits_and_say_which_way_they_came(at_work: Fixture) -> None:
    hits = await walked(at_work)
    assert {name for name, _ in hits[:2]} == {"hit1", "hit2"}
    assert [via for _, via in hits[:2]] == [None, None]
    assert hits[2:] == [("nearer", ("hit1", "similar", 0.93)), ("near", ("hit1", "similar", 0.85))]
    answer = await at_work.recall(recipe="lexical", walk_depth=1)
    assert [hit.score for hit in answer.hits[2:]] == [0.93, 0.85]
    assert [hit.summary for hit in answer.hits[2:]] == ["tests fail at night", "the build is red"]


async def test_at_most_k_neighbours_are_appended(at_work: Fixture) -> None:
    assert [name for name, via in await walked(at_work, k=1) if via] in (["hit2"], ["hit1"])
    assert [name for name, _ in await walked(at_work, walk_depth=0)] == [n for n, v in await walked(at_work) if not v]


async def test_the_walk_calls_no_model(at_work: Fixture) -> None:
    """Seed 1: "deepen context without paying for another embedding round-trip"."""
    await at_work.fold(*(vector(f"hit{n}", entry_seq=seq, model="mini") for n, seq in ((1, 2), (2, 5))))
    await at_work.recall(recipe="dense", walk_depth=0)
    calls = at_work.embedder.calls
    answer = await at_work.recall(recipe="dense", walk_depth=1)
    assert at_work.embedder.calls == calls
    assert {hit.entry_id for hit in answer.hits if hit.via} == {"near", "nearer"}


async def test_a_retracted_edge_is_not_walked_and_an_asserted_one_is(at_work: Fixture) -> None:
    pair = {"src_entry_id": "nearer", "src_seq": 4, "dst_entry_id": "hit1", "dst_seq": 2, "relation": "similar"}
    await at_work.fold(control(RelationRetracted(**pair), "n1", workspace="w1"))
    assert [name for name, via in await walked(at_work) if via] == ["near"]
    await at_work.fold(link("nearer", "hit1", src_seq=4, dst_seq=2, weight=0.93))
    assert [name for name, via in await walked(at_work) if via] == ["near"]
    await at_work.fold(control(RelationAsserted(**pair, weight=0.5), "n2", workspace="w1"))
    assert [(name, via[2]) for name, via in await walked(at_work) if via] == [("near", 0.85), ("nearer", 0.5)]


async def test_a_neighbour_out_of_scope_is_not_shown(tmp_path: Path) -> None:
    async with recalling(tmp_path) as made:
        await made.fold(
            told("mine", "the parser broke"),
            told("ours", "the build is red", agent="a2"),
            told("theirs", "the night was long", agent="a3", crew="c2"),
            told("elsewhere", "the parser of others", workspace="w2"),
            link("ours", "mine", src_seq=2, dst_seq=1, weight=0.9),
            link("theirs", "mine", src_seq=3, dst_seq=1, weight=0.9),
            link("elsewhere", "mine", src_seq=4, dst_seq=1, weight=0.9),
            link("mine", "elsewhere", src_seq=4, dst_seq=1, weight=0.9, workspace="w2"),
        )
        assert [name for name, _ in await walked(made, AGENT)] == ["mine"]
        assert [name for name, _ in await walked(made, LEAD)] == ["mine", "ours"]
        assert {name for name, _ in await walked(made, OWNER)} == {"mine", "ours", "theirs"}
        assert [name for name, _ in await walked(made, OWNER, workspace_id="w2")] == ["elsewhere"]


async def test_left_out_the_depth_is_the_agents_own_and_off_by_default(at_work: Fixture) -> None:
    async def depth_used() -> int:
        answer = await at_work.recall(AGENT, recipe="lexical")
        return int(any(hit.via for hit in answer.hits))

    assert await depth_used() == 0
    for at_, depth in enumerate((1, 0, 1)):
        registered = AgentRegistered(agent_id="a1", memory_walk_depth=depth)
        await at_work.fold(control(registered, f"n{at_}", workspace="w1"))
        assert await depth_used() == depth
    await at_work.fold(control(AgentRegistered(agent_id="a1", memory_walk_depth=0), "n9", workspace="w2"))
    assert await depth_used() == 1
    assert not [via for _, via in await walked(at_work, AGENT, walk_depth=0) if via]


@pytest.mark.parametrize("depth", [-1, 2, True, "1", 1.0])
def test_no_other_depth_is_taken(depth: object) -> None:
    with pytest.raises(ValidationError, match="walk_depth"):
        RecallRequest(query="parser", walk_depth=depth)
