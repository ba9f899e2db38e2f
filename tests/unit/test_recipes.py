"""Recipes as data, and what they do with a handful of entries."""

import numpy as np
import pytest
from support.recall import ANALYZER, index_of, recorded, vector_fact

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.services.cli.exam import Ranking, evaluate, ndcg_at, recall_at, session_recall_at
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import query_vector
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.recipes import DEFAULT_RECIPE, RECIPES, RRF, recipe_named
from crew_journal.services.recall.search import search

EVERYTHING = RecallScope(ScopeKind.WORKSPACE)


def ask(index, text, vector=None, recipe="robust", k=10):
    known = None if vector is None else query_vector(np.array(vector, "<f4").tobytes())
    hits = search(index, EVERYTHING, Query(text, ANALYZER.terms(text), known), RECIPES[recipe], k, explain=True)
    return {index.documents.id_of(hit.doc): hit for hit in hits}


def test_robust_is_the_default_recipe():
    assert recipe_named(None).name == DEFAULT_RECIPE == "robust"


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(InvalidQuery, match="dense, lexical, robust, rrf"):
        recipe_named("magic")


def test_lanes_grow_with_k_and_are_never_reset():
    depths = [RRF.depth(k) for k in range(1, 51)]
    assert depths[:7] == [20, 20, 20, 20, 20, 20, 21]
    assert depths == sorted(depths)
    assert depths[-1] == 150


def test_reciprocal_rank_fusion_adds_one_share_a_lane():
    events = [recorded(1, "parser broke", entry_type="peer.escalation"), recorded(2, "parser broke twice and again")]
    index = index_of(events, [vector_fact(events[0], [1, 0, 0])])
    hits = ask(index, "parser", [1, 0, 0], "rrf")
    assert list(hits) == ["e1", "e2"]
    assert hits["e1"].score == pytest.approx(1 / 61 + 1 / 61)
    assert hits["e2"].score == pytest.approx(1 / 62)
    assert hits["e2"].explanation.dense.rank is None


def test_dense_sorts_by_cosine_times_importance_and_shows_the_cosine():
    events = [
        recorded(1, "routine", entry_type="mission.status_change", severity="warn"),
        recorded(2, "grave", entry_type="eval.regression_detected", severity="error"),
    ]
    index = index_of(events, [vector_fact(events[0], [1, 0.3, 0]), vector_fact(events[1], [1, 0.5, 0])])
    hits = ask(index, "anything", [1, 0, 0], "dense")
    assert list(hits) == ["e2", "e1"]
    assert hits["e2"].score == pytest.approx(1 / np.hypot(1, 0.5), rel=1e-6)
    assert hits["e2"].score < hits["e1"].score
    assert hits["e2"].explanation.importance == pytest.approx(1.0)


def test_lexical_scores_lie_between_nought_and_one():
    index = index_of([recorded(seq, "parser " * seq) for seq in range(1, 9)])
    assert all(0 < hit.score < 1 for hit in ask(index, "parser", recipe="lexical").values())


@pytest.mark.parametrize("recipe", ["rrf", "robust"])
def test_what_only_one_arm_finds_still_surfaces(recipe):
    events = [recorded(1, "parser broke"), recorded(2, "grammar tool failed", entry_type="peer.escalation")]
    index = index_of(events, [vector_fact(events[1], [1, 0, 0])])
    assert set(ask(index, "parser", [1, 0, 0], recipe)) == {"e1", "e2"}
    assert set(ask(index, "what is the", [1, 0, 0], recipe)) == {"e2"}
    assert set(ask(index, "parser", None, recipe)) == {"e1"}


def test_a_neighbour_lifts_a_short_entry_and_not_a_long_one():
    def lifted(words):
        tail = "filler " * words
        events = [
            recorded(1, "how is the parser doing", trace_id="t1"),
            recorded(2, f"it is the night shift {tail}", trace_id="t1"),
            *[recorded(seq, f"night shift {seq}", trace_id=f"u{seq}") for seq in range(3, 9)],
        ]
        return ask(index_of(events), "parser night")["e2"].explanation.shares

    assert lifted(10)["previous"] > 0
    assert lifted(70)["previous"] == 0


def test_entries_without_a_session_get_no_session_rules():
    index = index_of([recorded(seq, "parser broke") for seq in range(1, 5)])
    for hit in ask(index, "parser").values():
        assert (hit.explanation.shares["session"], hit.explanation.shares["previous"]) == (0.0, 0.0)


def speakers(query, rows):
    events = [
        recorded(seq, "the parser broke", id=f"e-{name.replace(' ', '_')}", actor_id=name, actor_type=kind)
        for seq, (name, kind) in enumerate(rows, 1)
    ]
    hits = ask(index_of(events), query)
    return {
        name.removeprefix("e-").replace("_", " ") for name, hit in hits.items() if hit.explanation.shares["speaker"] > 0
    }


def test_the_one_speaker_a_query_names_is_lifted():
    rows = [("Caroline", "user"), ("Melanie", "user"), ("Ada Lovelace", "user")]
    assert speakers("what did Caroline say of the parser", rows) == {"Caroline"}
    assert speakers("what is caroline's parser", rows) == {"Caroline"}
    assert speakers("what did Ada say of the parser", rows) == {"Ada Lovelace"}
    assert speakers("what did Caroline tell Melanie of the parser", rows) == set()
    assert speakers("what of the parser", rows) == set()


def test_only_users_are_speakers_and_words_that_name_no_one_do_not_count():
    assert speakers("what did Bruno say of the parser", [("Bruno", "agent")]) == set()
    assert speakers("what will the user say of the parser", [("Will", "user"), ("user", "user")]) == set()


def test_importance_does_not_matter_when_it_is_uniform():
    def order(factor):
        events = [recorded(seq, f"parser {seq}", entry_type="peer.escalation") for seq in range(1, 9)]
        index = index_of(events, [vector_fact(e, [1, e.seq, 0]) for e in events])
        index.importances.rows[:] = factor
        return list(ask(index, "parser 3 7", [1, 1, 0]))

    assert order(0.2) == order(0.9)


def test_recall_and_gain_follow_their_definitions():
    ranked, relevant = ["a", "x", "b", "y"], frozenset({"a", "b", "c"})
    assert recall_at(ranked, relevant, 3) == pytest.approx(2 / 3)
    ideal = 1 + 1 / np.log2(3) + 1 / 2
    assert ndcg_at(ranked, relevant, 10) == pytest.approx((1 + 1 / 2) / ideal)


def test_session_recall_counts_distinct_sessions_in_ranked_order():
    sessions = {"a": "s1", "b": "s1", "c": "s2", "d": "s3"}
    assert session_recall_at(["a", "b", "c", "d"], frozenset({"d", "a"}), sessions, 2) == 0.5
    assert session_recall_at(["a", "b", "c", "d"], frozenset({"d", "a"}), sessions, 3) == 1.0


def test_an_evaluation_reports_each_category_and_all_together():
    rankings = [Ranking("easy", ["a"], frozenset("a")), Ranking("hard", ["x", "b"], frozenset("b"))]
    figures = evaluate(rankings, {"a": "s", "b": "t", "x": "s"})
    assert figures["overall"].mrr == pytest.approx(0.75)
    assert figures["hard"].as_dict() == {
        "questions": 1, "recall@5": 1.0, "recall@10": 1.0, "ndcg@5": 0.6309, "ndcg@10": 0.6309, "mrr": 0.5,
        "session_recall@5": 1.0,
    }  # fmt: skip


def test_a_question_without_relevant_entries_is_left_out_of_means():
    figures = evaluate([Ranking("easy", ["a"], frozenset("a")), Ranking("void", ["a"], frozenset())], {"a": "s"})
    assert figures.keys() == {"overall", "easy"}
    assert (figures["overall"].questions, figures["overall"].recall[10]) == (1, 1.0)


@pytest.mark.parametrize("recipe", ["rrf", "robust", "dense", "lexical"])
def test_ties_of_every_recipe_go_to_the_newer_and_then_to_the_smaller_id_however_entries_arrive(recipe):
    times = {"b": 9, "c": 10, "a": 9, "d": 8}
    for names in ("bcad", "dacb"):
        events = [
            recorded(seq, "parser broke", id=name, ts=f"2026-11-21T{times[name]:02}:00:00.000Z")
            for seq, name in enumerate(names, 1)
        ]
        index = index_of(events, [vector_fact(event, [1, 0, 0]) for event in events])
        hits = ask(index, "parser", [1, 0, 0], recipe)
        assert list(hits) == ["c", "a", "b", "d"]
        assert list(ask(index, "parser", [1, 0, 0], recipe, k=2)) == ["c", "a"]
