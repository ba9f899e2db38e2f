"""What a cosine means under a model, and that a hit's confidence depends on the hit and not on what else is remembered."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.recall import ANALYZER, MODEL, index_of, recorded, vector_fact

from crew_journal.schemas.core.errors import EmbedderUnavailable
from crew_journal.schemas.recall.reference_texts import MEASURED, reference_texts
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.calibration import Calibration, Calibrations, calibrate, known_calibration
from crew_journal.services.recall.evidence import judged
from crew_journal.services.recall.recipes import ROBUST, default_recipe
from crew_journal.services.recall.search import searched, with_nearest

DIM = 64
MINILM = known_calibration("all-MiniLM-L6-v2")
LIKE_MINILM = Calibration(
    MODEL, np.zeros((2, DIM), np.float32), np.zeros((2, DIM), np.float32), (20.8, 0.0, 0.0), -4.0, 0.065, 0.09
)
FOREIGN = np.arange(60) % 6 == 0
EVERYTHING = RecallScope(ScopeKind.WORKSPACE)
NO_NEARER = 0.065 + 2 * 0.09
"""A text that is by chance as near to the question as the hit does make the hit doubtful."""
QUESTION = "where do we keep the spare mooring lines?"


def unit(values):
    return (values / np.linalg.norm(values)).astype(np.float32)


def at_cosine(cosine, query, seed):
    """A vector with this cosine to the query, its rest drawn by a seed."""
    rest = np.random.default_rng(seed).normal(size=DIM)
    rest -= rest @ query * query
    return cosine * query + np.sqrt(1.0 - cosine**2) * unit(rest)


def pairs(seed, strength, noise=1.0):
    """Texts, questions and situations of a model: related pairs share a part of this strength."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=(60, DIM))
    some = [
        np.stack([unit(row) for row in strength * common + noise * draw.normal(size=common.shape)]) for _ in range(3)
    ]
    return some[0], some[1], some[2]


def test_log_odds_by_meaning_are_the_same_whatever_range_the_cosines_of_a_model_have():
    texts, questions, situations = pairs(1, 1.0)
    plain = calibrate("plain", texts, questions, situations, FOREIGN)
    shift = np.full((60, 1), 2.0, np.float32)  # one more dimension that all texts share: every cosine lies above .8

    def moved(some):
        return np.stack([unit(row) for row in np.c_[some, shift]])

    narrow = calibrate("narrow", moved(texts), moved(questions), moved(situations), FOREIGN)
    assert narrow.mean > 0.75 > plain.mean + 0.5
    before = plain.meaning((texts @ questions[0]).astype(float), questions[0], texts)
    after = narrow.meaning((moved(texts) @ moved(questions)[0]).astype(float), moved(questions)[0], moved(texts))
    assert np.abs(before - after).max() < 0.5


def test_a_model_that_separates_no_texts_is_not_calibrated():
    draw = np.random.default_rng(3)
    some = [np.stack([unit(row) for row in draw.normal(size=(60, DIM))]) for _ in range(3)]
    assert calibrate("blind", some[0], some[1], some[2], FOREIGN) is None
    same = np.tile(some[0][:1], (60, 1))
    assert calibrate("constant", same, same, same, FOREIGN) is None


def test_texts_that_only_share_a_foreign_language_are_not_near_each_other():
    texts, questions, situations = pairs(1, 1.0)
    language = 2.0 * unit(np.random.default_rng(2).normal(size=DIM))

    def spoken(some):
        return np.stack([unit(row + language) if abroad else row for row, abroad in zip(some, FOREIGN, strict=True)])

    texts, questions, situations = spoken(texts), spoken(questions), spoken(situations)
    known = calibrate("english", texts, questions, situations, FOREIGN)
    assert known is not None
    abroad = np.flatnonzero(FOREIGN)
    query, others = questions[abroad[0]], texts[abroad[1:]]
    assert (others @ query).min() > 0.5
    assert known.meaning((others @ query).astype(float), query, others).max() < 0.0


def test_the_calibration_of_minilm_belongs_to_its_model_alone():
    assert MINILM is not None
    assert MINILM.dim == 384
    assert known_calibration("nomic-embed-text") is None
    assert known_calibration(None) is None


def as_record(entry):
    return SimpleNamespace(summary=entry.summary, entry_type=entry.entry_type, payload={}, actor_id=entry.actor_id)


def confidence_beside(count, cosine, entry_type, text):
    """The confidence of one hit with so many unrelated texts beside it."""
    query = unit(np.random.default_rng(7).normal(size=DIM))
    draw = np.random.default_rng(8)
    events = [recorded(1, text, entry_type=entry_type)]
    vectors = [at_cosine(cosine, query, 9)]
    for at in range(count):
        words = " ".join(f"{chr(97 + one)}{at}stone" for one in draw.integers(0, 26, 6))
        events.append(recorded(at + 2, f"About {words}", entry_type=entry_type))
        vectors.append(at_cosine(min(draw.normal(0.065, 0.09), NO_NEARER), query, at + 10))
    index = index_of(events, [vector_fact(event, vector) for event, vector in zip(events, vectors, strict=True)])
    asked = query_of(QUESTION, ANALYZER, query, None, None)
    recipe = default_recipe(index.scoped(EVERYTHING).turn_count)
    found = searched(index, EVERYTHING, asked, recipe, 10)
    records = [as_record(events[hit.doc].entry) for hit in found.hits]
    of = judged(index, asked, found, records, [], LIKE_MINILM, None, "search")
    return next(sure for sure, hit in zip(of.confidence, found.hits, strict=True) if hit.doc == 0)


@pytest.mark.parametrize("entry_type", ["memory.remembered", "chat.user_message"])
@pytest.mark.parametrize("cosine", [0.35, 0.5, 0.7])
@pytest.mark.parametrize("text", ["The spare mooring lines are in the aft locker", "Ropes lie behind the engine hatch"])
def test_up_to_a_thousand_unrelated_texts_move_no_confidence_by_more_than_a_tenth(entry_type, cosine, text):
    alone = confidence_beside(0, cosine, entry_type, text)
    for count in (1, 30, 1_000):
        assert confidence_beside(count, cosine, entry_type, text) == pytest.approx(alone, abs=0.1)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["memory.remembered", "chat.user_message"]), min_size=1, max_size=4))
def test_an_earlier_question_is_no_answer_to_itself(types):
    events = [recorded(n, QUESTION, entry_type=kind) for n, kind in enumerate(types, 1)]
    events.append(recorded(9, "We keep the spare mooring lines in the aft locker", entry_type="memory.remembered"))
    index = index_of(events)
    query = query_of(QUESTION, ANALYZER, None, None, None)
    found = searched(index, EVERYTHING, query, ROBUST, 10)
    by_seq = {event.entry.id: event.entry for event in events}
    entries = [by_seq[index.documents.id_of(hit.doc)] for hit in found.hits]
    records = [as_record(entry) for entry in entries]
    for mode in ("search", "inject"):
        kept = judged(index, query, found, records, [], None, None, mode).kept
        assert [entries[at].id for at in kept] == ["e9"]


def running(embedder):
    return {embedder.model_id: embedder}.get


class Slow:
    """An embedder whose related texts are near each other; can fail."""

    model_id, dim = "slow-model", DIM

    def __init__(self):
        self.calls, self.fails = 0, False
        memories = reference_texts().memories[:MEASURED]
        texts, questions, situations = (some[:MEASURED] for some in pairs(5, 2.0))
        self.table = dict(zip([memory.text for memory in memories], texts, strict=True))
        self.table |= dict(zip([memory.paraphrase for memory in memories], questions, strict=True))
        self.table |= dict(zip([memory.situation for memory in memories], situations, strict=True))

    async def embed_documents(self, texts):
        self.calls += 1
        if self.fails:
            raise EmbedderUnavailable("the model does not answer")
        return [self.table[text].astype("<f4").tobytes() for text in texts]

    async def embed_query(self, text):
        return (await self.embed_documents([text]))[0]


def test_a_model_is_measured_once_in_the_background():
    async def scenario():
        embedder = Slow()
        calibrations = Calibrations(running(embedder))
        assert calibrations.of(embedder.model_id, DIM) is None
        assert calibrations.of(embedder.model_id, DIM) is None
        await calibrations.measured()
        known = calibrations.of(embedder.model_id, DIM)
        calls = embedder.calls
        assert known is not None
        assert known.meaning(np.array([0.9]), known.texts[0], known.queries)[0] > 0
        assert calibrations.of("another-model", DIM) is None
        assert embedder.calls == calls == 1 + 2 * MEASURED
        calibrations.close()

    asyncio.run(scenario())


def test_a_model_that_fails_or_has_other_dimensions_stays_unmeasured():
    async def scenario():
        embedder = Slow()
        embedder.fails = True
        calibrations = Calibrations(running(embedder))
        assert calibrations.of(embedder.model_id, DIM) is None
        await calibrations.measured()
        assert calibrations.of(embedder.model_id, DIM) is None
        embedder.fails = False
        assert calibrations.of(embedder.model_id, DIM + 1) is None
        await calibrations.measured()
        assert calibrations.of(embedder.model_id, DIM + 1) is None
        calibrations.close()

    asyncio.run(scenario())


def test_words_without_coverage_leave_the_ranking_to_meaning():
    query = unit(np.random.default_rng(1).normal(size=DIM))
    events = [
        recorded(1, "We keep the minutes of the harbour office", entry_type="memory.remembered"),
        recorded(2, "Ropes lie behind the engine hatch", entry_type="memory.remembered"),
        *(recorded(n, f"Note {n} about lunch", entry_type="memory.remembered") for n in range(3, 20)),
    ]
    cosines = [0.1, 0.45, *([0.3, 0.0] * 8), 0.0]
    facts = [
        vector_fact(event, at_cosine(value, query, n + 100))
        for n, (event, value) in enumerate(zip(events, cosines, strict=True))
    ]
    index = index_of(events, facts)
    asked = query_of(QUESTION, ANALYZER, query, None, None)
    first = [
        searched(index, EVERYTHING, asked, recipe, 1).hits[0].doc for recipe in (ROBUST, replace(ROBUST, covered=0.0))
    ]
    assert first == [1, 0]


def asked_with_cosines(own, others, mode="search", text="We keep the minutes of the harbour office"):
    """What a question gets of nineteen notes: the first shares a word with it, all have these cosines to it."""
    query = unit(np.random.default_rng(1).normal(size=DIM))
    events = [
        recorded(1, text, entry_type="memory.remembered"),
        *(recorded(n, f"Note {n} about lunch", entry_type="memory.remembered") for n in range(2, 20)),
    ]
    facts = [
        vector_fact(event, at_cosine(value, query, n + 100))
        for n, (event, value) in enumerate(zip(events, [own, *others], strict=True))
    ]
    index = index_of(events, facts)
    asked = query_of(QUESTION, ANALYZER, query, None, None)
    found = searched(index, EVERYTHING, asked, ROBUST, 19)
    records: list[Any] = [
        SimpleNamespace(summary=events[hit.doc].entry.summary, entry_type="memory.remembered", actor_id=None)
        for hit in found.hits
    ]
    kept = judged(index, asked, found, records, [None] * len(records), LIKE_MINILM, None, mode).kept
    return [found.hits[at].doc for at in kept]


FALLING = [0.16 - 0.005 * n for n in range(18)]
"""No evidence: log odds below -.6."""


def test_a_question_with_one_weak_hit_gets_the_nearest_others_behind_it_up_to_ten():
    assert asked_with_cosines(0.14, FALLING) == [0, *range(1, 10)]
    assert asked_with_cosines(0.14, FALLING, "inject") == []


def test_a_question_with_a_hit_that_holds_its_words_gets_no_hit_without_evidence():
    assert asked_with_cosines(0.14, FALLING, text="Spare mooring lines are what we keep in the shed") == [0]


def test_a_question_without_any_evidence_gets_nothing():
    assert asked_with_cosines(0.0, FALLING, text="Note 1 about breakfast") == []


def test_the_last_of_ten_hits_of_a_paraphrase_are_the_nearest():
    order = with_nearest(np.arange(12), np.linspace(0.1, 0.9, 20).astype(np.float32))
    assert order.tolist() == [0, 1, 2, 3, 4, 5, 6, 19, 18, 17, 7, 8]
    assert with_nearest(np.arange(3), np.full(3, np.nan, np.float32)).tolist() == [0, 1, 2]
