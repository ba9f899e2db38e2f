"""The hot indexes of texts (chunks of documents, drawers), one for each workspace in use; drops the least recently used.

Invariant: an index is the state of the views at exactly ``index.seq``, and never of a replaced views file. Commits during a
load are queued and then applied; an index that is loaded again answers until the new one is there.

Runs on the event loop, except loads, which run in one thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar

from ....schemas.ports import CommittedBatch, ViewReader
from ..hot.active_models import ActiveModels
from ..hot.rows import Commit
from .index import ChunkIndex, extend, load
from .texts import TextIndex

IndexT = TypeVar("IndexT", bound=TextIndex)

CHUNKS_SHARE: Final = 4
"""Fraction (1/n) of the memory budget of hot indexes that is for chunks."""
RELOAD_PAUSE_S: Final = 2.0
"""Seconds between loads of an index that could not follow a commit (while a view catches up)."""
LOAD_ATTEMPTS: Final = 3
"""Attempts to load an index while commits or swaps invalidate it; the last result is used as it is."""


@dataclass(slots=True)
class _ChunkSlot(Generic[IndexT]):
    """A workspace's index, and its running load with the commits since the load began."""

    index: IndexT | None = None
    loading: asyncio.Task[IndexT] | None = None
    pending: list[Commit] = field(default_factory=list)
    generation: int = -1
    behind: bool = False
    loaded_at: float = 0.0
    indexed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Number of workspaces, chunks and bytes in the cache, and its budget in bytes."""

    workspaces: int
    chunks: int
    bytes: int
    budget_bytes: int


class TextCache(Generic[IndexT]):
    """The hot indexes of one collection of texts by workspace.

    Args:
        views: Where texts are read; subscribed to at once.
        budget_bytes: Memory for all indexes. The index in use is kept even if it alone is larger.
        clock: The time now, for ``indexed_at``.
        load: Reads the index of a workspace; blocking.
        extend: Takes a commit into an index; False if it must be loaded again.
    """

    def __init__(
        self,
        views: ViewReader,
        budget_bytes: int,
        clock: Callable[[], datetime],
        *,
        load: Callable[[ViewReader, str], IndexT],
        extend: Callable[[IndexT, Commit], bool],
    ) -> None:
        self._load_index = load
        self._extend = extend
        self._views = views
        self._budget = budget_bytes
        self._clock = clock
        self._slots: OrderedDict[str, _ChunkSlot[IndexT]] = OrderedDict()
        self._active = ActiveModels(views)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="crew-chunk-index")
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Drop all indexes and stop following commits."""
        self._unsubscribe()
        self._active.close()
        for slot in self._slots.values():
            if slot.loading is not None:
                slot.loading.cancel()
        self._slots.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def figures(self) -> CacheFigures:
        """What the cache holds."""
        held = [slot.index for slot in self._slots.values() if slot.index is not None]
        chunks, size = sum(map(len, held)), sum(index.nbytes for index in held)
        return CacheFigures(len(held), chunks, size, self._budget)

    def model_of(self, workspace_id: str) -> str | None:
        """The model whose vectors a query is compared with, or None."""
        slot = self._slots.get(workspace_id)
        return self._active.of(workspace_id) if slot is None or slot.index is None else slot.index.model

    def indexed_at(self, workspace_id: str) -> datetime | None:
        """When the index of a workspace last took in rows; None if it is not loaded."""
        slot = self._slots.get(workspace_id)
        return None if slot is None else slot.indexed_at

    def is_current(self, workspace_id: str) -> bool:
        """Whether the index of a workspace follows every commit."""
        slot = self._slots.get(workspace_id)
        return slot is not None and slot.index is not None and not slot.behind

    async def get(self, workspace_id: str, min_seq: int = 0) -> IndexT:
        """The workspace's index, loaded if necessary; use it before the next ``await``.

        Args:
            workspace_id: The workspace.
            min_seq: Lowest sequence of the index, which the views must have reached.
        """
        slot = self._slots.setdefault(workspace_id, _ChunkSlot())
        self._slots.move_to_end(workspace_id)
        if slot.index is not None and self._usable(slot, slot.index, min_seq):
            return slot.index
        return await asyncio.shield(self._load(workspace_id, slot))

    async def reload(self, workspace_id: str) -> IndexT:
        """Load the workspace's index again."""
        slot = self._slots.setdefault(workspace_id, _ChunkSlot())
        return await asyncio.shield(self._load(workspace_id, slot))

    def _usable(self, slot: _ChunkSlot[IndexT], index: IndexT, min_seq: int) -> bool:
        if slot.generation != self._views.generation:
            return False
        recent = asyncio.get_running_loop().time() - slot.loaded_at < RELOAD_PAUSE_S
        return not slot.behind or (recent and index.seq >= min_seq)

    def _load(self, workspace_id: str, slot: _ChunkSlot[IndexT]) -> asyncio.Task[IndexT]:
        if slot.loading is None:
            slot.loading = asyncio.create_task(self._loaded(workspace_id, slot), name="chunk-index")
            slot.loading.add_done_callback(lambda task: self._ended(slot, task))
        return slot.loading

    async def _loaded(self, workspace_id: str, slot: _ChunkSlot[IndexT]) -> IndexT:
        loop = asyncio.get_running_loop()
        for attempt in range(1, LOAD_ATTEMPTS + 1):
            generation, slot.pending = self._views.generation, []
            index = await loop.run_in_executor(self._executor, self._load_index, self._views, workspace_id)
            swapped = generation != self._views.generation
            behind = not swapped and not self._catch_up(index, slot.pending)
            if (not swapped and not behind) or attempt == LOAD_ATTEMPTS:
                break
        slot.index, slot.behind, slot.generation, slot.loading = index, behind, generation, None
        slot.pending = []
        slot.loaded_at, slot.indexed_at = loop.time(), self._clock()
        self._trim(keep=workspace_id)
        return index

    @staticmethod
    def _ended(slot: _ChunkSlot[IndexT], task: asyncio.Task[IndexT]) -> None:
        if slot.loading is task:  # it failed
            slot.loading, slot.pending = None, []
            if not task.cancelled():
                task.exception()  # raised where the load is awaited; a load in the background is tried again

    def _follow(self, batch: CommittedBatch) -> None:
        """Apply a commit to every index; called on the event loop, in order."""
        if not self._slots:
            return
        commit = Commit(batch)
        for workspace_id, slot in self._slots.items():
            if slot.loading is not None:
                slot.pending.append(commit)
            index = slot.index
            if index is None or slot.behind or slot.generation != self._views.generation:
                continue
            taken = index.taken
            slot.behind = not self._catch_up(index, [commit])
            if index.taken != taken:
                slot.indexed_at = self._clock()
            if index.worn or index.model != self._active.of(workspace_id):
                self._load(workspace_id, slot)

    def _trim(self, keep: str) -> None:
        """Drop whole indexes, least recently used first, until the rest is within the budget."""
        excess = sum(slot.index.nbytes for slot in self._slots.values() if slot.index is not None) - self._budget
        for name in [name for name, slot in self._slots.items() if name != keep and slot.loading is None]:
            index = self._slots[name].index
            if excess <= 0 and index is not None and len(index):
                continue
            excess -= index.nbytes if index is not None else 0
            del self._slots[name]

    def _catch_up(self, index: IndexT, commits: list[Commit]) -> bool:
        """Apply commits after the index's sequence; False at the first it cannot follow."""
        return all(commit.last_seq <= index.seq or self._extend(index, commit) for commit in commits)


class ChunkCache(TextCache[ChunkIndex]):
    """The hot indexes of chunks of memory documents; see ``TextCache``."""

    def __init__(self, views: ViewReader, budget_bytes: int, clock: Callable[[], datetime]) -> None:
        super().__init__(views, budget_bytes, clock, load=load, extend=extend)
