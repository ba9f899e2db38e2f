"""What speaks for a hit: what is left out in each mode, and what an answer says of itself."""

import json
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, MODEL, index_of, recorded, vector_fact

from crew_journal.schemas.core.ports import ViewReader
from crew_journal.schemas.recall.evidence import JudgedHit, evidence_rows, judge_hits, rows_for
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall import recipes
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.evidence import figures_of, judged, kept_floors, names_in
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.search import searched

EVERYTHING = RecallScope(ScopeKind.WORKSPACE)
NOTES = [
    recorded(1, "The checkout deploy was denied by the reviewer", actor_id="Maria", entry_type="run.summary"),
    recorded(2, "The harbour crane is painted red", actor_id="Ben", entry_type="run.summary"),
    *(
        recorded(n, f"Lunch number {n} was served on time", actor_id="Ben", entry_type="run.summary")
        for n in range(3, 20)
    ),
]


def asked(text, mode="search", recipe="robust", notes=NOTES, floor=None):
    index = index_of(notes)
    query = query_of(text, ANALYZER, None, None, None)
    found = searched(index, EVERYTHING, query, RECIPES[recipe], 5)
    records = [as_record(notes[hit.doc]) for hit in found.hits]
    names = names_in(query, [record.payload for record in records], ANALYZER)
    return judged(index, query, found, records, names, None, floor, mode)


def reasons_of(found):
    return [found.reasons[at] for at in found.kept]


def as_record(event):
    entry = event.entry
    return SimpleNamespace(
        summary=entry.summary, entry_type=entry.entry_type, payload=entry.payload, actor_id=entry.actor_id
    )


@pytest.mark.parametrize("mode", ["search", "inject"])
def test_a_nonsense_phrase_gets_nothing(mode):
    assert asked("zorp flumph", mode).kept == []


@pytest.mark.parametrize("mode", ["search", "inject"])
def test_a_question_in_the_words_of_an_entry_is_answered_with_its_reason(mode):
    found = asked("why was the checkout deploy denied?", mode)
    assert len(found.kept) >= 1
    assert reasons_of(found)[0].startswith("same words: ")
    assert {"checkout", "deploy", "denied"} <= set(reasons_of(found)[0].removeprefix("same words: ").split(", "))


def test_inject_is_silent_where_one_word_of_many_meets_and_search_is_not():
    text = "which violin teacher moved to the mountain harbour last winter?"
    assert asked(text, "search").kept
    assert asked(text, "inject").kept == []


@pytest.mark.parametrize(
    "text",
    [
        "why was the chekcout denied?",
        "who denied the deploy of the chckout?",
        "was the deploy denied by the reviewwer?",
    ],
)
def test_a_question_with_one_misspelt_rare_word_gets_its_hit_in_inject(text):
    assert reasons_of(asked(text, "inject"))[0].startswith("same words: ")


@pytest.mark.parametrize(("knows", "texts_in_prompt"), [(True, 1), (False, 0)])
def test_cosines_of_a_script_that_the_model_does_not_know_bring_nothing_into_a_prompt(
    monkeypatch, knows, texts_in_prompt
):
    monkeypatch.setattr(recipes, "ENGLISH_MODELS", frozenset() if knows else frozenset({MODEL}))
    notes = [recorded(n, f"第{n}号柜子里有工具", entry_type="memory.remembered") for n in range(1, 41)]
    facts = [vector_fact(note, (1.0, 0.0) if note.seq == 1 else (0.1, 1.0)) for note in notes]
    index = index_of(notes, facts)
    query = query_of("帮忙写首秋天诗歌", ANALYZER, np.array([1.0, 0.0], np.float32), None, None)
    found = searched(index, EVERYTHING, query, RECIPES["robust"], 5)
    records = [as_record(notes[hit.doc]) for hit in found.hits]
    kept = judged(index, query, found, records, [None] * len(records), None, None, "inject").kept
    assert len(kept) == texts_in_prompt


def test_pairs_of_characters_with_a_function_word_say_nothing_about_a_text():
    query = query_of("医保卡是谁的？", ANALYZER, None, None, None)
    assert list(query.terms) == ANALYZER.keys_of(["医保", "保卡"])
    assert query_of("什么？", ANALYZER, None, None, None).terms == ANALYZER.keys_of(["什么"])


def test_a_floor_of_the_workspace_leaves_out_more_or_less():
    text = "was the checkout deploy denied on time?"
    assert len(asked(text, "inject", floor=0.0).kept) > len(asked(text, "inject", floor=0.5).kept)


def test_the_name_of_a_speaker_counts_in_a_note_about_the_person_and_not_in_a_turn():
    notes = [
        recorded(1, "Ben wants reports in French", entry_type="memory.remembered"),
        recorded(2, "Ben here, the reports are done", entry_type="chat.user_message", trace_id="s1", actor_id="Ben"),
        *NOTES[2:],
    ]
    index = index_of(notes)
    query = query_of("what does Ben want in the reports?", ANALYZER, None, None, None)
    found = searched(index, EVERYTHING, query, RECIPES["robust"], 5)
    texts = [notes[hit.doc].entry.summary for hit in found.hits]
    figures = figures_of(index, query, found, texts, None)
    name = figures.terms.index(ANALYZER.terms("ben")[0])
    held = {text: name in places for text, places in zip(texts, figures.shared, strict=True)}
    assert held[notes[0].entry.summary]
    assert not held[notes[1].entry.summary]
    by_text = dict(zip(texts, figures.hits["words"], strict=True))
    assert by_text[notes[0].entry.summary] > by_text[notes[1].entry.summary]


@given(st.floats(0, 1), st.floats(-10, 20), st.booleans(), st.booleans(), st.booleans())
def test_confidence_is_a_probability_whatever_is_missing(words, meaning, turn, asks, known):
    figures = {name: [words] for row in evidence_rows() for name in row.weights}
    figures |= {
        name: [meaning if known else np.nan] for name in ("meaning", "meaning_words", "meaning_near", "context")
    }
    [judged] = judge_hits(figures, [turn], asks=asks)
    assert 0.0 <= judged.confidence <= 1.0


@pytest.mark.parametrize("turn", [True, False])
@pytest.mark.parametrize("asks", [True, False])
def test_a_hit_that_shares_words_can_be_judged_by_words_alone(turn, asks):
    last = rows_for(turn, asks)[-1]
    assert not {"meaning", "context", "static", "margin"} & set(last.weights)


def test_no_row_depends_on_a_model():
    assert {row.name for row in evidence_rows() if "meaning" in row.weights} >= {"texts", "turns"}
    assert not hasattr(evidence_rows()[0], "models")


def test_a_query_that_calls_an_entry_by_a_whole_name_is_answered_by_it():
    cluster = recorded(
        30, "Services run on the cluster", entry_type="run.summary", payload={"aliases": ["k8s", "base class"]}
    )
    assert reasons_of(asked("k8s?", "inject", notes=[*NOTES, cluster])) == ["named: k8s"]
    assert reasons_of(asked("should we use base classes here?", "inject", notes=[*NOTES, cluster])) == [
        "named: base class"
    ]
    assert reasons_of(asked("what about the base here?", notes=[*NOTES, cluster])) == ["same words: base"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("typscript config", "TypeScript"),
        ("Reedis eviction", "Redis"),
        ("typsecript", "TypeScript"),
        ("mongod", "Mongo"),
    ],
)
def test_a_mistyped_name_still_names(query, name):
    assert names_in(query_of(query, ANALYZER, None, None, None), [{"aliases": [name]}], ANALYZER) == [name]


@pytest.mark.parametrize(
    ("query", "name"), [("mango pooling", "Mongo"), ("k9s pods", "k8s"), ("redis", "Redis cluster")]
)
def test_another_word_or_a_part_of_a_name_names_nothing(query, name):
    assert names_in(query_of(query, ANALYZER, None, None, None), [{"aliases": name}, None, {}], ANALYZER) == [
        None,
        None,
        None,
    ]


class FakeViews:
    """Settings of one workspace, and the listener of its commits."""

    generation = 0

    def __init__(self, settings):
        self.settings, self.read, self.follower = settings, 0, None

    def rows(self, _sql, _parameters):
        self.read += 1
        return [(1.0, json.dumps(self.settings))]

    def subscribe(self, follower):
        self.follower = follower
        return lambda: None


async def test_a_workspaces_floor_is_read_once_and_follows_its_commits():
    views = FakeViews({"evidence_floor": 0.2})
    floors = kept_floors(cast(ViewReader, views))
    assert [await floors.of("w1"), await floors.of("w1")] == [0.2, 0.2]
    assert views.read == 1
    views.settings = {"evidence_floor": 0.5}
    views.follower(SimpleNamespace(changes={}))
    assert await floors.of("w1") == 0.2
    views.follower(SimpleNamespace(changes={"workspace_settings": ()}))
    assert await floors.of("w1") == 0.5


TURN_ROW = next(row for row in evidence_rows() if row.turns and row.asks)


@pytest.mark.parametrize(
    ("text", "speaker", "meaning", "share", "opens"),
    [
        ("We decided to take the red boat.", None, 5.0, 0.8, True),
        ("ada: We decided to take the red boat.", "ada", 5.0, 0.8, True),
        ("I'd rather have the red boat.", None, 5.0, 0.8, True),
        ("The red boat looks so lovely today!", None, 5.0, 0.8, False),
        ("We decided to take the red boat.", None, 5.0, 0.6, False),
        ("We decided to take the red boat.", None, 3.0, 0.8, False),
        ("We decided to take the red boat.", None, float("nan"), 0.8, False),
        ("The red boat looks so lovely today!", None, float("nan"), 1.0, True),
    ],
)
def test_a_turn_that_decides_something_opens_the_gate_with_less(text, speaker, meaning, share, opens):
    assert JudgedHit(share * TURN_ROW.gate, TURN_ROW).opens(meaning, text, speaker) is opens


@pytest.mark.parametrize(("text", "last"), [("how much did I pay for lunch in total?", 2), ("who had lunch?", 4)])
def test_the_place_of_a_hit_counts_less_where_many_answer_together(text, last):
    index = index_of(NOTES)
    found = searched(index, EVERYTHING, query_of(text, ANALYZER, None, None, None), RECIPES["robust"], 5)
    query = query_of(text, ANALYZER, None, None, None)
    figures = figures_of(index, query, found, [NOTES[hit.doc].entry.summary for hit in found.hits], None)
    assert figures.hits["place"][-1] == pytest.approx(np.log1p(last))
