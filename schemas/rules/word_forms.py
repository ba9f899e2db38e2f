"""Further forms of a word under which it is found: parts of identifiers, pairs of characters, letters without accents.

Invariant: pure; a change is a new ``text.VERSION``, because the parts are indexed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u0816-\u082d\u0859-\u085b\u0898-\u08e1\u08e3-\u0963"
    "\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d"
    "\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc"
    "\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u17dd\u180b-\u180d\u180f-\u193b\u302a-\u302f"
    "\u3099-\u309a"
)
"""Character class of combining marks (Unicode categories Mn and Mc) of scripts in use; ``\\w`` leaves them out, and so
would cut words of Hindi, Thai or Arabic at every vowel."""

COMMIT_PREFIX: Final = 7
"""Minimum number of hexadecimal digits that name a commit (git's default)."""
MIN_PART: Final = 3
"""Minimum length of an indexed part, in characters."""
MAX_PARTS: Final = 12
"""A word with more parts is encoded data and not an identifier."""
MAX_IDENTIFIER: Final = 64

_HEX: Final = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}")
_INNER: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, which joins particles to words."""
_RUN: Final = re.compile(rf"[{_UNSPACED}{MARKS}]+|[^{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")
_MARKED_END: Final = "\u0700"
"""Scripts below it (Latin, Greek, Cyrillic, Hebrew, Arabic) are also written without their marks."""


def parts_of(word: str) -> tuple[str, ...]:
    """Folded parts under which a word is indexed besides its own term; none for most words.

    ``OOMKilled`` → ``oom``, ``killed``; ``E4711`` → ``4711``; a commit hash → its first seven digits; a run of a script
    without spaces → its pairs of characters, and its ideographs; ``café`` → ``cafe``.

    Args:
        word: As written, in NFKC.
    """
    if word.isascii():
        if (word.isalpha() and (word[1:].islower() or word.isupper())) or word.isdecimal():
            return ()
        return tuple(_of_identifier(word))
    return tuple(_of_script(word.casefold()))


def pairs_of(word: str) -> list[str]:
    """The parts of a folded word by which a query looks up text without spaces; none if the word has no such script.

    A single character is looked up as it is.
    """
    if word.isascii() or _IS_UNSPACED.search(word) is None:
        return []
    return [part for run in _RUN.findall(word) for part in (_pairs(run) or [run] if _IS_UNSPACED.match(run) else [run])]


def without_marks(word: str) -> str:
    """A folded word as it is written without accents; the word itself in scripts where marks make other letters."""
    if word.isascii() or max(word) >= _MARKED_END:
        return word
    letters = (ch if "\u0400" <= ch < "\u0530" else unicodedata.normalize("NFD", ch) for ch in word.replace("ё", "е"))
    return "".join(ch for part in letters for ch in part if unicodedata.category(ch) != "Mn")


def _of_identifier(word: str) -> Iterator[str]:
    if len(word) > MAX_IDENTIFIER:
        return
    if is_hex(word):
        if len(word) > COMMIT_PREFIX:
            yield word[:COMMIT_PREFIX].lower()
        return
    parts = _INNER.findall(word)
    if 1 < len(parts) <= MAX_PARTS:
        yield from (part.lower() for part in parts if len(part) >= MIN_PART)


def is_hex(word: str) -> bool:
    """Whether a word may be a commit hash or a part of it: at least seven hexadecimal digits, letters and figures."""
    return _HEX.fullmatch(word.lower()) is not None


def _of_script(word: str) -> Iterator[str]:
    bare = without_marks(word)
    if bare != word:
        yield bare
    if _IS_UNSPACED.search(word) is None:
        return
    for run in _RUN.findall(word):
        if not _IS_UNSPACED.match(run):
            yield run
            continue
        if run != word or len(run) > 2:
            yield from _pairs(run) or [run]
        if len(run) > 1:
            yield from (ch for ch in run if "\u3400" <= ch <= "\u9fff")


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]
