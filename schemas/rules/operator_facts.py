"""Finds facts that people state about themselves, by the patterns of ``operator_facts.toml``; no model is needed.

Invariant: a value and its quote are substrings of one sentence of the person, apart from blanks. Questions, quoted
lines, code, and uncertain statements are ignored. Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from ..events.operators import QUOTE_CHARS, VALUE_CHARS
from .operators import OwnTurn, Proposed

VERSION: Final = 1

_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|[.!?](?=[\w/@]))+[.!?]*")
_FROM: Final = "from"
_LONGEST_TURN: Final = 20_000
"""Number of characters of a turn that are read; pasted logs are longer."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The compiled file."""

    uncertain: tuple[re.Pattern[str], ...]
    ends: tuple[re.Pattern[str], ...]
    empty: tuple[re.Pattern[str], ...]
    facts: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]


@cache
def _patterns() -> _Patterns:
    file = tomllib.loads(resources.files(__package__).joinpath("operator_facts.toml").read_text("utf-8"))

    def compiled(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern.replace("{often}", file["often"]), re.IGNORECASE) for pattern in patterns)

    facts = tuple((key, compiled(patterns)) for key, patterns in file["facts"].items())
    return _Patterns(compiled(file["uncertain"]), compiled(file["ends"]), compiled(file["empty"]), facts)


def proposed_facts(turns: Iterable[OwnTurn]) -> Iterator[Proposed]:
    """Facts in the order of the turns."""
    for turn in turns:
        text = _CODE.sub(" ", _QUOTED_LINE.sub("", turn.text[:_LONGEST_TURN]))
        for sentence in _SENTENCE.findall(text):
            yield from _in_sentence(sentence.strip())


def _in_sentence(sentence: str) -> Iterator[Proposed]:
    patterns = _patterns()
    if not sentence or len(sentence) > QUOTE_CHARS or sentence.endswith("?"):
        return
    if any(pattern.search(sentence) for pattern in patterns.uncertain):
        return
    for key, ways in patterns.facts:
        found_match = next((match for way in ways if (match := way.search(sentence))), None)
        if found_match is not None and (value := _value(sentence, found_match)):
            yield Proposed(key, value, sentence)


def _value(sentence: str, match: re.Match[str]) -> str | None:
    """The text from the pattern to the end of the clause; None if it has no content."""
    begin = match.start(_FROM) if _FROM in match.re.groupindex else match.end()
    value = sentence[begin:]
    offset = match.end() - begin
    ends = [ending.start() for pattern in _patterns().ends if (ending := pattern.search(value, offset))]
    value = value[: min(ends, default=len(value))].strip().rstrip(".!, ")
    empty = len(value) <= offset or any(pattern.match(value) for pattern in _patterns().empty)
    return None if empty or len(value) > VALUE_CHARS else value
