"""Which words of a question are looked up in the full text."""

import json
from pathlib import Path

import pytest
from support.recall import ANALYZER

from crew_journal.services.recall.asking import query_of

MIXED = Path(__file__).resolve().parents[2] / "bench" / "data" / "mixed_questions.jsonl"


def terms(text: str) -> list[int]:
    return list(query_of(text, ANALYZER, None, None, None).terms)


@pytest.mark.parametrize(
    ("question", "telling"),
    [
        ("Was hast du mir über den Hafen gesagt?", "über Hafen gesagt"),
        ("Wo habe ich die Geige gelassen?", "Geige gelassen"),
    ],
)
def test_function_words_of_a_german_question_are_not_looked_up(question: str, telling: str) -> None:
    assert terms(question) == terms(telling) == list(dict.fromkeys(ANALYZER.terms(telling)))


def test_a_question_of_function_words_alone_is_looked_up_as_it_is() -> None:
    assert terms("wer bist du und wo ist er?") == list(dict.fromkeys(ANALYZER.terms("wer bist du und wo ist er")))
    assert terms("du und ich") == list(dict.fromkeys(ANALYZER.terms("du und ich")))


@pytest.mark.parametrize("question", ["war room incident", "die size of the chip", "who called Sie GmbH?", "was"])
def test_one_word_that_is_german_too_does_not_make_a_question_german(question: str) -> None:
    assert terms(question) == list(dict.fromkeys(ANALYZER.terms(question)))


def test_english_questions_are_looked_up_as_ever() -> None:
    questions = [json.loads(line)["query"] for line in MIXED.read_text("utf-8").splitlines()]
    assert len(questions) == 110
    changed = [question for question in questions if terms(question) != list(dict.fromkeys(ANALYZER.terms(question)))]
    assert changed == [
        "Was ist der häufigste Fehler in den deutschen Hilfeartikeln?",
        "Wie viele Artikel waren in Woche 44 geprüft?",
        "Wie viele Rückfragen zum Kündigen gibt es noch pro Woche?",
    ]
