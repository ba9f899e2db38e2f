"""What becomes of a learned rule over half a year: confirmed, disputed, contradicted, expired, replaced."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from crew_journal.consumers.learning.prompt import ProposedRules
from crew_journal.consumers.learning.reactor import (
    NewRules,
    ended_of,
    learned_of,
    proposed_groups,
    recurring_groups,
    retirement_of,
    texts_of,
    worded_groups,
)
from crew_journal.consumers.learning.reads import KnownRule, LearningEntry, Search, normalised_rows
from crew_journal.consumers.reacting.sweeping import Tick
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.learning.consolidation import RuleEffect, expires_ms, is_harm, is_unhelpful, state_of
from crew_journal.schemas.learning.events import RuleChanged

FIRST_DAY = 20_000
TEXT = "The queue of the importer is stuck because the worker lost its lease"
FIX = "Restart the worker with a longer lease"
WRONG = "Restarting the worker with a longer lease does not help, raise the memory limit of the importer"
RIGHT = "Raise the memory limit of the importer"


def at_day(day: int) -> Tick:
    return Tick(10_000 + day, f"tick{day}", "acme", "2024-10-04T00:00:00.000Z", (FIRST_DAY + day) * DAY_MS)


def said(
    day: int, by: str, action: str = "", *, entry_type: str = "peer.escalation", text: str = TEXT
) -> LearningEntry:
    received = (FIRST_DAY + day) * DAY_MS
    return LearningEntry(
        day + 1,
        f"{by.replace(':', '_')}-{day}",
        entry_type,
        received,
        received,
        text,
        action,
        True,
        False,
        by,
        by.removeprefix("agent:"),
    )


REPORTS = [said(day, by, FIX) for day, by in ((0, "agent:ada"), (2, "agent:bo"), (4, "agent:ada"))]


def learned() -> KnownRule:
    """The rule of ``REPORTS``, learned on day 5."""
    [rule] = learned_of("core", at_day(5), recurring_groups(REPORTS), REPORTS, (), None, reviewed=False).rules.values()
    assert (rule.action, rule.days) == (FIX, 3)
    due = at_day(5).due_ms
    return KnownRule(
        "d_1", rule.pattern, rule.action, rule.confidence, rule.evidence, rule.days, due, 6, 1, False, False,
        rule.publishers, seen_ms=due,
    )  # fmt: skip


def states(day: int, rule: KnownRule, *entries: LearningEntry, searches: tuple[Search, ...] = ()) -> list[str]:
    return [change.state for change in ended_of(at_day(day), [rule], entries, searches)]


def test_new_evidence_of_another_agent_confirms_a_rule_and_its_counts_follow() -> None:
    entries = [*REPORTS, said(20, "agent:cy", FIX)]
    found = learned_of("core", at_day(21), recurring_groups(entries), entries, [learned()], None, reviewed=False)
    assert found.rules == {}
    [change] = found.changes
    assert (change.state, change.days, len(change.evidence)) == ("confirmed", 4, 4)
    assert "agent:cy" in change.publishers
    assert change.seen_ms == at_day(20).due_ms


def test_months_later_the_same_remedy_confirms_the_rule_though_no_evidence_is_shared() -> None:
    entries = [
        said(day, by, FIX, text="Imports wait: the lease ran out") for day, by in ((70, "agent:ada"), (72, "agent:bo"))
    ]
    found = learned_of("core", at_day(73), recurring_groups(entries), entries, [learned()], None, reviewed=False)
    assert (found.rules, found.proposals) == ({}, {})
    assert [change.state for change in found.changes] == ["confirmed"]


def test_a_rule_that_is_not_seen_expires_within_half_a_year_and_not_before() -> None:
    rule = learned()
    days = [day for day in range(6, 181) if states(day, rule)]
    assert days[0] == 66, "60 days after it was last seen"
    searched = Search("importer stuck", at_day(100).due_ms, frozenset({"d_1"}))
    assert states(101, rule, searches=(searched,)) == []
    assert states(101, replace(rule, is_reviewed=True)) == [], "a person approved it"
    assert states(101, replace(rule, state="expired")) == [], "it is recorded once"


@pytest.mark.parametrize(
    ("by", "state"),
    [
        ((("agent:cy", "peer.escalation"),), "disputed"),
        ((("agent:cy", "peer.escalation"), ("agent:di", "peer.escalation")), "contradicted"),
        ((("token:maria", "user.feedback"),), "contradicted"),
    ],
)
def test_a_remedy_that_is_reported_not_to_help_is_disputed_or_contradicted(
    by: tuple[tuple[str, str], ...], state: str
) -> None:
    reports = [said(10 + n, who, WRONG, entry_type=kind) for n, (who, kind) in enumerate(by)]
    assert states(15, learned(), *reports) == [state]


def test_a_report_from_before_the_rule_does_not_refute_it() -> None:
    assert states(15, learned(), said(3, "agent:cy", WRONG)) == []


def test_another_remedy_is_learned_after_the_first_was_contradicted() -> None:
    entries = [*REPORTS, said(20, "agent:cy", RIGHT), said(21, "agent:di", RIGHT), said(22, "agent:ed", RIGHT)]
    entries = [entry for entry in entries if entry.seq > 6]
    known = replace(learned(), state="contradicted")
    [rule] = learned_of(
        "core", at_day(23), recurring_groups(entries), entries, [known], None, reviewed=False
    ).rules.values()
    assert rule.action == RIGHT
    again = [said(day, by, FIX) for day, by in ((30, "agent:ada"), (31, "agent:bo"))]
    found = learned_of("core", at_day(32), recurring_groups(again), again, [known], None, reviewed=False)
    assert (found.rules, found.changes) == ({}, ())


def after(rule: KnownRule, day: int, change: RuleChanged) -> KnownRule:
    """The rule as the views hold it after a change that was recorded on a day."""
    return replace(
        rule,
        state=change.state,
        changed_ms=at_day(day).due_ms,
        last_seq=at_day(day).seq,
        runs=2,
        evidence=change.evidence,
        publishers=change.publishers,
        days=change.days,
        seen_ms=change.seen_ms,
    )


def test_a_rule_goes_through_every_state_within_half_a_year() -> None:
    history: list[LearningEntry] = []

    def run(day: int, known: KnownRule, *new: LearningEntry) -> tuple[NewRules, list[RuleChanged]]:
        """A consolidation of the entries of the last 30 days, as the reactor makes it."""
        history.extend(replace(one, seq=at_day(day).seq - 1) for one in new)
        read = [one for one in history if one.received_ms > at_day(day - 30).due_ms]
        found = learned_of("core", at_day(day), recurring_groups(read), read, [known], None, reviewed=False)
        confirmed = {change.rule_id: change for change in found.changes}
        return found, [*found.changes, *ended_of(at_day(day), [known], read, (), confirmed)]

    alone = [said(0, "agent:ada", FIX), said(2, "agent:ada", FIX)]
    [proposal] = learned_of(
        "core", at_day(3), recurring_groups(alone), alone, (), None, reviewed=False
    ).proposals.values()
    waiting = replace(
        learned(),
        rule_id="d_0",
        evidence=proposal.evidence,
        publishers=proposal.publishers,
        days=2,
        runs=0,
        is_pending=True,
    )
    history += alone
    found, _ = run(5, waiting, said(4, "agent:bo", FIX))
    [rule] = found.rules.values()
    assert rule.settles == "d_0", "proposed, then learned"
    known = replace(learned(), evidence=rule.evidence, publishers=rule.publishers, days=rule.days)
    seen = []
    for day, new in (
        (21, [said(20, "agent:cy", FIX)]),
        (31, [said(30, "agent:di", WRONG)]),
        (41, [said(40, "agent:cy", FIX)]),
        (43, [said(42, "agent:ada", FIX)]),
        (150, []),
        (161, [said(159, "agent:ada", FIX), said(160, "agent:bo", FIX)]),
        (171, [said(169, "agent:di", WRONG), said(170, "agent:ed", WRONG)]),
    ):
        found, changes = run(day, known, *new)
        assert found.rules == {}, day
        seen += [(day, change.state) for change in changes]
        for change in changes:
            known = after(known, day, change)
    assert [state for _, state in seen] == [
        "confirmed", "disputed", "disputed", "disputed", "confirmed", "expired", "confirmed", "contradicted",
    ], seen  # fmt: skip
    found, _ = run(180, known, said(178, "agent:ada", RIGHT), said(179, "agent:bo", RIGHT))
    [replacing] = found.rules.values()
    assert "raise the memory limit" in replacing.action, "another remedy replaces it"


@pytest.mark.parametrize("same_as", ["d_1", ""])
def test_a_rule_that_a_model_words_again_confirms_the_known_one(same_as: str) -> None:
    again = [said(20, "agent:cy"), said(21, "agent:ada")]
    words = {"pattern": "Importer idle: no lease", "action": "Give the worker more time", "confidence": 0.9}
    answer = ProposedRules.model_validate({"rules": [words | {"evidence": ["e1", "e2"], "same_as": same_as}]})
    near = normalised_rows([struct.pack("<2f", 1.0, 0.1 * n) for n in range(2)])
    groups = worded_groups(answer, again, [learned()], near, near)
    assert texts_of(answer, again, [learned()])[1] == f"{learned().pattern} {FIX}"
    found = learned_of("core", at_day(22), groups, again, [learned()], "good", reviewed=False)
    assert (found.rules, found.proposals) == ({}, {})
    assert [(change.rule_id, change.state, change.days) for change in found.changes] == [("d_1", "confirmed", 5)]


def test_the_time_to_expire_follows_the_period_within_bounds() -> None:
    day = DAY_MS
    assert expires_ms(0, 10 * day, 11, 0) == 70 * day, "daily: two months"
    assert expires_ms(0, 90 * day, 4, 0) == (90 + 180) * day, "every thirty days: six times that"
    assert expires_ms(0, 300 * day, 2, 0) == (300 + 365) * day
    assert expires_ms(0, 10 * day, 11, 50 * day) == 110 * day, "a search counts"


def test_one_agent_alone_ends_no_rule() -> None:
    assert state_of({"agent:cy"}, by_person=False, is_expired=True) == "disputed"
    assert state_of(set(), by_person=False, is_expired=False) is None


IGNORED = RuleEffect(given=40, crew_uses=25)
HARMFUL = RuleEffect(given=12, harmed=frozenset({"agent:cy", "agent:di"}), by=("run1", "run2"))


@pytest.mark.parametrize(
    ("effect", "day", "unhelpful"),
    [
        (HARMFUL, 10, True),
        (replace(HARMFUL, used_by=frozenset({"agent:ada"})), 10, True),
        (replace(HARMFUL, used_by=frozenset({"agent:ada", "agent:bo", "agent:ed"})), 10, False),
        (RuleEffect(harmed=frozenset({"agent:cy"})), 10, False),
        (RuleEffect(harmed=frozenset({"token:maria"}), by_person=True), 10, True),
        (IGNORED, 64, False),
        (IGNORED, 65, True),
        (replace(IGNORED, used_by=frozenset({"agent:ada"})), 170, False),
        (replace(IGNORED, given=29), 170, False),
        (replace(IGNORED, crew_uses=0), 170, False),
    ],
)
def test_a_rule_is_unhelpful_if_it_harms_as_many_as_it_helps_or_nobody_uses_it(
    effect: RuleEffect, day: int, *, unhelpful: bool
) -> None:
    assert is_unhelpful(effect, at_day(5).due_ms, at_day(day).due_ms) is unhelpful


def changed(day: int, rule: KnownRule, effect: RuleEffect) -> list[tuple[str, int, int, int]]:
    found = ended_of(at_day(day), [rule], (), (), effects={rule.rule_id: effect})
    return [(change.state, change.given, change.used, change.harmed) for change in found]


def test_over_half_a_year_a_harmful_rule_falls_then_is_proposed_for_retirement_once_and_recovers_by_use() -> None:
    rule = replace(learned(), is_reviewed=True)
    assert changed(10, rule, HARMFUL) == [("unhelpful", 12, 0, 2)]
    fallen = replace(rule, state="unhelpful", changed_ms=at_day(10).due_ms)
    assert changed(11, fallen, HARMFUL) == [], "it is recorded once"
    days = [day for day in range(10, 181) if retirement_of("core", fallen, HARMFUL, frozenset(), at_day(day).due_ms)]
    assert (days[0], days[-1]) == (17, 180)
    proposal = retirement_of("core", fallen, HARMFUL, frozenset(), at_day(17).due_ms)
    assert proposal is not None
    assert (proposal.skill_of, proposal.retires) == ("d_1", True)
    assert retirement_of("core", fallen, HARMFUL, {("d_1", "retirement")}, at_day(18).due_ms) is None
    used = replace(HARMFUL, used_by=frozenset({"agent:ada", "agent:bo", "agent:ed"}))
    assert changed(30, fallen, used) == [("confirmed", 12, 3, 2)]
    assert retirement_of("core", fallen, used, frozenset(), at_day(30).due_ms) is None


def test_new_evidence_does_not_make_an_unhelpful_rule_helpful() -> None:
    entries = [*REPORTS, said(20, "agent:cy", FIX)]
    known = replace(learned(), state="unhelpful")
    found = learned_of("core", at_day(21), recurring_groups(entries), entries, [known], None, reviewed=False)
    assert [(change.state, change.days) for change in found.changes] == [("unhelpful", 4)]


@pytest.mark.parametrize(
    ("how", "kind", "payload", "harm"),
    [
        ("derived_from", "run.failed", {}, True),
        ("derived_from", "user.feedback", {"helpful": False}, True),
        ("derived_from", "user.feedback", {"rating": "good"}, False),
        ("corrects", "memory.remembered", {}, True),
        ("derived_from", "memory.remembered", {}, False),
        ("derived_from", "run.completed", {}, False),
    ],
)
def test_failed_runs_negative_feedback_and_corrections_that_name_a_rule_are_harm(
    how: str, kind: str, payload: dict[str, object], *, harm: bool
) -> None:
    assert is_harm(how, kind, payload) is harm


def test_a_made_up_rule_does_not_count_however_near_its_vector_is() -> None:
    entries = [said(day, by, FIX) for day, by in ((0, "agent:ada"), (2, "agent:bo"))]
    words = {"action": "", "evidence": ["e1", "e2"], "confidence": 0.99}
    made_up = ProposedRules.model_validate({"rules": [words | {"pattern": "The moon is made of cheese"}]})
    assert proposed_groups(made_up, entries, [[0.9, 0.9]]) == []
    free = ProposedRules.model_validate({"rules": [words | {"pattern": "An importer cannot go on without a lease"}]})
    assert len(proposed_groups(free, entries, [[0.9, 0.9]])) == 1
