"""Arranges hits: repeats become one hit, and what does not count any more stands below what replaced it.

Two entries repeat each other if they are of one type, in a conversation of one speaker, and either their texts are equal
after folding, or one has all content words of the other and few more: none of them a number, a name or a negation, so that
neither "approved" and "rejected" nor two invoices become one. The newest entry that counts stands for the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...schemas.catalogue import info_of
from ...schemas.operations.recall import RecallHit
from ...schemas.operations.retractions import State
from ...schemas.rules.text import Analyzer, fold

NEAR: Final = 0.75
"""Least share of common content words, so that a text of seven words may have two more."""
FEWEST_WORDS: Final = 3
"""Content words below which only equal texts are repeats."""
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_SEPARATOR: Final = re.compile(r"\W+")
_NEGATIONS: Final = frozenset(
    ["not", "no", "never", "none", "without", "cannot", "nicht", "kein", "keine", "nie", "ohne"]
)
_LAST: Final = frozenset({State.RETRACTED, State.STALE})


class Text:
    """What is compared of a hit."""

    __slots__ = ("folded", "key", "text", "words")

    def __init__(self, hit: RecallHit, analyzer: Analyzer) -> None:
        more = hit.payload.get("text")  # of a note whose summary is its first line
        text = f"{hit.summary}\n{more}" if isinstance(more, str) else hit.summary
        turn = info_of(hit.entry_type).conversation
        self.key = (hit.entry_type, hit.actor_type, hit.actor_id) if turn else (hit.entry_type,)
        self.folded = " ".join(_SEPARATOR.split(fold(text))).strip() or text
        self.words = frozenset(analyzer.terms(text))
        self.text = text

    def repeats(self, other: Text) -> bool:
        """Whether both say the same."""
        if self.key != other.key:
            return False
        if self.folded == other.folded:
            return True
        few, many = sorted((self.words, other.words), key=len)
        return (
            FEWEST_WORDS <= len(few) >= NEAR * len(many) and few <= many and _marked(self.text) == _marked(other.text)
        )


def _marked(text: str) -> set[str]:
    """Numbers, negations, and words with a capital that do not begin a sentence."""
    found: set[str] = set()
    begins = True
    for match in _WORD.finditer(text):
        word = match[0]
        low = word.casefold()
        named = not begins and word != low
        if named or low in _NEGATIONS or low.endswith(("n't", "n’t")) or any(map(str.isdigit, word)):
            found.add(low)
        begins = text[match.end() : match.end() + 1] in (".", "!", "?", ":", "\n")
    return found


def arranged(hits: Sequence[RecallHit], analyzer: Analyzer) -> list[RecallHit]:
    """Hits, best first, without repeats and in the order in which they count."""
    return _in_order(_without_repeats(hits, analyzer))


def _without_repeats(hits: Sequence[RecallHit], analyzer: Analyzer) -> list[RecallHit]:
    groups: list[tuple[Text, list[RecallHit]]] = []
    for hit in hits:
        text = Text(hit, analyzer)
        same = next((members for known, members in groups if known.repeats(text)), None)
        if same is None:
            groups.append((text, [hit]))
        else:
            same.append(hit)
    return [members[0] if len(members) == 1 else _one_of(members) for _, members in groups]


def _one_of(members: Sequence[RecallHit]) -> RecallHit:
    newest = max(members, key=lambda hit: (hit.standing is None, hit.ts, hit.seq))
    best = members[0]
    return newest.model_copy(update={"repeats": len(members) - 1, "score": best.score, "via": best.via})


def _in_order(hits: list[RecallHit]) -> list[RecallHit]:
    place = {hit.entry_id: float(at) for at, hit in enumerate(hits)}
    if all(hit.standing is None for hit in hits):
        return hits
    for hit in sorted(hits, key=lambda hit: hit.seq, reverse=True):  # what replaces comes after what it replaces
        if hit.standing is not None:
            above = len(hits) if hit.standing.state in _LAST else place.get(hit.standing.by or "", -1)
            if above >= place[hit.entry_id]:
                place[hit.entry_id] = above + 0.5
    return sorted(hits, key=lambda hit: place[hit.entry_id])
