"""Nudges and workspace settings over HTTP, against a real broker and real views."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, NotAllowed
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.core.timestamps import format_ts
from crew_journal.schemas.recall.events import MemorySearched, NudgeOffered
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.context.nudges import NudgeService, offer_id
from crew_journal.services.journal.intake.append import Journal

HOUR = timedelta(hours=1)


async def write(stack: Stack, workspace: str, *entries: dict[str, Any], agent: str = "a1") -> int:
    """Entries of an agent; returns the last sequence."""
    async with stack.client() as client:
        batch = [
            {"workspace_id": workspace, "agent_id": agent, "entry_type": "run.completed", "summary": "did it", **entry}
            for entry in entries
        ]
        return (await client.append_batch(batch))[-1].seq


def ago(moment: timedelta, **fields: Any) -> dict[str, Any]:
    return {"ts": format_ts(datetime.now(UTC) - moment), **fields}


async def kinds(client: AsyncCrewJournal, session: str, **given: Any) -> list[str]:
    return [nudge.kind for nudge in (await client.nudges(session, **given)).nudges]


async def test_the_thirtieth_entry_since_the_last_update_brings_one_nudge_per_session(stack: Stack) -> None:
    """Seed 1; contract §10: at most once per session, which theirs never implemented ([TRAP])."""
    await write(stack, "m1", *[ago(9 * HOUR)] * 50, {"entry_type": "summary.generated"}, *[{}] * 29)
    token = await stack.token(Role.AGENT, "m1", agent="a1")
    async with stack.client(token.plaintext) as client:
        seq = await write(stack, "m1", {}, agent="a2")
        assert await kinds(client, "s1", min_seq=seq) == []
        seq = await write(stack, "m1", {})
        (nudge,) = (await client.nudges("s1", min_seq=seq)).nudges
        assert nudge.kind == "memory"
        assert "You have 30 new journal entries" in nudge.text
        assert await kinds(client, "s1") == []
        assert await kinds(client, "s2") == ["memory"]


@pytest.mark.parametrize("marker", ["summary.generated", "memory.updated"])
async def test_either_marker_resets_the_count(stack: Stack, marker: str) -> None:
    """Contract §0, row 3."""
    workspace = f"reset-{marker.partition('.')[0]}"
    seq = await write(stack, workspace, *[ago(HOUR)] * 40)
    token = await stack.token(Role.AGENT, workspace, agent="a1")
    async with stack.client(token.plaintext) as client:
        assert await kinds(client, "before", min_seq=seq) == ["memory"]
        if marker == "memory.updated":  # the service lists the write of a document as one
            async with stack.client() as owner:
                await owner.register_agent("a1", memory_enabled=True, workspace_id=workspace)
            seq = (await client.document_write("AGENT", "append", "- the press needs oil")).seq
        else:
            seq = await write(stack, workspace, {"entry_type": marker})
        assert await kinds(client, "after", min_seq=seq) == []


async def test_without_a_marker_the_last_thirty_days_count_as_instants(stack: Stack) -> None:
    """[TRAP] contract §9: compared as text, the window stretched to the start of its first day."""
    inside, outside = timedelta(days=30) - timedelta(minutes=5), timedelta(days=30) + timedelta(minutes=5)
    seq = await write(stack, "window", *[ago(outside)] * 30, *[ago(inside)] * 29)
    async with stack.client() as owner:
        given = {"workspace_id": "window", "agent_id": "a1"}
        assert await kinds(owner, "s1", min_seq=seq, **given) == []
        seq = await write(stack, "window", ago(inside))
        assert await kinds(owner, "s1", min_seq=seq, **given) == ["memory"]


async def test_a_day_that_cost_more_than_the_setting_brings_one_nudge(stack: Stack) -> None:
    """Seed 1; contract §0, row 4; [TRAP] §9: the day is 24 hours, not since midnight."""
    paid = {"entry_type": "llm.call", "payload": {"cost_usd": 0.6, "tokens": 1_000}}
    outside, inside = ago(24 * HOUR + timedelta(minutes=5), **paid), ago(24 * HOUR - timedelta(minutes=5), **paid)
    token = await stack.token(Role.AGENT, "cost", agent="a1")
    admin = await stack.token(Role.ADMIN, "cost")
    async with stack.client(token.plaintext) as agent, stack.client(admin.plaintext) as operator:
        seq = await write(stack, "cost", outside, outside, inside)
        assert await kinds(agent, "s1", min_seq=seq) == []
        seq = await write(stack, "cost", paid)
        (nudge,) = (await agent.nudges("s1", min_seq=seq)).nudges
        assert nudge.kind == "cost"
        assert "Last 24h: 2 calls, 2.0k tokens, $1.20." in nudge.text
        assert await kinds(agent, "s1") == []
        changed = await operator.configure_workspace(cost_nudge_usd=1.2)
        assert await kinds(agent, "s2", min_seq=changed.view_seq) == []
        changed = await operator.configure_workspace(cost_nudge_usd=0.5)
        assert await kinds(agent, "s2", min_seq=changed.view_seq) == ["cost"]


async def test_of_concurrent_requests_one_gets_the_nudge(stack: Stack) -> None:
    seq = await write(stack, "race", *[{}] * 30)
    token = await stack.token(Role.AGENT, "race", agent="a1")
    async with stack.client(token.plaintext) as client:
        assert await kinds(client, "warm", min_seq=seq) == ["memory"]
        answers = await asyncio.gather(*(client.nudges("s1") for _ in range(20)))
    assert sorted(len(answer.nudges) for answer in answers) == [0] * 19 + [1]


async def test_an_agent_asks_for_itself_and_an_operator_names_one(stack: Stack) -> None:
    token = await stack.token(Role.LEAD, "who", agent="a1", crew="c1")
    async with stack.client(token.plaintext) as client:
        with pytest.raises(NotAllowed):
            await client.nudges("s1", agent_id="a2")
        with pytest.raises(NotAllowed):
            await client.nudges("s1", workspace_id="elsewhere")
        with pytest.raises(NotAllowed):
            await client.workspace_settings()
        with pytest.raises(NotAllowed):
            await client.configure_workspace(cost_nudge_usd=0.0)
        with pytest.raises(InvalidEntry):
            await client.nudges("no session/id")
    async with stack.client() as owner:
        with pytest.raises(InvalidQuery):
            await owner.nudges("s1", workspace_id="who")


async def test_settings_are_one_dollar_until_somebody_changes_them_and_stay_in_their_workspace(stack: Stack) -> None:
    await write(stack, "set1", {})
    seq = await write(stack, "set2", {})
    async with stack.client() as owner:
        assert (await owner.workspace_settings(workspace_id="set1", min_seq=seq)).cost_nudge_usd == 1.0
        changed = await owner.configure_workspace(cost_nudge_usd=2.5, workspace_id="set1")
        read = await owner.workspace_settings(workspace_id="set1", min_seq=changed.view_seq)
        assert (read.workspace_id, read.cost_nudge_usd) == ("set1", 2.5)
        assert (await owner.workspace_settings(workspace_id="set2")).cost_nudge_usd == 1.0
        with pytest.raises(InvalidEntry):
            await owner.configure_workspace(cost_nudge_usd=-1.0, workspace_id="set1")


async def test_a_query_that_fails_is_no_nudge_and_no_error(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract §10: query error → no nudge."""
    seq = await write(stack, "broken", *[{}] * 30, {"entry_type": "llm.call", "payload": {"usd": 5}})
    given = {"workspace_id": "broken", "agent_id": "a1"}

    def fails(*_: object) -> int:
        raise RuntimeError("the view is on fire")

    async with stack.client() as owner:
        with monkeypatch.context() as patched:
            patched.setattr(NudgeService, "_entries", fails)
            assert await kinds(owner, "s1", min_seq=seq, **given) == ["cost"]
            patched.setattr(NudgeService, "_spent", fails)
            assert await kinds(owner, "s2", **given) == []
        assert await kinds(owner, "s1", **given) == ["memory"]


async def test_a_response_is_stored_stripped_and_its_retry_is_the_same_entry(stack: Stack) -> None:
    seq = await write(stack, "strip", *[{}] * 30)
    async with stack.client() as owner:
        (nudge,) = (await owner.nudges("s1", workspace_id="strip", agent_id="a1", min_seq=seq)).nudges
        said = {"id": "r1", "workspace_id": "strip", "agent_id": "a1", "entry_type": "chat.agent_response",
                "summary": f"Done. {nudge.text}", "payload": {"text": nudge.text + "\nAll well."}}  # fmt: skip
        first, again = await owner.append(said), await owner.append(said)
        assert (again.seq, again.duplicate) == (first.seq, True)
        stored = await owner.get("r1", workspace_id="strip", min_seq=first.seq)
    assert (stored.summary, stored.payload) == ("Done.", {"text": "All well."})


async def test_an_agent_that_foresees_the_id_of_anothers_offer_cannot_take_it(stack: Stack) -> None:
    """Whoever takes the id of an offer keeps it from being recorded, and so the nudge from being given."""
    token = await stack.token(Role.AGENT, "thief", agent="a2")
    taken = {"id": offer_id("a1", "s1", "memory"), "entry_type": "run.completed", "summary": "mine now"}
    async with stack.client(token.plaintext) as thief:
        with pytest.raises(InvalidEntry):
            await thief.append(taken)
    seq = await write(stack, "thief", *[{}] * 30)
    async with stack.client() as owner:
        assert await kinds(owner, "s1", agent_id="a1", workspace_id="thief", min_seq=seq) == ["memory"]


async def test_recalls_of_the_agent_that_were_logged_count_and_other_records_do_not(stack: Stack) -> None:
    """Contract §10 counts all entries of the agent but the markers."""
    journal = stack.services.journal
    assert isinstance(journal, Journal)
    seq = await write(stack, "recalls", *[{}] * 28)
    searched = MemorySearched(query="why", scope="own", agent_id="a1", recipe="robust")
    offered = NudgeOffered(agent_id="a1", session_id="another", kind="cost")
    async with stack.client() as owner:
        for number, (payload, due) in enumerate(((searched, []), (offered, []), (searched, ["memory"]))):
            seq = (await journal.record("recalls", payload, summary="recorded", agent_id="a1")).seq
            given = {"workspace_id": "recalls", "agent_id": "a1", "min_seq": seq}
            assert await kinds(owner, f"s{number}", **given) == due


async def test_a_number_of_400_digits_does_not_silence_the_nudge(stack: Stack) -> None:
    """An agent on NATS may publish one; HTTP refuses it."""
    odd = b'{"agent_id":"a1","summary":"odd","payload":{"cost_usd":' + b"9" * 400 + b"}}"
    await stack.client_of_broker.jetstream().publish("journal.odd._.a1.llm.call", odd)
    seq = await write(stack, "odd", {"entry_type": "llm.call", "payload": {"cost_usd": 2}})
    async with stack.client() as owner:
        assert await kinds(owner, "s1", workspace_id="odd", agent_id="a1", min_seq=seq) == ["cost"]
