"""Nudges: thresholds, wording and what a day cost; contract §10 and seed 1, "In-session memory nudge"."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.context.nudges import (
    COST_DEFAULT_USD,
    MEMORY_THRESHOLD,
    CostEntry,
    Spending,
    cost_nudge,
    memory_nudge,
    spending,
    strip_nudges,
    token_text,
    tokens_of,
    usd_of,
)


def call(entry_id: str, *, span: str | None = None, refs: dict[str, Any] | None = None, **payload: Any) -> CostEntry:
    return CostEntry(entry_id, "llm.call", "t1", span, payload, refs or {})


def cost(entry_id: str, *, span: str | None = None, refs: dict[str, Any] | None = None, **payload: Any) -> CostEntry:
    return CostEntry(entry_id, "cost.incurred", "t1", span, payload, refs or {})


def test_the_memory_nudge_is_worded_as_the_seed_says() -> None:
    """Seed 1: "You have 47 new journal entries since your last memory update. …"."""
    assert memory_nudge(47) == (
        '<memory-nudge kind="memory">You have 47 new journal entries since your last memory update. Consider summarising '
        "what you’ve learned with summary.generated so future sessions can recall it.</memory-nudge>"
    )


def test_thirty_entries_are_enough_and_twenty_nine_are_not() -> None:
    """Contract §0, row 3: 30, not 60."""
    assert MEMORY_THRESHOLD == 30
    assert memory_nudge(29) is None
    assert memory_nudge(30) is not None


def test_the_cost_nudge_is_worded_as_the_seed_says() -> None:
    """Seed 1: "Last 24h: 142 calls, 3.4M tokens, $8.71. …"."""
    assert cost_nudge(Spending(142, 3_400_000, 8.71), 1.0) == (
        '<memory-nudge kind="cost">Last 24h: 142 calls, 3.4M tokens, $8.71. Watch for runaway loops — the consolidator will '
        "summarise this batch on the next tick.</memory-nudge>"
    )


def test_one_dollar_is_not_above_one_dollar() -> None:
    """Contract §0, row 4: fires above $1, not on any spend."""
    assert COST_DEFAULT_USD == 1.0
    assert cost_nudge(Spending(1, 10, 1.0), COST_DEFAULT_USD) is None
    assert cost_nudge(Spending(1, 10, 1.01), COST_DEFAULT_USD) is not None
    assert "Last 24h: 1 call, 10 tokens, $0.10." in (cost_nudge(Spending(1, 10, 0.1), 0.0) or "")
    assert cost_nudge(Spending(5, 10, 0.0), 0.0) is None


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (12_500, "12.5k"), (3_400_000, "3.4M"), (2 * 10**9, "2.0B")],
)
def test_token_counts_are_written_short(tokens: int, text: str) -> None:
    assert token_text(tokens) == text


@pytest.mark.parametrize(
    ("payload", "usd", "tokens"),
    [
        ({"cost_usd": 0.5, "usd": 9, "tokens": 10, "total_tokens": 99}, 0.5, 10),
        ({"usd": 2, "total_tokens": 7}, 2.0, 7),
        ({"input_tokens": 3, "output_tokens": 4}, None, 7),
        ({"prompt_tokens": 3}, None, 3),
        ({"cost_usd": "0.5", "usd": True, "tokens": -1}, None, None),
        ({"cost_usd": float("inf"), "usd": 10**400, "tokens": float("nan")}, None, None),
    ],
)
def test_price_and_tokens_are_numbers_of_known_fields(
    payload: dict[str, Any], usd: float | None, tokens: int | None
) -> None:
    assert usd_of(payload) == usd
    assert tokens_of(payload) == tokens


@pytest.mark.parametrize(
    "told_again",
    [
        cost("c", cost_usd=0.6, call_id="k1"),
        cost("c", cost_usd=0.6, refs={"call_id": "k1"}),
        cost("c", cost_usd=0.6, refs={"parent_entry_id": "a"}),
        cost("c", cost_usd=0.6, llm_call_id="a"),
        cost("c", cost_usd=0.6, span="s1"),
        cost("c", cost_usd=0.6),
        call("c", cost_usd=0.6, call_id="k1"),
    ],
    ids=["call_id", "refs", "parent", "entry id", "span", "by nothing", "the call itself"],
)
def test_a_call_that_is_recorded_twice_counts_once(told_again: CostEntry) -> None:
    first = call("a", cost_usd=0.6, tokens=100, call_id="k1", span="s1")
    assert spending([first, told_again]) == Spending(1, 100, 0.6)
    assert spending([told_again, first]) == Spending(1, 100, 0.6)


def test_a_call_without_a_price_costs_what_is_booked_for_it() -> None:
    entries = [
        call("a", tokens=100, call_id="k1"),
        cost("c1", cost_usd=0.25, call_id="k1"),
        cost("c2", cost_usd=0.5, call_id="k1"),
    ]
    assert spending(entries) == Spending(1, 100, 0.75)


def test_costs_alone_count_as_the_calls_they_are() -> None:
    assert spending([cost("a", usd=0.5, tokens=10), cost("b", usd=0.75, tokens=20)]) == Spending(2, 30, 1.25)
    assert spending([]) == Spending()


_ENTRIES = st.lists(
    st.builds(
        CostEntry,
        st.sampled_from(["a", "b", "c", "d", "e"]),
        st.sampled_from(["llm.call", "cost.incurred"]),
        st.sampled_from(["t1", None]),
        st.sampled_from(["s1", "s2", None]),
        st.dictionaries(
            st.sampled_from(["cost_usd", "usd", "tokens", "call_id"]), st.sampled_from([0.5, 1, "k", None, -1])
        ),
        st.dictionaries(st.sampled_from(["parent_entry_id", "call_id"]), st.sampled_from(["a", "b", "k", 3])),
    ),
    max_size=8,
    unique_by=lambda entry: entry.entry_id,
)


@given(_ENTRIES)
def test_spending_never_exceeds_the_recorded_costs_and_repeats_change_no_price(
    entries: list[CostEntry],
) -> None:
    once = spending(entries)
    assert 0.0 <= once.usd <= sum(usd_of(entry.payload) or 0.0 for entry in entries) + 1e-9
    shuffled = list(entries)
    random.Random(3).shuffle(shuffled)
    calls = {entry.entry_type for entry in entries} == {"cost.incurred"}
    assert spending(shuffled).calls == once.calls or not calls


@given(
    st.integers(30, 10**9), st.builds(Spending, st.integers(0, 10**9), st.integers(0, 10**15), st.floats(0.01, 1e12))
)
def test_whatever_is_offered_is_stripped_again(entries: int, spent: Spending) -> None:
    """Seed 1: both nudges are stripped before the response is recorded."""
    for text in (memory_nudge(entries), cost_nudge(spent, 0.0)):
        assert text is not None
        assert strip_nudges(f"Done. {text}\nNext.") == "Done. Next."


_NUMBERS = st.one_of(
    st.floats(),
    st.integers(),
    st.integers(min_value=10**15),
    st.sampled_from([10**400, -(10**400), 1e308, float("inf"), float("nan"), "1e400", "NaN", True, None, [], {}]),
)
_COSTS = st.dictionaries(
    st.sampled_from(
        ["cost_usd", "usd", "tokens", "total_tokens", "input_tokens", "output_tokens", "prompt_tokens", "call_id"]
    ),
    _NUMBERS,
)


@given(
    st.lists(
        st.builds(
            CostEntry,
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["llm.call", "cost.incurred"]),
            st.just("t1"),
            st.sampled_from(["s1", None]),
            _COSTS,
            _COSTS,
        ),
        max_size=20,
    )
)
def test_no_number_that_an_entry_may_hold_breaks_the_cost_nudge(entries: list[CostEntry]) -> None:
    spent = spending([call("real", cost_usd=2.5, tokens=10), *entries])
    assert math.isfinite(spent.usd)
    assert spent.usd >= 2.5 or any(entry.entry_type == "cost.incurred" for entry in entries)
    text = cost_nudge(spent, 1.0)
    assert text is None or ("inf" not in text and "nan" not in text)
    assert (text is not None) == (spent.usd > 1.0)
