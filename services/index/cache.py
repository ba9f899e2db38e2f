"""The cache of hot indexes: those of entries, documents, drawers and facts, within one budget of memory.

A slot holds the index of one kind in one workspace. What is used least recently is dropped first, whatever its kind.

Invariant: an index is the state of the views at exactly ``index.seq``. Commits during a load are queued and then applied.
An index of a replaced views file answers at most while its successor is loaded, and only with texts of the present file.

Runs on the event loop, except loads and large merges, which run in one thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar

import structlog

from ...schemas.core.ports import CommittedBatch, ViewReader
from .active_models import ActiveModels
from .rows import Commit

RELOAD_PAUSE_S: Final = 2.0
"""Seconds between reloads of an index that could not follow a commit (while a view catches up). In between, it answers
as of its own sequence unless ``min_seq`` requires a later one.
"""
LOAD_ATTEMPTS: Final = 3
"""Attempts to load an index while commits or swaps invalidate it; the last result is used as it is."""
EMPTY_KEPT: Final = 64
"""Most indexes without a text, since a token of all workspaces may name any workspace."""
TRIM_EVERY: Final = 64
"""Commits between checks of the memory used."""

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Followed(Protocol):
    """What the cache needs to know of an index; its length is the number of its texts."""

    seq: int

    @property
    def model(self) -> str | None:
        """The model whose vectors a query is compared with, or None."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...

    def __len__(self) -> int: ...


IndexT = TypeVar("IndexT", bound=Followed)


class Slot(Generic[IndexT]):
    """The index of one kind in one workspace, or its running load and the commits since the load began.

    A kind defines ``read`` and ``extend``, and what else it does in the background.

    Args:
        cache: The cache that holds the slot.
        workspace_id: The workspace.
    """

    def __init__(self, cache: HotCache, workspace_id: str) -> None:
        self.cache = cache
        self.workspace_id = workspace_id
        self.index: IndexT | None = None
        self.loading: asyncio.Task[IndexT] | None = None
        self.behind = False
        self.indexed_at: datetime | None = None
        self._pending: list[Commit] = []
        self._generation = -1
        self._loaded_at = 0.0

    # what a kind defines

    def read(self) -> IndexT:
        """Read the index from the views; blocking, in the thread."""
        raise NotImplementedError

    def extend(self, index: IndexT, commit: Commit) -> bool:
        """Take a commit into the index; False if it must be loaded again."""
        raise NotImplementedError

    def beside(self, commit: Commit) -> None:
        """Keep a commit for what is being read in the background; called before ``extend``."""

    def tend(self, index: IndexT) -> None:
        """Start the work in the background that is due; called after a load and after every commit."""

    async def renewed(self, index: IndexT, min_seq: int) -> None:
        """Wait for what the index must have read again at a sequence."""

    def answers_meanwhile(self, index: IndexT, min_seq: int) -> bool:
        """Whether an index of a replaced views file may answer for a sequence while the new one is loaded."""
        return False

    def shed(self, index: IndexT, *, in_use: bool) -> int:
        """Free what an index can do without; returns the bytes."""
        return 0

    @property
    def tasks(self) -> tuple[asyncio.Task[Any] | None, ...]:
        """The tasks in the background."""
        return (self.loading,)

    # what all have in common

    async def get(self, min_seq: int) -> IndexT:
        """The index; see ``Indexes.get``."""
        index = self.index
        if index is not None and self.usable(index, min_seq):
            await self.renewed(index, min_seq)
            index = self.index
            if index is not None and self.usable(index, min_seq):
                return index
        if index is not None and self.is_former and self.answers_meanwhile(index, min_seq):
            self.load()
            return index
        return await asyncio.shield(self.load())

    @property
    def is_former(self) -> bool:
        """Whether the index is of a replaced views file."""
        return self._generation != self.cache.views.generation

    def usable(self, index: IndexT, min_seq: int = 0) -> bool:
        """Whether the index may answer for a sequence."""
        if self.is_former:
            return False
        if not self.behind:
            return True
        recent = asyncio.get_running_loop().time() - self._loaded_at < RELOAD_PAUSE_S
        return recent and index.seq >= min_seq

    def load(self) -> asyncio.Task[IndexT]:
        """Load the index unless that is under way; the former one is used meanwhile if it may be."""
        if self.loading is None:
            self.loading = asyncio.create_task(self._load(), name="hot-index")
            self.loading.add_done_callback(self._ended)
        return self.loading

    async def _load(self) -> IndexT:
        views = self.cache.views
        for attempt in range(1, LOAD_ATTEMPTS + 1):
            generation, self._pending = views.generation, []
            index = await self.cache.in_thread(self.read)
            swapped = generation != views.generation
            behind = not swapped and not self._catch_up(index, self._pending)
            if (not swapped and not behind) or attempt == LOAD_ATTEMPTS:
                break
        self.index, self.behind, self._generation = index, behind, generation
        self._pending, self.loading = [], None  # so that the next commit extends it, even before callbacks run
        self._loaded_at, self.indexed_at = asyncio.get_running_loop().time(), self.cache.clock()
        self.tend(index)
        self.cache.trim(self)
        return index

    def _ended(self, task: asyncio.Task[IndexT]) -> None:
        if self.loading is task:  # it failed
            self.loading, self._pending = None, []
            if not task.cancelled():
                task.exception()  # raised where the load is awaited; a load in the background is tried again

    def follow(self, commit: Commit) -> None:
        """Take in a commit, and keep it for a running load."""
        if self.loading is not None:
            self._pending.append(commit)
        index = self.index
        if index is None or self.behind or self.is_former:
            return
        self.beside(commit)
        self.behind = not self._catch_up(index, [commit])
        self.tend(index)

    def _catch_up(self, index: IndexT, commits: list[Commit]) -> bool:
        """Apply commits after the index's sequence; False at the first it cannot follow."""
        return all(commit.last_seq <= index.seq or self.extend(index, commit) for commit in commits)


class HotCache:
    """All hot indexes of a node.

    Args:
        views: Where texts are read; subscribed to at once.
        budget_bytes: Memory for all indexes. The index in use is kept even if it alone is larger.
        clock: The time now, for ``indexed_at``.
    """

    def __init__(
        self, views: ViewReader, budget_bytes: int, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.views = views
        self.budget_bytes = budget_bytes
        self.clock = clock
        self.active = ActiveModels(views)
        self._slots: OrderedDict[tuple[str, str], Slot[Any]] = OrderedDict()
        self._kinds: set[str] = set()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="crew-hot-index")
        self._commits = 0
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Drop all indexes and stop following commits."""
        self._unsubscribe()
        self.active.close()
        for slot in self._slots.values():
            for task in slot.tasks:
                if task is not None:
                    task.cancel()
        self._slots.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def nbytes(self) -> int:
        """Bytes of all indexes."""
        return sum(slot.index.nbytes for slot in self._slots.values() if slot.index is not None)

    def slots(self, kind: str | None = None) -> list[Slot[Any]]:
        """The slots of a kind, of all kinds if None; least recently used first."""
        return [slot for (name, _), slot in self._slots.items() if kind in (None, name)]

    def slot(self, kind: str, workspace_id: str) -> Slot[Any] | None:
        """The slot of a kind and workspace, or None."""
        return self._slots.get((kind, workspace_id))

    def texts(self, workspace_id: str) -> int:
        """Number of texts of a workspace, of all kinds."""
        return sum(len(slot.index) for slot in self._of(workspace_id) if slot.index is not None)

    def is_loading(self, workspace_id: str) -> bool:
        """Whether texts of a workspace are being loaded that are not in memory yet."""
        return any(slot.index is None and slot.loading is not None for slot in self._of(workspace_id))

    def _of(self, workspace_id: str) -> Iterator[Slot[Any]]:
        return (slot for kind in self._kinds if (slot := self._slots.get((kind, workspace_id))) is not None)

    def use(self, kind: str, workspace_id: str, make: Callable[[HotCache, str], Slot[IndexT]]) -> Slot[IndexT]:
        """The slot of a kind and workspace, a new one if there is none; it is now the most recently used."""
        key = kind, workspace_id
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = make(self, workspace_id)
            self._kinds.add(kind)
        self._slots.move_to_end(key)
        return slot

    def trim(self, keep: Slot[Any]) -> None:
        """Free memory, least recently used first: what indexes can do without, then whole indexes.

        Indexes without texts have a limit of their own.
        """
        idle = [key for key, slot in self._slots.items() if slot.loading is None and slot is not keep]
        empty = [key for key in idle if (index := self._slots[key].index) is None or not len(index)]
        for key in empty[: max(0, len(empty) - EMPTY_KEPT)]:
            del self._slots[key]
        excess = self.nbytes - self.budget_bytes
        for slot in self._slots.values():
            if excess > 0 and slot.index is not None:
                excess -= slot.shed(slot.index, in_use=slot is keep)
        for key in idle:
            if excess > 0 and key in self._slots and (index := self._slots[key].index) is not None:
                excess -= index.nbytes
                del self._slots[key]
                _log.info("hot_index_dropped", kind=key[0], workspace_id=key[1])

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Drop the indexes of workspaces that are not wanted, except those that are being loaded."""
        for kind, workspace_id in list(self._slots):
            if self._slots[kind, workspace_id].loading is None and not wanted(workspace_id):
                del self._slots[kind, workspace_id]

    async def renew(self) -> None:
        """Load the indexes of a replaced views file again: nothing of that file is in memory afterwards."""
        for slot in self.slots():
            if slot.index is not None and slot.is_former:
                await asyncio.shield(slot.load())

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run blocking work in the thread of the cache."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def _follow(self, batch: CommittedBatch) -> None:
        """Apply a commit to every index; called on the event loop, in order."""
        if not self._slots:
            return
        commit = Commit(batch)
        for slot in self._slots.values():
            slot.follow(commit)
        self._commits += 1
        if self._commits % TRIM_EVERY == 0:
            self.trim(next(reversed(self._slots.values())))


class Indexes(Generic[IndexT]):
    """The indexes of one kind in the cache.

    Args:
        cache: The cache.
        kind: Its name.
        slot: Makes a slot of this kind.
    """

    def __init__(self, cache: HotCache, kind: str, slot: Callable[[HotCache, str], Slot[IndexT]]) -> None:
        self.cache = cache
        self.kind = kind
        self._make = slot

    async def get(self, workspace_id: str, min_seq: int = 0) -> IndexT:
        """The workspace's index, loaded if necessary; use it before the next ``await``.

        Args:
            workspace_id: The workspace.
            min_seq: Lowest sequence of the index, which the views must have reached. At a decay's sequence or later,
                waits for the new importances.
        """
        return await self.cache.use(self.kind, workspace_id, self._make).get(min_seq)

    async def reload(self, workspace_id: str) -> IndexT:
        """Load the workspace's index again."""
        return await asyncio.shield(self.cache.use(self.kind, workspace_id, self._make).load())

    def slot(self, workspace_id: str) -> Slot[IndexT] | None:
        """The slot of a workspace, or None."""
        return self.cache.slot(self.kind, workspace_id)

    def model_of(self, workspace_id: str) -> str | None:
        """The model whose vectors a query is compared with, or None."""
        slot = self.slot(workspace_id)
        if slot is None or slot.index is None:
            return self.cache.active.of(workspace_id)
        return slot.index.model

    def figures(self, counted: str) -> dict[str, int]:
        """What the cache holds of this kind: workspaces, texts (under the name ``counted``) and bytes; and the budget.

        The budget is that of all kinds.
        """
        held = [slot.index for slot in self.cache.slots(self.kind) if slot.index is not None]
        size, budget = sum(index.nbytes for index in held), self.cache.budget_bytes
        return {"workspaces": len(held), counted: sum(map(len, held)), "bytes": size, "budget_bytes": budget}


def under_way(task: asyncio.Task[Any] | None) -> TypeGuard[asyncio.Task[Any]]:
    """Whether a background task is running."""
    return task is not None and not task.done()
