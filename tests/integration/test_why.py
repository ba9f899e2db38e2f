"""Why a hit, a memory or a receipt says what it says, and whether a recall can be run again to the same hits."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.errors import NotFound
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.learning.events import LessonRecorded, RuleLearned

WORDS = ("pump", "valve", "boiler", "ledger", "harbour", "crane", "permit", "orchard", "kiln", "winch")


async def _filled(stack: Stack, workspace: str, rng: random.Random) -> int:
    """Every kind of memory of two agents, some made of others; returns the last sequence."""
    seq = 0
    for agent in ("ada", "eve"):
        token = (await stack.token(Role.AGENT, workspace, agent=agent, crew="red")).plaintext
        async with stack.client(token) as client:
            notes: list[str] = []
            for number in range(12):
                some = rng.sample(WORDS, 3)
                refs = {"derived_from": rng.sample(notes, 2)} if len(notes) > 2 and number % 3 == 0 else {}
                done = await client.append(
                    {
                        "entry_type": "memory.remembered",
                        "summary": f"{agent} saw the {some[0]} near the {some[1]} and the {some[2]}, visit {number}",
                        "refs": refs,
                    }
                )
                notes.append(done.id)
            for word in rng.sample(WORDS, 4):
                await client.document_write("AGENT", "append", f"- The {word} of {agent} is green.\n")
                await client.add_drawer("yard", word, f"{agent} keeps the papers of the {word} in the {word} room.")
                changed = await client.kg_add(word, "is_kept_by", agent, source_entry_id=notes[-1])
                lesson = await client.add_lesson(f"Ask {agent} before the {word} is moved", agent_id=agent)
                rule = RuleLearned(
                    crew_id="red",
                    pattern=f"The {word} near the {rng.choice(WORDS)} is kept by somebody",
                    action=f"Ask who keeps the {word}",
                    evidence=tuple(rng.sample(notes, 3)),
                    confidence=0.8,
                    days=2,
                    publishers=("agent:ada", "agent:eve"),
                    authors=("ada", "eve"),
                )
                fields: dict[str, Any] = {"crew_id": "red", "priority": Priority.HIGH}
                learned = await stack.shared.decide(
                    None,
                    rule,
                    f"Learned: {rule.pattern}",
                    workspace_id=workspace,
                    refs={"evidence": list(rule.evidence)},
                    **fields,
                )
                seq = max(seq, changed.seq, lesson.seq, learned.seq)
    return seq


@pytest.mark.parametrize("recalls", [2, pytest.param(200, marks=(pytest.mark.nightly, pytest.mark.timeout(3_600)))])
async def test_why_of_every_hit_leads_to_roots_and_authors(stack: Stack, recalls: int) -> None:
    rng = random.Random(32)
    workspace = f"whys{recalls}"
    seq = await _filled(stack, workspace, rng)
    token = (await stack.token(Role.AGENT, workspace, agent="ada", crew="red")).plaintext
    kinds: set[str] = set()
    checked: set[str] = set()
    roots: set[str] = set()
    explained = 0
    async with stack.client(token) as ada, stack.client() as owner:
        for _ in range(recalls):
            query = f"who keeps the {' and the '.join(rng.sample(WORDS, 2))}?"
            found = await ada.recall(query, k=20, min_seq=seq)
            assert found.receipt is not None
            of_ada = await ada.why(found.receipt)
            of_receipt = await owner.why(found.receipt, workspace_id=workspace)
            assert [hit.id for hit in of_receipt.hits] == [_id_of(hit) for hit in found.hits]
            of_others = [hit for hit in of_ada.hits if not hit.roots or hit.gone]
            for hit in of_others:  # made of entries that ada may not read
                assert (await owner.get(hit.id, workspace_id=workspace)).entry_type == RuleLearned.ENTRY_TYPE, hit
            assert bool(of_others) <= bool(of_ada.hidden)
            for hit in of_receipt.hits:
                explained += 1
                kinds.add(hit.kind)
                assert not hit.gone, hit
                assert hit.roots, hit
                assert hit.authors, hit
                if hit.id in checked:
                    continue
                if hit.kind == "entry":
                    kinds.add((await owner.get(hit.id, workspace_id=workspace)).entry_type)
                named = hit.kind in ("entry", "document", "rule", "lesson")
                name = hit.id if named else f"{hit.kind}:{hit.id}"
                alone = await owner.why(name, workspace_id=workspace)
                whole = await owner.show_lineage(alone.messages[-1].entry_id, workspace_id=workspace)
                assert set(whole.authors) <= set(alone.authors)
                for root in set(hit.roots) - roots:
                    assert (await owner.show_lineage(root, workspace_id=workspace)).made_of == ()
                checked.add(hit.id)
                roots.update(hit.roots)
            again = await ada.why(found.receipt, replay=True)
            assert again.replay is not None
            assert (again.replay.same, again.replay.exact, again.replay.changed) == (True, True, ())
    assert kinds >= {"entry", "document", "drawer", "fact", RuleLearned.ENTRY_TYPE, LessonRecorded.ENTRY_TYPE}, kinds
    assert explained > 5 * recalls


def _id_of(hit: Any) -> str:
    return str(hit.drawer.drawer_id if hit.drawer else hit.fact.fact_id if hit.fact else hit.entry_id)


async def test_replay_names_what_was_retracted_and_what_is_newer(stack: Stack) -> None:
    token = (await stack.token(Role.AGENT, "again", agent="ada", crew="red")).plaintext
    async with stack.client(token) as ada, stack.client() as owner:
        first = await ada.remember("The crane of the harbour is painted red")
        second = await ada.remember("The crane of the harbour needs a new winch")
        found = await ada.recall("crane of the harbour", mode="inject", min_seq=second.seq)
        assert {hit.entry_id for hit in found.hits} == {first.entry_id, second.entry_id}
        assert found.receipt is not None
        assert (await ada.why(found.receipt, replay=True)).replay.same
        retracted = await owner.retract(first.entry_id, "wrong", workspace_id="again")
        third = await ada.remember("The crane of the harbour was sold")
        last = max(retracted.seq or 0, third.seq)
        replay = (await ada.why(found.receipt, replay=True, min_seq=last)).replay
        assert not replay.same
        changes = {change.id: (change.why, change.before is None, change.after is None) for change in replay.changed}
        assert changes[first.entry_id] == ("retracted", False, True)
        assert changes[third.entry_id] == ("newer", True, False)
        of_owner = await owner.why(found.receipt, replay=True, workspace_id="again")
        assert of_owner.replay == replay
        told = await owner.why(first.entry_id, workspace_id="again")
        assert told.standing is not None
        assert [decision.what for decision in told.decisions] == ["retraction.made"]


async def test_why_of_another_agents_memory_is_not_found(stack: Stack) -> None:
    ada = (await stack.token(Role.AGENT, "mine", agent="ada", crew="red")).plaintext
    eve = (await stack.token(Role.AGENT, "mine", agent="eve", crew="red")).plaintext
    async with stack.client(ada) as of_ada, stack.client(eve) as of_eve:
        note = await of_ada.remember("The kiln is behind the orchard")
        written = await of_ada.document_write("AGENT", "append", "- The kiln is hot.\n")
        found = await of_ada.recall("kiln", min_seq=note.seq)
        assert found.receipt is not None
        assert (await of_ada.why(found.receipt)).kind == "receipt"
        for name in (note.entry_id, found.receipt, written.write_id, "a-ada/AGENT.md:1", "j_unknown"):
            with pytest.raises(NotFound):
                await of_eve.why(name)
