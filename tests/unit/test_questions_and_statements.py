"""Telling questions from statements, and what a statement changes in a search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, index_of, recorded, vector_fact

from crew_journal.schemas.recall.questions import QueryKind, parts_of, told_by
from crew_journal.services.recall import search as conflicts
from crew_journal.services.recall.asking import AROUND_QUOTED, query_of
from crew_journal.services.recall.recipes import CONVERSATIONAL, LEXICAL, ROBUST


@pytest.mark.parametrize(
    "text",
    [
        "where are the child seats?",
        "Where are the child seats",
        "did we deploy on Friday",
        "checkout deploy denied",
        "GHA secrets config",
        "tell me about Mara",
        "I wonder where I put the keys",
        "I don't want class hierarchies, what should I use instead?",
        'What did Ben mean by "I am off to the airport"?',
        "wo sind die Kindersitze",
        "Ich frage mich, ob wir am Freitag ausgerollt haben",
        "",
        "k8s",
    ],
)
def test_what_asks_is_a_question(text):
    assert told_by(text) is QueryKind.ASKS


@pytest.mark.parametrize(
    "text",
    [
        "I am off to the airport with the kids.",
        "We are planning a long hike this weekend",
        "The radiators are cold again.",
        "Ich fahre mit den Kindern zum Flughafen.",
    ],
)
def test_what_tells_is_a_statement(text):
    assert told_by(text) is QueryKind.STATES


def test_a_situation_with_speech_in_it_quotes_and_its_question_mark_does_not_ask():
    assert told_by("At ten Ben got in and said: 'Should we change the light? It's too bright.'") is QueryKind.QUOTES
    assert told_by("Ben stieg ein und sagte: „Mach bitte wie immer.“") is QueryKind.QUOTES


@given(st.text(max_size=60))
def test_the_parts_of_a_text_are_the_text(text):
    assert "".join(part for part, _ in parts_of(text)) == text


def test_what_is_quoted_outweighs_what_is_told_around_it():
    table = np.zeros((1, 6), np.uint64)
    late = query_of("Ben got in and said: 'warm seats please'", ANALYZER, None, None, table).late
    assert late is not None
    assert len(late.emphasis) == len(late.pieces)
    assert late.emphasis[-1] == 1.0
    assert late.emphasis[0] == AROUND_QUOTED


def test_a_question_is_ranked_as_ever_and_a_statement_by_meaning():
    assert LEXICAL.for_statements is LEXICAL
    assert ROBUST.for_statements.dense_weight > ROBUST.dense_weight
    stated, asked = CONVERSATIONAL.for_statements.turns, CONVERSATIONAL.turns
    assert stated is not None
    assert asked is not None
    assert stated.dense > asked.dense
    assert stated.lexical < asked.lexical


def test_a_long_question_counts_words_and_a_long_request_its_session():
    short, long = (CONVERSATIONAL.for_query(QueryKind.ASKS, terms).turns for terms in (4, 30))
    assert short == CONVERSATIONAL.turns
    assert short is not None
    assert long is not None
    assert long.lexical > short.lexical
    assert long.session > short.session
    request = CONVERSATIONAL.for_query(QueryKind.STATES, 30).turns
    assert request is not None
    assert request.session > short.session
    assert CONVERSATIONAL.for_query(QueryKind.QUOTES, 30) == CONVERSATIONAL.for_quotations


def test_in_a_script_that_the_model_does_not_know_words_decide():
    unread = ROBUST.for_query(QueryKind.ASKS, 30, unread=True)
    assert unread.dense_weight < 0.5 < ROBUST.dense_weight
    assert unread.covered == 0.0, "pairs of characters cover little of any text"
    assert query_of("雷明轩在3月做了什么？", ANALYZER, None, None, None).unspaced
    assert not query_of("What did 雷 do in March at the store?", ANALYZER, None, None, None).unspaced


def test_of_hits_that_say_much_the_same_the_latest_stands_first(monkeypatch):
    monkeypatch.setattr(conflicts, "ALIKE", {"test-model": 0.9})
    events = [
        recorded(1, "the light is green", ts="2026-01-01T09:00:00Z"),
        recorded(2, "something else", ts="2026-01-02T09:00:00Z"),
        recorded(3, "the light is white", ts="2026-01-03T09:00:00Z"),
    ]
    facts = [
        vector_fact(events[0], (1.0, 0.0)),
        vector_fact(events[1], (0.0, 1.0)),
        vector_fact(events[2], (0.99, 0.14)),
    ]
    index = index_of(events, facts)
    order = conflicts.latest_first(index, np.arange(3), np.array([0, 1, 2]))
    assert order.tolist() == [2, 1, 0]


def test_a_summary_is_about_both_sides_and_prefers_no_speaker():
    summed = CONVERSATIONAL.for_query(QueryKind.ASKS, 30, sums_up=True).turns
    assert summed is not None
    assert (summed.user, summed.first_person, summed.instruction) == (0.0, 0.0, 0.0)
    for text in ("Can you summarize my progress?", "Fass unser Gespräch zusammen", "Résume nos échanges", "总结一下"):
        assert query_of(text, ANALYZER, None, None, None).sums_up, text
    assert not query_of("Please resume the run", ANALYZER, None, None, None).sums_up
