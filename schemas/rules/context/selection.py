"""Chooses the memories that go into a prompt, by salience and kind, within a room of tokens.

Invariant: pure. A memory is never dropped in favour of a less salient one of its kind. Each kind has a reserved share
of the room. The rest goes to the most salient memories of any kind; at equal salience the order is working, semantic,
procedural, episodic, then by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..salience import Parts
from .budget import Memory, certain_of

_RANK: Final = {kind: rank for rank, kind in enumerate(Memory)}


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
    """

    kind: Memory
    id: str
    text: str
    salience: float
    parts: Parts | None = None
    source: str = "entry"
    finding: str | None = None

    @property
    def order(self) -> tuple[float, int, str]:
        """Sorts the items that stay longest first."""
        return -self.salience, _RANK[self.kind], self.id


@dataclass(slots=True)
class _Taken:
    used: int = 0
    next: int = 0
    full: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The items that stay, by kind and salience, and those that do not; ``tokens`` with the frames of their blocks."""

    kept: tuple[Item, ...]
    dropped: tuple[Item, ...]
    tokens: int


@dataclass(slots=True)
class _Room:
    """The selection so far."""

    total: int
    frame: int
    sizes: dict[tuple[Memory, str], int]
    used: int = 0
    taken: dict[Memory, _Taken] = field(default_factory=lambda: {kind: _Taken() for kind in Memory})

    def cost(self, item: Item) -> int:
        return self.sizes[item.kind, item.id] + (0 if self.taken[item.kind].next else self.frame)

    def take(self, item: Item) -> None:
        cost = self.cost(item)
        taken = self.taken[item.kind]
        taken.used += cost
        taken.next += 1
        self.used += cost


def choose(items: Sequence[Item], sizes: dict[tuple[Memory, str], int], frame: int, total: int) -> Chosen:
    """The items that fit into ``total`` tokens.

    Args:
        items: No two of one kind and id.
        sizes: (kind, id) → tokens of the item as it is rendered.
        frame: Tokens of a kind's block beside its items.
        total: The room.
    """
    room = _Room(total, frame, sizes)
    by_kind = {kind: sorted((one for one in items if one.kind is kind), key=lambda one: one.order) for kind in Memory}
    for kind, certain in certain_of(total).items():
        for item in by_kind[kind]:
            if room.taken[kind].used + room.cost(item) > certain:
                break
            room.take(item)
    rest = sorted((one for kind in Memory for one in by_kind[kind][room.taken[kind].next :]), key=lambda one: one.order)
    for item in rest:
        taken = room.taken[item.kind]
        if taken.full or room.used + room.cost(item) > total:
            taken.full = True  # what is less salient of this kind does not go before it
        else:
            room.take(item)
    kept = tuple(one for kind in Memory for one in by_kind[kind][: room.taken[kind].next])
    left = tuple(one for kind in Memory for one in by_kind[kind][room.taken[kind].next :])
    return Chosen(kept, tuple(sorted(left, key=lambda one: one.order)), room.used)
