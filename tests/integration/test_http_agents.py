"""The registry over HTTP: agents, crews and whether memory is on; who registers and who may see what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from support.stack import DEADLINE_S, Stack, running_stack

from crew_journal.schemas.core.errors import InvalidEntry, NotAllowed, NotFound, RegisteredMeanwhile
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.table import as_of
from crew_journal.services.access.use_cases import Agents
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.documents.journal_store import Provision

PROVISION = cast(Provision, None)  # where nothing is registered through the use-case


@dataclass
class World:
    stack: Stack
    admin: AsyncCrewJournal
    agent: AsyncCrewJournal
    stranger: AsyncCrewJournal


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_stack(tmp_path) as stack:
        tokens = (
            await stack.token(Role.ADMIN, "acme"),
            await stack.token(Role.AGENT, "acme", agent="ada", crew="core"),
            await stack.token(Role.AGENT, "acme", agent="bruno", crew="edge"),
        )
        clients = [stack.client(token.plaintext) for token in tokens]
        try:
            yield World(stack, *clients)
        finally:
            for client in clients:
                await client.close()


async def test_an_update_changes_only_what_is_given(world: World) -> None:
    made = await world.admin.register_agent("ada", name="Ada", crew_id="core", settings={"tone": "dry"})
    assert (made.memory_enabled, made.memory_budget_chars, made.role) == (False, None, "agent")
    on = await world.admin.update_agent("ada", memory_enabled=True, memory_budget_chars=9_000)
    lead = await world.admin.update_agent("ada", role="lead", memory_walk_depth=1)
    read = await world.agent.agent("ada", min_seq=lead.seq)
    assert read == lead
    assert read.model_dump(exclude={"seq"}) == {
        "agent_id": "ada",
        "name": "Ada",
        "role": "lead",
        "crew_id": "core",
        "memory_enabled": True,
        "memory_budget_chars": 9_000,
        "memory_walk_depth": 1,
        "settings": {"tone": "dry"},
    }
    off = await world.admin.update_agent("ada", memory_enabled=False)
    assert (off.memory_enabled, off.name) == (False, "Ada")
    await world.stack.store.wait_for(off.seq, DEADLINE_S)
    history = {
        seq: world.stack.store.rows(f"SELECT memory_enabled, role FROM agents WHERE {as_of(seq)}")
        for seq in (made.seq, on.seq, lead.seq, off.seq)
    }
    assert list(history.values()) == [[(False, "agent")], [(True, "agent")], [(True, "lead")], [(False, "lead")]]


async def test_an_update_of_an_unregistered_agent_and_a_role_that_does_not_exist_are_refused(world: World) -> None:
    with pytest.raises(NotFound):
        await world.admin.update_agent("nemo", memory_enabled=True)
    with pytest.raises(InvalidEntry, match="role"):
        await world.admin.register_agent("ada", role="boss")  # type: ignore[arg-type]  # refused by the service
    with pytest.raises(NotAllowed):
        await world.agent.update_agent("ada", memory_enabled=True)


async def test_a_list_holds_all_agents_for_an_administrator_and_itself_for_an_agent(world: World) -> None:
    await world.admin.register_agent("ada", crew_id="core")
    await world.admin.register_agent("bruno", crew_id="edge")
    last = await world.admin.register_agent("cleo", crew_id="core", name="Cleo")
    everyone = await world.admin.agents(min_seq=last.seq)
    assert [agent.agent_id for agent in everyone.agents] == ["ada", "bruno", "cleo"]
    assert everyone.agents[2] == last
    assert [agent.agent_id for agent in (await world.admin.agents(crew_id="core")).agents] == ["ada", "cleo"]
    assert [agent.agent_id for agent in (await world.agent.agents()).agents] == ["ada"]


async def test_a_crew_names_its_registered_agents_and_only_its_members_see_it(world: World) -> None:
    await world.admin.register_agent("ada", crew_id="core")
    agent = await world.admin.register_agent("cleo", crew_id="core")
    await world.stack.store.wait_for(agent.seq, DEADLINE_S)
    made = await world.admin.register_crew("core", name="Core crew", settings={"zone": "eu"})
    read = await world.agent.crew("core", min_seq=made.seq)
    assert read == made
    assert (read.name, read.settings, read.agents) == ("Core crew", {"zone": "eu"}, ("ada", "cleo"))
    assert [crew.crew_id for crew in (await world.admin.crews()).crews] == ["core"]
    assert (await world.stranger.crews()).crews == ()
    with pytest.raises(NotFound):
        await world.stranger.crew("core")
    with pytest.raises(NotAllowed):
        await world.agent.register_crew("core")


async def test_turning_memory_on_creates_the_documents_that_were_never_written(world: World) -> None:
    await world.admin.document_write("CREW", crew_id="core", mode="replace", content="We use tabs.")
    await world.admin.register_agent("ada", crew_id="core")
    assert [document.owner for document in (await world.admin.documents()).documents] == ["c-core"]
    await world.admin.update_agent("ada", memory_enabled=True)
    await world.admin.register_agent("cleo", crew_id="edge", memory_enabled=True)
    await world.admin.update_agent("cleo", name="Cleo")
    found = (await world.admin.documents()).documents
    assert [(one.owner, one.id, one.bytes, one.writes) for one in found] == [
        ("a-ada", "AGENT.md", 0, 1),
        ("a-cleo", "AGENT.md", 0, 1),
        ("c-core", "CREW.md", 12, 1),
        ("c-edge", "CREW.md", 0, 1),
    ]
    [version] = (await world.admin.document_versions("AGENT", agent_id="ada")).versions
    assert version.source == "registration"
    written = await world.agent.document_write("AGENT", mode="replace", content="Mine.", expected_seq=version.seq)
    assert written.bytes == 5


async def test_whether_memory_is_on_follows_commits_after_the_first_question(world: World) -> None:
    made = await world.admin.register_agent("ada", memory_enabled=True)
    await world.stack.store.wait_for(made.seq, DEADLINE_S)
    agents = Agents(world.stack.shared)
    assert [await agents.memory_enabled("acme", name) for name in ("ada", "bruno")] == [True, None]
    assert await agents.memory_enabled("globex", "ada") is None
    off = await world.admin.update_agent("ada", memory_enabled=False)
    await world.stack.store.wait_for(off.seq, DEADLINE_S)
    assert await agents.memory_enabled("acme", "ada") is False


async def test_a_first_write_registers_an_unknown_agent_and_leaves_a_registered_one_alone(world: World) -> None:
    off = await world.admin.register_agent("ada", crew_id="core")
    await world.stack.store.wait_for(off.seq, DEADLINE_S)
    agents = Agents(world.stack.shared)
    ada, bruno = (
        Principal(token_id="t", role=role, workspace_id="acme", crew_id=crew, agent_id=name)
        for role, crew, name in ((Role.AGENT, "core", "ada"), (Role.LEAD, "edge", "bruno"))
    )
    assert not await agents.enable_on_first_write(ada, "acme", "ada")
    assert await agents.enable_on_first_write(bruno, "acme", "bruno")
    assert await agents.enable_on_first_write(bruno, "acme", "bruno")
    assert await agents.memory_enabled("acme", "bruno") is True
    found = await world.admin.agents()
    assert [(agent.agent_id, agent.memory_enabled, agent.crew_id, agent.role) for agent in found.agents] == [
        ("ada", False, "core", "agent"),
        ("bruno", True, "edge", "lead"),
    ]


async def test_two_updates_of_a_crew_at_once_both_count(world: World) -> None:
    """Issue 28.7: the command read the settings and wrote them whole, so that the later one undid the earlier one."""
    await world.admin.register_crew("core", name="Core", settings={"zone": "eu", "old": 1})
    changes = [world.admin.update_crew("core", settings={f"key-{n}": n}) for n in range(8)]
    await asyncio.gather(*changes, world.admin.update_crew("core", settings={"old": None}))
    found = await world.admin.crew("core")
    assert found.settings == {"zone": "eu", **{f"key-{n}": n for n in range(8)}}
    assert found.name == "Core"


async def test_an_update_of_a_crew_that_was_registered_meanwhile_is_refused_if_it_expects_another(world: World) -> None:
    read = await world.admin.register_crew("core", settings={"zone": "eu"})
    written = await world.admin.update_crew("core", settings={"zone": "us"}, expected_seq=read.seq)
    with pytest.raises(RegisteredMeanwhile) as refused:
        await world.admin.update_crew("core", settings={"zone": "asia"}, expected_seq=read.seq)
    assert str(written.seq) in refused.value.hint
    assert (await world.admin.crew("core")).settings == {"zone": "us"}
    with pytest.raises(NotFound):
        await world.admin.update_crew("nemo", settings={})
    with pytest.raises(NotAllowed):
        await world.agent.update_crew("core", settings={})


async def test_a_consolidation_of_an_unknown_crew_is_an_error_that_names_it(world: World) -> None:
    with pytest.raises(NotFound, match="no crew nemo"):
        await world.admin.consolidate(crew_id="nemo")


async def test_an_agent_sees_no_counts_of_its_workspace(world: World) -> None:
    """Issue 28.13."""
    counts = {"entries", "embeddings", "dead_letters"}
    assert counts <= (await world.admin.status()).keys()
    assert not counts & (await world.agent.status()).keys()
