"""Corrections over HTTP: the new statement is given everywhere, the old one nowhere as current."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.stack import DEADLINE_S, Stack, running_stack

from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.learning.events import RuleLearned
from crew_journal.services.client import AsyncCrewJournal

OLD = "The staging port is 8080."
NEW = "The staging port is 9090."


@dataclass
class World:
    """A workspace with a crew, and a client for each role."""

    stack: Stack
    owner: AsyncCrewJournal
    lead: AsyncCrewJournal
    ada: AsyncCrewJournal
    bruno: AsyncCrewJournal

    async def seen(self, seq: int) -> int:
        await self.stack.store.wait_for(seq, DEADLINE_S)
        return seq

    async def learn(self, entry_id: str, pattern: str, *evidence: str, proposal: str | None = None) -> None:
        rule = RuleLearned(
            crew_id="core",
            pattern=pattern,
            evidence=evidence,
            confidence=0.8,
            days=2,
            proposal_id=proposal,
            publishers=("agent:ada", "agent:bruno"),
        )
        fields: dict[str, Any] = {"crew_id": "core", "priority": Priority.HIGH, "refs": {"evidence": list(evidence)}}
        decided = await self.stack.shared.decide(
            None, rule, f"Learned: {pattern}", workspace_id="acme", entry_id=entry_id, **fields
        )
        await self.seen(decided.seq)

    async def said(self, by: AsyncCrewJournal, query: str = "staging port", **also: Any) -> list[str]:
        """Texts of the current hits."""
        answer = await by.recall(query, recipe="lexical", k=50, **also)
        return [hit.summary for hit in answer.hits if hit.standing is None]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_stack(tmp_path) as stack:
        bound = {
            "owner": stack.client((await stack.token(Role.OWNER, "acme")).plaintext),
            "lead": stack.client((await stack.token(Role.LEAD, "acme", agent="lena", crew="core")).plaintext),
            "ada": stack.client((await stack.token(Role.AGENT, "acme", agent="ada", crew="core")).plaintext),
            "bruno": stack.client((await stack.token(Role.AGENT, "acme", agent="bruno", crew="core")).plaintext),
        }
        try:
            yield World(stack, **bound)
        finally:
            for client in bound.values():
                await client.close()


async def test_correction_of_entry_reaches_drawer_fact_document_and_rule(world: World) -> None:
    await world.ada.remember(OLD, entry_id="old")
    for n, agent in enumerate((world.ada, world.bruno, world.lead)):
        await agent.remember(f"Deploys fail behind the proxy, case {n}", entry_id=f"seen{n}")
    drawer = await world.ada.add_drawer("ops", "ports", f"{OLD}")
    fact = await world.ada.kg_add("staging port", "is", "8080", source_entry_id="old")
    untouched = await world.ada.kg_add("staging", "belongs to", "Ada", source_entry_id="old")
    await world.ada.document_write("AGENT", "replace", f"# Ports\n\n- {OLD}\n- The test port is 7000.\n")
    await world.owner.document_write("CREW", "replace", f"Ports. {OLD} Ask Ada.\n", crew_id="core")
    await world.learn("rule_kept", "Deploys fail behind the proxy", "old", "seen0", "seen1", proposal="p1")
    await world.learn("rule_gone", "Port 8080 is blocked", "old", "seen0")

    done = await world.ada.correct("old", NEW, reason="it moved long ago")

    assert (done.kind, done.changed, done.visible) == ("entry", True, True)
    retired = {one.id: (one.kind, one.why, one.replaced_by) for one in done.retired}
    assert retired["old"] == ("entry", "corrected", done.replaced_by)
    assert retired[drawer.drawer_id][:2] == ("drawer", "same")
    assert retired[fact.triple_id][:2] == ("fact", "derived")
    assert retired["rule_gone"] == ("rule", "derived", None)
    assert untouched.triple_id not in retired
    reviews = {one.id: one.suggestion for one in done.review}
    assert reviews["a-ada/AGENT.md:3"] == f"- {NEW}"
    assert reviews["c-core/CREW.md:1"] == f"Ports. {NEW} Ask Ada."

    assert await world.said(world.ada, min_seq=done.seq, kinds=["entries"]) == [NEW]
    old = await world.owner.get("old")
    assert (old.standing.state.value, old.standing.by, old.standing.reason) == (
        "superseded",
        done.replaced_by,
        "it moved long ago",
    )
    new = await world.owner.get(done.replaced_by)
    assert (new.agent_id, new.actor_type, new.actor_id, new.refs) == ("ada", "agent", "ada", {"parent_entry_id": "old"})
    drawers = (await world.ada.palace_search("staging port")).results
    assert [hit.content for hit in drawers] == [NEW]
    facts = (await world.ada.kg_query("staging port")).results
    assert {one.object: one.current for one in facts} == {"8080": False, "9090": True}
    rules = {rule.rule_id: rule.evidence for rule in (await world.owner.learned_rules(crew_id="core")).rules}
    assert rules == {"rule_kept": ("old", "seen0", "seen1")}
    assert "rule_kept" in reviews

    # the same request again changes nothing; with ``documents``, what the token may write is rewritten
    again = await world.ada.correct("old", NEW, reason="again", documents=True)
    assert (again.changed, again.replaced_by) == (False, done.replaced_by)
    assert again.documents == ("a-ada/AGENT.md",)
    assert {one.id for one in again.review} == {"c-core/CREW.md:1", "rule_kept"}
    assert (await world.ada.document_read("AGENT")).content == f"# Ports\n\n- {NEW}\n- The test port is 7000.\n"
    by_owner = await world.owner.correct("old", NEW, documents=True)
    assert (by_owner.documents, by_owner.review) == (("c-core/CREW.md",), ())
    assert {one.id: one.why for one in by_owner.retired} == {"old": "corrected", "rule_kept": "derived"}
    [rule] = (await world.owner.learned_rules(crew_id="core")).rules
    assert (rule.evidence, rule.pattern) == (("seen0", "seen1"), "Deploys fail behind the proxy")
    block = (await world.ada.memory_block()).text
    assert NEW in block
    assert OLD not in block
    context = (await world.ada.context_assemble("What is the staging port?")).memory
    assert NEW in context
    assert OLD not in context
    assert OLD not in await world.said(world.ada)
    listed = (await world.owner.corrections()).corrections
    assert {(one.id, one.old, one.new) for one in listed} == {("old", OLD, NEW)}
