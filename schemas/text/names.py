"""Names: which of them a text says to be one person's, and which are likely misspelt or shortened.

"Emi is what everybody calls Kate", "My name is Bella". The patterns are data (``language/names.json``).

Invariant: pure. A name begins with a capital letter, because a rule for other words would take "call me maybe" for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from .analyzer import STOP_WORDS, fold, words_of
from .languages import languages
from .stop_words import foreign_words
from .word_rarity import background_frequency

MOST_CHARS: Final = 1_000
"""Characters of a text that are read."""
LEAST_MISSPELT: Final = 4
"""Letters of the shortest name that counts though one is wrong; two may be from ``LEAST_TWICE`` letters on."""
LEAST_TWICE: Final = 6
LEAST_SHORTENED: Final = 3
EVERYDAY: Final = 1.2
"""Of 1,000 everyday texts, so many hold a word that is no short name: "Sun" is not Sunny, "Mel" is Melanie."""
_NAME: Final = r"[^\W\d_a-z][\w’'-]*\w"


@dataclass(frozen=True, slots=True)
class _NamePatterns:
    words: tuple[str, ...]
    own: tuple[re.Pattern[str], ...]
    pairs: tuple[re.Pattern[str], ...]


@cache
def _patterns() -> _NamePatterns:
    data = json.loads(resources.files(__package__).joinpath("language", "names.json").read_text("utf-8"))
    return _NamePatterns(
        tuple(map(fold, data["words"])), tuple(map(_compiled, data["own"])), tuple(map(_compiled, data["pairs"]))
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\b([AB])\b", pattern)
    named = (f"(?P<{part}>{_NAME})" if part in ("A", "B") else f"(?i:{part})" for part in parts if part)
    return re.compile(rf"(?<!\w){''.join(named)}(?!\w)")


def stating_words() -> Sequence[str]:
    """Folded words one of which every text has that states names."""
    return _patterns().words


def stated_names(text: str, speaker: str | None) -> list[tuple[str, str]]:
    """Pairs of names that a text says to be one person's.

    Args:
        text: The text.
        speaker: The name of the one who says "my name is …"; None if unknown.
    """
    known, head = _patterns(), text[:MOST_CHARS]
    pairs = [(match["A"], match["B"]) for pattern in known.pairs for match in pattern.finditer(head)]
    if speaker:
        pairs += [(match["A"], speaker) for pattern in known.own for match in pattern.finditer(head)]
    return [(one, other) for one, other in pairs if fold(one) not in STOP_WORDS and fold(one) != fold(other)]


def name_words(text: str) -> list[str]:
    """The words of a query that may be names: capitalised, no function word, month or weekday."""
    return [word for word in words_of(text) if word[0].isupper() and fold(word) not in _no_names()]


@cache
def _no_names() -> frozenset[str]:
    words = frozenset[str](STOP_WORDS | foreign_words())
    for language in languages():
        words |= language.opens_question | language.function_words | language.time_words | language.ambiguous_months
    return words


def misspelt(word: str, name: str) -> bool:
    """Whether a folded word is a folded name with one letter wrong, or two in a long one; the first one is right."""
    if word == name or word[0] != name[0] or min(len(word), len(name)) < LEAST_MISSPELT:
        return False
    most = 2 if min(len(word), len(name)) >= LEAST_TWICE else 1
    return abs(len(word) - len(name)) <= most and edits(word, name, most) <= most


def shortened(word: str, name: str) -> bool:
    """Whether one of a folded word and a folded name is the begin of the other ("mel", "melanie")."""
    short, long = sorted((word, name), key=len)
    return (
        LEAST_SHORTENED <= len(short) < len(long) and long.startswith(short) and background_frequency(word) < EVERYDAY
    )


def edits(word: str, other: str, most: int) -> int:
    """Letters to leave out, add, change or swap to make one word the other; ``most + 1`` if they are more.

    The optimal string alignment distance (Damerau 1964).
    """
    rows = [list(range(len(other) + 1))]
    for at, letter in enumerate(word, 1):
        row = [at]
        for place, beside in enumerate(other, 1):
            cost = min(rows[-1][place] + 1, row[-1] + 1, rows[-1][place - 1] + (letter != beside))
            if at > 1 and place > 1 and letter == other[place - 2] and word[at - 2] == beside:
                cost = min(cost, rows[-2][place - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
        rows.append(row)
    return min(rows[-1][-1], most + 1)
