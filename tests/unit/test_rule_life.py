"""What becomes of a learned rule over half a year: confirmed, disputed, contradicted, expired, replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crew_journal.consumers.learning.reactor import ended_of, learned_of, recurring_groups
from crew_journal.consumers.learning.reads import KnownRule, LearningEntry, Search
from crew_journal.consumers.reacting.sweeping import Tick
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.learning.consolidation import expires_ms, state_of

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


def test_the_time_to_expire_follows_the_period_within_bounds() -> None:
    day = DAY_MS
    assert expires_ms(0, 10 * day, 11, 0) == 70 * day, "daily: two months"
    assert expires_ms(0, 90 * day, 4, 0) == (90 + 180) * day, "every thirty days: six times that"
    assert expires_ms(0, 300 * day, 2, 0) == (300 + 365) * day
    assert expires_ms(0, 10 * day, 11, 50 * day) == 110 * day, "a search counts"


def test_one_agent_alone_ends_no_rule() -> None:
    assert state_of({"agent:cy"}, by_person=False, is_expired=True) == "disputed"
    assert state_of(set(), by_person=False, is_expired=False) is None
