"""The formulas of fusion, against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.services.recall.fusion import (
    neighbour_values,
    reciprocal_ranks,
    session_values,
    weighted_z,
    z_scores,
)

SCORES = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=30)


def test_reciprocal_ranks_count_from_one_and_pass_over_what_is_not_in_the_list():
    assert reciprocal_ranks(np.array([1, 2, 0]), 60).tolist() == [1 / 61, 1 / 62, 0.0]


@given(SCORES, st.floats(0.125, 8))
def test_z_scores_do_not_change_when_every_score_is_multiplied_alike(scores: list[float], factor: float):
    one = z_scores(np.array(scores))
    assert np.allclose(one, z_scores(np.array(scores) * factor), atol=1e-5)
    assert math.isclose(float(one.mean()), 0.0, abs_tol=1e-6)


def test_equal_scores_have_z_scores_of_zero():
    assert z_scores(np.array([0.3, 0.3, np.nan])).tolist()[:2] == [0.0, 0.0]


def test_a_missing_score_stays_missing_and_does_not_move_the_others():
    z = z_scores(np.array([1.0, 3.0, np.nan]))
    assert z[:2].tolist() == [-1.0, 1.0]
    assert np.isnan(z[2])


def test_without_any_vector_the_lexical_arm_has_full_weight():
    lexical, dense = weighted_z(np.array([1.0, -1.0]), np.array([np.nan, np.nan]), 0.6)
    assert lexical.tolist() == [1.0, -1.0]
    assert dense.tolist() == [0.0, 0.0]


def test_the_dense_arm_weighs_as_far_as_it_covers_the_candidates():
    lexical, dense = weighted_z(np.array([1.0, -1.0]), np.array([2.0, np.nan]), 0.6)
    assert lexical.tolist() == pytest.approx([0.7, -0.7])
    assert dense.tolist() == pytest.approx([0.6, 0.0])


def test_a_neighbour_without_a_hit_gets_the_lowest_score_and_an_absent_one_zero():
    values = neighbour_values(np.array([2.0, -3.0, 5.0]), np.array([1, -1, -2]))
    assert values.tolist() == [-3.0, 0.0, -3.0]


def test_a_session_is_worth_the_mean_of_its_best_three():
    values = session_values(np.array([4.0, 1.0, 2.0, 3.0, 9.0, 8.0]), np.array([7, 7, 7, 7, 2, -1]), 3)
    assert values.tolist() == [3.0, 3.0, 3.0, 3.0, 9.0, 0.0]


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(-1, 4)), min_size=1, max_size=40), st.randoms())
def test_sessions_do_not_depend_on_the_order_of_the_candidates(rows, random):
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    scores, sessions = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    values = session_values(scores, sessions, 3)
    again = session_values(scores[shuffled], sessions[shuffled], 3)
    assert np.allclose(values[shuffled], again)
    for i, (_, session) in enumerate(rows):
        best = sorted((s for s, t in rows if t == session), reverse=True)[:3]
        assert values[i] == pytest.approx(sum(best) / len(best) if session >= 0 else 0.0, abs=1e-9)


def test_no_candidates_give_no_values():
    assert len(session_values(np.zeros(0), np.zeros(0, int), 3)) == 0
    assert len(neighbour_values(np.zeros(0), np.zeros(0, int))) == 0
