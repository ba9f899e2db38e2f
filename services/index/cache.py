"""The cache of hot indexes, one for each workspace in use; evicts the least recently used.

Invariant: an index is the state of the views at exactly ``index.seq``, and never of a replaced views file. Commits
during a load are queued and then applied. All vectors of an index are of ``index.model``; after an activation, the
former model is used until the new one's vectors are loaded.

Runs on the event loop, except loads and large merges, which run in one thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard, TypeVar

import structlog

from ...schemas.access.tables import AGENTS_PROJECTION
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.entries.tables import ENTRIES
from ...schemas.models.tables import TOKEN_BITS_PROJECTION, VECTORS_PROJECTION
from ...schemas.relations.tables import RELATIONS_PROJECTION
from .active_models import ActiveModels
from .columns import HotTable
from .entry_index import HotIndex
from .postings import merge_segments
from .records import RECORD_COLUMNS, append_records
from .rows import Commit, StoredRows
from .sessions import sort_both
from .take import INDEXED_PROJECTIONS, load, take
from .vectors import VectorMatrix, dropped_by, fill, read_matrix

# Extends a hot index by one commit.


NEEDED: Final = frozenset(
    (*INDEXED_PROJECTIONS, VECTORS_PROJECTION, TOKEN_BITS_PROJECTION, RELATIONS_PROJECTION, AGENTS_PROJECTION)
)
"""Projections that must have taken part in a commit for the index to follow it; others only have columns in it."""


def can_follow(index: HotIndex, commit: Commit) -> bool:
    """Whether a commit holds every change of an index."""
    return commit.projections >= NEEDED and not commit.rewrote(ENTRIES, index.workspace_id)


def extend(index: HotIndex, commit: Commit) -> None:
    """Add a commit's rows of the index's workspace."""
    for model in dropped_by(commit):
        index.forget_model(model)
    rows = commit.rows(index.workspace_id)
    known = len(index)
    take(index, rows)
    if len(index) > known and index.records.cap_bytes:
        append_records(index.records, index.documents, rows.of(ENTRIES, *RECORD_COLUMNS))
    for held in index.tables.values():
        if held.table.view not in commit.projections or commit.rewrote(held.table, index.workspace_id):
            held.needed_seq = commit.last_seq
    index.seq = max(index.seq, commit.last_seq)


# Loads another model's vectors for an index while queries and commits continue.


InThread = Callable[..., Awaitable[VectorMatrix]]


class MatrixReading:
    """Loads a model's vectors for an index that changes meanwhile; used on the event loop."""

    def __init__(self, index: HotIndex, model: str) -> None:
        self.index = index
        self.model = model
        self._commits: list[Commit] = []

    def follow(self, commit: Commit) -> None:
        """Keep commits that arrive while the matrix is read."""
        self._commits.append(commit)

    async def read(self, views: ViewReader, in_thread: InThread) -> VectorMatrix:
        """Load the matrix and apply queued commits; loads again if the model was dropped meanwhile."""
        while True:
            self._commits = []
            seqs = self.index.documents.seq  # documents that come meanwhile bring their facts with them, or after them
            matrix = await in_thread(read_matrix, views, self.index.workspace_id, self.model, seqs)
            if not any(self.model in dropped_by(commit) for commit in self._commits):
                for commit in self._commits:
                    fill(matrix, commit.rows(self.index.workspace_id), self.index.documents.seq)
                return matrix


T = TypeVar("T")

RELOAD_PAUSE_S: Final = 2.0
"""Seconds between reloads of an index that could not follow a commit (while a view catches up). In between, it answers
as of its own sequence unless ``min_seq`` requires a later one.
"""
LOAD_ATTEMPTS: Final = 3
"""Attempts to load an index while commits or swaps invalidate it; the last result is used as it is."""
RECORD_SHARE: Final = 4
"""Fraction (1/n) of the budget for the texts of one workspace's entries; they are evicted first."""
EMPTY_KEPT: Final = 64
"""Most indexes of workspaces without documents, since a token of all workspaces may name any workspace."""
TRIM_EVERY: Final = 64
"""Commits between checks of the memory used."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _IndexSlot:
    """A workspace's index, or its running load and the commits since the load began."""

    index: HotIndex | None = None
    loading: asyncio.Task[HotIndex] | None = None
    pending: list[Commit] = field(default_factory=list)
    generation: int = -1
    behind: bool = False
    loaded_at: float = 0.0
    upkeep: asyncio.Task[None] | None = None
    switching: asyncio.Task[None] | None = None
    refreshing: asyncio.Task[None] | None = None
    readings: list[MatrixReading] = field(default_factory=list)
    missed: list[Commit] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HotCacheStatus:
    """Number of workspaces, documents and bytes in the cache, and its budget in bytes."""

    workspaces: int
    documents: int
    bytes: int
    budget_bytes: int


class HotCache:
    """The hot indexes by workspace.

    Args:
        budget_bytes: Memory for all indexes. The index in use is kept even if it alone is larger.
    """

    def __init__(self, views: ViewReader, budget_bytes: int) -> None:
        self._views = views
        self._budget = budget_bytes
        self._slots: OrderedDict[str, _IndexSlot] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="crew-hot-index")
        self._commits = 0
        self._active = ActiveModels(views)
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Drop all indexes and stop following commits."""
        self._unsubscribe()
        self._active.close()
        for slot in self._slots.values():
            for task in (slot.loading, slot.upkeep, slot.switching, slot.refreshing):
                if task is not None:
                    task.cancel()
        self._slots.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def status(self) -> HotCacheStatus:
        """The figures of the cache."""
        indexes = [slot.index for slot in self._slots.values() if slot.index is not None]
        held = sum(index.nbytes for index in indexes)
        return HotCacheStatus(len(indexes), sum(len(index) for index in indexes), held, self._budget)

    async def get(self, workspace_id: str, min_seq: int = 0) -> HotIndex:
        """The workspace's index, loaded if necessary; use it before the next ``await``.

        Args:
            workspace_id: The workspace.
            min_seq: Lowest sequence of the index, which the views must have reached. At a decay's sequence or later,
                waits for the new importances.
        """
        slot = self._slots.setdefault(workspace_id, _IndexSlot())
        self._slots.move_to_end(workspace_id)
        if slot.index is not None and self._usable(slot, slot.index, min_seq):
            if slot.index.stale:
                await self._refreshed(workspace_id, slot, slot.index, min_seq)
            if self._usable(slot, slot.index, min_seq):
                return slot.index
        if slot.loading is None:
            slot.loading = asyncio.create_task(self._load(workspace_id, slot))
            slot.loading.add_done_callback(lambda task: self._loaded(slot, task))
        return await asyncio.shield(slot.loading)

    def at_hand(self, workspace_id: str) -> bool:
        """Whether ``get`` without a sequence would return at once."""
        slot = self._slots.get(workspace_id)
        if slot is None or slot.index is None or slot.index.stale:
            return False
        return self._usable(slot, slot.index, 0)

    def model_of(self, workspace_id: str) -> str | None:
        """The model whose vectors a query is compared with, or None."""
        slot = self._slots.get(workspace_id)
        if slot is None or slot.index is None:
            return self._active.of(workspace_id)
        return slot.index.model

    def active_model(self, workspace_id: str) -> str | None:
        """The active model of a workspace, whose vectors may still be loading."""
        return self._active.of(workspace_id)

    async def settled(self) -> None:
        """Wait until every index uses the vectors of its active model."""
        while tasks := [
            task
            for slot in self._slots.values()
            for task in (slot.loading, slot.switching)  # a running load may have read before the decision
            if _under_way(task)
        ]:
            await asyncio.wait(tasks)

    async def with_matrix(self, workspace_id: str, model: str) -> tuple[HotIndex, VectorMatrix]:
        """The workspace's index with the vectors of any model; use it before the next ``await``."""
        while True:
            index = await self.get(workspace_id)
            if (matrix := index.matrix_of(model)) is not None:
                return index, matrix
            index.keep(await self._read(self._slots[workspace_id], index, model))

    def _usable(self, slot: _IndexSlot, index: HotIndex, min_seq: int) -> bool:
        if slot.generation != self._views.generation:
            return False
        if not slot.behind:
            return True
        recent = asyncio.get_running_loop().time() - slot.loaded_at < RELOAD_PAUSE_S
        return recent and index.seq >= min_seq

    async def _load(self, workspace_id: str, slot: _IndexSlot) -> HotIndex:
        for attempt in range(1, LOAD_ATTEMPTS + 1):
            slot.generation, slot.pending = self._views.generation, []
            index = await self._in_thread(load, self._views, workspace_id, self._budget // RECORD_SHARE)
            swapped = slot.generation != self._views.generation
            slot.behind = not swapped and not _catch_up(index, slot.pending)
            if (not swapped and not slot.behind) or attempt == LOAD_ATTEMPTS:
                break
        slot.index, slot.pending, slot.loading = (
            index,
            [],
            None,
        )  # so that the next commit extends it, even before callbacks run
        slot.loaded_at = asyncio.get_running_loop().time()
        self._switch_if_due(workspace_id, slot, index)
        self._trim(keep=workspace_id)
        return index

    @staticmethod
    def _loaded(slot: _IndexSlot, task: asyncio.Task[HotIndex]) -> None:
        if slot.loading is task:  # it failed
            slot.loading, slot.pending = None, []

    def _follow(self, batch: CommittedBatch) -> None:
        """Apply a commit to every index; called on the event loop, in order."""
        if not self._slots:
            return
        commit = Commit(batch)
        for workspace_id, slot in self._slots.items():
            if slot.loading is not None:
                slot.pending.append(commit)
            elif slot.index is not None and not slot.behind and slot.generation == self._views.generation:
                for reading in slot.readings:
                    reading.follow(commit)
                if slot.refreshing is not None:
                    slot.missed.append(commit)
                slot.behind = not _catch_up(slot.index, [commit])
                self._switch_if_due(workspace_id, slot, slot.index)
                self._refresh(workspace_id, slot, slot.index)
                self._keep_up(workspace_id, slot, slot.index)
        self._commits += 1
        if self._commits % TRIM_EVERY == 0:
            self._trim(keep=next(reversed(self._slots)))

    def _switch_if_due(self, workspace_id: str, slot: _IndexSlot, index: HotIndex) -> None:
        """Switch to the active model's vectors: at once if they are in memory, else after loading them."""
        model = self._active.of(workspace_id)
        if index.model == model:
            return
        matrix = index.matrix_of(model) if model is not None else None
        if matrix is not None or model is None:
            index.use(matrix)
        elif not _under_way(slot.switching):
            slot.switching = asyncio.create_task(self._switch(workspace_id, slot))

    async def _switch(self, workspace_id: str, slot: _IndexSlot) -> None:
        """Load vectors until the slot's index, even if it was reloaded meanwhile, uses the active model."""
        while (index := slot.index) is not None:
            try:
                model = self._active.of(workspace_id)
                if model is None or model == index.model:
                    return
                matrix = index.matrix_of(model)
                if matrix is None:
                    matrix = await self._read(slot, index, model)
                if self._active.of(workspace_id) == model:
                    index.use(matrix)
                else:  # another activation came meanwhile
                    index.keep(matrix)
            except Exception:  # queries continue with the former model; the next commit tries again
                _log.exception("hot_index_switch_failed", workspace_id=workspace_id, seq=index.seq)
                if slot.index is index:
                    return

    async def _read(self, slot: _IndexSlot, index: HotIndex, model: str) -> VectorMatrix:
        reading = MatrixReading(index, model)
        slot.readings.append(reading)
        try:
            return await reading.read(self._views, self._in_thread)
        finally:
            slot.readings.remove(reading)

    async def _refreshed(self, workspace_id: str, slot: _IndexSlot, index: HotIndex, min_seq: int) -> None:
        self._refresh(workspace_id, slot, index)
        if slot.refreshing is not None and min_seq >= index.needed_seq:
            await asyncio.shield(slot.refreshing)

    def _refresh(self, workspace_id: str, slot: _IndexSlot, index: HotIndex) -> None:
        """Read columns again that a commit rewrote, once their view has reached the commit; queries continue."""
        if slot.refreshing is not None:
            return
        ready = [held for held in index.stale if self._views.view_seq(held.table.view) >= held.needed_seq]
        if ready:
            slot.missed = []
            slot.refreshing = asyncio.create_task(self._read_columns(workspace_id, slot, index, ready))
            slot.refreshing.add_done_callback(lambda _: setattr(slot, "refreshing", None))

    async def _read_columns(
        self, workspace_id: str, slot: _IndexSlot, index: HotIndex, tables: Sequence[HotTable]
    ) -> None:
        generation = slot.generation
        for held in tables:
            seq = self._views.view_seq(held.table.view)
            try:
                columns = await self._in_thread(held.read, StoredRows(self._views, workspace_id))
            except Exception:  # the old ones are used until the next commit or query tries again
                _log.exception("hot_columns_not_read", workspace_id=workspace_id, table=held.table.name)
                return
            if slot.index is index and generation == self._views.generation:
                held.put(columns, index.documents.seq)
                held.read_seq = seq
                for commit in slot.missed:
                    held.take(commit.rows(workspace_id), index.documents.seq)

    def _keep_up(self, workspace_id: str, slot: _IndexSlot, index: HotIndex) -> None:
        if slot.upkeep is None and (index.merge_due() or index.sort_due()):
            slot.upkeep = asyncio.create_task(self._tidy(workspace_id, index))
            slot.upkeep.add_done_callback(lambda _: setattr(slot, "upkeep", None))

    async def _tidy(self, workspace_id: str, index: HotIndex) -> None:
        """Merge segments and sort sessions, in the thread, on immutable values."""
        try:
            while due := index.merge_due():
                merged = await self._in_thread(merge_segments, due)
                index.postings.replace(due, merged)
            if index.sort_due():
                index.order, index.turn_order = await self._in_thread(sort_both, *index.to_sort())
        except Exception:  # the index still answers, only slower; the next commit tries again
            _log.exception("hot_index_upkeep_failed", workspace_id=workspace_id, seq=index.seq)

    def _trim(self, keep: str) -> None:
        """Free memory, least recently used first: vectors of inactive models, texts of entries, then whole indexes.

        Indexes of workspaces without documents have a limit of their own.
        """
        idle = [name for name, slot in self._slots.items() if slot.loading is None and name != keep]
        empty = [name for name in idle if (index := self._slots[name].index) is None or not len(index)]
        for name in empty[: max(0, len(empty) - EMPTY_KEPT)]:
            del self._slots[name]
        held = {name: slot.index for name, slot in self._slots.items() if slot.index is not None}
        excess = sum(index.nbytes for index in held.values()) - self._budget
        for index in held.values():
            if excess > 0:
                excess -= index.forget_standby()
        for name, index in held.items():
            if excess > 0 and name != keep:
                excess -= index.records.nbytes
                index.records.start_at(len(index))
        for name, index in held.items():
            if excess > 0 and name != keep and self._slots[name].loading is None:
                excess -= index.nbytes
                del self._slots[name]
                _log.info("hot_index_dropped", workspace_id=name)

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)


def _under_way(task: asyncio.Task[Any] | None) -> TypeGuard[asyncio.Task[Any]]:
    """Whether a background task is running."""
    return task is not None and not task.done()


def _catch_up(index: HotIndex, commits: list[Commit]) -> bool:
    """Apply commits after the index's sequence; False at the first it cannot follow."""
    for commit in commits:
        if commit.last_seq <= index.seq:
            continue
        if not can_follow(index, commit):
            return False
        extend(index, commit)
    return True
