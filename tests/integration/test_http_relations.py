"""Relations, neighbourhoods and agents over HTTP: who may say and see what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.events import link
from support.stack import DEADLINE_S, Stack, running_stack

from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal


@dataclass
class World:
    """One workspace with two crews, another with the same ids, and a client for each role."""

    stack: Stack
    owner: AsyncCrewJournal
    admin: AsyncCrewJournal
    lead: AsyncCrewJournal
    agent: AsyncCrewJournal
    other_agent: AsyncCrewJournal
    stranger: AsyncCrewJournal
    tokens: dict[str, str]
    seq: dict[str, int]

    async def http(self, who: str, method: str, path: str, **also: Any) -> tuple[int, Any]:
        async with self.stack.http(self.tokens[who]) as http:
            answer = await http.request(method, path, **also)
            return answer.status_code, answer.json()

    async def link(self, src: str, dst: str, **also: Any) -> int:
        """Publish a link fact; the views have passed it afterwards."""
        message = link(src, dst, src_seq=self.seq[src], dst_seq=self.seq[dst], workspace="acme", **also)
        seq = (await self.stack.writer.publish(message.subject, message.body, message.headers)).seq
        await self.stack.store.wait_for(seq, DEADLINE_S)
        return seq


ROWS = [
    ("own1", "ada", "core", "The upload timeout is 30 s"),
    ("own2", "ada", "core", "The upload timeout is 60 s"),
    ("crew1", "bruno", "core", "The parser broke"),
    ("crew2", "bruno", "core", "The parser broke again"),
    ("far1", "cleo", "edge", "The night was long"),
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with small_world(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
async def unchanged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One for the tests in which everything is refused."""
    async with small_world(tmp_path_factory.mktemp("unchanged")) as made:
        yield made


@asynccontextmanager
async def small_world(folder: Path) -> AsyncIterator[World]:
    async with running_stack(folder) as stack:
        tokens = {
            "admin": (await stack.token(Role.ADMIN, "acme")).plaintext,
            "lead": (await stack.token(Role.LEAD, "acme", agent="lena", crew="core")).plaintext,
            "agent": (await stack.token(Role.AGENT, "acme", agent="ada", crew="core")).plaintext,
            "other_agent": (await stack.token(Role.AGENT, "acme", agent="bruno", crew="core")).plaintext,
            "stranger": (await stack.token(Role.OWNER, "globex")).plaintext,
        }
        clients = {name: stack.client(token) for name, token in tokens.items()}
        owner = stack.client()
        seq = {}
        for entry_id, agent, crew, summary in ROWS:
            for workspace in ("acme", "globex") if entry_id == "own1" else ("acme",):
                entry = {"id": entry_id, "workspace_id": workspace, "agent_id": agent, "crew_id": crew}
                receipt = await owner.append({**entry, "entry_type": "peer.escalation", "summary": summary})
                if workspace == "acme":
                    seq[entry_id] = receipt.seq
        await stack.store.wait_for(seq["far1"], DEADLINE_S)
        try:
            yield World(stack, owner, **clients, tokens=tokens | {"owner": stack.owner}, seq=seq)
        finally:
            for client in (owner, *clients.values()):
                await client.close()


async def test_an_assertion_becomes_an_edge_from_the_newer_entry(world: World) -> None:
    said = await world.agent.relate("own1", "own2", "refutes", reason="measured today")  # type: ignore[arg-type]  # an alias that the service accepts
    assert (said.src_entry_id, said.dst_entry_id, said.relation, said.state) == (
        "own2",
        "own1",
        "contradicts",
        "asserted",
    )
    found = await world.agent.graph("own1", min_seq=said.seq)
    assert [(node.id, node.depth) for node in found.nodes] == [("own1", 0), ("own2", 1)]
    [edge] = found.edges
    assert (edge.src, edge.dst, edge.relation, edge.weight, edge.state, edge.reason) == (
        "own2", "own1", "contradicts", 1.0, "asserted", "measured today",
    )  # fmt: skip
    recorded = await world.agent.list(types=["memory.relation_asserted"], min_seq=said.seq)
    assert [(entry.agent_id, entry.crew_id, entry.actor_id) for entry in recorded.entries] == [("ada", "core", "ada")]


async def test_an_entry_that_was_just_written_can_be_related_at_once(world: World) -> None:
    receipt = await world.agent.append({"entry_type": "run.completed", "summary": "The limit is 90 s"})
    said = await world.agent.relate(receipt.id, "own1", "contradicts", min_seq=receipt.seq)
    assert said.src_entry_id == receipt.id


async def test_what_may_not_be_read_cannot_be_related_and_looks_unknown(world: World) -> None:
    """Foreign id → 404 alike unknown, at either end."""
    pairs = [("own1", "crew1"), ("crew1", "own1"), ("own1", "far1"), ("own1", "nobody"), ("nobody", "own1")]
    answers = []
    for src, dst in pairs:
        said = {"dst_entry_id": dst, "relation": "contradicts"}
        status, problem = await world.http("agent", "POST", f"/v1/journal/{src}/relations", json=said)
        answers.append((status, problem["title"], problem["detail"].replace(src, "X").replace(dst, "X")))
    assert set(answers) == {(404, "Not found", "no entry X")}
    with pytest.raises(NotFound):
        await world.lead.relate("crew1", "far1", "supports")
    assert (await world.lead.relate("crew2", "crew1", "supports")).seq
    assert (await world.admin.relate("crew1", "far1", "supports")).seq


async def test_an_agent_cannot_assert_similarity_and_an_entry_cannot_relate_to_itself(world: World) -> None:
    with pytest.raises(NotAllowed, match="contradicts and supports"):
        await world.agent.relate("own1", "own2", "similar")
    assert (await world.lead.relate("crew1", "crew2", "similar", weight=0.5)).weight == 0.5
    with pytest.raises(InvalidQuery, match="itself"):
        await world.agent.relate("own1", "own1", "contradicts")


async def test_another_workspace_is_refused_and_its_ids_are_unknown(world: World) -> None:
    with pytest.raises(NotAllowed):
        await world.agent.relate("own1", "own2", "contradicts", workspace_id="globex")
    with pytest.raises(NotFound):
        await world.stranger.relate("own1", "own2", "contradicts")
    with pytest.raises(NotFound):
        await world.owner.relate("own1", "own2", "contradicts", workspace_id="globex")
    said = await world.agent.relate("own1", "own2", "contradicts")
    theirs = await world.stranger.graph("own1", min_seq=said.seq)
    assert ([node.id for node in theirs.nodes], theirs.edges) == (["own1"], ())


async def test_the_asserting_actor_and_administrators_may_retract(world: World) -> None:
    said = await world.agent.relate("own2", "own1", "contradicts")
    with pytest.raises(NotAllowed, match="the agent that alone asserted"):
        await world.lead.unrelate("own1", "own2", "contradicts", min_seq=said.seq)
    gone = await world.agent.unrelate("own1", "own2", "contradicts", reason="both hold", min_seq=said.seq)
    assert (gone.state, gone.src_entry_id) == ("retracted", "own2")
    assert (await world.agent.graph("own1", min_seq=gone.seq)).edges == ()
    with pytest.raises(NotFound, match="no relation"):
        await world.agent.unrelate("own1", "own2", "contradicts", min_seq=gone.seq)
    again = await world.agent.relate("own2", "own1", "contradicts", min_seq=gone.seq)
    gone = await world.admin.unrelate("own2", "own1", "contradicts", min_seq=again.seq)
    assert (await world.agent.graph("own1", min_seq=gone.seq)).edges == ()


async def test_saying_again_what_another_said_gives_no_right_to_take_it_back(world: World) -> None:
    said = await world.lead.relate("own2", "own1", "contradicts", reason="measured twice")
    mine = await world.agent.relate("own2", "own1", "contradicts", weight=0.01, min_seq=said.seq)
    with pytest.raises(NotAllowed, match="the agent that alone asserted"):
        await world.agent.unrelate("own2", "own1", "contradicts", min_seq=mine.seq)
    gone = await world.admin.unrelate("own2", "own1", "contradicts", min_seq=mine.seq)
    assert gone.state == "retracted"


async def test_an_agent_neither_lowers_nor_revives_what_an_admin_said(world: World) -> None:
    said = await world.admin.relate("own2", "own1", "contradicts", reason="measured twice")
    with pytest.raises(NotAllowed, match="OWNER or ADMIN has asserted"):
        await world.agent.relate("own2", "own1", "contradicts", weight=0.01, min_seq=said.seq)
    with pytest.raises(NotAllowed, match="the agent that alone asserted"):
        await world.agent.unrelate("own2", "own1", "contradicts", min_seq=said.seq)
    gone = await world.admin.unrelate("own2", "own1", "contradicts", min_seq=said.seq)
    with pytest.raises(NotAllowed, match="OWNER or ADMIN has asserted"):
        await world.agent.relate("own2", "own1", "contradicts", min_seq=gone.seq)
    again = await world.admin.relate("own2", "own1", "contradicts", min_seq=gone.seq)
    assert [edge.state for edge in (await world.agent.graph("own1", min_seq=again.seq)).edges] == ["asserted"]


async def test_saying_again_what_a_reactor_found_gives_no_right_to_take_it_back(world: World) -> None:
    seq = await world.link("own2", "own1", relation="contradicts", weight=0.9)
    mine = await world.agent.relate("own2", "own1", "contradicts", min_seq=seq)
    with pytest.raises(NotAllowed, match="the agent that alone asserted"):
        await world.agent.unrelate("own2", "own1", "contradicts", min_seq=mine.seq)


async def test_what_a_reactor_found_only_administrators_retract_for_good(world: World) -> None:
    seq = await world.link("own2", "own1", relation="contradicts", weight=0.9)
    with pytest.raises(NotAllowed):
        await world.agent.unrelate("own2", "own1", "contradicts", min_seq=seq)
    gone = await world.admin.unrelate("own2", "own1", "contradicts", reason="no", min_seq=seq)
    seq = await world.link("own2", "own1", relation="contradicts", weight=0.99, reason="again")
    found = await world.agent.graph("own1", min_seq=max(seq, gone.seq))
    assert found.edges == ()


async def test_a_relation_that_is_not_there_is_not_found(unchanged: World) -> None:
    for src, dst, relation in (
        ("own1", "own2", "supports"),
        ("own1", "crew1", "contradicts"),
        ("own1", "no", "similar"),
    ):
        with pytest.raises(NotFound):
            await unchanged.agent.unrelate(src, dst, relation)  # type: ignore[arg-type]  # as parametrised


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dst_entry_id": "own2"},
        {"dst_entry_id": "own2", "relation": "likes"},
        {"dst_entry_id": "own2", "relation": "contradicts", "weight": 0},
        {"dst_entry_id": "own2", "relation": "contradicts", "weight": 1.5},
        {"dst_entry_id": "own2", "relation": "contradicts", "src_entry_id": "own1"},
        {"dst_entry_id": "no id!", "relation": "contradicts"},
        {"dst_entry_id": "own2", "relation": "contradicts", "reason": "x" * 1_001},
    ],
)
async def test_a_malformed_relation_is_refused_by_field(unchanged: World, body: dict[str, Any]) -> None:
    status, problem = await unchanged.http("admin", "POST", "/v1/journal/own1/relations", json=body)
    assert status == 422
    assert problem["problems"]


async def test_a_neighbourhood_goes_as_deep_as_asked_and_by_the_relation_asked(world: World) -> None:
    """[TRAP] contract §7: their lookup of relations was outbound only; here own1 is reached by edges that lead to it."""
    await world.link("own2", "own1", weight=0.9)
    await world.link("crew1", "own2", weight=0.85)
    await world.link("crew2", "crew1", weight=0.95)
    seq = await world.link("crew1", "own1", relation="contradicts", weight=0.7)
    shown = {}
    for depth in (1, 2, 3):
        found = await world.admin.graph("own1", depth=depth, relation="similar", min_seq=seq)
        shown[depth] = [(node.id, node.depth) for node in found.nodes]
        assert not found.truncated
    assert shown[1] == [("own1", 0), ("own2", 1)]
    assert shown[2] == [*shown[1], ("crew1", 2)]
    assert shown[3] == [*shown[2], ("crew2", 3)]
    every = await world.admin.graph("own1", min_seq=seq)
    assert [node.id for node in every.nodes] == ["own1", "own2", "crew1"], "heaviest edge first"
    assert {(edge.src, edge.dst, edge.relation) for edge in every.edges} == {
        ("own2", "own1", "similar"), ("crew1", "own2", "similar"), ("crew1", "own1", "contradicts"),
    }  # fmt: skip
    cut = await world.admin.graph("own1", depth=3, limit=2, min_seq=seq)
    assert ([node.id for node in cut.nodes], cut.truncated) == (["own1", "own2"], True)


async def test_what_a_token_may_not_read_is_walked_neither_to_nor_through(world: World) -> None:
    await world.link("crew1", "own1", weight=0.9)
    await world.link("own2", "own1", weight=0.8, relation="contradicts")
    seq = await world.link("crew1", "own2", weight=0.9)
    agents = await world.agent.graph("own1", depth=3, min_seq=seq)
    assert [node.id for node in agents.nodes] == ["own1", "own2"]
    assert [(edge.src, edge.dst) for edge in agents.edges] == [("own2", "own1")]
    leads = await world.lead.graph("own1", depth=3, min_seq=seq)
    assert {node.id for node in leads.nodes} == {"own1", "own2", "crew1"}
    for who, name in ((world.agent, "crew1"), (world.agent, "nobody"), (world.lead, "far1"), (world.stranger, "own2")):
        with pytest.raises(NotFound, match="no entry"):
            await who.graph(name)


async def test_hidden_entries_do_not_make_a_neighbourhood_look_cut(world: World) -> None:
    for name in ("crew1", "crew2", "far1"):
        seq = await world.link(name, "own1", weight=0.9)
    found = await world.agent.graph("own1", limit=1, min_seq=seq)
    assert ([node.id for node in found.nodes], found.truncated) == (["own1"], False)


@pytest.mark.parametrize("query", ["depth=0", "depth=4", "limit=0", "limit=201", "relation=likes", "depth=x", "hops=1"])
async def test_a_neighbourhood_out_of_its_ranges_is_refused(unchanged: World, query: str) -> None:
    status, _ = await unchanged.http("admin", "GET", f"/v1/journal/own1/graph?{query}")
    assert status == 400


async def test_an_agents_settings_are_registered_whole_by_administrators_and_read_by_itself(world: World) -> None:
    made = await world.admin.register_agent("ada", crew_id="core", memory_walk_depth=1, settings={"tone": "dry"})
    read = await world.agent.agent("ada", min_seq=made.seq)
    assert (read.crew_id, read.memory_walk_depth, read.settings, read.seq) == ("core", 1, {"tone": "dry"}, made.seq)
    again = await world.admin.register_agent("ada")
    read = await world.admin.agent("ada", min_seq=again.seq)
    assert (read.crew_id, read.memory_walk_depth, read.settings) == (None, 0, {})
    for who in (world.agent, world.lead):
        with pytest.raises(NotAllowed):
            await who.register_agent("ada", memory_walk_depth=1)
    for client in (world.other_agent, world.lead, world.stranger):
        with pytest.raises(NotFound):
            await client.agent("ada")
    with pytest.raises(NotAllowed):
        await world.admin.register_agent("ada", workspace_id="globex")


async def test_a_registered_depth_changes_what_recall_shows(world: World) -> None:
    """Seed 1: "enable per-agent by setting agent.memory_walk_depth = 1"; off by default."""
    await world.agent.append({"id": "own3", "entry_type": "peer.escalation", "summary": "Zebra crossing"})
    seq = (await world.agent.get("own3", min_seq=world.seq["far1"] + 1)).seq
    world.seq["own3"] = seq
    seq = await world.link("own3", "own1", weight=0.9)
    before = await world.agent.recall("zebra", recipe="lexical", min_seq=seq)
    assert [hit.entry_id for hit in before.hits] == ["own3"]
    made = await world.admin.register_agent("ada", memory_walk_depth=1)
    after = await world.agent.recall("zebra", recipe="lexical", min_seq=made.seq)
    assert [hit.entry_id for hit in after.hits] == ["own3", "own1"]
    off = await world.agent.recall("zebra", recipe="lexical", walk_depth=0, min_seq=made.seq)
    assert [hit.entry_id for hit in off.hits] == ["own3"]
