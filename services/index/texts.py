"""What hot indexes of texts have in common: owners of chunks, and the vectors of their texts by hash.

Invariant: vectors are of ``model`` alone, found by the hash of what was embedded: a text that stands in several places, or
comes back, is embedded once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.documents.rules import TIERS
from ...schemas.documents.tables import (
    CHUNK_TEXTS,
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    DOCUMENTS,
    DOCUMENTS_PROJECTION,
)
from ...schemas.models.tables import active_in, read_active_models
from .active_models import ActiveModels
from .arrays import GrowableArray
from .arrow import Found, Written, array, joined, kept, runs, sequences, values_of
from .postings import INLINE_MERGE_POSTINGS, Postings, build_segment, merge_segments
from .rows import Commit, Rows, StoredRows
from .vectors import FLOAT32_LE, NO_ROW, VectorMatrix

# The chunks of one owner's documents in memory: columns, texts, postings and vectors.


CHUNK_COLUMNS: Final = (
    "key",
    "owner",
    "place",
    "item",
    "number",
    "first_line",
    "label",
    "text",
    "text_hash",
    "terms",
    "counts",
)
_TERMS: Final = np.dtype("<u8")
_COUNTS: Final = np.dtype("<u2")
_LINE: Final = "\n"
"""Between breadcrumb and text; a breadcrumb has no line break."""
_TIER_CODES: Final = {name: code for code, name in enumerate(TIERS)}

Slots = npt.NDArray[np.intp]


@dataclass(slots=True)
class ChunkedDocument:
    """A document: its label, bytes of its text, last write, and the slots of its chunks by their number.

    Attributes:
        blocked: Whether the scanners block it: its text is in no hit.
    """

    label: str
    bytes: int = 0
    updated_ms: int = 0
    blocked: bool = False
    slots: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkText:
    """A chunk as a hit shows it."""

    breadcrumb: str
    text: str
    first_line: int


def tier_code(tier: str) -> int:
    """The number of a tier, 255 for one that is not known here."""
    return _TIER_CODES.get(tier, 255)


def label_of(tier: str, doc_key: str | None) -> str:
    """The label of a document; of a tier that is not known here, its name and key; without a tier, its key."""
    rule = TIERS.get(tier)
    return rule.label_of(doc_key) if rule is not None else f"{tier}/{doc_key}".removeprefix("/")


class OwnerChunks:
    """The chunks of one owner.

    Args:
        owner: ``a-<agent>``, ``c-<crew>`` or ``w``.
        model: The model whose vectors it holds; None for no vectors.
    """

    def __init__(self, owner: str, model: str | None) -> None:
        self.owner = owner
        self.documents: dict[int, ChunkedDocument] = {}
        self.matrix = VectorMatrix(model or "")
        self.postings = Postings()
        self.dead = 0
        self.worn = False
        self._live = GrowableArray(np.bool_)
        self._length = GrowableArray(np.int32)
        self._norm = GrowableArray(np.float32)
        self._tier = GrowableArray(np.uint8)
        self._first_line = GrowableArray(np.int32)
        self._document = GrowableArray(np.uint64)
        self._hash = GrowableArray(np.uint64)
        self._text = GrowableArray(np.uint8)
        self._text_ends = GrowableArray(np.int64)

    def __len__(self) -> int:
        return len(self._live)

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: which slots count."""
        return self._live.rows

    @property
    def length(self) -> npt.NDArray[np.int32]:
        """(n,) int32 words of each chunk."""
        return self._length.rows

    @property
    def norm(self) -> npt.NDArray[np.float32]:
        """(n,) float32 L2 norm of each chunk's counts of words."""
        return self._norm.rows

    @property
    def tier(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8 ``tier_code`` of each chunk."""
        return self._tier.rows

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """(n,) uint64 hash of the embedded text of each chunk."""
        return self._hash.rows

    @property
    def nbytes(self) -> int:
        """Bytes held, names aside."""
        arrays = (self._live, self._length, self._norm, self._tier, self._first_line, self._document, self._hash)
        texts = self._text.nbytes + self._text_ends.nbytes
        return sum(array.nbytes for array in arrays) + texts + self.postings.nbytes + self.matrix.nbytes

    def text_of(self, slot: int) -> ChunkText:
        """A chunk's text and where it stands."""
        ends = self._text_ends.rows
        begin = int(ends[slot - 1]) if slot else 0
        whole = self._text.rows[begin : int(ends[slot])].tobytes().decode()
        breadcrumb, _, text = whole.partition(_LINE)
        return ChunkText(breadcrumb, text, self.first_line_of(slot))

    def first_line_of(self, slot: int) -> int:
        """The line of its document at which a chunk begins."""
        return int(self._first_line.rows[slot])

    def key_of(self, slot: int) -> int:
        """The document of a chunk."""
        return int(self._document.rows[slot])

    def document_of(self, slot: int) -> ChunkedDocument:
        """The document of a chunk."""
        return self.documents[self.key_of(slot)]

    def put_document(self, key: int, row: Mapping[str, Any]) -> None:
        """Set the present state of a document."""
        document = self._known(key, row["tier"], row["doc_key"])
        document.updated_ms = int(row["updated_ms"])
        document.bytes = 0 if row["retracted"] else int(row["bytes"])
        document.blocked = row["finding"] is not None
        for slot in document.slots.values():
            self._live.rows[slot] = not document.blocked

    def add(self, hit: Found) -> Slots:
        """Take in chunks, each in the place of the one with its document and number; returns their slots."""
        keys = [int(key) for key in values_of(hit, "key")]
        tiers, doc_keys = values_of(hit, "place"), [item or None for item in values_of(hit, "item")]
        numbers = values_of(hit, "number")
        first = len(self)
        live = np.ones(len(keys), bool)
        for at, (key, tier, doc_key, number) in enumerate(zip(keys, tiers, doc_keys, numbers, strict=True)):
            document = self._known(key, tier, doc_key)
            former = document.slots.get(number)
            if former is not None and former >= first:
                live[former - first] = False  # written twice by one commit: the last counts
                self.dead += 1
            elif former is not None:
                self._bury(former)
            document.slots[number] = first + at
            live[at] = not document.blocked
        terms, per_chunk = runs(hit, "terms", _TERMS)
        counts, _ = runs(hit, "counts", _COUNTS)
        chunk = np.repeat(np.arange(len(keys)), per_chunk)
        self.postings.append(build_segment(terms, (chunk + first).astype(np.int32), counts))
        self._merge()
        text = joined(hit, ("label", "text"), _LINE)
        self._text_ends.append(text.ends + len(self._text))
        self._text.append(text.data)
        self._live.append(live)
        self._length.append(np.bincount(chunk, counts, len(keys)))
        self._norm.append(np.sqrt(np.bincount(chunk, counts.astype(np.float64) ** 2, len(keys))))
        self._tier.append([tier_code(tier) for tier in tiers])
        self._first_line.append(array(hit, "first_line"))
        self._document.append(np.array(keys, np.uint64))
        self._hash.append(np.array(values_of(hit, "text_hash"), np.uint64))
        return np.arange(first, first + len(keys))

    def remove(self, key: int, number: int | None) -> None:
        """Remove a chunk of a document, all of them if ``number`` is None."""
        document = self.documents.get(key)
        if document is None:
            return
        for chunk_number in list(document.slots) if number is None else [number]:
            if (slot := document.slots.pop(chunk_number, None)) is not None:
                self._bury(slot)

    def forget(self, key: int) -> None:
        """Remove a document."""
        self.remove(key, None)
        self.documents.pop(key, None)

    def put_vectors(self, slots: Slots, vectors: npt.NDArray[np.float32], seqs: npt.NDArray[np.int64]) -> None:
        """Take in vectors of chunks, ``(m, d)`` of any norm, and the sequences of their facts."""
        dim = vectors.shape[1]
        if self.matrix.dim not in (None, dim):
            return  # of a model that changed its dimensions without being dropped: words alone count
        fresh = self.matrix.rows_of(slots) == NO_ROW
        self.matrix.append(slots[fresh].astype(np.int32), vectors[fresh], seqs[fresh])

    def vector_of(self, slot: int) -> tuple[npt.NDArray[np.float32], int] | None:
        """A chunk's vector and the sequence of its fact, or None."""
        row = int(self.matrix.rows_of(np.array([slot]))[0])
        return None if row == NO_ROW else (self.matrix.vectors[row], int(self.matrix.fact_seq[row]))

    def _known(self, key: int, tier: str, doc_key: str | None) -> ChunkedDocument:
        document = self.documents.get(key)
        if document is None:
            document = self.documents[key] = ChunkedDocument(label_of(tier, doc_key))
        return document

    def _bury(self, slot: int) -> None:
        self._live.rows[slot] = False
        self.dead += 1

    def _merge(self) -> None:
        due = self.postings.due()
        if not due:
            return
        if sum(segment.size for segment in due) <= INLINE_MERGE_POSTINGS:
            self.postings.replace(due, merge_segments(due))
        else:
            self.worn = True  # the workspace is loaded again, which merges all


def by_owner(hit: Found) -> list[tuple[str, Found]]:
    """The rows of each owner; stored ones must be sorted by owner."""
    owners = values_of(hit, "owner")
    if isinstance(hit, Written):
        return [
            (name, kept(hit, np.array([owner == name for owner in owners], bool))) for name in dict.fromkeys(owners)
        ]
    parts: list[tuple[str, Found]] = []
    first = 0
    for at in range(1, len(owners) + 1):
        if at == len(owners) or owners[at] != owners[first]:
            parts.append((owners[first], hit.slice(first, at - first)))
            first = at
    return parts


DEAD_KEPT: Final = 2_000
"""Dead chunks, beyond as many as live, from which an index is loaded again to free them."""


class TextIndex:
    """The texts of a workspace.

    Args:
        workspace_id: The workspace.
        model: The model whose vectors it holds; None for none.
        seq: The sequence whose state it is.

    Attributes:
        taken: How often it took in rows.
    """

    def __init__(self, workspace_id: str, model: str | None, seq: int = 0) -> None:
        self.workspace_id = workspace_id
        self.model = model
        self.seq = seq
        self.taken = 0
        self.owners: dict[str, OwnerChunks] = {}
        self._embedded: dict[int, tuple[OwnerChunks, int]] = {}  # text hash → a chunk that has its vector
        self._waiting: dict[int, list[tuple[OwnerChunks, int]]] = {}  # text hash → chunks without one
        self._stored: set[int] = set()  # text hashes that have a vector in the view, chunk or not
        self._lacks = False  # whether a text came back whose vector only the view has

    def __len__(self) -> int:
        return sum(len(owner) for owner in self.owners.values())

    @property
    def nbytes(self) -> int:
        """Bytes held, names aside."""
        return sum(owner.nbytes for owner in self.owners.values())

    @property
    def worn(self) -> bool:
        """Whether loading it again would find a vector, free much memory or make searches faster."""
        if self._lacks:
            return True
        dead = sum(owner.dead for owner in self.owners.values())
        return dead > DEAD_KEPT + (len(self) - dead) or any(owner.worn for owner in self.owners.values())

    def seek_vectors(self, owner: OwnerChunks, slots: Slots) -> None:
        """Copy vectors that other chunks of the same text have; the other new chunks wait for theirs."""
        if self.model is None:
            return
        for slot, text_hash in zip(slots.tolist(), owner.hashes[slots].tolist(), strict=True):
            held = self._embedded.get(text_hash)
            vector_and_seq = None if held is None else held[0].vector_of(held[1])
            self._lacks |= vector_and_seq is None and text_hash in self._stored
            if vector_and_seq is None:
                self._waiting.setdefault(text_hash, []).append((owner, slot))
            else:
                owner.put_vectors(np.array([slot]), vector_and_seq[0][None, :], np.array([vector_and_seq[1]]))

    def take_vectors(self, rows: Rows) -> None:
        """Take in vectors of texts that wait for theirs."""
        table = None
        if self.model is not None:
            table = rows.of(CHUNK_VECTORS, "text_hash", "vector", "seq", model=self.model)
        if table is None:
            return
        values, counts = runs(table, "vector", FLOAT32_LE)
        dim = next((count for count in counts.tolist() if count), 0)
        begins = np.cumsum(counts) - counts
        seqs = sequences(table, "seq")
        chosen: dict[OwnerChunks, tuple[list[int], list[int]]] = {}
        for at, text_hash in enumerate(values_of(table, "text_hash")):
            if not dim or counts[at] != dim:
                continue  # a tombstone: the model does not take the text
            self._stored.add(text_hash)
            for owner, slot in self._waiting.pop(text_hash, ()):
                slots, places = chosen.setdefault(owner, ([], []))
                slots.append(slot)
                places.append(at)
                self._embedded[text_hash] = owner, slot
        for owner, (slots, places) in chosen.items():
            matrix = values[begins[places][:, None] + np.arange(dim)]
            owner.put_vectors(np.array(slots), matrix, seqs[places])


# The hot index of the chunks of one workspace: its owners, loaded in one read of each table, extended by every commit.


NEEDED: Final = frozenset((DOCUMENTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
"""Projections that must have taken part in a commit for an index to follow it."""
_TABLES: Final = (DOCUMENTS, CHUNK_TEXTS, CHUNK_VECTORS)
_DOCUMENT_COLUMNS: Final = ("key", "owner", "tier", "doc_key", "bytes", "finding", "retracted", "updated_ms")


class ChunkIndex(TextIndex):
    """The chunks of a workspace; see ``TextIndex``."""

    def __init__(self, workspace_id: str, model: str | None, seq: int = 0) -> None:
        super().__init__(workspace_id, model, seq)
        self._owner_of: dict[int, OwnerChunks] = {}  # by document

    def take(self, rows: Rows) -> None:
        """Take in documents, chunks and vectors of the workspace."""
        documents = rows.of(DOCUMENTS, *_DOCUMENT_COLUMNS)
        if documents is not None:
            self.taken += 1
            columns = (values_of(documents, name) for name in _DOCUMENT_COLUMNS)
            for values in zip(*columns, strict=True):
                row = dict(zip(_DOCUMENT_COLUMNS, values, strict=True))
                self._owner(row["owner"], row["key"]).put_document(row["key"], row)
        chunks = rows.of(CHUNK_TEXTS, *CHUNK_COLUMNS, order="owner, key, number")
        if chunks is not None:
            for name, part in by_owner(chunks):
                owner = self._owner(name)
                for key in dict.fromkeys(values_of(part, "key")):
                    self._owner_of[key] = owner
                self.seek_vectors(owner, owner.add(part))
        self.take_vectors(rows)

    def remove(self, values: Mapping[str, Any]) -> bool:
        """Remove the chunks whose rows a commit deleted, given their values; False if these do not identify them."""
        if not {"key"} <= set(values) <= {"key", "number"}:
            return False
        if (owner := self._owner_of.get(values["key"])) is not None:
            owner.remove(values["key"], values.get("number"))
        return True

    def forget(self, values: Mapping[str, Any]) -> bool:
        """Remove the document whose row a commit deleted; False if the values do not identify it."""
        if set(values) != {"key"}:
            return False
        if (owner := self._owner_of.pop(values["key"], None)) is not None:
            owner.forget(values["key"])
        return True

    def _owner(self, name: str, document: int | None = None) -> OwnerChunks:
        owner = self.owners.get(name)
        if owner is None:
            owner = self.owners[name] = OwnerChunks(name, self.model)
        if document is not None:
            self._owner_of[document] = owner
        return owner


def load(views: ViewReader, workspace_id: str) -> ChunkIndex:
    """Read the index of one workspace; blocking, for a worker thread.

    Commits that happen meanwhile may be partly in it: the caller keeps them and applies those after ``seq`` again, which
    changes nothing that is there already.
    """
    seq = views.view_seq(*NEEDED)
    index = ChunkIndex(workspace_id, active_in(read_active_models(views), workspace_id), seq)
    index.take(StoredRows(views, workspace_id))
    return index


def can_follow(index: ChunkIndex, commit: Commit) -> bool:
    """Whether a commit holds every change of an index."""
    if not commit.projections >= NEEDED or any(removed["model"] == index.model for removed in _vectors_gone(commit)):
        return False
    return not any(commit.rewrote(table, index.workspace_id) for table in _TABLES)


def _vectors_gone(commit: Commit) -> Iterator[Mapping[str, Any]]:
    return (removed for removed in commit.removed(CHUNK_VECTORS) if "model" in removed)


def extend(index: ChunkIndex, commit: Commit) -> bool:
    """Take in a commit; False if the index must be loaded again."""
    if not can_follow(index, commit):
        return False
    for values in commit.removed(CHUNK_TEXTS):
        if not index.remove(values):
            return False
    for values in commit.removed(DOCUMENTS):
        if not index.forget(values):
            return False
    if any(commit.written(table) is not None for table in _TABLES):
        index.take(commit.rows(index.workspace_id))
    index.seq = max(index.seq, commit.last_seq)
    return True


# The hot indexes of texts (chunks of documents, drawers), one for each workspace in use; drops the least recently
# used.


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
