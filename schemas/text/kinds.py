"""Second stage of the classifier: finds the type of a chat message by cues of everyday language.

The contract's classifier (``palace/exchanges.py``) needs two markers of a type and calls nearly every message of a chat
``general``. This stage decides only for texts that the first stage calls ``general``. It knows the types of the first
stage, ``fact``, ``task``, and ``CHATTER``: greetings, thanks, jokes, small talk and questions that say nothing
themselves.

score(type) = sum over the distinct cues found of 3 (clear), 2 (likely) or 1 (faint), each level at most twice, plus
bonuses for structure: an imperative at the beginning of a sentence counts for ``task``; numbers, names and definitions
count for ``fact``. The highest score wins; on a tie, the type that comes first in ``_ORDER``. A text without cues is a
fact if it is long enough, else chatter.

Invariant: pure; word lists are data (``kinds.toml``). A changed list or weight is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

# The word lists of the classifier: ``lexicon.toml``, read once, from the package alone.


_GROUP: Final = re.compile(r"\(\?:([^()]*)\)(\??)")
_LITERAL: Final = re.compile(r"(?:[^\\()\[\].?*+{}|^$](?![?*+{]))*")


@dataclass(frozen=True, slots=True)
class Marker:
    """A word or phrase that is evidence for a type.

    Attributes:
        pattern: The regular expression.
        openings: Literals; every match begins with one of them. Searching for them takes a fiftieth of the pattern's
            time.
    """

    pattern: re.Pattern[str]
    openings: tuple[str, ...]

    def count(self, prose: str) -> int:
        """The number of matches in lower-cased prose."""
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


VERSION: Final = 1
CHATTER: Final = "chatter"
FACT: Final = "fact"
TASK: Final = "task"
_WEIGHTS: Final = {"clear": 3.0, "likely": 2.0, "faint": 0.5}
_EACH: Final = 2
"""Maximum number of cues of a level that count, so that a long text does not win by its length."""
_ORDER: Final = ("emotional", "preference", TASK, "problem", "decision", "milestone", FACT, CHATTER)
_ORDERS: Final = 4.0
"""Score of ``task`` for a sentence that begins with an order ("Book a room")."""
_NUMBERS: Final = 1.0
_NAMES: Final = 0.5
_DEFINES: Final = 1.0
_ASKS: Final = 3.0
"""Score of ``CHATTER`` for a text that only asks a question and requests nothing."""
_FEW_WORDS: Final = 5
"""A text without numbers and with at most this many words tends to chatter. With a limit of 4, more chatter is kept;
with 6, more other texts are lost.
"""
_FEW: Final = 1.0
_ALONE: Final = 4.0
"""Score of ``CHATTER`` for a text of greetings or thanks with at most so many other words."""
_SMALL_TALK: Final = 8
"""A text that mentions cake or the weather is small talk up to this number of words; a longer text states something
about them.
"""
_IN_PASSING: Final = 0.25
_MARKS: Final = 1.5
"""Weight of a marker of the first stage; at most two markers count."""
_FACT_SHARE, _FACT_MOST = 0.3, 2.4
"""Weight of a cue of ``fact``. Every statement has such cues, so all of them together count less than one clear cue of
another type.
"""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD: Final = re.compile(r"\w+(?:’\w+)*")
_NAME: Final = re.compile(r"(?<![.!?:;])\s[A-ZÄÖÜÉ][\w-]{2,}")
_DEFINITION: Final = re.compile(r"\A[\w .’-]{2,40}: \S")
_NAMED: Final = (
    r"(?:\A|[;,:]\s|\band )(?:@?[\w-]+(?:[,:]|\s(?=please\b|bitte\b))\s*)?(?:please |bitte |and |then |also )*"
)


@dataclass(frozen=True, slots=True)
class _KindCues:
    """Compiled cues: type → level → pattern, and the pattern of an imperative."""

    levels: Mapping[str, Mapping[str, re.Pattern[str]]]
    order: re.Pattern[str]
    alone: re.Pattern[str]


def kind_of(text: str) -> str:
    """The type of a text: a type of the first stage, ``fact``, ``task``, or ``CHATTER``."""
    scores = scores_of(text)
    best = max(_ORDER, key=lambda kind: scores[kind])  # on a tie, the first
    return best if scores[best] else CHATTER


def kind_of_turns(turns: Iterable[str]) -> str:
    """The type of the turn with the highest score in an exchange; ``CHATTER`` if all turns are chatter."""
    best, most = CHATTER, 0.0
    for turn in turns:
        kind = kind_of(turn) if turn.strip() else CHATTER
        if kind != CHATTER and (score := scores_of(turn)[kind]) > most:
            best, most = kind, score
    return best


def scores_of(text: str) -> dict[str, float]:
    """The score of each type, by the formula in the module's docstring."""
    plain = _plain(text)
    words = _WORD.findall(plain)
    cues = _cues()
    scores = {
        kind: sum(_WEIGHTS[level] * min(_EACH, len(set(pattern.findall(plain)))) for level, pattern in levels.items())
        for kind, levels in cues.levels.items()
    }
    for kind, markers in lexicon().markers.items():
        scores[kind] += _MARKS * min(_EACH, sum(marker.count(plain.replace("’", "'")) for marker in markers))
    if scores["problem"] >= max(_WEIGHTS["clear"], scores["milestone"]) and lexicon().resolution.search(plain):
        scores["milestone"] = scores["problem"] + _MARKS
    sentences = [sentence for sentence in _SENTENCE_END.split(plain) if sentence.strip()]
    if any(cues.order.search(sentence) for sentence in sentences):
        scores[TASK] += _ORDERS
    if any(char.isdigit() for char in plain):
        scores[FACT] += _NUMBERS
    scores[FACT] += _NAMES * min(_EACH, len(_NAME.findall(text)))
    if _DEFINITION.match(plain):
        scores[FACT] += _DEFINES
    if len(words) > _SMALL_TALK:
        scores[CHATTER] *= _IN_PASSING
    requests = scores[TASK] >= _WEIGHTS["clear"]
    if sentences and not requests and all(sentence.rstrip(" )").endswith("?") for sentence in sentences):
        scores[CHATTER] += _ASKS
    rest = _WORD.findall(cues.alone.sub(" ", plain))
    if len(rest) <= _FEW_WORDS and not any(char.isdigit() for char in plain):
        scores[CHATTER] += _FEW if len(rest) == len(words) else _ALONE
    scores[FACT] = min(_FACT_MOST, _FACT_SHARE * scores[FACT])
    return scores


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower().replace("'", "’").replace("`", "’").strip()


@cache
def _cues() -> _KindCues:
    data = tomllib.loads(resources.files(__package__).joinpath("kinds.toml").read_text("utf-8"))
    words = {
        name: "|".join(part for part in "".join(words.split("\n")).split("|")) for name, words in data["words"].items()
    }
    return _KindCues(
        {
            kind: {level: _kinds_any_of(patterns, words) for level, patterns in data[kind].items() if level in _WEIGHTS}
            for kind in _ORDER
        },
        re.compile(
            rf"{_NAMED}(?:(?:{words['imperatives']})\s(?:{words['objects']}|\d+)"
            rf"|(?:{words['directed']})\s(?:{words['directions']}))\b"
        ),
        re.compile(
            rf"(?:(?<=^)|(?<=[.!?,;:]\s)|(?<=[.!?,;:]))(?:{'|'.join(data[CHATTER]['alone'])})(?=\s*(?:[.!?,;:)]|$))"
        ),
    )


def _kinds_any_of(patterns: list[str], words: Mapping[str, str]) -> re.Pattern[str]:
    joined = "|".join(patterns)
    for name, pattern in words.items():
        joined = joined.replace(f"<{name}>", f"(?:{pattern})")
    return re.compile(rf"(?<![\w’])(?:{joined})(?![\w’])")
