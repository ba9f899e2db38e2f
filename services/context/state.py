"""What the use-cases of layered memory of a node share: facts and uses in memory, and the settings that apply."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ...schemas.access.tables import WORKSPACE_SETTINGS, read_workspace_settings
from ...schemas.context.budget import Budget
from ...schemas.context.salience import Weights
from ...schemas.core.errors import InvalidQuery
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.recorded_settings import WorkspaceSettings
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.settings import LayeredSettings
from ...schemas.standing.tables import IMPORTANCE
from ..facts.index import fact_indexes
from ..kept import KeptValues, in_thread
from ..node import Node

# The settings of layered memory in a workspace: the node's, overridden by the workspace's.


UNBOUNDED_TOKENS: Final = 1_000_000
"""The budget of a node whose context budget is switched off."""


@dataclass(frozen=True, slots=True)
class LayeredChoices:
    """The settings that apply.

    Attributes:
        weights: Of salience.
        budget: Of a context.
        episodic_ttl_hours: For how long episodes are returned; None for ever.
        decays: Whether freshness counts.
    """

    weights: Weights
    budget: Budget
    episodic_ttl_hours: float | None
    decays: bool

    @classmethod
    def of(cls, settings: LayeredSettings) -> LayeredChoices:
        """The settings of a node."""
        budget = settings.budget()
        if not settings.context_budget_enabled:
            budget = Budget(UNBOUNDED_TOKENS, budget.system)
        decays = settings.temporal_reasoning_enabled
        return cls(settings.weights(), budget, settings.episodic_ttl_hours, decays)

    def overridden(self, settings: WorkspaceSettings) -> LayeredChoices:
        """The settings of a workspace that overrides these.

        Raises:
            InvalidQuery: If they do not fit those of the node.
        """
        total = self.budget.total if settings.context_budget_tokens is None else settings.context_budget_tokens
        system = self.budget.system if settings.context_system_tokens is None else settings.context_system_tokens
        try:
            weights, budget = replace(self.weights, **settings.salience_weights or {}), Budget(total, system)
        except ValueError as error:
            hint = "change them with `crew-journal workspace settings`"
            raise InvalidQuery(f"the settings of the workspace do not fit: {error}", hint=hint) from None
        ttl = settings.episodic_ttl_hours or self.episodic_ttl_hours
        return replace(self, weights=weights, budget=budget, episodic_ttl_hours=ttl)


def kept_choices(node: LayeredChoices, views: ViewReader) -> KeptValues[str, LayeredChoices]:
    """The settings of each workspace."""

    def read(workspace_id: str) -> LayeredChoices:
        return node.overridden(read_workspace_settings(views, workspace_id))

    return KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(read))


# The time for which a request is answered.


class Moments:
    """Reads the times that requests name.

    Args:
        clock: The time now, UTC.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock

    def ms(self, named: str | None) -> int:
        """A named time, or now, in milliseconds since the epoch.

        Raises:
            InvalidQuery: If it is not a time.
        """
        try:
            return to_ms(self._clock() if named is None else parse_ts(named))
        except ValueError as error:
            hint = "now: send a time like 2026-11-21T09:30:00Z"
            raise InvalidQuery(f"now is not a time: {error}", hint=hint, field="now") from None


# How often entries were used, in memory for the workspaces in use.


MOST_WORKSPACES: Final = 32
"""Workspaces that are kept; 10,000 used entries take 2 MB."""
_READ: Final = f"""SELECT entry_id, reference_count, last_referenced_at FROM {IMPORTANCE}
    WHERE workspace_id = ? AND reference_count > 0"""
_COLUMNS: Final = ("workspace_id", "entry_id", "reference_count", "last_referenced_at")


@dataclass(frozen=True, slots=True)
class Uses:
    """How often an entry was used, and when last."""

    count: int = 0
    last_ms: int | None = None


NEVER: Final = Uses()


class UseCounts:
    """The uses by entry; on the event loop.

    Args:
        views: Read once for each workspace, then followed; ``close`` ends that.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._generation = views.generation
        self._uses: OrderedDict[str, dict[str, Uses]] = OrderedDict()
        self._loaded: set[str] = set()
        self._loading = asyncio.Lock()
        self.close = views.subscribe(self._follow)

    async def of(self, workspace_id: str) -> Mapping[str, Uses]:
        """Entry → its uses; those that were never used are not in it."""
        if self._generation != self._views.generation:
            self._generation = self._views.generation
            self._uses.clear()
            self._loaded.clear()
        if workspace_id not in self._loaded:
            async with self._loading:
                if workspace_id not in self._loaded:
                    await self._load(workspace_id)
        self._uses.move_to_end(workspace_id)
        return self._uses[workspace_id]

    async def _load(self, workspace_id: str) -> None:
        known = self._uses[workspace_id] = {}  # commits from here on are kept and newer than what is read
        for entry_id, count, last_ms in await asyncio.to_thread(self._views.rows, _READ, [workspace_id]):
            known.setdefault(entry_id, Uses(count, last_ms))
        self._uses[workspace_id] = known
        self._loaded.add(workspace_id)
        while len(self._uses) > MOST_WORKSPACES:
            self._loaded.discard(self._uses.popitem(last=False)[0])

    def _follow(self, batch: CommittedBatch) -> None:
        if (changes := batch.changes.get(IMPORTANCE.name)) is None:
            return
        for columns in changes.written:
            for workspace_id, entry_id, count, last_ms in zip(*(columns[name] for name in _COLUMNS), strict=True):
                if count and (known := self._uses.get(workspace_id)) is not None:
                    known[entry_id] = Uses(int(count), None if last_ms is None else int(last_ms))


class LayeredState:
    """Followed views and settings.

    Args:
        node: What use-cases share.

    Attributes:
        choices: The settings of each workspace.
        moments: The time of a request.
        indexes: The hot indexes of facts.
        uses: How often entries were used.
    """

    def __init__(self, node: Node) -> None:
        self.choices = kept_choices(LayeredChoices.of(node.settings), node.views)
        self.moments = Moments(node.clock)
        self.indexes = fact_indexes(node.recall.cache, node.analyzer)
        self.uses = UseCounts(node.views)
        for part in (self.choices, self.uses):
            node.ends.callback(part.close)
