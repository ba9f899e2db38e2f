"""BM25 over the hot index equals the textbook, whatever the segments and whatever lies out of scope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, index_of, plain_bm25, recorded

from crew_journal.services.index.arrays import floor_of
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall import arms as lexical
from crew_journal.services.recall.arms import ranked, search_lexical

WORDS = ["deploy", "checkout", "parser", "rollback", "memory", "größe", "night", "shift", "billing", "the"]
SUMMARIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
EVERYTHING = RecallScope(ScopeKind.WORKSPACE)


def lane(index, query, scope=EVERYTHING, depth=10):
    found = search_lexical(index, index.scoped(scope), ANALYZER.terms(query), depth).lane
    names = [index.documents.id_of(doc) for doc in found.docs.tolist()]
    return list(zip(names, found.scores.tolist(), strict=True))


@given(
    st.lists(st.tuples(SUMMARIES, st.sampled_from(["a1", "a2"])), min_size=1, max_size=40),
    SUMMARIES,
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_scores_and_order_are_those_of_the_textbook_over_the_rows_in_scope(rows, query, step, depth):
    events = [recorded(seq, text, agent_id=agent) for seq, (text, agent) in enumerate(rows, 1)]
    index = index_of(events, step=step)
    own = [event for event in events if event.entry.agent_id == "a1"]
    for scope, visible in ((EVERYTHING, events), (RecallScope(ScopeKind.OWN, "a1"), own)):
        expected = plain_bm25(visible, query)
        found = lane(index, query, scope, depth)
        assert len(found) == min(depth, len(expected))
        for name, score in found:
            assert score == pytest.approx(expected[name], rel=1e-5)
        worst = found[-1][1] if found else 0.0
        assert all(score <= worst * (1 + 1e-5) for name, score in expected.items() if name not in dict(found))


def test_ties_go_to_the_newer_and_then_to_the_smaller_id():
    same = "the parser failed at night"
    events = [
        recorded(1, same, id="b", ts="2026-11-21T09:00:00.000Z"),
        recorded(2, same, id="c", ts="2026-11-21T10:00:00.000Z"),
        recorded(3, same, id="a", ts="2026-11-21T09:00:00.000Z"),
        recorded(4, same, id="d", ts="2026-11-21T08:00:00.000Z"),
    ]
    assert [name for name, _ in lane(index_of(events), "parser")] == ["c", "a", "b", "d"]
    assert [name for name, _ in lane(index_of(events), "parser", depth=2)] == ["c", "a"]


def test_other_agents_entries_do_not_move_a_score():
    own = [recorded(seq, text) for seq, text in enumerate(["parser broke", "parser fixed", "billing ran"], 1)]
    others = [recorded(seq, "parser parser parser " * 5, agent_id="a2") for seq in range(10, 40)]
    mine = RecallScope(ScopeKind.OWN, "a1")
    assert lane(index_of(own), "parser billing", mine) == lane(index_of(own + others), "parser billing", mine)


def test_any_document_can_be_scored_afterwards():
    events = [recorded(seq, text) for seq, text in enumerate(["parser broke", "billing ran", "parser parser"], 1)]
    index = index_of(events)
    result = search_lexical(index, index.scoped(EVERYTHING), ANALYZER.terms("parser"), 1)
    scores = result.scores_of(np.arange(3, dtype=np.int32))
    expected = plain_bm25(events, "parser")
    assert scores.tolist() == pytest.approx([expected["e1"], 0.0, expected["e3"]], rel=1e-5)


def test_a_query_of_stop_words_touches_nothing():
    assert lane(index_of([recorded(1, "what is it about")]), "what is the") == []


def test_noise_is_not_found_and_not_counted():
    events = [recorded(1, "parser broke"), recorded(2, "parser output", entry_type="exec.output_chunk")]
    assert lane(index_of(events), "parser") == lane(index_of(events[:1]), "parser")


@pytest.mark.parametrize("others", [0, 100], ids=["most sums are touched", "few sums are touched"])
def test_a_query_that_failed_half_way_does_not_affect_the_next_one(monkeypatch, others):
    texts = ["parser broke", "billing ran", "parser billing", *["night"] * others]
    events = [recorded(seq, text) for seq, text in enumerate(texts, 1)]
    index, share = index_of(events), lexical._share
    begun = []

    def failing(part, norm):
        begun.append(part)
        if len(begun) > 1:
            raise MemoryError
        return share(part, norm)

    with monkeypatch.context() as patched:
        patched.setattr(lexical, "_share", failing)
        with pytest.raises(MemoryError):
            lane(index, "parser billing")
    assert lane(index, "billing") == lane(index_of(events), "billing")


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=200), st.data())
def test_as_many_values_as_wanted_reach_the_floor_and_not_fewer(values, data):
    wanted = data.draw(st.integers(1, len(values)))
    scores = np.array(values, np.float32)
    floor = floor_of(scores, wanted)
    assert floor in scores
    assert np.count_nonzero(scores >= floor) >= wanted


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.integers(1, 20))
def test_the_best_are_those_of_a_full_sort_whatever_is_left_out_before(scores, depth):
    events = [recorded(seq, "x", ts=f"2026-11-21T09:00:0{seq % 3}.000Z") for seq in range(1, len(scores) + 1)]
    documents, docs = index_of(events).documents, np.arange(len(scores), dtype=np.int32)
    best = ranked(documents, docs, np.array(scores, np.float32), depth).tolist()
    in_order = sorted(docs.tolist(), key=lambda d: (-scores[d], -documents.ts_ms[d], documents.id_of(d)))
    assert best == in_order[:depth]
