"""Whether a proposed update or contradiction counts between two entries, by mission, person and store."""

from __future__ import annotations

import pytest

from crew_journal.schemas.relations.rules import ITEM, RECORD, RelationState, Sphere, slot
from crew_journal.schemas.standing.operations import State
from crew_journal.services.index.standings import Replacement, StandingFacts, StandingSubject

ANNA = Sphere("user-anna", "anna", "t1")
APART = [
    (ANNA, Sphere("user-ben", "anna", "t1")),
    (ANNA, Sphere("user-anna", "ben", "t1")),
    (ANNA, Sphere(None, "anna", "t1")),
    (ANNA, Sphere("user-anna", None, "t1")),
    (Sphere("langgraph", None, slot(ITEM, "a")), Sphere("langgraph", None, slot(ITEM, "b"))),
    (Sphere("crewai", None, slot(RECORD, "a")), Sphere("crewai", None, "t1")),
]


def subject(entry_id: str, seq: int, sphere: Sphere, agent: str = "bot") -> StandingSubject:
    return StandingSubject(entry_id, seq, agent, seq * 1_000, "agent:bot", sphere)


def replaced(older: Sphere, newer: Sphere, state: RelationState) -> tuple[StandingFacts, StandingSubject]:
    old, new = subject("old", 1, older), subject("new", 2, newer)
    facts = StandingFacts()
    facts.replace(old, Replacement(new, state, "says so now", new.holds_ms, 3))
    return facts, old


def contradicted(
    older: Sphere, newer: Sphere, state: RelationState, *, by: str = "bot"
) -> tuple[StandingFacts, StandingSubject]:
    old, new = subject("old", 1, older), subject("new", 2, newer, by)
    facts = StandingFacts()
    facts.contradict(new, old, state, "two values", 3)
    return facts, old


@pytest.mark.parametrize("made", [replaced, contradicted])
@pytest.mark.parametrize(("older", "newer"), APART)
def test_what_a_reactor_proposed_between_persons_missions_or_keys_does_not_count(
    made: type, older: Sphere, newer: Sphere
) -> None:
    facts, old = made(older, newer, RelationState.PROPOSED)
    assert facts.standing(old) is None


@pytest.mark.parametrize(("older", "newer"), APART)
def test_it_is_no_dispute_between_agents_either(older: Sphere, newer: Sphere) -> None:
    facts, old = contradicted(older, newer, RelationState.PROPOSED, by="other")
    assert facts.standing(old) is None


@pytest.mark.parametrize(("made", "state"), [(replaced, State.SUPERSEDED), (contradicted, State.CONTRADICTED)])
@pytest.mark.parametrize(("older", "newer"), APART)
def test_a_relation_that_a_caller_asserted_counts(made: type, state: State, older: Sphere, newer: Sphere) -> None:
    facts, old = made(older, newer, RelationState.ASSERTED)
    standing = facts.standing(old)
    assert standing is not None
    assert standing.state is state


@pytest.mark.parametrize(("made", "state"), [(replaced, State.SUPERSEDED), (contradicted, State.CONTRADICTED)])
@pytest.mark.parametrize("sphere", [ANNA, Sphere()])
def test_a_proposal_within_one_mission_and_person_counts(made: type, state: State, sphere: Sphere) -> None:
    facts, old = made(sphere, sphere._replace(trace_id="t2"), RelationState.PROPOSED)
    standing = facts.standing(old)
    assert standing is not None
    assert (standing.state, standing.by) == (state, "new")


def test_of_two_contradictions_the_one_that_counts_decides() -> None:
    facts, old = contradicted(ANNA, ANNA, RelationState.PROPOSED)
    foreign = subject("foreign", 9, Sphere("user-ben", "ben"))
    facts.contradict(foreign, old, RelationState.PROPOSED, "what Ben said", 10)
    standing = facts.standing(old)
    assert standing is not None
    assert (standing.by, standing.reason) == ("new", "two values")
