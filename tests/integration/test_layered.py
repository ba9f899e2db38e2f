"""Layered memory over HTTP: facts, procedures, episodes, working memory, and the assembled context."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal

LATER = "2030-01-01T00:00:00Z"


@asynccontextmanager
async def as_agent(stack: Stack, workspace: str, agent: str = "ada") -> AsyncIterator[AsyncCrewJournal]:
    token = await stack.token(Role.AGENT, workspace, agent=agent, crew="core")
    async with stack.client(token.plaintext) as client:
        yield client


async def test_a_fact_is_written_once_and_verified_when_written_again(stack: Stack) -> None:
    async with as_agent(stack, "lay-once") as agent:
        first = await agent.layered_write("fact", subject="Backend", predicate="uses", object="MongoDB", confidence=0.5)
        again = await agent.layered_write("fact", subject="backend", predicate="uses", object="MongoDB", confidence=0.9)
        assert (first.added, again.added, again.id) == (True, False, first.id)
        read = (await agent.layered_read("fact", first.id)).fact
        assert read is not None
        assert (read.confidence, read.last_verified_at is not None, read.state) == (0.9, True, "fresh")
        other = await agent.layered_write(
            "fact", namespace="team", subject="Backend", predicate="uses", object="MongoDB"
        )
        assert other.added


async def test_facts_are_found_by_namespace_and_text_with_the_parts_of_their_salience(stack: Stack) -> None:
    async with as_agent(stack, "lay-find") as agent:
        await agent.layered_write(
            "fact", namespace="infra", subject="Checkout", predicate="runs on", object="Kubernetes"
        )
        last = await agent.layered_write("fact", namespace="team", subject="Ann", predicate="leads", object="Checkout")
        found = await agent.layered_query(
            "fact", namespace="infra", text="where does the checkout run?", min_seq=last.seq
        )
        assert [fact.text for fact in found.facts] == ["Checkout runs on Kubernetes"]
        parts = found.facts[0].parts
        assert parts is not None
        assert 0 < parts.relevance < 1
        assert (parts.confidence, parts.usage) == (1.0, 0.0)
        assert {fact.namespace for fact in (await agent.layered_query("fact")).facts} == {"infra", "team"}


async def test_stale_facts_are_marked_and_never_hidden(stack: Stack) -> None:
    async with as_agent(stack, "lay-stale") as agent:
        ids = {
            kind: (await agent.layered_write("fact", subject=kind, object="the checkout", fact_type=kind)).id
            for kind in ("permanent", "stable", "default", "volatile")
        }
        own = await agent.layered_write("fact", subject="own", object="the checkout", half_life_hours=0.001)
        found = await agent.layered_query("fact", text="checkout", now=LATER)
        states = {fact.subject: (fact.state, fact.freshness) for fact in found.facts}
        assert set(states) == {*ids, "own"}
        assert states["permanent"] == ("fresh", 1.0)
        assert states["volatile"] == states["own"] == ("needs_refresh", 0.0)
        verified = await agent.fact_verify(own.id, confidence=0.7, note="asked Ann")
        assert (verified.fact.confidence, verified.fact.last_verified_at is not None) == (0.7, True)


async def test_contradictions_are_shown_and_change_nothing(stack: Stack) -> None:
    async with as_agent(stack, "lay-conflict") as agent:
        one = await agent.layered_write(
            "fact", subject="Ann", predicate="lives in", object="Berlin", single_valued=True
        )
        two = await agent.layered_write("fact", subject="Ann", predicate="lives in", object="Hamburg")
        assert [(set(c.fact_ids), c.kind) for c in two.conflicts] == [({one.id, two.id}, "values")]
        yes = await agent.layered_write("fact", subject="Parser", predicate="supports", object="YAML")
        no = await agent.layered_write("fact", subject="Parser", predicate="does not support", object="YAML")
        assert [(set(c.fact_ids), c.kind) for c in no.conflicts] == [({yes.id, no.id}, "polarity")]
        asked = await agent.fact_request_verification(one.id, note="two homes")
        assert asked.fact.verification_wanted is not None
        listed = await agent.fact_conflicts(min_seq=asked.seq)
        assert len(listed.conflicts) == 2
        assert [fact.id for fact in listed.wanted] == [one.id]
        made = await agent.context_assemble("Where does Ann live?", record=False)
        assert [set(c.fact_ids) for c in made.conflicts] == [{one.id, two.id}]
        assert "Berlin" in made.memory
        assert "Hamburg" in made.memory
        await agent.fact_verify(one.id)
        ended = await agent.kg_invalidate("Ann", "lives in", "Hamburg", ended="2020-01-01")
        left = await agent.fact_conflicts(min_seq=ended.seq)
        assert [c.kind for c in left.conflicts] == ["polarity"]
        assert left.wanted == ()


async def test_a_procedure_is_a_versioned_named_document(stack: Stack) -> None:
    async with as_agent(stack, "lay-procedure") as agent:
        first = await agent.layered_write("procedure", name="deploy-checkout", content="1. Build.\n2. Deploy.")
        second = await agent.layered_write(
            "procedure", name="deploy-checkout", content="1. Build.\n2. Test.\n3. Deploy."
        )
        read = (await agent.layered_read("procedure", "deploy-checkout", min_seq=second.seq)).procedure
        assert read is not None
        assert read.content.startswith("1. Build.\n2. Test.")
        before = (await agent.layered_read("procedure", "deploy-checkout", version=first.seq)).procedure
        assert before is not None
        assert "Test" not in before.content
        found = await agent.layered_query("procedure", text="deploy")
        assert [one.name for one in found.procedures] == ["deploy-checkout"]
        with pytest.raises(NotFound, match="no procedure"):
            await agent.layered_read("procedure", "rollback")
        made = await agent.context_assemble("How do I deploy the checkout?", record=False)
        assert "[PROCEDURAL MEMORY]" in made.memory
    async with as_agent(stack, "lay-procedure", "bob") as other:
        assert (await other.layered_query("procedure")).procedures == ()


async def test_episodes_are_found_by_run_and_type_and_leave_queries_after_their_time_to_live(stack: Stack) -> None:
    async with as_agent(stack, "lay-episodes") as agent, stack.client() as owner:
        entries: list[dict[str, Any]] = [
            {
                "entry_type": "crew.action",
                "summary": "Built the image",
                "trace_id": "run-7",
                "ts": "2026-11-01T10:00:00Z",
            },
            {"entry_type": "crew.decision", "summary": "Use the canary", "trace_id": "run-7"},
            {"entry_type": "crew.action", "summary": "Elsewhere", "trace_id": "run-8"},
        ]
        seq = [await agent.append(entry) for entry in entries][-1].seq
        found = await agent.layered_query("episode", run_id="run-7", min_seq=seq)
        assert [one.summary for one in found.episodes] == ["Use the canary", "Built the image"]
        of_type = await agent.layered_query("episode", run_id="run-7", types=["crew.action"])
        assert [one.summary for one in of_type.episodes] == ["Built the image"]
        changed = await owner.configure_workspace(episodic_ttl_hours=24, workspace_id="lay-episodes")
        young = await agent.layered_query("episode", run_id="run-7", min_seq=changed.view_seq)
        assert [one.summary for one in young.episodes] == ["Use the canary"]
        assert (await agent.count(trace_id="run-7")).count == 2


async def test_working_memory_ends_with_its_run(stack: Stack) -> None:
    async with as_agent(stack, "lay-working") as agent:
        seq = (await agent.append({"entry_type": "crew.action", "summary": "Opened the file", "trace_id": "run-1"})).seq
        open_run = await agent.layered_read("working", "run-1", min_seq=seq)
        assert [one.summary for one in open_run.working] == ["Opened the file"]
        made = await agent.context_assemble("Go on", run_id="run-1", record=False)
        assert "[WORKING MEMORY]" in made.memory
        assert "Opened the file" in made.memory
        done = await agent.append({"entry_type": "run.completed", "summary": "Finished", "trace_id": "run-1"})
        ended = await agent.layered_read("working", "run-1", min_seq=done.seq)
        assert (ended.working, ended.run_ended) == ((), True)
        assert "[WORKING MEMORY]" not in (await agent.context_assemble("Go on", run_id="run-1", record=False)).memory


async def test_a_context_says_what_it_cost_and_what_it_left_out(stack: Stack) -> None:
    async with as_agent(stack, "lay-context") as agent:
        for number in range(30):
            last = await agent.layered_write(
                "fact", subject=f"Service {number}", predicate="runs", object=f"the parser in zone {number}"
            )
        await agent.add_drawer("team", "parser", "The parser of the importer reads its file in one pass.")
        tools = [
            {
                "name": f"tool_{n}",
                "description": "Does it. In detail.",
                "input_schema": {"type": "object", "properties": {}},
            }
            for n in range(3)
        ]
        talk = [
            {"role": "tool" if n % 2 else "user", "content": f"step {n} " + "parser output " * 40} for n in range(12)
        ]
        made = await agent.context_assemble(
            "Which zone does the parser of service 3 run in?",
            system="You are careful.",
            tools=tools,
            conversation=talk,
            budget_tokens=500,
            system_tokens=50,
            step=0,
            max_steps=10,
            min_seq=last.seq,
            record=False,
        )
        assert made.phase == "planning"
        assert made.tokens["total"] <= 500
        assert (
            sum(made.tokens[part] for part in ("system", "memory", "tools", "conversation", "prompt"))
            == made.tokens["total"]
        )
        assert "zone 3" in made.memory
        assert made.tokenizer == "estimate"
        assert {drop.part for drop in made.drops} >= {"memory", "conversation"}
        assert all(drop.reason for drop in made.drops)
        kept = [item.salience for item in made.items if item.source == "fact"]
        lost = [drop.salience or 0.0 for drop in made.drops if drop.kind == "semantic" and drop.action == "dropped"]
        assert min(kept) >= max(lost)
        recorded = await agent.context_assemble("Which zone does the parser of service 3 run in?")
        assert recorded.receipt is not None


async def test_uses_raise_the_salience_of_a_fact(stack: Stack) -> None:
    async with as_agent(stack, "lay-uses") as agent:
        written = await agent.layered_write("fact", subject="Checkout", predicate="runs on", object="Kubernetes")
        made = await agent.context_assemble("What does the checkout run on?")
        assert made.receipt is not None
        receipt = await agent.receipt(made.receipt)
        assert receipt.rendered
        [fact] = (await agent.layered_query("fact", text="checkout", min_seq=written.seq + 1)).facts
        assert (fact.uses, fact.parts and fact.parts.usage > 0) == (1, True)


async def test_the_same_request_at_the_same_time_gives_the_same_bytes_and_after_a_rebuild(stack: Stack) -> None:
    async with as_agent(stack, "lay-same") as agent:
        for number in range(10):
            await agent.layered_write("fact", subject=f"Zone {number}", object="the home of the parser")
            last = await agent.append({"entry_type": "crew.decision", "summary": f"The parser moves to zone {number}"})
        asked: dict[str, Any] = {"now": LATER, "record": False, "min_seq": last.seq}
        one = await agent.context_assemble("Where is the parser?", **asked)
        two = await agent.context_assemble("Where is the parser?", **asked)
        assert one.items
        of_others = {"view_seq"}  # the record of another test's recall may be folded between the two
        assert one.model_dump_json(exclude=of_others) == two.model_dump_json(exclude=of_others)


async def test_what_cannot_be_is_refused_with_the_field_and_a_fix(stack: Stack) -> None:
    async with as_agent(stack, "lay-refused") as agent, stack.client() as owner:
        with pytest.raises(InvalidEntry, match="needs subject"):
            await agent.layered_write("fact", object="x")
        with pytest.raises(InvalidQuery, match="reserved for the system"):
            await agent.context_assemble("Hi", budget_tokens=100, system_tokens=100)
        with pytest.raises(InvalidQuery, match="not a time"):
            await agent.context_assemble("Hi", now="soon")
        with pytest.raises(NotAllowed):
            await agent.context_assemble("Hi", agent_id="eve")
        with pytest.raises(NotFound, match="no fact"):
            await agent.fact_verify("t_none")
        with pytest.raises(InvalidEntry, match="salience_weights"):
            await owner.configure_workspace(salience_weights={"luck": 1.0}, workspace_id="lay-refused")


async def test_a_workspace_overrides_budget_and_weights(stack: Stack) -> None:
    async with as_agent(stack, "lay-tenant") as agent, stack.client() as owner:
        last = await agent.layered_write("fact", subject="Parser", object="old", confidence=0.2)
        weights = {"relevance": 0.0, "recency": 0.0, "confidence": 1.0, "usage": 0.0, "freshness": 0.0}
        set_ = await owner.configure_workspace(
            context_budget_tokens=700, context_system_tokens=100, salience_weights=weights, workspace_id="lay-tenant"
        )
        assert set_.salience_weights == weights
        made = await agent.context_assemble("The parser?", record=False, min_seq=max(last.seq, set_.view_seq))
        assert (made.tokens["budget"], made.allocation["system"]) == (700, 100)
        [fact] = (await agent.layered_query("fact", text="parser")).facts
        assert fact.salience == 0.2
