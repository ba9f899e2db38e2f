"""Which floor receipts speak for."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.recall.evidence import FLOORS, LEAST_USED, ReplayedHit, propose_floor

HITS = st.builds(ReplayedHit, st.floats(0, 1), st.booleans())


def test_the_highest_floor_that_keeps_what_was_used_is_proposed():
    receipts = [[ReplayedHit(0.6, True), ReplayedHit(0.05, False)] for _ in range(LEAST_USED)]
    found = propose_floor(receipts)
    assert found.floor is not None
    assert found.floor > 0.05
    chosen = next(figure for figure in found.figures if figure.floor == found.floor)
    assert (chosen.used_kept, chosen.used_share, chosen.hits, chosen.silent) == (1.0, 1.0, 1.0, 0.0)


def test_too_few_uses_propose_nothing():
    assert propose_floor([[ReplayedHit(0.9, True)]]).floor is None
    assert propose_floor([]).figures == ()


@given(st.lists(st.lists(HITS, max_size=5), min_size=1, max_size=30))
def test_a_higher_floor_never_keeps_more(receipts):
    figures = propose_floor(receipts).figures
    assert [figure.floor for figure in figures] == list(FLOORS)
    assert all(one.hits >= other.hits and one.used_kept >= other.used_kept for one, other in pairwise(figures))
