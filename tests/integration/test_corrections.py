"""Corrections over HTTP: the new statement is given everywhere, the old one nowhere as current."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.minilm import minilm_cache
from support.running import running_node
from support.stack import DEADLINE_S, POLL_S, Stack, running_stack

from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.errors import (
    BrokerUnavailable,
    EntryConflict,
    InvalidEntry,
    NotAllowed,
    NotFound,
)
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.learning.events import RuleLearned
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.context.corrections import Corrections

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
    await world.seen((await world.ada.remember(OLD, entry_id="old")).seq)
    for n, agent in enumerate((world.ada, world.bruno, world.lead)):
        await world.seen((await agent.remember(f"Deploys fail behind the proxy, case {n}", entry_id=f"seen{n}")).seq)
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

    found = (await world.ada.recall("staging port", recipe="lexical", k=50, min_seq=done.seq, kinds=["entries"])).hits
    assert [hit.summary for hit in found if hit.entry_type == "memory.remembered"] == [NEW]
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


async def test_correction_is_refused_to_those_who_may_not_change_the_statement(world: World) -> None:
    await world.seen((await world.bruno.remember(OLD, entry_id="of_bruno")).seq)
    with pytest.raises(NotFound):  # an agent reads its own entries alone
        await world.ada.correct("of_bruno", NEW)
    by_lead = await world.lead.correct("of_bruno", NEW)
    new = await world.owner.get(by_lead.replaced_by)
    assert (new.agent_id, new.actor_id, new.crew_id) == ("bruno", "lena", "core")
    spoken = {"id": "spoken", "entry_type": "chat.user_message", "summary": "My office is in Bonn."}
    said = await world.ada.append({**spoken, "actor_type": "user", "actor_id": "mia"})
    await world.seen(said.seq)
    with pytest.raises(NotAllowed, match="was said by mia"):
        await world.ada.correct("spoken", "My office is in Ulm.")
    await world.seen((await world.ada.remember("Deploys need two reviewers.", entry_id="pinned")).seq)
    await world.owner.set_priority("pinned", "pin", reason="policy")
    with pytest.raises(NotAllowed, match="priority pin"):
        await world.ada.correct("pinned", "Deploys need one reviewer.")
    pinned = await world.owner.correct("pinned", "Deploys need three reviewers.")
    assert (await world.owner.get(pinned.replaced_by)).live_priority == "pin"
    drawer = await world.owner.add_drawer("ops", "rules", "Nobody deploys on a Friday afternoon.")
    fact = await world.owner.kg_add("parser", "owner", "Ada")
    await world.seen(fact.seq)
    lesson = await world.owner.add_lesson("never deploy on Fridays", kind="negative", crew_id="core")
    await world.learn("rule", "Deploys fail at noon", "pinned", "of_bruno")
    for statement in (drawer.drawer_id, fact.triple_id):
        with pytest.raises(NotAllowed, match="OWNER or ADMIN"):
            await world.ada.correct(statement, "Anybody deploys whenever they want.")
    for statement in ("rule", lesson.entry_id):
        with pytest.raises(NotAllowed, match="given to other agents"):
            await world.lead.correct(statement, "Anybody deploys whenever they want.")


async def test_wrong_id_or_text_is_refused_with_field_and_fix(world: World) -> None:
    await world.seen((await world.ada.remember(OLD, entry_id="old")).seq)
    await world.seen((await world.ada.remember("An old idea", entry_id="withdrawn")).seq)
    await world.ada.retract("withdrawn", reason="bad")
    decided = await world.owner.set_priority("old", "high", reason="r")
    await world.owner.set_priority("old", "normal", reason="r")
    decision = next(e for e in (await world.owner.list()).entries if e.entry_type == "memory.priority_changed")
    assert decided.seq
    wrong = {
        "nowhere": NotFound,
        "withdrawn": InvalidEntry,
        "a-ada/AGENT.md:3": InvalidEntry,
        decision.id: InvalidEntry,
    }
    for statement, error in wrong.items():
        with pytest.raises(error, match=r"\(.+\)"):  # what to do
            await world.owner.correct(statement, NEW)
    with pytest.raises(InvalidEntry, match="says what the statement says"):
        await world.ada.correct("old", "the staging port is 8080")
    with pytest.raises(NotFound):
        await world.ada.correct("old", NEW, also=["nowhere"])
    assert await world.said(world.ada) == [OLD]
    done = await world.ada.correct("old", NEW)
    with pytest.raises(InvalidEntry, match=done.replaced_by):
        await world.ada.correct("old", "The staging port is 7070.")


async def test_drawer_fact_rule_and_lesson_are_corrected_as_what_they_are(world: World) -> None:
    drawer = await world.ada.add_drawer("ops", "ports", f"Notes of Monday. {OLD} It is open.")
    done = await world.ada.correct(drawer.drawer_id, "Notes of Monday. The staging port is closed.")
    assert done.kind == "drawer"
    old = await world.ada.drawer(drawer.drawer_id)
    assert (old.live, old.superseded_by) == (False, done.replaced_by)
    assert (await world.ada.drawer(done.replaced_by)).wing == "ops"

    value = await world.ada.kg_add("parser", "owner", "Ada", valid_from="2026-01-05")
    await world.seen(value.seq)
    by_value = await world.bruno.correct(value.triple_id, "Bruno")
    by_sentence = await world.ada.correct(by_value.replaced_by, "Parser owner Cleo.")
    facts = {one.id: one for one in (await world.ada.kg_query("parser")).results}
    assert [one.object for one in facts.values() if one.current] == ["Cleo"]
    assert facts[by_sentence.replaced_by].valid_from == "2026-01-05"
    again = await world.ada.correct(by_value.replaced_by, "Cleo")
    assert (again.changed, again.replaced_by) == (False, by_sentence.replaced_by)

    lesson = await world.owner.add_lesson("never deploy on Fridays", kind="negative", crew_id="core", lesson_id="l1")
    corrected = await world.owner.correct(lesson.entry_id, "never deploy on Sundays")
    text = (await world.owner.document_read("lessons", crew_id="core")).content
    assert "Sundays" in text
    assert "Fridays" not in text
    assert corrected.kind == "lesson"

    for n, agent in enumerate((world.ada, world.bruno)):
        await world.seen((await agent.remember(f"Deploys fail at noon, case {n}", entry_id=f"seen{n}")).seq)
    await world.learn("rule", "Deploys fail at noon", "seen0", "seen1")
    await world.owner.correct("rule", "Deploys fail at midnight")
    [rule] = (await world.owner.learned_rules(crew_id="core")).rules
    assert (rule.pattern, rule.evidence) == ("Deploys fail at midnight", ("seen0", "seen1"))


async def test_repetition_of_another_agent_is_listed_and_retired_when_named(world: World) -> None:
    await world.seen((await world.ada.remember(OLD, entry_id="old")).seq)
    await world.seen((await world.ada.remember("The staging port is 8080", entry_id="twice")).seq)
    await world.seen((await world.bruno.remember(OLD, entry_id="of_bruno")).seq)
    await world.seen((await world.ada.remember(f"From the meeting: lunch is at one. {OLD}", entry_id="minutes")).seq)
    done = await world.owner.correct("old", NEW)
    assert {one.id for one in done.retired} == {"old", "twice"}
    assert {one.id: one.why for one in done.review} == {
        "of_bruno": "is in the memory of another agent",
        "minutes": "holds the statement among others",
    }
    [listed] = (await world.owner.corrections()).corrections
    assert {one.id for one in listed.review} == {"of_bruno", "minutes"}
    more = await world.owner.correct("old", NEW, also=["of_bruno", "minutes"])
    assert {one.id for one in more.retired} == {"old", "of_bruno", "minutes"}
    assert more.review == ()
    assert await world.said(world.bruno, min_seq=more.seq) == [NEW]
    assert OLD not in " ".join(await world.said(world.ada))


async def test_correction_that_stopped_before_its_decision_is_finished_by_the_same_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.seen((await world.ada.remember(OLD, entry_id="old")).seq)
    drawer = await world.ada.add_drawer("ops", "ports", OLD)

    async def stop(*_: Any, **__: Any) -> None:
        raise BrokerUnavailable("stopped", hint="again")

    with monkeypatch.context() as broken:
        broken.setattr(Corrections, "_decide", stop)
        with pytest.raises(BrokerUnavailable):
            await world.ada.correct("old", NEW)
    assert (await world.owner.get("old")).standing is None
    with pytest.raises(EntryConflict, match="another correction of old has begun"):
        await world.ada.correct("old", "The staging port is 7070.")
    done = await world.ada.correct("old", NEW)
    assert done.changed
    assert {one.id for one in done.retired} == {"old", drawer.drawer_id}
    assert await world.said(world.ada, min_seq=done.seq, kinds=["entries"]) == [NEW]
    assert len([e for e in (await world.owner.list()).entries if e.summary == NEW]) == 1
    answers = await asyncio.gather(*(world.ada.correct("old", NEW) for _ in range(4)))
    assert {(one.changed, one.seq) for one in answers} == {(False, done.seq)}


async def test_restored_statement_counts_again_and_can_be_corrected_again(world: World) -> None:
    await world.seen((await world.ada.remember(OLD, entry_id="old")).seq)
    first = await world.ada.correct("old", NEW)
    await world.ada.retract(first.replaced_by, reason="it was right")
    restored = await world.ada.restore("old", reason="it was right")
    assert await world.said(world.ada, min_seq=restored.seq) == [OLD]
    second = await world.ada.correct("old", NEW)
    assert second.changed
    assert second.replaced_by != first.replaced_by
    assert await world.said(world.ada, min_seq=second.seq) == [NEW]


async def test_retired_statement_is_not_given_for_a_past_date_either(world: World) -> None:
    old = {"id": "old", "entry_type": "memory.remembered", "summary": OLD, "ts": "2026-01-05T10:00:00Z"}
    await world.seen((await world.ada.append(old)).seq)
    done = await world.ada.correct("old", NEW)
    asked = await world.said(world.ada, "What was the staging port on 10 January 2026?", min_seq=done.seq)
    assert asked == [NEW]


async def test_correction_holds_after_restart_and_rebuild_and_lists_paraphrases(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"embedder": "minilm", "models_dir": minilm_cache()}
    old, new = "The harbour gate opens at six in the morning.", "The harbour gate opens at five in the morning."
    async with running_node(tmp_path, **settings) as node, AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        where: dict[str, Any] = {"agent_id": "ada", "crew_id": "core"}
        await owner.remember(old, entry_id="old", **where)
        paraphrase = await owner.remember(
            "In the morning the gate of the harbour opens at six.", entry_id="para", **where
        )
        drawer = await owner.add_drawer("port", "gates", old)
        seq = await _embedded(owner, paraphrase.seq)
        done = await owner.correct("old", new, min_seq=seq)
        assert {one.id for one in done.retired} == {"old", drawer.drawer_id}
        assert [(one.id, one.suggestion, one.why) for one in done.review] == [("para", new, "probably the same claim")]
        await _embedded(owner, done.seq)
        before = await _gate(owner, done.seq)
        assert before[0] == new
        assert old not in before
        assert [record async for record in owner.verify()][-1]["result"]["equal"]
    async with running_node(tmp_path, **settings) as node, AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        assert await _gate(owner, done.seq) == before
        assert [record async for record in owner.rebuild()][-1]["result"]["seq"] >= done.seq
        assert await _gate(owner, done.seq) == before
        again = await owner.correct("old", new)
        assert (again.changed, again.replaced_by, [one.id for one in again.review]) == (
            False,
            done.replaced_by,
            ["para"],
        )
        assert [record async for record in owner.verify()][-1]["result"]["equal"]


async def _embedded(owner: AsyncCrewJournal, seq: int) -> int:
    """Wait until every text has a vector; returns the sequence."""
    async with asyncio.timeout(DEADLINE_S):
        while (await owner.recall("gate", k=1, min_seq=seq, workspace_id="default")).awaiting_vectors:  # noqa: ASYNC110  # no event tells a client
            await asyncio.sleep(POLL_S)
    return seq


async def _gate(owner: AsyncCrewJournal, seq: int) -> list[str]:
    """What an agent's prompt gets about the gate."""
    query = "When does the harbour gate open?"
    answer = await owner.recall(query, mode="inject", k=10, min_seq=seq, workspace_id="default")
    assert "old" not in {hit.entry_id for hit in answer.hits}
    return [hit.summary for hit in answer.hits if hit.standing is None]
