"""The slots of entries in the cache of hot indexes: follows commits, switches models, reads columns again, merges.

Invariant: all vectors of an index are of ``index.model``; after an activation, the former model is used until the new
one's vectors are loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from ...schemas.access.tables import AGENTS_PROJECTION
from ...schemas.core.ports import ViewReader
from ...schemas.entries.tables import ENTRIES
from ...schemas.models.tables import TOKEN_BITS_PROJECTION, VECTORS_PROJECTION
from ...schemas.relations.tables import RELATIONS_PROJECTION
from .cache import HotCache, Indexes, Slot, under_way
from .columns import HotTable
from .entry_index import HotIndex
from .postings import merge_segments
from .records import RECORD_COLUMNS, append_records
from .rows import Commit, StoredRows
from .sessions import sort_both
from .take import INDEXED_PROJECTIONS, load, take
from .vectors import VectorMatrix, dropped_by, fill, read_matrix

RECORD_SHARE: Final = 4
"""Fraction (1/n) of the budget for the texts of one workspace's entries; they are evicted first."""

_log = structlog.get_logger(__name__)

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


class EntrySlot(Slot[HotIndex]):
    """The hot index of the entries of a workspace."""

    def __init__(self, cache: HotCache, workspace_id: str) -> None:
        super().__init__(cache, workspace_id)
        self._switching: asyncio.Task[None] | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._readings: list[MatrixReading] = []
        self._missed: list[Commit] = []

    def read(self) -> HotIndex:
        """See ``Slot``."""
        return load(self.cache.views, self.workspace_id, self.cache.budget_bytes // RECORD_SHARE)

    def extend(self, index: HotIndex, commit: Commit) -> bool:
        """See ``Slot``."""
        if not can_follow(index, commit):
            return False
        extend(index, commit)
        return True

    def beside(self, commit: Commit) -> None:
        """See ``Slot``."""
        for reading in self._readings:
            reading.follow(commit)
        if self._refreshing is not None:
            self._missed.append(commit)

    def tend(self, index: HotIndex) -> None:
        """See ``Slot``."""
        self._switch_if_due(index)
        self._refresh(index)
        if self._upkeep is None and (index.merge_due() or index.sort_due()):
            self._upkeep = asyncio.create_task(self._tidy(index))
            self._upkeep.add_done_callback(lambda _: setattr(self, "_upkeep", None))

    async def renewed(self, index: HotIndex, min_seq: int) -> None:
        """See ``Slot``."""
        if index.stale:
            self._refresh(index)
            if self._refreshing is not None and min_seq >= index.needed_seq:
                await asyncio.shield(self._refreshing)

    def answers_meanwhile(self, index: HotIndex, min_seq: int) -> bool:
        """See ``Slot``. Texts are then read from the present views: a hit that is not in them is left out."""
        index.records.start_at(len(index))
        return index.seq >= min_seq

    def shed(self, index: HotIndex, *, in_use: bool) -> int:
        """Drop the vectors of inactive models, and the texts of entries unless the index is in use."""
        freed = index.forget_standby()
        if not in_use:
            freed += index.records.nbytes
            index.records.start_at(len(index))
        return freed

    @property
    def tasks(self) -> tuple[asyncio.Task[Any] | None, ...]:
        """See ``Slot``."""
        return self.loading, self._switching, self._upkeep, self._refreshing

    def _switch_if_due(self, index: HotIndex) -> None:
        """Switch to the active model's vectors: at once if they are in memory, else after loading them."""
        model = self.cache.active.of(self.workspace_id)
        if index.model == model:
            return
        matrix = index.matrix_of(model) if model is not None else None
        if matrix is not None or model is None:
            index.use(matrix)
        elif not under_way(self._switching):
            self._switching = asyncio.create_task(self._switch())

    async def _switch(self) -> None:
        """Load vectors until the slot's index, even if it was reloaded meanwhile, uses the active model."""
        while (index := self.index) is not None:
            try:
                model = self.cache.active.of(self.workspace_id)
                if model is None or model == index.model:
                    return
                matrix = index.matrix_of(model)
                if matrix is None:
                    matrix = await self.read_matrix(index, model)
                if self.cache.active.of(self.workspace_id) == model:
                    index.use(matrix)
                    self.cache.trim(self)
                else:  # another activation came meanwhile
                    index.keep(matrix)
            except Exception:  # queries continue with the former model; the next commit tries again
                _log.exception("hot_index_switch_failed", workspace_id=self.workspace_id, seq=index.seq)
                if self.index is index:
                    return

    async def read_matrix(self, index: HotIndex, model: str) -> VectorMatrix:
        """Read the vectors of a model over the documents of the index."""
        reading = MatrixReading(index, model)
        self._readings.append(reading)
        try:
            return await reading.read(self.cache.views, self.cache.in_thread)
        finally:
            self._readings.remove(reading)

    def _refresh(self, index: HotIndex) -> None:
        """Read columns again that a commit rewrote, once their view has reached the commit; queries continue."""
        if self._refreshing is not None:
            return
        ready = [held for held in index.stale if self.cache.views.view_seq(held.table.view) >= held.needed_seq]
        if ready:
            self._missed = []
            self._refreshing = asyncio.create_task(self._read_columns(index, ready))
            self._refreshing.add_done_callback(lambda _: setattr(self, "_refreshing", None))

    async def _read_columns(self, index: HotIndex, tables: Sequence[HotTable]) -> None:
        views, workspace_id = self.cache.views, self.workspace_id
        generation = views.generation
        for held in tables:
            seq = views.view_seq(held.table.view)
            try:
                columns = await self.cache.in_thread(held.read, StoredRows(views, workspace_id))
            except Exception:  # the old ones are used until the next commit or query tries again
                _log.exception("hot_columns_not_read", workspace_id=workspace_id, table=held.table.name)
                return
            if self.index is index and generation == views.generation:
                held.put(columns, index.documents.seq)
                held.read_seq = seq
                for commit in self._missed:
                    held.take(commit.rows(workspace_id), index.documents.seq)

    async def _tidy(self, index: HotIndex) -> None:
        """Merge segments and sort sessions, in the thread, on immutable values."""
        try:
            while due := index.merge_due():
                merged = await self.cache.in_thread(merge_segments, due)
                index.postings.replace(due, merged)
            if index.sort_due():
                index.order, index.turn_order = await self.cache.in_thread(sort_both, *index.to_sort())
        except Exception:  # the index still answers, only slower; the next commit tries again
            _log.exception("hot_index_upkeep_failed", workspace_id=self.workspace_id, seq=index.seq)


class EntryIndexes(Indexes[HotIndex]):
    """The hot indexes of entries."""

    def __init__(self, cache: HotCache) -> None:
        super().__init__(cache, "entries", EntrySlot)

    def slot(self, workspace_id: str) -> EntrySlot | None:
        """See ``Indexes``."""
        slot = self.cache.slot(self.kind, workspace_id)
        assert slot is None or isinstance(slot, EntrySlot)
        return slot

    def at_hand(self, workspace_id: str) -> bool:
        """Whether ``get`` without a sequence would return at once."""
        slot = self.slot(workspace_id)
        return slot is not None and slot.index is not None and not slot.index.stale and slot.usable(slot.index)

    def active_model(self, workspace_id: str) -> str | None:
        """The active model of a workspace, whose vectors may still be loading."""
        return self.cache.active.of(workspace_id)

    async def settled(self) -> None:
        """Wait until every index uses the vectors of its active model."""
        while tasks := [
            task
            for slot in self.cache.slots(self.kind)
            for task in slot.tasks[:2]  # a running load may have read before the decision
            if under_way(task)
        ]:
            await asyncio.wait(tasks)

    async def with_matrix(self, workspace_id: str, model: str) -> tuple[HotIndex, VectorMatrix]:
        """The workspace's index with the vectors of any model; use it before the next ``await``."""
        while True:
            index = await self.get(workspace_id)
            if (matrix := index.matrix_of(model)) is not None:
                return index, matrix
            slot = self.slot(workspace_id)
            if slot is not None:  # else it was dropped meanwhile
                index.keep(await slot.read_matrix(index, model))
