"""One list of entries and other texts: how evidence is compared, and what is one hit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import Stemmer

from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.standing.operations import Standing, State
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.index.records import HitRecord
from crew_journal.services.recall.arranging import Shown
from crew_journal.services.recall.asking import Query, query_of
from crew_journal.services.recall.calibration import known_calibration
from crew_journal.services.recall.evidence import judged_texts, texts_as_rivals
from crew_journal.services.recall.kinds import FoundText, RankedText, ranked_together, shown_texts

ANALYZER = Analyzer(Stemmer.Stemmer)
MODEL = "all-MiniLM-L6-v2"


def text(kind: Any, identity: str, words: str, query: Query | None = None, **more: Any) -> FoundText:
    terms = set(ANALYZER.terms(words))
    held = frozenset(term for term in (() if query is None else query.terms) if term in terms)
    parts: dict[str, Any] = {"vector": None, "ts_ms": 0, "fields": {}, "cut": lambda own: (own, own), **more}
    return FoundText(kind, identity, words, held, **parts)


def shown(kind: Any, identity: str, words: str, confidence: float, **more: Any) -> RankedText:
    return RankedText(text(kind, identity, words, **more), confidence, "same words")


def entry(identity: str, words: str, confidence: float, standing: Standing | None = None) -> Shown:
    record = HitRecord(
        identity,
        "memory.remembered",
        words,
        "ada",
        None,
        "agent",
        "ada",
        "info",
        "normal",
        None,
        None,
        {},
        {},
        (),
        None,
    )
    return Shown(record, 1, 0, 9.0, confidence, "same words", "normal", None, None, standing)


def ids(hits: Any) -> list[str]:
    return [hit.found.id if isinstance(hit, RankedText) else hit.record.entry_id for hit in hits]


def query(words: str, vector: Any = None) -> Query:
    return query_of(words, ANALYZER, vector, None, None)


def test_texts_of_different_kinds_with_equal_evidence_have_equal_confidence() -> None:
    asked = query("where is the spare greenhouse key?")
    words = "The spare greenhouse key hangs behind the boiler"
    texts = [text(kind, kind, words, asked) for kind in ("document", "drawer", "fact")]
    judgement = judged_texts(asked, texts, {}, 3, None, None, None, "search")
    assert len(set(judgement.confidence)) == 1
    assert judgement.kept == [0, 1, 2]
    assert judgement.confidence[0] > 0.5
    assert judgement.reasons[0].startswith("same words: ")


def test_a_text_without_evidence_is_no_hit_and_inject_is_stricter_than_search() -> None:
    asked = query("where is the spare greenhouse key?")
    texts = [text("document", "a", "Tom plants tomatoes", asked), text("drawer", "b", "A key was found", asked)]
    assert judged_texts(asked, texts, {}, 2, None, None, None, "search").kept == [1]
    assert judged_texts(asked, texts, {}, 2, None, None, None, "inject").kept == []


def test_a_text_near_in_meaning_is_a_hit_and_one_that_says_something_else_makes_others_doubtful() -> None:
    calibration = known_calibration(MODEL)
    assert calibration is not None
    vector = np.zeros(calibration.dim, np.float32)
    vector[0] = 1.0
    other = np.zeros(calibration.dim, np.float32)
    other[0], other[1] = 0.8, 0.6
    third = np.zeros(calibration.dim, np.float32)
    third[0], third[1] = 0.75, -0.66  # near to the question, and to the other text no more than unrelated texts
    asked = query("who waters the orchids?", vector)
    alone = [text("document", "a", "Flowers are Tom's task", asked, vector=third)]
    beside = [*alone, text("drawer", "b", "Nadia keeps the plants alive", asked, vector=other)]

    def confidences(texts: list[FoundText]) -> list[float]:
        rivals = texts_as_rivals(asked, texts, calibration)
        return judged_texts(asked, texts, {}, len(texts), rivals, None, None, "search").confidence

    assert confidences(alone)[0] > 0.5
    assert confidences(beside)[0] < confidences(alone)[0]


def test_a_list_is_judged_by_its_best_item_because_its_vector_says_little_about_one() -> None:
    calibration = known_calibration(MODEL)
    assert calibration is not None
    vector, other = np.zeros(calibration.dim, np.float32), np.zeros(calibration.dim, np.float32)
    vector[0] = other[1] = 1.0
    asked = query("at what hour does the nightly backup run?", vector)
    items = ["- The gateway listens on port 7443", "- The nightly backup runs at 02:40", "- Ines writes the invoices"]
    scattered = ["- The nightly train is late", "- A backup of the van is missing", "- Every run is 5 km"]
    texts = [
        text("drawer", name, "\n".join(("# Notes", *lines)), asked, vector=other)
        for name, lines in (("one", items), ("scattered", scattered))
    ]
    judgement = judged_texts(asked, texts, {}, 2, texts_as_rivals(asked, texts, calibration), None, None, "inject")
    assert judgement.kept == [0]


def test_the_list_is_ordered_by_confidence_and_entries_keep_their_order() -> None:
    entries = [entry("e1", "one apple", 0.3), entry("e2", "two pears", 0.8), entry("e3", "three plums", 0.2)]
    texts = [
        shown("document", "d", "four figs", 0.9),
        shown("fact", "f", "five nuts", 0.8),
        shown("drawer", "w", "six", 0.25),
    ]
    assert ids(ranked_together(entries, texts, ANALYZER, 10)) == ["d", "e1", "e2", "f", "w", "e3"]
    assert ids(ranked_together(entries, texts, ANALYZER, 2)) == ["d", "e1"]
    assert ids(ranked_together(entries, [], ANALYZER, 10)) == ["e1", "e2", "e3"]


def test_texts_that_say_the_same_or_are_taken_from_each_other_are_one_hit() -> None:
    words = "The spare key hangs behind the boiler"
    texts = [
        shown("document", "d", f"{words}.", 0.9),
        shown("drawer", "w", "Maria told us where to look for the key in winter", 0.7),
        shown("fact", "f", "key is_kept_by Maria", 0.6, sources=frozenset(["w"])),
    ]
    hits = ranked_together([entry("e", words, 0.8)], texts, ANALYZER, 10)
    assert ids(hits) == ["d", "w"]
    assert [hit.repeats for hit in hits] == [1, 1]


def test_an_entry_that_does_not_count_any_more_stands_beside_a_text_that_says_the_same() -> None:
    words = "The spare key hangs behind the boiler"
    gone = Standing(state=State.RETRACTED, by="ada", at="2026-11-21T00:00:00.000Z", reason="moved")
    hits = ranked_together([entry("e", words, 0.8, gone)], [shown("document", "d", words, 0.9)], ANALYZER, 10)
    assert ids(hits) == ["d", "e"]
    assert [hit.repeats for hit in hits] == [0, 0]


def test_what_has_ended_ranks_behind_all_that_counts() -> None:
    texts = [text("fact", "old", "key lent to Tom", last=True), text("fact", "new", "key lent to Maria")]
    judgement: Any = SimpleNamespace(confidence=[0.9, 0.4], reasons=["", ""], kept=[0, 1])
    ordered = shown_texts(texts, judgement)
    assert [hit.found.id for hit in ordered] == ["new", "old"]
    assert ids(ranked_together([entry("e", "apples", 0.1)], ordered, ANALYZER, 10)) == ["new", "e", "old"]


@pytest.mark.parametrize("given", ["entries,documents", ["entries", "documents"], ["entries,documents", "entries"]])
def test_kinds_may_be_separated_by_commas(given: Any) -> None:
    assert RecallRequest(query="x", kinds=given).kinds == ("entries", "documents")
