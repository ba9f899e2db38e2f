"""What counts now, over HTTP: retraction, supersession, contradiction, repeats, live priority."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from support.stack import DEADLINE_S, Stack

from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal

_NUMBERS = count(1)


@dataclass
class World:
    """One workspace with two crews, and a client for each role."""

    stack: Stack
    workspace: str
    owner: AsyncCrewJournal
    lead: AsyncCrewJournal
    agent: AsyncCrewJournal
    other_agent: AsyncCrewJournal
    far_lead: AsyncCrewJournal

    async def note(self, by: AsyncCrewJournal, entry_id: str, summary: str, **also: Any) -> int:
        receipt = await by.append({"id": entry_id, "entry_type": "note.taken", "summary": summary, **also})
        await self.stack.store.wait_for(receipt.seq, DEADLINE_S)
        return receipt.seq

    async def found(self, query: str, mode: Any = "search", by: AsyncCrewJournal | None = None, **also: Any) -> Any:
        """(id, state) of each hit."""
        answer = await (by or self.owner).recall(query, mode=mode, recipe="lexical", **also)
        hits = [hit for hit in answer.hits if hit.entry_type == "note.taken"]
        return [(hit.entry_id, hit.standing and hit.standing.state.value) for hit in hits]


@pytest.fixture
async def world(stack: Stack) -> AsyncIterator[World]:
    workspace = f"acme{next(_NUMBERS)}"  # the tests of this file share a service
    bound = {
        "owner": stack.client((await stack.token(Role.OWNER, workspace)).plaintext),
        "lead": stack.client((await stack.token(Role.LEAD, workspace, agent="lena", crew="core")).plaintext),
        "agent": stack.client((await stack.token(Role.AGENT, workspace, agent="ada", crew="core")).plaintext),
        "other_agent": stack.client((await stack.token(Role.AGENT, workspace, agent="bruno", crew="core")).plaintext),
        "far_lead": stack.client((await stack.token(Role.LEAD, workspace, agent="cleo", crew="edge")).plaintext),
    }
    try:
        yield World(stack, workspace, **bound)
    finally:
        for client in bound.values():
            await client.close()


async def test_a_retracted_entry_is_marked_and_last_and_left_out_of_prompts(world: World) -> None:
    await world.note(world.agent, "wrong", "The upload timeout is 30 s upload")
    await world.note(world.agent, "right", "Big files need another upload")
    before = await world.found("upload timeout")
    assert before == [("wrong", None), ("right", None)]
    done = await world.agent.retract("wrong", reason="it is 60 s")
    assert (done.retracted, done.changed) == (True, True)
    assert await world.found("upload timeout", min_seq=done.seq) == [("right", None), ("wrong", "retracted")]
    assert "wrong" not in dict(await world.found("upload timeout", "inject"))
    assert "30 s" not in (await world.owner.render("upload timeout", recipe="lexical")).text
    again = await world.agent.retract("wrong", reason="it is 60 s")
    assert (again.retracted, again.changed, again.seq) == (True, False, None)
    restored = await world.agent.restore("wrong", reason="it was 30 s after all")
    assert restored.changed
    assert not restored.retracted
    assert ("wrong", None) in await world.found("upload timeout", "inject")
    assert not (await world.agent.restore("wrong", reason="again")).changed


async def test_retracted_entries_leave_half_of_the_places_to_those_that_count(world: World) -> None:
    for number, word in enumerate(("Ulm", "Bonn", "Jena", "Trier", "Hof", "Celle")):
        await world.note(world.agent, f"old{number}", f"blue van to {word}")
        done = await world.agent.retract(f"old{number}", reason="the tour is over")
    await world.note(world.agent, "new", "Among much else that drives about the yard, the blue van now goes to Aue")
    found = await world.found("blue van", k=4, min_seq=done.seq)
    assert [state for _, state in found] == [None, *("retracted",) * 3]
    assert found[0][0] == "new"
    await world.note(world.agent, "newer", "Among all the cars that stand about the yard is the blue van for Calw")
    found = await world.found("blue van", k=4)
    assert {name for name, state in found if state is None} == {"new", "newer"}
    assert len(found) == 4
    assert [name for name, _ in await world.found("blue van", k=1)] == [found[0][0]]


async def test_get_and_list_show_by_whom_an_entry_was_retracted_and_why(world: World) -> None:
    await world.note(world.agent, "e1", "The upload timeout is 30 s")
    await world.lead.retract("e1", reason="measured", stale=True)
    got = (await world.owner.get("e1")).standing
    assert got is not None
    assert (got.state.value, got.by, got.reason) == ("stale", "lena", "measured")
    [listed] = (await world.owner.list(types=["note.taken"])).entries
    assert listed.standing == got
    await world.note(world.agent, "e2", "The upload timeout is 60 s")
    await world.lead.retract("e1", reason="measured", superseded_by="e2")
    assert await world.found("upload timeout") == [("e2", None), ("e1", "superseded")]


async def test_an_entry_is_retracted_by_those_who_may_read_it_and_restored_by_no_lower_authority(world: World) -> None:
    await world.note(world.agent, "e1", "The upload timeout is 30 s")
    for stranger in (world.other_agent, world.far_lead):
        with pytest.raises(NotFound):
            await stranger.retract("e1", reason="no")
    await world.owner.retract("e1", reason="wrong")
    for lower in (world.agent, world.lead):
        with pytest.raises(NotAllowed, match="was retracted by"):
            await lower.restore("e1", reason="I was right")
    await world.owner.restore("e1", reason="right")
    await world.agent.retract("e1", reason="wrong after all")
    assert (await world.lead.restore("e1", reason="right")).changed
    with pytest.raises(InvalidQuery, match="itself"):
        await world.agent.retract("e1", reason="newer", superseded_by="e1")
    decisions = (await world.owner.list(types=["retraction.made"])).entries
    with pytest.raises(InvalidQuery, match="decision"):
        await world.owner.retract(decisions[0].id, reason="no")


async def test_an_entry_supersedes_what_its_agent_wrote_before(world: World) -> None:
    await world.note(world.agent, "old", "Ada lives in Berlin city")
    await world.note(world.agent, "new", "Ada lives in Munich now", supersedes=["old", "not-there"])
    assert await world.found("Ada lives Berlin city") == [("new", None), ("old", "superseded")]
    assert await world.found("Ada lives", "inject") == [("new", None)]
    hits = (await world.owner.recall("Ada Berlin city", recipe="lexical")).hits
    hit = next(hit for hit in hits if hit.entry_id == "old")
    assert hit.standing is not None
    assert hit.standing.by == "new"
    await world.agent.retract("new", reason="she did not move")
    assert await world.found("Ada lives", "inject") == [("old", None)]
    entry = await world.agent.get("old")
    assert entry.standing is None


async def test_no_agent_silences_another_one_but_an_operator_does(world: World) -> None:
    await world.note(world.agent, "mine", "The queue is empty")
    await world.note(world.other_agent, "theirs", "The disk is full", supersedes=["mine"])
    await world.note(world.far_lead, "far", "The disk is fuller", supersedes=["mine", "later"])
    await world.note(world.agent, "later", "The queue was emptied")
    assert sorted(await world.found("queue", "inject", world.agent)) == [("later", None), ("mine", None)]
    await world.note(world.owner, "truth", "The queue is stuck", supersedes=["mine"])
    assert ("mine", "superseded") in await world.found("queue")


async def test_an_append_warns_of_entries_that_it_does_not_supersede(world: World) -> None:
    own = await world.agent.append({"id": "mine", "entry_type": "note.taken", "summary": "The queue is empty"})
    assert own.warnings == ()
    for vain in ("mine", "not-there"):
        [receipt] = await world.other_agent.append_batch(
            [{"entry_type": "note.taken", "summary": "The queue is full", "supersedes": [vain]}]
        )
        [warning] = receipt.warnings
        assert warning.startswith(f"supersedes: {vain} still counts: no such earlier entry")
    made = await world.agent.remember("The queue is full", supersedes=["mine"])
    assert made.warnings == ()
    made = await world.agent.remember("The queue is full", supersedes=["mine", "mein", "main"])
    assert made.warnings[0].startswith("supersedes: main, mein still count:")


async def test_an_agent_does_not_supersede_what_a_keeper_decided_about_it(world: World) -> None:
    about_ada = {"workspace_id": world.workspace, "agent_id": "ada", "crew_id": "core"}
    decided = {"entry_type": "keeper.decision", "actor_type": "keeper"}
    await world.note(world.owner, "no", "Ada may not deploy on Friday", **about_ada, **decided)
    await world.note(world.agent, "yes", "Ada may deploy on Friday", supersedes=["no"])
    hits = (await world.owner.recall("Ada deploy Friday", recipe="lexical")).hits
    assert {hit.entry_id: hit.standing for hit in hits} == {"no": None, "yes": None}
    assert (await world.owner.get("no")).standing is None
    await world.note(world.owner, "may", "Ada may deploy on Friday after all", supersedes=["no", "yes"], **about_ada)
    states = {hit.entry_id: hit.standing for hit in (await world.owner.recall("Ada deploy Friday")).hits}
    assert [name for name, standing in states.items() if standing is None] == ["may"]
    assert (await world.owner.get("no")).standing == states["no"]


async def test_the_later_of_two_contradicting_entries_counts_by_when_it_holds(world: World) -> None:
    await world.note(world.agent, "fact1", "The limit is nine", valid_at="2026-11-20T00:00:00Z")
    await world.note(world.agent, "fact2", "The limit is seven", valid_at="2026-11-19T00:00:00Z")
    said = await world.agent.relate("fact1", "fact2", "contradicts", reason="one of them")
    assert await world.found("limit", min_seq=said.seq) == [("fact1", None), ("fact2", "contradicted")]
    assert await world.found("limit", "inject") == [("fact1", None)]
    gone = await world.agent.unrelate("fact1", "fact2", "contradicts")
    await world.stack.store.wait_for(gone.seq, DEADLINE_S)
    assert len(await world.found("limit", "inject")) == 2


async def test_repeats_become_one_hit_and_leave_room_for_others(world: World) -> None:
    for number in range(30):
        await world.note(
            world.agent,
            f"r{number}",
            "Nightly backup of the database passed!" if number % 2 else "Nightly backup of the database PASSED",
        )
    await world.note(world.agent, "other", "The backup of the mail server needs one disk more")
    answer = await world.owner.recall("nightly backup database", k=3, recipe="lexical")
    assert [(hit.entry_id, hit.repeats) for hit in answer.hits] == [("r29", 29), ("other", 0)]
    injected = await world.owner.recall("nightly backup database", k=3, mode="inject", recipe="lexical")
    assert [hit.entry_id for hit in injected.hits] == ["r29"]


async def test_list_and_count_filter_by_live_priority(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.note(world.owner, name, f"note {name}", priority="high" if name == "c" else "normal")
    await world.owner.set_priority("a", "pin", "keep")  # type: ignore[arg-type]  # the value of a Priority
    last = (await world.owner.set_priority("c", "normal", "done")).seq  # type: ignore[arg-type]

    async def of(*priorities: str) -> list[str]:
        listed = await world.owner.list(priorities=priorities, types=["note.taken"], min_seq=last)
        counted = await world.owner.count(priorities=priorities, types=["note.taken"])
        assert counted.count == len(listed.entries)
        return sorted(entry.id for entry in listed.entries)

    assert (await of("pin"), await of("high"), await of("normal")) == (["a"], [], ["b", "c"])
    entry = await world.owner.get("a")
    assert (entry.priority, entry.live_priority) == ("normal", "pin")


async def test_an_agent_retracts_no_decision_about_itself(world: World) -> None:
    stored = await world.owner.append(
        {"id": "no", "workspace_id": world.workspace, "agent_id": "ada", "crew_id": "core", "entry_type": "keeper.decision",
         "summary": "Ada may not deploy"}
    )  # fmt: skip
    await world.stack.store.wait_for(stored.seq, DEADLINE_S)
    with pytest.raises(NotAllowed, match="decision"):
        await world.agent.retract("no", reason="I would rather deploy")
    assert (await world.owner.retract("no", reason="she may")).changed


async def test_a_mistyped_word_finds_what_it_means_over_http_too(world: World) -> None:
    await world.note(world.agent, "denied", "The checkout deploy was denied by the keeper")
    await world.note(world.agent, "else", "Lunch was moved to the roof terrace")
    assert await world.found("chekcout") == [("denied", None)]
