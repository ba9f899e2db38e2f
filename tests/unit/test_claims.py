"""When two texts make the same claim, and what a correction makes of a text."""

from __future__ import annotations

import pytest

from crew_journal.schemas.relations.judging import (
    Sameness,
    corrected_value,
    corrected_within,
    same_claim,
    telling_words,
)

OLD = "The staging port is 8080."
NEW = "The staging port is 9090."


@pytest.mark.parametrize(
    "other",
    [
        "the staging port is 8080",
        "- The staging port is 8080.",
        "2. THE STAGING PORT IS 8080!",
        "- 2026-11-21T09:30:00Z — The staging port is 8080",
        "User: The  staging port\nis 8080",
        "> [x] “The staging port is 8080”",
    ],
)
def test_same_words_whatever_case_marks_and_punctuation_are_certainly_one_claim(other: str) -> None:
    assert same_claim(other, OLD) is same_claim(OLD, other) is Sameness.CERTAIN


@pytest.mark.parametrize(
    ("other", "cosine"),
    [
        ("8080 is the staging port.", None),
        ("On staging, the port is 8080.", 0.93),
        ("Staging listens on port 8080.", 0.88),
    ],
)
def test_paraphrase_with_same_marks_is_likely_one_claim(other: str, cosine: float | None) -> None:
    assert same_claim(other, OLD, cosine=cosine) is Sameness.LIKELY


@pytest.mark.parametrize(
    "other",
    [
        NEW,
        "The staging port is not 8080.",
        "The staging port is now 8080, it was 7000.",
        "The test port is 9000.",
        "Ada says the staging port is 8080.",
        "",
        "---",
    ],
)
def test_another_value_name_or_negation_is_no_repetition_however_near(other: str) -> None:
    assert same_claim(other, OLD, cosine=0.99) is Sameness.DIFFERENT


def test_paraphrase_without_near_vector_is_left_alone() -> None:
    assert same_claim("Staging listens on port 8080.", OLD) is Sameness.DIFFERENT
    assert same_claim("Staging listens on port 8080.", OLD, cosine=0.84) is Sameness.DIFFERENT


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("the staging port is 8080", NEW),
        ("# Ports\n\n- The staging port is 8080.\n- Test: 7000.\n", f"# Ports\n\n- {NEW}\n- Test: 7000.\n"),
        ("Ports. The staging port is 8080. Ask Ada.", f"Ports. {NEW} Ask Ada."),
        ("User: The staging port is 8080.\n\nAgent: Noted.", f"User: {NEW}\n\nAgent: Noted."),
        (f"{OLD}\n{OLD}\n", f"{NEW}\n{NEW}\n"),
    ],
)
def test_statement_within_text_is_replaced_and_the_rest_stays(text: str, corrected: str) -> None:
    assert corrected_within(text, OLD, NEW) == corrected


@pytest.mark.parametrize(
    "text", ["The staging port is 8080 or 8081.", "8080", "", "Is it that the staging port is 8080?"]
)
def test_text_without_the_statement_as_line_or_sentence_is_not_rewritten(text: str) -> None:
    assert corrected_within(text, OLD, NEW) is None


def test_empty_statement_is_found_in_no_text() -> None:
    assert corrected_within("a\n\nb", "...", NEW) is None


@pytest.mark.parametrize(
    ("value", "old", "new", "corrected"),
    [
        ("8080", OLD, NEW, "9090"),
        ("port is 8080", OLD, NEW, "port is 9090"),
        ("staging port", OLD, NEW, None),
        ("Ada", "Ada owns the parser.", "Bruno Kern owns the parser.", "Bruno Kern"),
        ("Ada Lovelace", "Ada owns the parser.", "Bruno owns the parser.", None),
        ("Ada", "Ada owns the parser.", "Bruno has owned the old parser.", None),
        ("open", "The port is open.", "The port is not open.", None),
    ],
)
def test_value_follows_only_if_the_changed_words_lie_in_it(
    value: str, old: str, new: str, corrected: str | None
) -> None:
    assert corrected_value(value, old, new) == corrected


def test_telling_words_are_the_longest_in_lower_case() -> None:
    assert telling_words("- The Staging port is 8080.") == ["staging", "8080"]
