"""Which entries a query names: by a whole name that the entry gives itself in ``payload.aliases``.

Why: "k8s?" shares one word with an entry about a cluster, and no other evidence is possible.

Invariant: a name counts whole and word for word; a part of it names nothing. A word of a name may be inflected, and a long
one may miss a letter, have one too many or two swapped, as typing does; another letter makes another word ("mango").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....schemas.rules.text import Analyzer, tokens_of
from ..asking import Word, keyed_words

NAMES: Final = "aliases"
"""Where an entry's payload has its names: a string or an array of strings."""
MOST_NAMES: Final = 32
LEAST_MISTYPED: Final = 5
"""Letters of the shortest word that counts though it is mistyped: shorter ones are too often another word."""


def names_in(
    asked: Sequence[Word], payloads: Sequence[Mapping[str, Any] | None], analyzer: Analyzer
) -> list[str | None]:
    """Of each payload the longest of its names that the query has, None if it has none.

    Args:
        asked: The words of the query.
        payloads: Of the hits; None for one that is gone.
        analyzer: Brings words to their stems.
    """
    return [None if payload is None else _named(asked, payload.get(NAMES), analyzer) for payload in payloads]


def _named(asked: Sequence[Word], names: Any, analyzer: Analyzer) -> str | None:
    known = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    texts = [name for name in known[:MOST_NAMES] if isinstance(name, str)]
    found = [name for name in texts if _holds(asked, keyed_words(tokens_of(name), analyzer))]
    return max(found, key=len, default=None)


def _holds(asked: Sequence[Word], name: Sequence[Word]) -> bool:
    length = len(name)
    return bool(name) and any(all(map(_same, name, asked[at : at + length])) for at in range(len(asked) - length + 1))


def _same(one: Word, other: Word) -> bool:
    return one.key == other.key or _slips(one.text, other.text)


def _slips(name: str, word: str) -> bool:
    """Whether a word is a name but for a letter missing, one too many, or two beside each other swapped."""
    if (
        min(len(name), len(word)) < LEAST_MISTYPED - 1
        or max(len(name), len(word)) < LEAST_MISTYPED
        or name[0] != word[0]
    ):
        return False
    if len(name) == len(word):
        at = next((at for at, (one, other) in enumerate(zip(name, word, strict=True)) if one != other), 0)
        return name[:at] + name[at : at + 2][::-1] + name[at + 2 :] == word
    long, short = sorted((name, word), key=len, reverse=True)
    return len(long) - len(short) == 1 and any(long[:at] + long[at + 1 :] == short for at in range(1, len(long)))
