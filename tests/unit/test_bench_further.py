"""The ideas that ``bench further`` tries do what they say, and their weights are chosen on other conversations."""

from collections import Counter

import numpy as np
import pytest

from bench.further import JOINED, held_out, joined
from bench.ideas import (
    IDEAS,
    Answered,
    Memory,
    asks_name,
    chain,
    order,
    proper_noun,
    session_bm25,
    spread,
    spread_of_lists,
    unlike,
)
from bench.quality_index import ANALYZER, Asked, own
from crew_journal.schemas.text.analyzer import tokens_of
from crew_journal.schemas.text.vocabulary import SIZE
from crew_journal.schemas.text.word_pieces import pieces_of
from crew_journal.services.recall.asking import query_of

TEXTS = [
    "I went camping near Yosemite",
    "camping was fun",
    "We painted a sunset",
    "a quiet day in Yosemite with the kids",
    "the kids slept",
]
TABLE = np.random.default_rng(3).integers(0, 2**64, (SIZE, 6), dtype=np.uint64)


def memory() -> Memory:
    terms = [Counter(ANALYZER.terms(text)) for text in TEXTS]
    pieces = [np.array([p for w in tokens_of(text) for p in pieces_of(w)], np.uint16) for text in TEXTS]
    return Memory(
        TEXTS,
        terms,
        np.eye(len(TEXTS), 8, dtype=np.float32) + np.float32(0.1),
        np.array([0, 0, 1, 2, 2], np.int32),
        np.arange(len(TEXTS), dtype=np.int64),
        pieces,
        {"c": np.arange(len(TEXTS), dtype=np.int32)},
        {"c": Counter(term for one in terms for term in one)},
        frozenset({"maria"}),
    )


def hits(text: str, docs: list[int], scores: list[float]) -> Answered:
    query = query_of(text, ANALYZER, np.ones(8, np.float32) / np.sqrt(np.float32(8)), None, TABLE)
    return Answered(Asked(text, own("c"), "c", "any", frozenset()), query, np.array(docs, np.int32), np.array(scores))


def best_first(idea, answered: Answered, weight: float) -> list[int]:
    return answered.docs[np.argsort(-idea(memory(), answered, weight), kind="stable")].tolist()


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.__name__)
def test_an_idea_without_weight_changes_no_order(idea) -> None:
    answered = hits("Where did Maria go camping first, in Yosemite?", [0, 1, 3, 4, 2], [3.0, 2.5, 2.0, 1.0, 0.5])
    scores = idea(memory(), answered, 0.0)
    assert np.isfinite(scores).all()
    assert best_first(idea, answered, 0.0) == answered.docs.tolist()


def test_spreading_puts_a_second_session_before_the_second_hit_of_the_first() -> None:
    answered = hits("What activities were fun?", [0, 1, 2], [3.0, 2.9, 2.8])
    assert best_first(spread, answered, 0.5) == [0, 2, 1]
    assert best_first(spread_of_lists, answered, 0.5) == [0, 2, 1]
    one = hits("When was Maria camping?", [0, 1, 2], [3.0, 2.9, 2.8])
    assert best_first(spread_of_lists, one, 0.5) == [0, 1, 2]


def test_likeness_to_a_hit_chosen_before_costs() -> None:
    answered = hits("fun", [1, 0, 2], [3.0, 2.9, 2.8])
    alike = memory()
    alike.vectors[0] = alike.vectors[1]
    assert np.argsort(-unlike(alike, answered, 1.0)).tolist() == [0, 2, 1]


def test_a_rare_term_that_two_hits_share_leads_to_a_third() -> None:
    answered = hits("fun trip", [0, 3, 2, 1], [3.0, 2.0, 1.0, 0.9])
    assert best_first(chain, answered, 0.5)[:2] == [0, 3]
    assert chain(memory(), answered, 0.5)[1] - 2.0 > chain(memory(), answered, 0.5)[2] - 1.0


def test_names_of_the_query_and_names_it_asks_for_lift_entries_that_bear_them() -> None:
    answered = hits("Where in Yosemite did Maria sleep?", [4, 3], [1.0, 0.8])
    assert best_first(proper_noun, answered, 0.5) == [3, 4]
    assert best_first(asks_name, answered, 0.5) == [3, 4]


def test_first_and_last_order_the_hits_by_time() -> None:
    assert best_first(order, hits("the first trip", [4, 2, 0], [1.0, 0.9, 0.8]), 1.0) == [0, 2, 4]
    assert best_first(order, hits("the latest trip", [0, 2, 4], [1.0, 0.9, 0.8]), 1.0) == [4, 2, 0]
    assert best_first(order, hits("a trip", [0, 2, 4], [1.0, 0.9, 0.8]), 1.0) == [0, 2, 4]


def test_a_session_counts_as_one_document() -> None:
    answered = hits("quiet kids", [2, 4], [1.0, 0.9])
    assert best_first(session_bm25, answered, 1.0) == [4, 2]


def test_a_weight_is_scored_on_the_conversation_it_was_not_chosen_on() -> None:
    clusters = np.array(["a", "b", "c"])
    good_on_a = np.array([[0.9, 0.0], [-0.1, 0.0], [-0.1, 0.0]])
    even = np.array([[0.1, 0.0], [0.1, 0.0], [0.1, 0.0]])
    # without a the even one is best; without b or c the one that is good on a
    assert held_out([good_on_a, even], clusters)[:, 0].tolist() == [0.1, -0.1, -0.1]


def test_turns_of_a_session_are_joined_and_questions_ask_for_the_messages() -> None:
    turns = [
        {"id": f"t{at}", "trace_id": "s1" if at < JOINED + 1 else "s2", "summary": f"turn {at}", "payload": {}}
        for at in range(JOINED + 2)
    ]
    messages, questions = joined(turns, [{"relevant_ids": ["t0", "t1", f"t{JOINED}"]}])
    assert [message["id"] for message in messages] == ["t0", f"t{JOINED}", f"t{JOINED + 1}"]
    assert messages[0]["summary"].splitlines()[1] == "turn 1"
    assert questions[0]["relevant_ids"] == ["t0", f"t{JOINED}"]
