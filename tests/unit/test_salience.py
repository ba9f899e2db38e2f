"""Salience and freshness: the contract's worked examples, and the laws of the formulas."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.context.salience import (
    Freshness,
    Remembered,
    Weights,
    freshness,
    parts_of,
    salience,
    state_of,
)

HOUR_MS = 3_600_000
NOW = 1_800_000_000_000
UNIT = st.floats(0, 1)
MEMORIES = st.builds(
    Remembered,
    relevance=UNIT,
    updated_ms=st.integers(NOW - 10**12, NOW + 10**9),
    used_ms=st.none() | st.integers(NOW - 10**12, NOW + 10**9),
    confidence=st.none() | UNIT,
    uses=st.integers(0, 10**6),
    freshness=st.none() | UNIT,
)
WEIGHTS = st.builds(Weights, relevance=st.floats(0.01, 5), recency=UNIT, confidence=UNIT, usage=UNIT, freshness=UNIT)


def of(memory: Remembered, weights: Weights | None = None) -> float:
    weights = weights or Weights()
    return salience(parts_of(memory, weights, NOW), weights)


def test_the_worked_example_of_the_contract() -> None:
    memory = Remembered(0.8, NOW - 168 * HOUR_MS, confidence=0.9, freshness=0.5)
    assert of(memory) == 0.63
    assert of(replace(memory, freshness=None)) == 0.652941


def test_an_unknown_confidence_is_a_half_and_twenty_uses_are_full_usage() -> None:
    parts = parts_of(Remembered(0.0, NOW, uses=20), Weights(), NOW)
    assert (parts.confidence, parts.usage, parts.recency) == (0.5, 1.0, 1.0)
    assert parts_of(Remembered(0.0, NOW, uses=1), Weights(), NOW).usage == pytest.approx(
        math.log(2) / math.log(21), abs=1e-6
    )


def test_recency_counts_from_the_later_of_change_and_use() -> None:
    used = Remembered(0.0, NOW - 1_000 * HOUR_MS, used_ms=NOW - 168 * HOUR_MS)
    assert parts_of(used, Weights(), NOW).recency == 0.5


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"relevance": 0, "recency": 0, "confidence": 0, "usage": 0, "freshness": 0}, "sum to 0"),
        ({"relevance": -0.1}, "relevance"),
        ({"usage": math.nan}, "usage"),
        ({"half_life_hours": 0}, "half-life"),
    ],
)
def test_weights_that_no_salience_can_be_made_of_are_refused(weights: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Weights(**weights)


@given(MEMORIES, WEIGHTS)
def test_a_salience_and_its_parts_are_between_0_and_1_and_the_same_each_time(
    memory: Remembered, weights: Weights
) -> None:
    parts = parts_of(memory, weights, NOW)
    assert all(0.0 <= value <= 1.0 for value in asdict(parts).values() if value is not None)
    assert 0.0 <= salience(parts, weights) <= 1.0
    assert salience(parts_of(memory, weights, NOW), weights) == salience(parts, weights)


@given(MEMORIES, WEIGHTS, UNIT, st.integers(0, 10**6), st.integers(0, 10**11))
def test_more_of_a_part_never_makes_less_salient(
    memory: Remembered, weights: Weights, more: float, uses: int, later_ms: int
) -> None:
    before = of(memory, weights)
    assert of(replace(memory, relevance=max(memory.relevance, more)), weights) >= before - 1e-6
    assert of(replace(memory, confidence=max(memory.confidence or 0.5, more)), weights) >= before - 1e-6
    assert of(replace(memory, uses=memory.uses + uses), weights) >= before - 1e-6
    assert of(replace(memory, updated_ms=memory.updated_ms + later_ms), weights) >= before - 1e-6
    if memory.freshness is not None:
        assert of(replace(memory, freshness=max(memory.freshness, more)), weights) >= before - 1e-6


@pytest.mark.parametrize(("kind", "days"), [("stable", 180), ("default", 30), ("volatile", 1)])
def test_a_type_of_fact_is_half_fresh_after_its_half_life(kind: str, days: int) -> None:
    assert freshness(NOW - days * 24 * HOUR_MS, kind, None, NOW) == 0.5
    assert freshness(NOW, kind, None, NOW) == 1.0


def test_a_permanent_fact_stays_fresh_and_a_half_life_of_its_own_wins() -> None:
    assert freshness(0, "permanent", None, NOW) == 1.0
    assert freshness(NOW - 2 * HOUR_MS, "permanent", 2.0, NOW) == 0.5


def test_stale_is_below_a_half_and_needs_refresh_below_a_quarter() -> None:
    assert [state_of(value) for value in (0.5, 0.499999, 0.25, 0.249999)] == [
        Freshness.FRESH,
        Freshness.STALE,
        Freshness.STALE,
        Freshness.NEEDS_REFRESH,
    ]


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(["stable", "default", "volatile", "permanent"]))
def test_a_verification_restores_freshness_and_time_takes_it(early: int, late: int, kind: str) -> None:
    early, late = sorted((early, late))
    assert freshness(NOW - early, kind, None, NOW) >= freshness(NOW - late, kind, None, NOW)
    assert freshness(NOW, kind, None, NOW) == 1.0
