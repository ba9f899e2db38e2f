"""The part of a chunk that is shown with a hit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER

from crew_journal.services.recall.kinds import DOTS, snippet_of


def _weights(query: str) -> dict[int, float]:
    return dict.fromkeys(ANALYZER.terms(query), 1.0)


def test_a_short_text_is_shown_whole():
    assert snippet_of("The parser is green.", _weights("parser"), ANALYZER, 300) == "The parser is green."


def test_the_lines_around_the_match_are_shown():
    lines = [f"- note {n} about the weather of the day" for n in range(20)]
    lines[14] = "- the parser is green again"
    shown = snippet_of("\n".join(lines), _weights("is the parser green"), ANALYZER, 120)
    assert lines[14] in shown
    assert shown.removesuffix(DOTS).splitlines() == [line for line in lines if line in shown]


def test_a_long_line_is_shown_around_the_match():
    line = "weather " * 100 + "the parser is green " + "weather " * 100
    shown = snippet_of(line, _weights("green parser"), ANALYZER, 100)
    assert "parser is green" in shown
    assert shown.startswith("weather")
    assert shown.endswith(DOTS)


@given(st.text(alphabet="ab parser\n", max_size=900), st.integers(20, 300))
def test_a_snippet_is_part_of_the_text_and_no_longer_than_asked(text, chars):
    shown = snippet_of(text, _weights("parser"), ANALYZER, chars)
    if len(text) <= chars:
        assert shown == text
    else:
        assert len(shown) <= chars + len(DOTS)
        assert shown.removesuffix(DOTS) in text
