"""Relations on the whole node with MiniLM: near-duplicates are linked, a changed number is suspected, and it shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from support.cli import Cli
from support.embedding import until
from support.minilm import minilm_cache
from support.running import running_node

from crew_journal.schemas.relations.operations import GraphAnswer
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

NOTES = {
    "limit30": "The upload timeout of the checkout gateway is 30 seconds",
    "backup": "The nightly backup of the invoice database failed because the disk is full",
    "limit60": "The upload timeout of the checkout gateway is 60 seconds",
    "backup2": "The nightly backup of the invoice database failed again, the disk is full",
    "lunch": "Lunch with the new designers was moved to the roof terrace",
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running_node(tmp_path / "data", embedder="minilm", cache_dir=minilm_cache().parent) as runtime:
        yield runtime


async def told(client: AsyncCrewJournal, crew: str, agent: str, prefix: str = "") -> int:
    seq = 0
    for name, summary in NOTES.items():
        entry = {"id": prefix + name, "crew_id": crew, "agent_id": agent, "entry_type": "peer.escalation"}
        seq = (await client.append({**entry, "summary": summary})).seq
    return seq


def linked(
    client: AsyncCrewJournal, entry_id: str, edges: int, seq: int
) -> Callable[[], Awaitable[GraphAnswer | None]]:
    async def look() -> GraphAnswer | None:
        found = await client.graph(entry_id, min_seq=seq)
        return found if len(found.edges) >= edges else None

    return look


async def test_near_duplicates_are_linked_and_a_changed_number_is_proposed_as_a_contradiction(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        await told(owner, "core", "ada")
        seq = await told(owner, "edge", "cleo", "other-")
        await until(linked(owner, "limit60", 3, seq), "the links of limit60")
        await until(linked(owner, "other-backup2", 1, seq), "the links of the other crew")
        found = await owner.graph("limit60", depth=3)
        shown = {(edge.src, edge.dst, edge.relation, edge.state) for edge in found.edges}
        assert shown == {
            ("limit60", "limit30", "similar", "derived"),
            ("limit60", "limit30", "contradicts", "proposed"),
            ("limit60", "limit30", "supersedes", "proposed"),
        }
        [suspicion] = [edge for edge in found.edges if edge.relation == "contradicts"]
        assert suspicion.weight == 0.9
        assert '"60 seconds" and "30 seconds"' in suspicion.reason
        backups = await owner.graph("backup2", depth=3)
        assert {(edge.src, edge.dst, edge.relation) for edge in backups.edges} == {("backup2", "backup", "similar")}
        assert (await owner.graph("lunch")).edges == ()
        status = await owner.status()
        assert any(reactor["name"] == "link@1" for reactor in status["reactors"])

        made = await owner.register_agent("ada", crew_id="core", memory_walk_depth=1)
        mine = await owner.create_token(role="AGENT", workspace_id="default", agent_id="ada", crew_id="core")
        async with AsyncCrewJournal(node.http_url, mine.token) as ada:
            answer = await ada.recall("upload timeout 60", k=1, recipe="lexical", min_seq=made.seq)
            [hit, neighbour] = answer.hits
            assert {hit.entry_id, neighbour.entry_id} == {"limit30", "limit60"}
            assert neighbour.model_dump()["via"]["entry_id"] == hit.entry_id
        verdicts = [record async for record in owner.verify()]
        assert verdicts[-1]["result"]["equal"] is True


def test_the_commands_relate_show_and_take_back(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    with cli.up():
        for name in ("old", "new"):
            text = f"the limit, as {name} \x1b[2J"
            sent = cli("publish", "--type", "peer.escalation", "--id", name, "--agent", "ada", text, "--json").json[
                "entries"
            ]
        written = ("--min-seq", str(sent[0]["seq"]))
        said = cli("relate", "new", "old", "--as", "refutes", "--reason", "measured", *written, "--json").json
        assert (said["relation"], said["state"]) == ("contradicts", "asserted")
        shown = cli("graph", "old", "--min-seq", str(said["seq"]))
        assert "contradicts" in shown.out
        assert "\x1b" not in shown.out
        again = cli("unrelate", "new", "old", "--as", "contradicts", "--min-seq", str(said["seq"]), "--json").json
        assert cli("graph", "old", "--min-seq", str(again["seq"]), "--json").json["edges"] == []
        assert json.loads(cli("relate", "new", "gone", "--as", "supports", "--json", code=4).err)["error"]["hint"]
        alike = cli("relate", "new", "old", "--as", "similar", "--weight", "0.5", "--json").json
        walked = cli(
            "recall", "new", "--k", "1", "--walk-depth", "1", "--recipe", "lexical", "--min-seq", str(alike["seq"])
        )
        assert "via new (similar, weight 0.50)" in walked.out
        made = cli("agent", "create", "ada", "--memory-walk-depth", "1", "--settings", '{"tone": "dry"}', "--json").json
        assert made["memory_walk_depth"] == 1
        assert "is registered already" in cli("agent", "create", "ada", code=1).err
        changed = cli("agent", "update", "ada", "--crew", "core", "--json").json
        assert (changed["crew_id"], changed["memory_walk_depth"], changed["settings"]) == ("core", 1, {"tone": "dry"})
        assert "core" in cli("agent", "get", "ada").out
        mine = cli("agent", "create", "--name", "My Agent", "--memory", "--json").json
        assert (mine["agent_id"], mine["name"], mine["memory_enabled"]) == ("my-agent", "My Agent", True)
        off = cli("agent", "update", "my-agent", "--no-memory", "--role", "lead", "--budget", "9000", "--json").json
        assert (off["memory_enabled"], off["role"], off["memory_budget_chars"], off["name"]) == (
            False, "lead", 9_000, "My Agent",
        )  # fmt: skip
        asleep = cli("memory", "block", "--agent", "my-agent", "--min-seq", str(off["seq"]))
        assert asleep.out == ""
        assert "memory is off" in asleep.err
        on = cli("agent", "update", "my-agent", "--memory", "--json").json
        shown = cli("memory", "block", "--agent", "my-agent", "--min-seq", str(on["seq"]))
        assert shown.out.startswith("[PERSONA]\nYou are My Agent, the lead.\n[END PERSONA]\n\n[MEMORY INSTRUCTIONS]\n")
        assert "0 of 9000 characters" in shown.err
        assert "give an id" in cli("agent", "create", "--name", "…", code=2).err
        assert cli("crew", "create", "core", "--name", "Core", "--json").json["name"] == "Core"
        assert [agent["agent_id"] for agent in cli("agent", "list", "--json").json["agents"]] == ["ada", "my-agent"]
        assert "My Agent" in cli("agent", "list").out
        cli("crew", "update", "core", "--settings", '{"zone": "eu"}')
        assert "Core" in cli("crew", "list").out
        assert "ada" in cli("crew", "get", "core").out
        assert "only inside `crew-journal up`" in cli("work", "link", "--embedder", "none", code=5).err
