"""Arranges hits: repeats become one hit, and what does not count any more stands below what replaced it.

Two entries repeat each other if they are of one type, agent and actor, and either their texts are equal after folding, or
one has all content words of the other in their order and few more: none of them a number, a name or a negation, so that
neither "approved" and "rejected" nor two invoices become one. The newest entry that counts stands for the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...schemas.operations.recall import RecallHit
from ...schemas.operations.retractions import State
from ...schemas.rules.text import Analyzer, fold

NEAR: Final = 0.75
"""Least share of common content words, so that a text of seven words may have two more."""
FEWEST_WORDS: Final = 3
"""Content words below which only equal texts are repeats."""
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_NEGATIONS: Final = frozenset(
    [
        "not",
        "no",
        "never",
        "none",
        "without",
        "cannot",
        "nicht",
        "kein",
        "keine",
        "keinen",
        "keiner",
        "nie",
        "ohne",
        "pas",
        "ne",
        "sans",
        "non",
        "sin",
        "niet",
        "geen",
        "ikke",
        "inte",
        "before",
        "after",
        "on",
        "off",
        "in",
        "out",
        "up",
        "down",
        "under",
        "over",
        "more",
        "less",
        "only",
        "from",
        "to",
        "by",
        "until",
        "since",
        "vor",
        "nach",
        "an",
        "aus",
        "ein",
        "bis",
        "ab",
        "nur",
        "mehr",
        "weniger",
        "нет",
        "не",
        "без",
    ]
)
"""Words that the analyzer leaves out, or that few words outweigh, and that turn a statement into another one."""
_TEXTS: Final = ("text", "question", "reason")
"""Strings of the payload that are compared as well."""
COMPARED_CHARS: Final = 2_000
"""Characters that are compared by their words; what follows has to be equal."""
_LAST: Final = frozenset({State.RETRACTED, State.STALE})


class Text:
    """What is compared of a hit."""

    __slots__ = ("_analyzer", "_words", "folded", "key", "text")

    def __init__(self, hit: RecallHit, analyzer: Analyzer) -> None:
        more = [part for name in _TEXTS if isinstance(part := hit.payload.get(name), str)]
        whole = "\n".join((hit.summary, *more))
        text = whole[:COMPARED_CHARS]
        self.key = (hit.entry_type, hit.actor_type, hit.actor_id, hit.agent_id, whole[COMPARED_CHARS:])
        self.folded = " ".join(fold(text).split()).strip(" .!?")
        self.text = text
        self._analyzer = analyzer
        self._words: tuple[int, ...] | None = None

    @property
    def words(self) -> tuple[int, ...]:
        """Terms of the content words in order; most hits need no such comparison."""
        if self._words is None:
            self._words = tuple(self._analyzer.terms(self.text))
        return self._words

    def repeats(self, other: Text) -> bool:
        """Whether both say the same."""
        if self.key != other.key:
            return False
        if self.folded == other.folded:
            return True
        few, many = sorted((self.words, other.words), key=len)
        if len(few) < FEWEST_WORDS or len(few) < NEAR * len(many):
            return False
        rest = iter(many)
        return all(word in rest for word in few) and _marked(self.text) == _marked(other.text)


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
    first = {"score": best.score, "via": best.via, "confidence": best.confidence, "reason": best.reason}
    return newest.model_copy(update={"repeats": len(members) - 1, **first})


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
