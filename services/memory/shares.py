"""Who must give room back when many askers share a bounded store: whoever takes most of it.

Why: evicting the oldest lets one asker in a loop push out what everybody else holds.

Invariant: what is given back is the oldest of the greediest asker of the greediest group, so an asker that takes less than
its equal share of its group, and a group less than its equal share of the store, lose nothing to others.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Asker:
    """Who takes room.

    Attributes:
        group: The workspace of its token, None for a token of all workspaces; never a name that a request chose.
        token_id: Its token.
    """

    group: str | None
    token_id: str


@dataclass(slots=True)
class _Share:
    cost: int = 0
    items: OrderedDict[str, None] = field(default_factory=OrderedDict)


class Shares:
    """Costs of named items by asker."""

    def __init__(self) -> None:
        self._groups: dict[str | None, dict[str, _Share]] = {}
        self._costs: Final[Counter[str | None]] = Counter()

    @property
    def total(self) -> int:
        """Costs of all items."""
        return self._costs.total()

    def add(self, asker: Asker, item: str, cost: int) -> None:
        """The asker takes room for an item, its newest."""
        share = self._groups.setdefault(asker.group, {}).setdefault(asker.token_id, _Share())
        share.items[item] = None
        share.cost += cost
        self._costs[asker.group] += cost

    def reduce(self, asker: Asker, by: int) -> None:
        """An item of the asker takes so much less."""
        self._groups[asker.group][asker.token_id].cost -= by
        self._costs[asker.group] -= by

    def remove(self, asker: Asker, item: str, cost: int) -> None:
        """An item of the asker is gone, and what it still cost."""
        share = self._groups[asker.group][asker.token_id]
        del share.items[item]
        self.reduce(asker, cost)
        if not share.items:
            del self._groups[asker.group][asker.token_id]
        if not self._groups[asker.group]:
            del self._groups[asker.group], self._costs[asker.group]

    def next_out(self) -> str:
        """The item that goes first; there must be one."""
        group = max(self._costs, key=self._costs.__getitem__)
        greediest = max(self._groups[group].values(), key=lambda share: share.cost)
        return next(iter(greediest.items))
