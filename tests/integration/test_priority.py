"""Live priorities over HTTP and NATS: operators set them, agents never do, and each change says what it found."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from support.stack import DEADLINE_S, Stack

from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.errors import CrewJournalError, InvalidEntry, NotAllowed, NotFound, ViewsBehind
from crew_journal.schemas.core.ids import derived_id
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.recall.events import PriorityChanged
from crew_journal.schemas.standing.operations import SET_PRIORITY, PriorityRequest
from crew_journal.services.desk import Caller, Desk
from crew_journal.services.journal.intake.append import Recorder
from crew_journal.services.standing.use_cases import Priorities

_CHANGES = """SELECT payload->>'previous_priority', payload->>'new_priority', payload->>'reason', actor_id
    FROM journal_entries WHERE workspace_id = ? AND entry_type = 'memory.priority_changed' ORDER BY seq"""


async def append(stack: Stack, workspace: str, entry_id: str = "e1", **fields: str) -> None:
    async with stack.client() as client:
        entry = {"workspace_id": workspace, "id": entry_id, "entry_type": "peer.escalation", "summary": "it broke"}
        receipt = await client.append(entry | fields)
    await stack.store.wait_for(receipt.seq, DEADLINE_S)


async def test_a_change_is_recorded_with_the_priority_it_found_and_who_made_it(stack: Stack) -> None:
    await append(stack, "w1", priority="high")
    token = await stack.token(Role.ADMIN, "w1")
    async with stack.client(token.plaintext) as client:
        first = await client.set_priority("e1", "pin", "we need it")
        assert (first.previous_priority, first.priority, first.changed) == ("high", "pin", True)
        second = await client.set_priority("e1", "normal", "over")
        assert second.previous_priority == "pin"
        answer = await client.recall("broke", min_seq=second.seq)
        assert [hit.live_priority for hit in answer.hits if hit.entry_id == "e1"] == ["normal"]
        assert [hit.priority for hit in answer.hits if hit.entry_id == "e1"] == ["high"]
        assert (await client.get("e1")).priority == "high"  # the entry itself never changes
    who = token.info.token_id
    assert stack.store.rows(_CHANGES, ["w1"]) == [("high", "pin", "we need it", who), ("pin", "normal", "over", who)]


async def test_the_same_priority_again_is_no_change_and_no_event(stack: Stack) -> None:
    await append(stack, "w2")
    async with stack.client() as client:
        await client.set_priority("e1", "pin", "r", workspace_id="w2")
        again = await client.set_priority("e1", "pin", "r", workspace_id="w2")
    assert (again.changed, again.seq, again.previous_priority) == (False, None, "pin")
    assert len(stack.store.rows(_CHANGES, ["w2"])) == 1


@pytest.mark.parametrize("role", [Role.AGENT, Role.LEAD])
async def test_agents_cannot_mark_their_own_output(stack: Stack, role: Role) -> None:
    await append(stack, "w3", f"own-{role.value}", agent_id="a1", crew_id="c1")
    token = await stack.token(role, "w3", agent="a1", crew="c1")
    async with stack.client(token.plaintext) as client:
        with pytest.raises(NotAllowed):
            await client.set_priority(f"own-{role.value}", "permanent", "mine")
        change = {"target_entry_id": f"own-{role.value}", "previous_priority": "normal", "new_priority": "pin",
                  "reason": "mine"}  # fmt: skip
        with pytest.raises((NotAllowed, InvalidEntry)):
            await client.append({"entry_type": "memory.priority_changed", "summary": "mine", "payload": change})
        with pytest.raises((NotAllowed, InvalidEntry)):
            await client.append({"entry_type": "run.completed", "summary": "mine", "priority": "pin"})
    assert stack.store.rows(_CHANGES, ["w3"]) == []


@pytest.mark.parametrize("entry_id", ["unknown", "e1", "no id!"])
async def test_an_unknown_and_a_foreign_id_are_the_same_404(stack: Stack, entry_id: str) -> None:
    await append(stack, "w4")
    token = await stack.token(Role.OWNER, "w5")
    async with stack.client(token.plaintext) as client:
        with pytest.raises(NotFound) as refused:
            await client.set_priority(entry_id, "pin", "r")
    assert refused.value.message == f"no entry {entry_id}"


async def test_a_reason_is_required_and_the_priority_must_be_one(stack: Stack) -> None:
    await append(stack, "w6")
    async with stack.http() as http:
        for body in ({"priority": "pin"}, {"priority": "pin", "reason": "  "}, {"priority": "vital", "reason": "r"}):
            answer = await http.post("/v1/journal/e1/priority", params={"workspace_id": "w6"}, json=body)
            assert answer.status_code == 422, answer.text


async def test_of_changes_made_at_once_each_finds_what_the_one_before_left(stack: Stack) -> None:
    """On one node and on two: the previous priorities form one chain."""
    await append(stack, "w7")
    caller = Caller.of(stack.tokens.authenticate(stack.owner), "w7")
    one_node = Priorities(stack.shared)
    other_node = Priorities(stack.shared)
    wanted = [Priority.PIN, Priority.HIGH, Priority.PERMANENT, Priority.NORMAL] * 2
    done = await asyncio.gather(
        *(
            (one_node if number % 2 else other_node).set(caller, _wanted(priority, f"r{number}"))
            for number, priority in enumerate(wanted)
        ),
        return_exceptions=True,
    )
    assert all(not isinstance(one, BaseException) or isinstance(one, CrewJournalError) for one in done)
    chain = [(str(previous), str(new)) for previous, new, _, _ in stack.store.rows(_CHANGES, ["w7"])]
    assert len(chain) >= 3
    assert [previous for previous, _ in chain] == ["normal", *(new for _, new in chain[:-1])]


async def test_a_change_whose_id_another_entry_has_is_made_with_the_next_one(stack: Stack) -> None:
    await append(stack, "w10")
    [(seq,)] = stack.store.rows("SELECT seq FROM journal_entries WHERE workspace_id = 'w10'")
    other = PriorityChanged(
        target_entry_id="e2", previous_priority=Priority.NORMAL, new_priority=Priority.HIGH, reason="other"
    )
    journal = cast(Recorder, stack.services.journal)
    await journal.record("w10", other, summary="s", entry_id=derived_id("priority", 1, f"w10/e1/{seq}"))
    caller = Caller.of(stack.tokens.authenticate(stack.owner), "w10")
    done = await Priorities(stack.shared).set(caller, _wanted(Priority.PIN, "r"))
    assert (done.changed, done.previous_priority) == (True, "normal")


async def test_a_lost_answer_asked_again_is_one_change(stack: Stack) -> None:
    await append(stack, "w8")
    caller = Caller.of(stack.tokens.authenticate(stack.owner), "w8")
    priorities = Priorities(stack.shared)
    once = await priorities.set(caller, _wanted(Priority.PIN, "r"))
    again = await priorities.set(caller, _wanted(Priority.PIN, "r"))
    assert once.changed
    assert not again.changed


async def test_an_entry_that_was_only_just_written_is_found_with_its_sequence(stack: Stack) -> None:
    token = await stack.token(Role.ADMIN, "w9")
    async with stack.client(token.plaintext) as client:
        for number in range(20):
            entry = {"id": f"n{number}", "entry_type": "run.completed", "summary": "done"}
            receipt = await client.append(entry)
            done = await client.set_priority(receipt.id, "pin", "r", min_seq=receipt.seq)
            assert (done.changed, done.previous_priority) == (True, "normal")
    hasty = Desk(stack.store, wait_s=0.01)
    hasty.bind(SET_PRIORITY, Priorities(stack.shared).set)
    raw = {"entry_id": "n0", "priority": "high", "reason": "r", "min_seq": 2**40}
    with pytest.raises(ViewsBehind):
        await hasty.run(SET_PRIORITY, stack.tokens.authenticate(token.plaintext), raw)


def _wanted(priority: Priority, reason: str) -> PriorityRequest:
    return PriorityRequest(entry_id="e1", priority=priority, reason=reason)
