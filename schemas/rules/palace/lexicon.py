"""The word lists of the classifier: ``lexicon.toml``, read once, from the package alone.

Invariant: a marker counts as its pattern's ``findall`` does; its openings only avoid searches that cannot match.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

_GROUP: Final = re.compile(r"\(\?:([^()]*)\)(\??)")
_LITERAL: Final = re.compile(r"(?:[^\\()\[\].?*+{}|^$](?![?*+{]))*")


@dataclass(frozen=True, slots=True)
class Marker:
    """A word or phrase that speaks for a type.

    Attributes:
        pattern: The regular expression.
        openings: Literals; every match begins with one of them. Looking for them costs a fiftieth of a search.
    """

    pattern: re.Pattern[str]
    openings: tuple[str, ...]

    def count(self, prose: str) -> int:
        """The number of its matches in lower-cased prose."""
        for opening in self.openings:
            if opening in prose:
                return len(self.pattern.findall(prose))
        return 0


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Compiled word lists.

    Attributes:
        filler: Matches a text that is wholly a filler expression.
        markers: Type → its markers; the score of a type is the number of their matches.
        positive: Words of positive sentiment.
        negative: Words of negative sentiment.
        resolution: Matches a text that says that a problem is solved.
    """

    filler: re.Pattern[str]
    markers: Mapping[str, tuple[Marker, ...]]
    positive: frozenset[str]
    negative: frozenset[str]
    resolution: re.Pattern[str]


@cache
def lexicon() -> Lexicon:
    """The lexicon of the package."""
    data = tomllib.loads(resources.files(__package__).joinpath("lexicon.toml").read_text("utf-8"))
    sentiment = data["sentiment"]
    return Lexicon(
        filler=re.compile(rf"(?:{'|'.join(data['noise']['fillers'])})[\s!.?]*", re.IGNORECASE),
        markers={
            kind: tuple(Marker(_whole_word(word), _openings(word)) for word in words)
            for kind, words in sorted(data["markers"].items())
        },
        positive=frozenset(sentiment["positive"]),
        negative=frozenset(sentiment["negative"]),
        resolution=_any_of(sentiment["resolution"]),
    )


def _whole_word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")


def _openings(pattern: str) -> tuple[str, ...]:
    group = _GROUP.match(pattern)
    if group is None:
        literal = _LITERAL.match(pattern)
        return (literal[0] if literal else "",)
    rest = _openings(pattern[group.end() :]) if group[2] else ()
    return (*(opening for part in group[1].split("|") for opening in _openings(part)), *rest)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return _whole_word("|".join(patterns))
