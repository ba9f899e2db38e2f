"""Leaves out memories that say what another one says: an entry, the drawer it was filed in, a fact, a lesson.

Two texts repeat each other as two hits of recall do (``query/arranging``). A drawer with several turns repeats entries if
each of its turns does; if only some do, the drawer stays, because it has more, and these entries are left out.

Invariant: each group of repeats keeps one memory, with the earliest turn and the highest salience of the group. Of two
entries the newest that counts stays; of other memories the order is entry, fact, document, drawer.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from ...schemas.rules.context.selection import Item
from ...schemas.rules.text import Analyzer
from ..query.arranging import ComparedText

_PRECEDENCE: Final = {"entry": 0, "fact": 1, "identity": 2, "document": 3, "drawer": 4}
_TURNS: Final = re.compile(r"\n[ \t]*\n+")
_SPEAKER: Final = re.compile(r"(?:User|Agent):\s+")
_BULLET: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_WORD: Final = re.compile(r"\w+")
_LEADING: Final = 2
"""Rarest words of a text by which its repeats are looked for: two, because one may be inflected in the other text."""
_ALIKE: Final = 0.5
"""Least share of common words, as they are written, of texts that are compared: inflected words differ, and a repeat may
have a quarter more content words."""
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Said:
    """A memory, and its text without date, speaker and marks.

    Attributes:
        item: The memory.
        text: Its text; that of a drawer may have several turns.
    """

    item: Item
    text: str


@dataclass(frozen=True, slots=True)
class Distinct:
    """Memories without repeats.

    Attributes:
        items: Those that stay.
        repeated: Those that are left out, each with the id of the one that says the same.
    """

    items: list[Item]
    repeated: list[tuple[Item, str]]


@dataclass(frozen=True, slots=True)
class _Words:
    """A text as ``arranging`` compares it."""

    summary: str
    payload: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


@dataclass(slots=True)
class _KnownTexts:
    """Texts that are kept, found by their rarest word: of two repeats, one has nearly all words of the other."""

    analyzer: Analyzer
    words: Mapping[str, frozenset[str]]
    rarest: Mapping[str, tuple[str, ...]]
    telling: frozenset[str]
    by_rarest: dict[str, list[str]] = field(default_factory=dict)
    by_word: dict[str, list[str]] = field(default_factory=dict)
    place_of: dict[str, int] = field(default_factory=dict)
    texts: dict[str, ComparedText] = field(default_factory=dict)

    @classmethod
    def among(cls, words: Mapping[str, frozenset[str]], analyzer: Analyzer) -> _KnownTexts:
        """Nothing kept yet of these texts, each with its words. A word of one text alone leads to no other."""
        held = Counter(chain.from_iterable(words.values()))
        shared = {word for word, count in held.items() if count > 1}
        rarest = {
            text: tuple(heapq.nsmallest(_LEADING, leading, key=lambda word: (held[word], word)))
            for text, some in words.items()
            if (leading := some & shared)
        }
        return cls(analyzer, words, rarest, frozenset(chain.from_iterable(rarest.values())))

    def find(self, text: str) -> int | None:
        """The place of the memory that says the same."""
        if (place := self.place_of.get(text)) is not None:
            return place
        words = self.words[text]
        others: dict[str, None] = {}
        for word in self.rarest.get(text, ()):
            others.update(dict.fromkeys(self.by_word.get(word, ())))
        for word in sorted(words & self.telling):
            others.update(dict.fromkeys(self.by_rarest.get(word, ())))
        for other in others:
            of_other = self.words[other]
            if len(words & of_other) >= _ALIKE * max(len(words), len(of_other)) and self._of(text).repeats(
                self._of(other)
            ):
                return self.place_of[other]
        return None

    def keep(self, text: str, place: int) -> None:
        """Add the text of a memory."""
        self.place_of[text] = place
        for word in self.rarest.get(text, ()):
            self.by_rarest.setdefault(word, []).append(text)
        for word in self.words[text] & self.telling:
            self.by_word.setdefault(word, []).append(text)

    def _of(self, text: str) -> ComparedText:
        if text not in self.texts:
            self.texts[text] = ComparedText(_Words(text), self.analyzer)
        return self.texts[text]


def distinct(memories: Sequence[Said], analyzer: Analyzer) -> Distinct:
    """Leave out repeats.

    Args:
        memories: The memories.
        analyzer: Turns texts into terms.
    """
    order = sorted(range(len(memories)), key=lambda at: _precedence(memories[at].item))
    parts = [_parts(memory) for memory in memories]
    known = _KnownTexts.among({part: _words_of(part) for some in parts for part in some}, analyzer)
    items: list[Item | None] = [memory.item for memory in memories]
    repeated: list[tuple[Item, str]] = []
    moved: dict[int, int] = {}
    for at in order:
        places = [None if (place := known.find(part)) is None else moved.get(place, place) for part in parts[at]]
        same = {place for place in places if place is not None}
        if same and None not in places:
            place = min(same)
            for other in same:
                items[other] = _as_strong(_item(items, other), _item(items, at))
            repeated.append((_item(items, at), _item(items, place).id))
            items[at] = None
            continue
        for place in sorted(same):  # a drawer with more than these entries
            entry = _item(items, place)
            if entry.source == "entry" and entry.until is None and entry.contradicted_by is None:
                items[at] = _as_strong(_item(items, at), entry)
                repeated.append((entry, _item(items, at).id))
                items[place], moved[place] = None, at
        for part, place_found in zip(parts[at], places, strict=True):
            if place_found is None:
                known.keep(part, at)
    return Distinct([item for item in items if item is not None], repeated)


def _item(items: Sequence[Item | None], at: int) -> Item:
    item = items[at]
    assert item is not None
    return item


def _precedence(item: Item) -> tuple[int, bool, int, str]:
    return _PRECEDENCE[item.source], item.until is not None, -(item.at_ms or 0), item.id


def _parts(memory: Said) -> list[str]:
    """The turns of a drawer, or the one text, without the names of speakers and without marks of lists."""
    if memory.item.source != "drawer":
        return [_unlisted(memory.text)]
    texts = _TURNS.split(memory.text) if "\n" in memory.text else [memory.text]
    return [part for text in texts if (part := _unlisted(_SPEAKER.sub("", text.strip(), count=1)))]


def _unlisted(text: str) -> str:
    match = _BULLET.match(text)
    return text if match is None else text[match.end() :]


def _as_strong(item: Item, other: Item) -> Item:
    """The item with the better rank of both, and what is known of the time of either."""
    confidence = item.confidence if other.confidence is None else max(item.confidence or 0.0, other.confidence)
    return replace(
        item,
        turn=min(item.turn, other.turn),
        salience=max(item.salience, other.salience),
        confidence=confidence,
        since=item.since or other.since,
        until=item.until or other.until,
        contradicted_by=item.contradicted_by or other.contradicted_by,
    )


def _words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
