"""Late interaction as an arm of its own: when it takes part, whom it may see, and how far it looks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, index_of, recorded, vector_fact

from crew_journal.schemas.text.vocabulary import SIZE
from crew_journal.schemas.text.word_pieces import pieces_of
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import query_vector
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.search import search

EVERYTHING = RecallScope(ScopeKind.WORKSPACE)
TABLE = np.random.default_rng(5).integers(0, 2**64, (SIZE, 6), dtype=np.uint64)
TABLE[list(pieces_of("fiddle"))] = TABLE[pieces_of("violin")[0]]
BOTH = pytest.mark.parametrize("recipe", ["conversational", "conversational-static"])
BOUND = RECIPES["conversational"].turns.alone_turns


def ask(index, text="fiddle", vector=None, recipe="conversational", k=10, scope=EVERYTHING, table=TABLE):
    known = None if vector is None else query_vector(np.array(vector, "<f4").tobytes())
    query = query_of(text, ANALYZER, known, None, table)
    return {
        index.documents.id_of(hit.doc): hit for hit in search(index, scope, query, RECIPES[recipe], k, explain=True)
    }


def said(seq, text, **fields):
    return recorded(seq, text, trace_id="t1", ts=f"2023-05-10T{9 + seq // 60:02d}:{seq % 60:02d}:00Z", **fields)


@BOTH
def test_a_turn_that_shares_no_word_with_the_query_is_found_by_its_word_pieces(recipe):
    hits = ask(index_of([said(1, "the violin here"), said(2, "the parser here")]), recipe=recipe)
    assert list(hits) == ["e1"]
    assert set(hits["e1"].explanation.shares) == {"late"}
    assert hits["e1"].explanation.lexical.rank is hits["e1"].explanation.dense.rank is None


def test_it_finds_nothing_without_the_static_table_in_robust_or_among_what_is_no_turn():
    index = index_of([said(1, "the violin here")])
    assert not ask(index, table=None)
    assert not ask(index, recipe="robust")
    assert not ask(index_of([said(1, "the violin here", entry_type="peer.escalation")]))


def test_what_the_arms_found_keeps_its_score_and_stands_before_what_is_added():
    events = [said(1, "the fiddle here"), said(2, "nothing of note"), said(3, "some violin there")]
    index = index_of(events, [vector_fact(events[0], [1, 0, 0])])
    before, hits = (ask(index, vector=[1, 0, 0], k=k) for k in (1, 10))
    assert list(hits) == ["e1", "e2", "e3"], "e2 is there as the turn after e1"
    assert hits["e1"].explanation == before["e1"].explanation.model_copy(
        update={"shares": before["e1"].explanation.shares | {"place": 0.0}}
    )
    assert hits["e1"].score == before["e1"].score


@BOTH
def test_nothing_is_added_where_there_are_as_many_candidates_as_hits_wanted(recipe):
    events = [said(1, "a fiddle here"), said(2, "a parser here"), said(3, "a violin there")]
    index = index_of(events)
    found = ask(index, recipe=recipe, k=2)
    assert "e3" not in found
    assert "e3" in ask(index, recipe=recipe, k=3)
    assert all("place" not in hit.explanation.shares for hit in found.values())


def test_only_as_many_are_added_as_there_is_room_for_newest_first_among_equals():
    index = index_of([said(seq, "the violin here") for seq in range(1, 8)])
    assert list(ask(index, k=3)) == ["e7", "e6", "e5"]


def test_only_the_newest_turns_in_scope_are_compared():
    """The cost of a query must not grow with the length of the conversation."""
    events = [said(1, "the violin here"), *(said(seq, "a parser") for seq in range(2, BOUND + 1))]
    assert list(ask(index_of(events))) == ["e1"]
    events.append(said(BOUND + 1, "a parser"))
    assert not ask(index_of(events))


def test_turns_of_others_neither_show_nor_use_up_the_bound():
    """[TRAP] Out-of-scope rows influence nothing."""
    own = [said(1, "the violin here", agent_id="a1")]
    others = [said(seq, "the violin here", agent_id="a2") for seq in range(2, BOUND + 10)]
    scope = RecallScope(ScopeKind.OWN, "a1")
    among, alone = ask(index_of(own + others), scope=scope), ask(index_of(own), scope=scope)
    assert list(among) == ["e1"]
    assert among["e1"].explanation == alone["e1"].explanation


ROWS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["violin", "fiddle", "parser", "harbour", "I"]), min_size=1, max_size=5).map(" ".join),
        st.sampled_from(["chat.user_message", "chat.agent_response", "peer.escalation"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.sampled_from(["fiddle", "violin", "harbour"]), st.integers(1, 15), st.booleans(), st.integers(1, 5))
def test_added_or_not_shares_sum_up_order_is_by_score_and_extended_equals_loaded(rows, text, k, with_vector, step):
    events = [said(seq, text, entry_type=kind) for seq, (text, kind, _) in enumerate(rows, 1)]
    facts = [vector_fact(event, [1, 2, 0]) for event, row in zip(events, rows, strict=True) if row[2]]
    vector = [1, 1, 1] if with_vector else None
    whole, stepwise = (ask(index_of(events, facts, step=n), text, vector, k=k) for n in (None, step))
    assert whole == stepwise
    scores = [hit.score for hit in whole.values()]
    assert scores == sorted(scores, reverse=True)
    for hit in whole.values():
        assert sum(hit.explanation.shares.values()) == pytest.approx(hit.score, abs=1e-9)
    without = ask(index_of(events, facts), text, vector, k=k, table=None)
    assert set(without) <= set(whole) or len(whole) == k
