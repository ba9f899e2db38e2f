"""What the conversational recipes do with a handful of turns, and what they leave alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, index_of, recorded, token_fact, vector_fact

from crew_journal.schemas.core.ports import TokenBits
from crew_journal.schemas.text.dates import days_from_civil
from crew_journal.schemas.text.vocabulary import SIZE
from crew_journal.schemas.text.word_pieces import pieces_of
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import query_vector, words_of
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import RECIPES, ROBUST, default_recipe
from crew_journal.services.recall.search import JUDGED, RANKED_FIRST, search

EVERYTHING = RecallScope(ScopeKind.WORKSPACE)
TABLE = np.random.default_rng(5).integers(0, 2**64, (SIZE, 6), dtype=np.uint64)
WORDS = ["deploy", "rollback", "parser", "memory", "harbour", "violin", "yesterday", "I", "two", "Maria"]


def ask(index, text, vector=None, recipe="conversational", k=10, scope=EVERYTHING, table=TABLE, tokens=None, day=None):
    known = None if vector is None else query_vector(np.array(vector, "<f4").tobytes())
    query = query_of(text, ANALYZER, known, tokens, table, day=day)
    return {
        index.documents.id_of(hit.doc): hit for hit in search(index, scope, query, RECIPES[recipe], k, explain=True)
    }


def said(seq, text, who="Maria", **fields):
    fields.setdefault("ts", f"2023-05-10T09:{seq:02d}:00Z")
    return recorded(seq, text, trace_id="t1", actor_id=who, **fields)


CHAT = [
    said(1, "Where did you put the violin?", "Ben"),
    said(2, "I put it behind the harbour door yesterday"),
    said(3, "The violin was a present", "Ben"),
    said(4, "We sold two parsers"),
    said(5, "Nothing else happened in the harbour", "Ben"),
]


def test_it_is_the_default_wherever_turns_of_conversation_are_in_scope():
    assert default_recipe(0) is ROBUST
    assert default_recipe(1).name == "conversational"


@pytest.mark.parametrize(
    ("query", "share", "entry"),
    [
        ("Where did Maria put the violin?", "speaker", "e2"),
        ("What did I say about the harbour?", "user", "e2"),
        ("violin in May 2023", "day", "e3"),
        ("violin door on 9 May 2023", "interval", "e2"),
        ("where is the violin", "answer", "e2"),
        ("harbour", "first_person", "e2"),
    ],
)
def test_a_turn_is_lifted_for_being_what_the_query_asks_for(query, share, entry):
    hits = ask(index_of(CHAT), query)
    assert hits[entry].explanation.shares[share] != 0.0


@pytest.mark.parametrize("query", ["the violin two weeks ago", "die Geige vor zwei Wochen, violin"])
def test_relative_dates_lift_turns_by_the_day_the_query_is_asked_on(query):
    index = index_of(CHAT)
    shares = ask(index, query, day=days_from_civil(2023, 5, 24))["e2"].explanation.shares
    assert (shares["day"], shares["interval"]) == (3.0, 0.75), "said on 10 May, of the day before"
    assert ask(index, query, day=days_from_civil(2023, 8, 24))["e2"].explanation.shares["day"] == 0.0
    assert "day" not in ask(index, query)["e2"].explanation.shares


def test_a_period_brings_entries_that_no_arm_ranked_high():
    """A day among hundreds of others: its turns are candidates though each of the others has more of the words."""
    other = [
        said(seq, f"the violin concert, the violin {seq}", ts=f"2023-01-{1 + seq % 28:02d}T09:00:00Z")
        for seq in range(1, 300)
    ]
    index = index_of([*other, said(300, "a violin", ts="2023-05-10T09:00:00Z")])
    assert "e300" in ask(index, "which violin concert was on 10 May?", day=days_from_civil(2023, 8, 24))
    assert "e300" not in ask(index, "which violin concert was that?", day=days_from_civil(2023, 8, 24))


def test_a_standing_instruction_answers_what_is_asked_now_and_not_the_past():
    told = said(6, "Always name the concert hall when I ask about a violin", "Maria", actor_type="user")
    index = index_of([*CHAT, told])
    assert ask(index, "Which violin should we rent?")["e6"].explanation.shares["instruction"] == 2.0
    assert ask(index, "Which violin should we rent?")["e2"].explanation.shares["instruction"] == 0.0
    assert "instruction" not in ask(index, "Where did I put the violin?")["e6"].explanation.shares


def test_notes_of_one_session_lend_each_other_nothing():
    texts = ("the violin", "a door")
    notes = [recorded(seq, text, entry_type="memory.remembered", trace_id="t1") for seq, text in enumerate(texts, 1)]
    shares = ask(index_of(notes), "violin", recipe="robust")["e1"].explanation.shares
    assert (shares["previous"], shares["next"], shares["session"]) == (0.0, 0.0, 0.0)


def test_a_question_about_the_assistant_lifts_the_assistants_turns_and_a_request_does_not():
    events = [said(1, "a tomato salad, please"), said(2, "I suggest a tomato salad", "bot", actor_type="agent")]
    hits = ask(index_of(events), "What did you suggest about my salad?")
    assert hits["e2"].explanation.shares["assistant"] == 0.65
    assert "user" not in hits["e2"].explanation.shares
    hits = ask(index_of(events), "Can you suggest a salad for me?")
    assert hits["e1"].explanation.shares["user"] == 1.3


def test_the_turn_after_a_hit_is_a_candidate_although_no_arm_found_it():
    events = [said(1, "Where is the violin?", "Ben"), said(2, "Behind that door")]
    assert set(ask(index_of(events), "violin", table=None)) == {"e1", "e2"}
    assert set(ask(index_of(events), "violin", recipe="robust")) == {"e1"}


def test_the_only_turn_with_the_words_stands_above_the_turn_after_it():
    events = [said(1, "Zoe prefers green tea in the morning"), said(2, "Noted: a pot at nine o'clock")]
    hits = ask(index_of(events), "Zoe prefers which tea", table=None)
    assert list(hits) == ["e1", "e2"]
    assert hits["e1"].score > hits["e2"].score


def test_late_interaction_finds_what_shares_no_term_but_an_alike_piece():
    table = TABLE.copy()
    table[list(pieces_of("fiddle"))] = table[pieces_of("violin")[0]]
    events = [said(1, "the violin here"), said(2, "the parser here")]
    vectors = [vector_fact(event, [1, 0, 0]) for event in events]
    hits = ask(index_of(events, vectors), "fiddle", [1, 0, 0], table=table)
    assert hits["e1"].explanation.shares["late"] > hits["e2"].explanation.shares["late"]


def test_tokens_in_context_count_where_there_are_any_and_pieces_elsewhere():
    events = [said(seq, text) for seq, text in enumerate(("violin one", "violin two", "violin three"), 1)]
    asked = token_fact(events[0], 7).bits
    facts: list[Any] = [vector_fact(event, [1, 0, 0]) for event in events]
    facts += [token_fact(events[0], 8), token_fact(events[1], 7)]
    index = index_of(events, facts)

    tokens = TokenBits(1, asked, 384, len(words_of(asked, 384)))
    shares = {name: hit.explanation.shares for name, hit in ask(index, "violin", [1, 0, 0], tokens=tokens).items()}
    assert shares["e2"]["late"] > shares["e1"]["late"]
    static = {
        name: hit.explanation.shares
        for name, hit in ask(index, "violin", [1, 0, 0], "conversational-static", tokens=tokens).items()
    }
    assert static["e1"]["late"] != shares["e1"]["late"]


def test_a_word_that_is_rare_in_scope_counts_more_in_context_as_well():
    events = [said(seq, "the violin" if seq == 8 else "the harbour") for seq in range(1, 9)]
    rare, frequent = (np.random.default_rng(seed).bytes(48) for seed in (1, 2))
    facts = [vector_fact(event, [1, 0, 0]) for event in events]
    facts += [  # no turn before either of them has tokens to lean on
        replace(token_fact(events[at], 0), bits=bits, first_passage=1) for at, bits in ((0, frequent), (7, rare))
    ]
    tokens = TokenBits(1, rare + frequent, 384, 2)
    hits = ask(index_of(events, facts), "violin harbour", [1, 0, 0], table=None, tokens=tokens)
    late = {name: hit.explanation.shares["late"] for name, hit in hits.items()}
    assert late["e8"] > late["e1"]  # each answers one of the two words exactly


def test_late_interaction_in_context_and_by_pieces_count_together_where_a_turn_has_both():
    events = [said(seq, text) for seq, text in enumerate(("violin one", "harbour two", "violin three"), 1)]
    facts = [fact for event in events for fact in (vector_fact(event, [1, 0, 0]), token_fact(event, event.seq))]
    index = index_of(events, facts)
    tokens = TokenBits(1, np.random.default_rng(2).bytes(48), 384, 1)

    def late(recipe, table):
        hits = ask(index, "violin", [1, 0, 0], recipe, table=table, tokens=tokens)
        return np.array([hits[f"e{seq}"].explanation.shares["late"] for seq in (1, 2, 3)])

    weights, static = RECIPES["conversational"].turns, RECIPES["conversational-static"].turns
    in_context = late("conversational", None) / weights.late
    by_pieces = late("conversational-static", TABLE) / static.late
    assert late("conversational", TABLE) / weights.late == pytest.approx(0.6 * in_context + 0.4 * by_pieces)


def test_a_long_turn_is_found_by_its_end_too_which_the_model_has_not_read():
    filler = "parser memory " * 100
    texts = [f"{filler} deploy", f"{filler} harbour", *[filler] * 4]
    events = [recorded(seq, text, trace_id=f"t{seq}") for seq, text in enumerate(texts, 1)]
    facts = [vector_fact(event, [1, 0, 0]) for event in events]
    facts += [token_fact(event, seq) for seq, event in enumerate(events)]
    asked = TokenBits(1, np.random.default_rng(99).bytes(48), 384, 1)
    hits = ask(index_of(events, facts), "harbour", [1, 0, 0], tokens=asked)
    bare = ask(index_of(events, facts), "harbour", [1, 0, 0], tokens=asked, table=None)
    gains = {name: hit.explanation.shares["late"] - bare[name].explanation.shares["late"] for name, hit in hits.items()}
    assert max(gains, key=gains.__getitem__) == "e2"


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "summary": st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join),
            "entry_type": st.sampled_from(
                ["chat.user_message", "chat.agent_response", "peer.escalation", "run.completed"]
            ),
            "trace_id": st.sampled_from(["t1", "t2", None]),
            "actor_id": st.sampled_from(["Maria", "Ben", None]),
            "agent_id": st.sampled_from(["a1", "a2"]),
            "vector": st.one_of(st.none(), st.lists(st.integers(-3, 3), min_size=3, max_size=3)),
        }
    ),
    min_size=1,
    max_size=25,
)
QUERIES = st.lists(st.sampled_from([*WORDS, "when", "how many"]), min_size=1, max_size=4).map(" ".join)


def journal(rows):
    events, facts = [], []
    for seq, row in enumerate(rows, 1):
        fields = {name: value for name, value in row.items() if name not in ("summary", "vector")}
        event = recorded(seq, row["summary"], ts=f"2026-11-21T09:{seq:02d}:00Z", **fields)
        events.append(event)
        if row["vector"] is not None:
            facts += [vector_fact(event, row["vector"]), token_fact(event, seq)]
    return events, facts


@given(ROWS, QUERIES, st.booleans())
def test_everything_but_turns_keeps_the_rank_that_robust_gives_it(rows, text, with_vector):
    events, facts = journal(rows)
    index = index_of(events, facts)
    vector = [1, 2, -1] if with_vector else None
    scores = {name: hit.score for name, hit in ask(index, text, vector, "robust", k=200).items()}
    plain = list(scores)
    ranked = list(ask(index, text, vector, k=200))
    turns = {event.entry.id for event in events if event.entry.entry_type.startswith("chat.")}
    tied = {name for name in plain for other in turns & set(plain) if scores[name] == pytest.approx(scores[other])}
    for name in set(plain) - turns - tied:
        assert ranked.index(name) == plain.index(name)
    assert set(plain) <= set(ranked) <= set(plain) | turns


@given(ROWS, QUERIES, st.sampled_from(["conversational", "conversational-static"]))
def test_the_shares_of_every_hit_sum_up_to_its_score_and_scores_descend(rows, text, recipe):
    events, facts = journal(rows)
    hits = list(ask(index_of(events, facts), text, [1, 2, -1], recipe, k=200).values())
    for hit in hits:
        assert sum(hit.explanation.shares.values()) == pytest.approx(hit.score, abs=1e-9)
    scores = [hit.score for hit in hits]
    turns = sum(row["entry_type"].startswith("chat.") for row in rows)
    among_notes = 2 * turns < len(rows)  # the last of the first ten may be those nearest in meaning
    for part in (scores[:RANKED_FIRST], scores[JUDGED:]) if among_notes else (scores,):
        assert part == sorted(part, reverse=True)


@given(ROWS, QUERIES)
def test_what_is_out_of_scope_changes_no_score(rows, text):
    events, facts = journal(rows)
    own = {event.entry.id for event in events if event.entry.agent_id == "a1"}
    kept = [event for event in events if event.entry.id in own]
    scope = RecallScope(ScopeKind.OWN, "a1")
    among = ask(index_of(events, facts), text, [1, 2, -1], scope=scope)
    alone = ask(index_of(kept, [fact for fact in facts if fact.entry_id in own]), text, [1, 2, -1], scope=scope)
    assert {name: hit.explanation.shares for name, hit in among.items()} == {
        name: hit.explanation.shares for name, hit in alone.items()
    }


@given(ROWS, QUERIES, st.integers(1, 5))
def test_extended_step_by_step_it_answers_as_if_loaded_at_once(rows, text, step):
    events, facts = journal(rows)
    whole, steps = index_of(events, facts), index_of(events, facts, step=step)
    one, other = (ask(index, text, [1, 2, -1]) for index in (whole, steps))
    assert {n: h.explanation.shares for n, h in one.items()} == {n: h.explanation.shares for n, h in other.items()}


@pytest.mark.parametrize("recipe", ["conversational", "conversational-static"])
def test_with_no_table_no_tokens_and_no_vectors_it_goes_by_words_and_features(recipe):
    hits = ask(index_of(CHAT), "violin", recipe=recipe, table=None)
    assert {"e1", "e3"} <= set(hits)
    assert all(np.isfinite(hit.score) for hit in hits.values())
