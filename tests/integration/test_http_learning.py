"""Rules and lessons over HTTP: who adds, who reads, what the prompt block shows, and what a retraction undoes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.events import entry
from support.stack import DEADLINE_S, running_stack

from crew_journal.schemas.core.errors import ConsolidationRunning, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.learning.events import RuleLearned


async def test_rules_and_outcomes_reach_prompts_until_they_are_retracted(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack:
        tokens = (
            await stack.token(Role.ADMIN, "acme"),
            await stack.token(Role.LEAD, "acme", agent="lena", crew="core"),
            await stack.token(Role.AGENT, "acme", agent="ada", crew="core"),
            await stack.token(Role.AGENT, "acme", agent="bruno", crew="edge"),
        )
        admin, lead, ada, bruno = (stack.client(token.plaintext) for token in tokens)
        for name, crew in (("lena", "core"), ("ada", "core"), ("bruno", "edge")):
            await admin.register_agent(name, crew_id=crew, memory_enabled=True)
        rule = RuleLearned(
            crew_id="core",
            pattern="Deploys without a plan are denied",
            evidence=("e1", "e2"),
            confidence=0.5,
            publishers=("agent:ada", "agent:bruno"),
            authors=("ada", "bruno"),
        )
        message = entry(
            "d_rule",
            workspace="acme",
            crew="core",
            agent=None,
            entry_type=rule.ENTRY_TYPE,
            actor_type="system",
            control=True,
            payload=rule.model_dump(mode="json"),
        )
        await stack.writer.publish(message.subject, message.body, message.headers)
        ended = await ada.append(
            {
                "entry_type": "mission.status_change",
                "summary": "Invoices are fast",
                "mission_id": "m1",
                "payload": {"to": "COMPLETED"},
            }
        )
        await stack.store.wait_for(ended.seq, DEADLINE_S)
        block = await ada.memory_block(min_seq=ended.seq)
        assert "[from ada, bruno] Deploys without a plan are denied" in block.text
        assert "Invoices are fast" not in block.text, "outcomes of missions are for the lead"
        assert "positive, reported by ada: Invoices are fast" in (await lead.memory_block()).text
        assert "Deploys" not in (await bruno.memory_block()).text
        assert [rule.rule_id for rule in (await ada.learned_rules()).rules] == ["d_rule"]

        added = await admin.add_lesson("Freeze on Fridays", kind="negative", lesson_id="freeze", crew_id="core")
        text = (await ada.document_read("lessons", scope="crew", min_seq=added.seq)).content
        assert "Invoices" not in text, "what an agent reports about a mission is no lesson"
        assert '  author: "user t_' in text
        assert '  rule: "Freeze on Fridays"\n' in text
        await admin.add_lesson("Freeze from Thursday", kind="negative", lesson_id="freeze", crew_id="core")
        text = (await ada.document_read("lessons", scope="crew")).content
        assert text.count("- id:") == 1
        assert "Freeze from Thursday" in text
        shown = (await ada.memory_block(min_seq=added.seq)).text
        assert "- Freeze from Thursday [from user t_" in shown
        assert "Freeze on Fridays" not in shown, "a replaced lesson is out"
        assert "Freeze" not in (await bruno.memory_block()).text
        with pytest.raises(NotAllowed):
            await ada.add_lesson("Mine", crew_id="core")
        own = await ada.add_lesson("Ask before deleting")
        assert [one.rule for one in (await ada.lessons(min_seq=own.seq)).lessons] == [
            "Ask before deleting",
            "Freeze from Thursday",
        ]
        assert "Ask before deleting" in (await ada.memory_block(min_seq=own.seq)).text
        assert [one.rule for one in (await lead.lessons(min_seq=own.seq)).lessons] == ["Freeze from Thursday"]
        with pytest.raises(NotAllowed):
            await bruno.lessons(crew_id="core")

        with pytest.raises(NotFound):
            await ada.retract("d_rule", reason="I disagree")
        await lead.retract("d_rule", reason="no longer true")
        assert "Deploys" not in (await ada.memory_block()).text
        assert (await ada.learned_rules()).rules == ()
        await admin.retract(ended.id, reason="it was another mission")
        assert "Invoices" not in (await lead.memory_block()).text

        async with stack.http(tokens[0].plaintext) as http:
            accepted = await http.post("/v1/admin/consolidations", json={"crew_id": "core", "since": "2d"})
        assert (accepted.status_code, accepted.json()["crew_id"]) == (202, "core")
        assert (accepted.json()["finished"], accepted.json()["skipped"]) == (False, None), "no reactor runs here"
        with pytest.raises(ConsolidationRunning):
            await admin.consolidate()
