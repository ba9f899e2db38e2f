"""How far two rankings agree: bounds, symmetry, and values worked out by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.model_search import (
    PERSISTENCE,
    Compared,
    LoggedQuery,
    ModelRanking,
    jaccard,
    rank_biased_overlap,
    report,
    same_first,
)

RANKINGS = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=8)


@given(RANKINGS, RANKINGS)
def test_agreement_lies_between_0_and_1_and_has_no_direction(one, other):
    for measure in (jaccard, rank_biased_overlap):
        assert 0.0 <= measure(one, other) <= 1.0
        assert measure(one, other) == pytest.approx(measure(other, one))
    assert same_first(one, other) == same_first(other, one)


@given(RANKINGS)
def test_a_ranking_agrees_with_itself_and_not_at_all_with_one_that_shares_nothing(one):
    assert jaccard(one, one) == 1.0
    assert rank_biased_overlap(one, one) == pytest.approx(1.0)
    strangers = [name.upper() for name in one] or ["A"]
    assert jaccard(one, strangers) == 0.0
    assert rank_biased_overlap(one, strangers) == 0.0


@given(st.permutations("abcdef"), st.permutations("abcdef"))
def test_of_equally_long_rankings_it_is_the_weighted_agreement_at_each_depth(one, other):
    p, k = PERSISTENCE, len(one)
    agreement = [len(set(one[:d]) & set(other[:d])) / d for d in range(1, k + 1)]
    expected = (1 - p) / p * sum(a * p**d for d, a in enumerate(agreement, 1)) + agreement[-1] * p**k
    assert rank_biased_overlap(one, other) == pytest.approx(expected)


def test_values_worked_out_by_hand():
    # agreement 1, 1/2, 1: (0.1 / 0.9) (0.9 + 0.405 + 0.729) + 0.729
    assert rank_biased_overlap("abc", "acb") == pytest.approx(0.955)
    # s = 1, l = 2: formula 32 gives (0.1 / 0.9) (0.9 + 0.81 / 2 + 0.81 / 2) + (0 / 2 + 1) 0.81
    assert rank_biased_overlap("a", "ab") == pytest.approx(1.0)
    assert jaccard("abc", "acd") == 0.5


def test_a_difference_at_the_top_weighs_more_than_one_at_the_bottom():
    base = list("mnopqr")
    top, bottom = ["x", *base[1:]], [*base[:-1], "x"]
    assert rank_biased_overlap(base, top) < rank_biased_overlap(base, bottom)


def test_a_report_is_the_mean_over_the_queries_and_names_what_differs_most():
    def compared(text, one, other):
        return Compared(
            LoggedQuery(text, RecallScope(ScopeKind.WORKSPACE)),
            ModelRanking(one, [0.5]),
            ModelRanking(other, [0.25, 0.75]),
        )

    found = report(("a", "b"), [compared("same", "xyz", "xyz"), compared("other", "xyz", "uvw")], 3)
    assert (found["queries"], found["jaccard"], found["rank_biased_overlap"], found["same_first"]) == (2, 0.5, 0.5, 0.5)
    assert found["mean_cosine"] == {"a": 0.5, "b": 0.5}
    assert found["most_different"] == [{"query": "other", "rank_biased_overlap": 0.0}]
    assert json.dumps(found)
