"""The one judge of two texts: whether the newer retires the older, or whether both cannot hold.

``link`` judges entries, ``palace_classify`` drawers and the facts that they state, ``reflect`` facts, and the verifier of
memory documents lines and pinned facts. What differs among them is data: which pairs they ask about, and what they do with a
verdict that is borderline. ``link`` stores a verdict as a row of ``memory_relations``; a drawer that is superseded keeps it
in its own row (``drawer.superseded``), because the contract of the palace gives the drawer's later states from there.

Invariant: pure.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from enum import IntEnum
from typing import Final

from ..text.analyzer import fold
from ..text.marks import same_marks
from .contradiction import contradiction
from .rules import CONTRADICTS, SUPERSEDES, Statement, Verdict


def judge(
    newer: Statement,
    older: Statement,
    relation: str,
    *,
    cosine: float | None = None,
    same_speaker: bool | None = None,
) -> Verdict | None:
    """What the rules say about two texts; None if they say nothing.

    Args:
        newer: The statement of the later time.
        older: The statement of the earlier time.
        relation: ``CONTRADICTS`` or ``SUPERSEDES``; for the latter, a verdict may also be that the older one is amended.
        cosine: Cosine of their vectors; None without vectors.
        same_speaker: Whether one person or agent made both; None if not known.
    """
    if relation == CONTRADICTS:
        return contradiction(newer.text, older.text)
    from .updates import update  # its patterns take 40 ms, which a start need not wait for

    return update(newer, older, cosine=cosine, same_speaker=same_speaker)


# Decides whether two texts make the same claim, and what a correction makes of a text that holds the corrected statement.
#
# Certain is only what has the same words in the same order, whatever the case, punctuation and list marks. Likely is what
# has the same marks (numbers, dates, names, negations) and either the same words in another order or a near vector, if the
# rules of updates and contradictions find no difference. What is only likely needs the decision of a person.
#
# Invariant: pure; it prefers precision to recall. A changed rule is a new ``VERSION``.


VERSION: Final = 1
NEAR_CLAIM: Final = 0.85
"""Least cosine of two texts that may make the same claim. On 13,645 pairs of different statements and 44 paraphrases
(MiniLM, docs/corrections.md): one wrong pair, 33 paraphrases; at .80 four and 34, at .90 none and 29."""
MOST_CHARS: Final = 2_000
"""Characters of a text that is compared as one claim; in a longer one, a sentence or line is looked for."""
_WORD: Final = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W_]+(?:['’][^\W_]+)?")
_MARKS: Final = re.compile(
    r"\s*(?:(?:[-*+>]|#{1,6}|\d{1,3}[.)]|\[[ xX]\]|"
    r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?Z)? +[—–-]|(?:User|Agent):)\s+)*"
)
"""What stands before the text of a line: list marks, headings, quotation marks, the time in a daily log, the speaker in
a filed exchange."""
_ENDS: Final = re.compile(r"(?<=[.!?])\s+|\n+")


class Sameness(IntEnum):
    """How surely two texts make the same claim."""

    DIFFERENT = 0
    LIKELY = 1
    CERTAIN = 2


def words_of_claim(text: str) -> tuple[str, ...]:
    """The words of a text in order: folded, without list marks and punctuation; numbers keep their separators."""
    return tuple(_WORD.findall(fold(_unmarked(text))))


def telling_words(text: str, most: int = 2) -> list[str]:
    """The longest words of a text in lower case, as they are written: a text that makes the same claim verbatim has them."""
    words = dict.fromkeys(_WORD.findall(_unmarked(text).lower()))
    return sorted(words, key=lambda word: (-len(word), word))[:most]


def same_claim(text: str, other: str, *, cosine: float | None = None) -> Sameness:
    """Whether two texts make the same claim.

    Args:
        text: A text.
        other: The other one.
        cosine: Cosine of their vectors; None without vectors.
    """
    words, other_words = words_of_claim(text), words_of_claim(other)
    if not words or not other_words or max(len(text), len(other)) > MOST_CHARS:
        return Sameness.DIFFERENT
    if words == other_words:
        return Sameness.CERTAIN
    if Counter(words) != Counter(other_words) and (cosine is None or cosine < NEAR_CLAIM):
        return Sameness.DIFFERENT
    if not same_marks(_unmarked(text), _unmarked(other)):
        return Sameness.DIFFERENT
    differ = any(
        judge(Statement(newer), Statement(older), relation) is not None
        for newer, older in ((text, other), (other, text))
        for relation in (SUPERSEDES, CONTRADICTS)
    )
    return Sameness.DIFFERENT if differ else Sameness.LIKELY


def corrected_within(text: str, old: str, new: str) -> str | None:
    """A text in which the new statement stands in the place of the old one; None if no line or sentence is the old one.

    A text that is the old statement becomes the new one. List marks, and what stands around the statement, stay.
    """
    wanted = words_of_claim(old)
    if not wanted:
        return None
    pieces = [piece for piece in _pieces(text) if words_of_claim(text[piece[0] : piece[1]]) == wanted]
    if words_of_claim(text) == wanted:
        pieces = [(0, len(text.rstrip()))]
    if not pieces:
        return None
    for begin, end in reversed(pieces):
        begin += _MARKS.match(text[begin:end]).end()  # type: ignore[union-attr]  # it matches the empty text
        text = f"{text[:begin]}{new}{text[end:]}"
    return text


def corrected_value(value: str, old: str, new: str) -> str | None:
    """A value that was taken from the old statement, as the new statement has it; None if it does not follow.

    It follows if the value stands in the old statement and the two statements differ in one run of words within it.
    """
    before, after, kept = old.split(), new.split(), value.split()
    changes = [
        change for change in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if change[0] != "equal"
    ]
    if len(changes) != 1 or changes[0][0] != "replace" or _place(kept, before) is None:
        return None
    _, first, last, new_first, new_last = changes[0]
    at = _place(before[first:last], kept)
    if at is None:
        return None
    return " ".join([*kept[:at], *after[new_first:new_last], *kept[at + last - first :]]).rstrip(".,;!")


def _place(wanted: list[str], among: list[str]) -> int | None:
    """Where words stand in others, whatever the case and punctuation."""
    words, others = [[words_of_claim(word) for word in each] for each in (wanted, among)]
    places = (at for at in range(len(others) - len(words) + 1) if others[at : at + len(words)] == words)
    return next(places, None)


def _unmarked(text: str) -> str:
    match = _MARKS.match(text)
    return text[match.end() if match else 0 :]


def _pieces(text: str) -> list[tuple[int, int]]:
    """Begin and end of each line and of each sentence, ascending; of a sentence that is a line once."""
    found: set[tuple[int, int]] = set()
    for ends in (_ENDS, re.compile(r"\n+")):
        at = 0
        for match in ends.finditer(text):
            found.add((at, match.start()))
            at = match.end()
        found.add((at, len(text)))
    return sorted(found)
