"""Chooses the memories that go into a prompt, by salience and kind, within a room of tokens, and orders them in the text.

Invariant: pure. A memory is never dropped in favour of a less salient one of its kind; memories that fill what others leave
(``turn``) are dropped first, the last turn before the others, and have no reserved share. Each kind has a reserved share of
the room. The rest goes to the most salient memories of any kind; at equal salience the order is working, semantic,
procedural, episodic, then by id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..recall.evidence import ConfidenceWord
from .budget import MemoryKind, certain_of
from .salience import SalienceValues

NEWER: Final = 0.5
"""Share of the odds of an older memory that a newer one needs to come before it. In the hits of updates_dev, the statement
that holds now is then above all that do not in .68 of the questions, by recall's order in .30; the mean reciprocal rank of
an answer is .65 instead of .65, on locomo_dev .66 instead of .69. With .3 it is .75 of the questions, .63 and .62."""
_LEAST: Final = 1e-9
_RANK: Final = {kind: rank for rank, kind in enumerate(MemoryKind)}


@dataclass(frozen=True, slots=True)
class Item:
    """A memory that may go into a prompt.

    Attributes:
        kind: Its kind.
        id: Id of the entry, fact, drawer or document.
        text: Its text.
        salience: Its salience, 0 to 1.
        parts: The parts of the salience.
        source: ``fact``, ``entry``, ``drawer``, ``document``, ``identity``.
        finding: ``category/pattern`` of what the scanners block in it.
        turn: 0 if it competes by its salience; the others come after these, in ascending turn.
        certainty: How surely it is about the query, in a word; None if that is not known.
        confidence: The same as a number from 0 to 1, which orders memories by time; None if it does not.
        at_ms: From when on it holds, milliseconds since the epoch; None if that is not known.
        below: Id of the memory that replaced it.
        since: Date from when on it holds, where its text does not have it.
        until: Date until which it held; None if it holds.
        contradicted_by: What contradicts it, in words; None if nothing does.
    """

    kind: MemoryKind
    id: str
    text: str
    salience: float
    parts: SalienceValues | None = None
    source: str = "entry"
    finding: str | None = None
    turn: int = 0
    certainty: ConfidenceWord | None = None
    confidence: float | None = None
    at_ms: int | None = None
    below: str | None = None
    since: str | None = None
    until: str | None = None
    contradicted_by: str | None = None

    @property
    def order(self) -> tuple[int, float, int, str]:
        """Sorts the items that stay longest first."""
        return self.turn, -self.salience, _RANK[self.kind], self.id

    @property
    def marks(self) -> str:
        """What is known about it, before its text: ``weak (since 2026-03-01; until 2026-05-12) ``, or nothing."""
        word = "" if self.certainty is None else f"{self.certainty} "
        if self.since is None and self.until is None and self.contradicted_by is None:
            return word
        times = [f"since {self.since}" if self.since else "", f"until {self.until}" if self.until else ""]
        times.append(f"contradicted by {self.contradicted_by}" if self.contradicted_by else "")
        return f"{word}({'; '.join(filter(None, times))}) "


@dataclass(slots=True)
class _Taken:
    used: int = 0
    next: int = 0
    full: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The items that stay, by kind and order, and those that do not; ``tokens`` with the frames of their blocks."""

    kept: tuple[Item, ...]
    dropped: tuple[Item, ...]
    tokens: int


@dataclass(slots=True)
class _Room:
    """The selection so far."""

    total: int
    frame: int
    sizes: dict[tuple[MemoryKind, str], int]
    used: int = 0
    taken: dict[MemoryKind, _Taken] = field(default_factory=lambda: {kind: _Taken() for kind in MemoryKind})

    def cost(self, item: Item) -> int:
        return self.sizes[item.kind, item.id] + (0 if self.taken[item.kind].next else self.frame)

    def take(self, item: Item) -> None:
        cost = self.cost(item)
        kind_taken = self.taken[item.kind]
        kind_taken.used += cost
        kind_taken.next += 1
        self.used += cost


def choose(items: Sequence[Item], sizes: dict[tuple[MemoryKind, str], int], frame: int, total: int) -> Chosen:
    """The items that fit into ``total`` tokens.

    Args:
        items: No two of one kind and id.
        sizes: (kind, id) → tokens of the item as it is rendered.
        frame: Tokens of a kind's block beside its items.
        total: The room.
    """
    room = _Room(total, frame, sizes)
    by_kind = {
        kind: sorted((item for item in items if item.kind is kind), key=lambda item: item.order) for kind in MemoryKind
    }
    for kind, certain in certain_of(total).items():
        for item in by_kind[kind]:
            if item.turn or room.taken[kind].used + room.cost(item) > certain:
                break
            room.take(item)
    rest = sorted(
        (item for kind in MemoryKind for item in by_kind[kind][room.taken[kind].next :]), key=lambda item: item.order
    )
    for item in rest:
        kind_taken = room.taken[item.kind]
        if kind_taken.full or room.used + room.cost(item) > total:
            kind_taken.full = True  # what is less salient of this kind does not go before it
        else:
            room.take(item)
    kept = tuple(item for kind in MemoryKind for item in by_kind[kind][: room.taken[kind].next])
    left = tuple(item for kind in MemoryKind for item in by_kind[kind][room.taken[kind].next :])
    return Chosen(kept, tuple(sorted(left, key=lambda item: item.order)), room.used)


def in_text_order(items: Sequence[Item]) -> tuple[Item, ...]:
    """Items in the order of the text: by kind, the best first, but newer ones above older ones that are at most as certain.

    Of two items of a kind, a newer one comes before an older one if its odds are at least ``NEWER`` of the older one's.
    A replaced item comes directly after its replacement.
    """
    placed: list[Item] = []
    for kind in MemoryKind:
        among = sorted((item for item in items if item.kind is kind), key=lambda item: item.order)
        placed += _replaced_below(_newer_first(among))
    return tuple(placed)


def _newer_first(items: Sequence[Item]) -> list[Item]:
    placed: list[Item] = []
    known: list[tuple[float, int]] = []  # odds and time of each
    for item in items:
        if item.at_ms is None or item.confidence is None:
            placed.append(item)
            known.append((math.inf, 0))
            continue
        odds, at_ms = item.confidence / max(1.0 - item.confidence, _LEAST), item.at_ms
        place = len(placed)
        if item.until is None:
            enough = odds / NEWER
            place = next((at for at, (of, ms) in enumerate(known) if of <= enough and ms < at_ms), place)
        placed.insert(place, item)
        known.insert(place, (odds, at_ms))
    return placed


def _replaced_below(items: list[Item]) -> list[Item]:
    """Items with each that was replaced directly below what replaced it, if that is above or below it."""
    ids = {item.id for item in items}
    replaced: dict[str, list[Item]] = {}
    for item in items:
        if item.below is not None and item.below in ids and item.below != item.id:
            replaced.setdefault(item.below, []).append(item)
    moved = {item.id for group in replaced.values() for item in group}
    placed: list[Item] = []
    seen: set[str] = set()

    def place(item: Item) -> None:
        if item.id not in seen:
            seen.add(item.id)
            placed.append(item)
            for lower in replaced.get(item.id, ()):
                place(lower)

    for item in items:
        if item.id not in moved:
            place(item)
    for item in items:  # a circle has no first
        place(item)
    return placed
