"""The word lists of the classifier: ``lexicon.toml``, read once, from the package alone."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Compiled word lists.

    Attributes:
        filler: Matches a text that is wholly a filler expression.
        markers: Type → its markers; the score of a type is the number of their matches.
        positive: Words of positive sentiment.
        negative: Words of negative sentiment.
        resolution: Matches what says that a problem is solved.
    """

    filler: re.Pattern[str]
    markers: Mapping[str, tuple[re.Pattern[str], ...]]
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
        markers={kind: tuple(map(_whole, words)) for kind, words in sorted(data["markers"].items())},
        positive=frozenset(sentiment["positive"]),
        negative=frozenset(sentiment["negative"]),
        resolution=_any(sentiment["resolution"]),
    )


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")


def _any(patterns: Iterable[str]) -> re.Pattern[str]:
    return _whole("|".join(patterns))
