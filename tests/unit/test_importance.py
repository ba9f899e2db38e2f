"""Importance by the book: every worked number of contract §6 and seed 1, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.entry import Priority, Severity
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.standing.rules import (
    PRIORITY_FLOOR,
    SEVERITY_BONUS,
    TYPE_BONUS,
    base_importance,
    decayed,
    recency,
    reference_boost,
)

NOW = 1_795_000_000_000


@pytest.mark.parametrize(
    ("entry_type", "severity", "priority", "expected"),
    [
        ("peer.escalation", "info", "normal", 0.70),
        ("peer.conversation", "info", "normal", 0.50),
        ("summary.generated", "info", "normal", 0.65),
        ("memory.consolidated", "info", "normal", 0.70),
        ("approval.denied", "info", "normal", 0.65),
        ("eval.regression_detected", "info", "normal", 0.80),
        ("keeper.decision", "info", "normal", 0.60),
        ("mission.status_change", "info", "normal", 0.55),
        ("exec.output_chunk", "info", "normal", 0.50),
        ("never.heard.of", "info", "normal", 0.50),
        ("peer.conversation", "notice", "normal", 0.55),
        ("peer.conversation", "warn", "normal", 0.65),
        ("peer.conversation", "error", "normal", 0.75),
        ("peer.escalation", "warn", "normal", 0.85),
        ("peer.conversation", "info", "pin", 0.80),
        ("peer.conversation", "info", "high", 0.85),
        ("peer.conversation", "info", "permanent", 0.95),
        ("eval.regression_detected", "error", "pin", 1.0),  # 1.05, clamped; the floor never lowers it
        ("eval.regression_detected", "warn", "high", 0.95),
    ],
)
def test_the_base_of_contract_6(entry_type: str, severity: str, priority: str, expected: float) -> None:
    assert base_importance(entry_type, severity, priority) == pytest.approx(expected)


def test_every_severity_and_priority_there_is_has_its_number() -> None:
    assert set(SEVERITY_BONUS) == {severity.value for severity in Severity}
    assert set(PRIORITY_FLOOR) == {priority.value for priority in Priority}


@pytest.mark.parametrize(
    ("entry", "days", "references", "expected"),
    [
        (("peer.escalation", "warn", "normal"), 90, 0, 0.425),
        (("peer.escalation", "warn", "normal"), 180, 0, 0.085),
        (("peer.escalation", "warn", "normal"), 0, 3, 1.0),  # 1.0625, clamped (conflict 17: ours clamps)
        (("peer.escalation", "warn", "high"), 90, 10, 0.6088),
        (("peer.conversation", "info", "normal"), 60, 0, 1 / 3),
        (("eval.regression_detected", "error", "permanent"), 400, 255, 0.2),
    ],
)
def test_the_worked_examples_of_contract_6(
    entry: tuple[str, str, str], days: int, references: int, expected: float
) -> None:
    assert decayed(base_importance(*entry), NOW - days * DAY_MS, NOW, references) == pytest.approx(expected, abs=5e-5)


def test_before_it_is_clamped_the_reinforced_escalation_is_1_0625() -> None:
    assert 0.85 * recency(0) * (1 + reference_boost(3) / 8) == pytest.approx(1.0625)


def test_a_permanent_entry_decays_too() -> None:
    """Contract §6, note: the floor applies to the base only, do not assume that it stays at .95 or above."""
    base = base_importance("peer.conversation", "info", "permanent")
    assert base == 0.95
    assert decayed(base, NOW - 180 * DAY_MS, NOW, 0) == pytest.approx(0.095)


def test_an_escalation_recalled_once_a_week_keeps_its_rank_for_half_a_year() -> None:
    """Seed 1: it keeps ranking well after one recall per week, while a stale low-value info entry falls off."""
    recalled = decayed(base_importance("peer.escalation", "warn", "normal"), NOW - 180 * DAY_MS, NOW, 26)
    stale = decayed(base_importance("peer.conversation", "info", "normal"), NOW - 180 * DAY_MS, NOW, 0)
    assert recalled / stale == pytest.approx(0.85 / 0.5 * (1 + 4.755 / 8), rel=1e-3)


BASES = st.floats(0, 1)
AGES = st.integers(-10 * DAY_MS, 4_000 * DAY_MS)
COUNTS = st.integers(-5, 10**9)


@given(BASES, AGES, AGES, COUNTS)
def test_what_is_older_is_never_more_important(base: float, one: int, other: int, references: int) -> None:
    younger, older = sorted((one, other))
    assert decayed(base, NOW - older, NOW, references) <= decayed(base, NOW - younger, NOW, references)


@given(BASES, AGES, st.integers(0, 10**9), st.integers(0, 10**9))
def test_what_is_used_more_is_never_less_important(base: float, age: int, one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert decayed(base, NOW - age, NOW, fewer) <= decayed(base, NOW - age, NOW, more)


@given(BASES, BASES, AGES, COUNTS)
def test_a_higher_base_is_never_less_important(one: float, other: float, age: int, references: int) -> None:
    low, high = sorted((one, other))
    assert decayed(low, NOW - age, NOW, references) <= decayed(high, NOW - age, NOW, references)


@given(st.floats(-2, 3), st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), COUNTS)
def test_importance_stays_between_0_and_1(base: float, indexed: int, due: int, references: int) -> None:
    assert 0.0 <= decayed(base, indexed, due, references) <= 1.0


@given(BASES, AGES, st.integers(-(10**6), 0))
def test_a_negative_count_counts_as_zero(base: float, age: int, references: int) -> None:
    assert decayed(base, NOW - age, NOW, references) == decayed(base, NOW - age, NOW, 0)


@given(BASES, st.integers(-(10**15), 0))
def test_what_was_indexed_after_the_sweep_counts_as_fresh(base: float, age: int) -> None:
    assert decayed(base, NOW - age, NOW, 0) == base


@given(
    st.sampled_from([*TYPE_BONUS, "x"]),
    st.sampled_from([*SEVERITY_BONUS, "loud"]),
    st.sampled_from([*PRIORITY_FLOOR, "vital"]),
)
def test_a_priority_never_lowers_a_base(entry_type: str, severity: str, priority: str) -> None:
    plain = base_importance(entry_type, severity, "normal")
    assert plain <= base_importance(entry_type, severity, priority) <= 1.0
