"""The texts of one kind in one workspace in memory: where they are, their words, vectors and the texts themselves.

A family subclasses ``Shelf`` and keeps what it knows beyond the texts, under the keys of their rows. A text's place in
the columns is its slot; a text that is replaced gets a new one.

Invariant: vectors are of ``model`` alone, found by the hash of what was embedded: a text that stands in several places, or
comes back, is embedded once. The same function takes in rows of the views and rows of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...schemas.core.table import Table
from ...schemas.core.texts import HIDDEN, TextKind
from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION
from ...schemas.models.tables import active_in, read_active_models
from .arrays import GrowableArray, Vocabulary
from .arrow import Found, array, joined, runs, sequences, values_of
from .cache import HotCache, Slot
from .entry_index import Sums
from .postings import INLINE_MERGE_POSTINGS, Postings, build_segment, merge_segments
from .rows import Commit, Rows, StoredRows
from .scoped import ScopedTexts
from .vectors import FLOAT32_LE, NO_ROW, VectorMatrix

TEXT_COLUMNS: Final = (
    "key", "owner", "place", "item", "number", "first_line", "label", "text", "text_hash", "terms", "counts",
)  # fmt: skip
"""Columns of ``TextRow`` that a shelf takes in."""
DEAD_KEPT: Final = 2_000
"""Dead texts, beyond as many as live, from which a shelf is loaded again to free them."""
TEXT_BYTES: Final = 400
"""Memory of a text in dictionaries: its slot, name and hash."""
SCOPES_KEPT: Final = 64
"""Most scopes whose masks are cached, one byte per text."""
_TERMS: Final = np.dtype("<u8")
_COUNTS: Final = np.dtype("<u2")
_LINE: Final = "\n"
"""Between label and text; a label has no line break."""

Slots = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ShelfText:
    """A text as a hit shows it."""

    label: str
    text: str
    first_line: int


_ITEM_COLUMNS: Final = ("source_id", "ts_ms", "since_seq", "flags")


class ShelfItem(NamedTuple):
    """What a ``KindShelf`` knows of an item: as ``TextRow``."""

    item: str
    place: str
    source_id: str
    ts_ms: int
    since_seq: int


class Shelf:
    """The texts of one kind in one workspace; it is also what the arms of a search call ``documents``.

    Args:
        workspace_id: The workspace.
        model: The model whose vectors it holds; None for none.
        seq: The sequence whose state it is.

    Attributes:
        needed: Projections that must have taken part in a commit for the shelf to follow it.
        tables: The tables whose rows it takes in.
        version: How often its texts changed.
    """

    needed: frozenset[str] = frozenset()
    tables: tuple[Table[Any], ...] = ()

    def __init__(self, workspace_id: str, model: str | None, seq: int = 0) -> None:
        self.workspace_id = workspace_id
        self.model = model
        self.seq = seq
        self.version = 0
        self.owners = Vocabulary()
        self.places = Vocabulary()
        self.postings = Postings()
        self.vectors = VectorMatrix(model or "")
        self.sums = Sums()
        self.slots: dict[int, dict[int, int]] = {}  # key → number → slot
        self._names: dict[int, str] = {}
        self._hidden: set[int] = set()
        self._dead = 0
        self._unmerged = False
        self._live = GrowableArray(np.bool_)
        self._length = GrowableArray(np.int32)
        self._norm = GrowableArray(np.float32)
        self._owner = GrowableArray(np.int32)
        self._place = GrowableArray(np.int32)
        self._first_line = GrowableArray(np.int32)
        self._key = GrowableArray(np.uint64)
        self._hash = GrowableArray(np.uint64)
        self._ts_ms = GrowableArray(np.int64)
        self._text = GrowableArray(np.uint8)
        self._text_ends = GrowableArray(np.int64)
        self._scopes: dict[object, tuple[int, ScopedTexts]] = {}
        self._embedded: dict[int, int] = {}  # text hash → a slot that has its vector
        self._waiting: dict[int, list[int]] = {}  # text hash → slots without one
        self._stored: set[int] = set()  # text hashes that have a vector in the view, text or not
        self._lacks = False  # whether a text came back whose vector only the view has

    def __len__(self) -> int:
        return len(self._live)

    @property
    def documents(self) -> Shelf:
        """The columns ``length`` and ``ts_ms`` by slot, and ``id_of``."""
        return self

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: which slots count."""
        return self._live.rows

    @property
    def length(self) -> npt.NDArray[np.int32]:
        """(n,) int32 words of each text."""
        return self._length.rows

    @property
    def norm(self) -> npt.NDArray[np.float32]:
        """(n,) float32 L2 norm of each text's counts of words."""
        return self._norm.rows

    @property
    def ts_ms(self) -> npt.NDArray[np.int64]:
        """(n,) int64 time of each text, by which equal hits are sorted."""
        return self._ts_ms.rows

    @property
    def nbytes(self) -> int:
        """Bytes held; those of dictionaries are estimated."""
        columns = (
            self._live, self._length, self._norm, self._owner, self._place, self._first_line, self._key, self._hash,
            self._ts_ms, self._text, self._text_ends,
        )  # fmt: skip
        scopes = sum(scoped.nbytes for _, scoped in self._scopes.values())
        arrays = sum(column.nbytes for column in columns) + scopes + self.sums.nbytes
        return arrays + self.postings.nbytes + self.vectors.nbytes + TEXT_BYTES * len(self)

    @property
    def worn(self) -> bool:
        """Whether loading it again would find a vector, free much memory or make searches faster."""
        return self._lacks or self._unmerged or self._dead > DEAD_KEPT + (len(self) - self._dead)

    # one text

    def key_of(self, slot: int) -> int:
        """The key of a text's row."""
        return int(self._key.rows[slot])

    def owner_of(self, slot: int) -> str:
        """Whose memory a text is in."""
        return self.owners.names()[int(self._owner.rows[slot])]

    def name_of(self, slot: int) -> str:
        """What a text is called; see ``named``."""
        return self._names[self.key_of(slot)]

    def first_line_of(self, slot: int) -> int:
        """The line of its item at which a text begins."""
        return int(self._first_line.rows[slot])

    def id_of(self, slot: int) -> tuple[str, str, int]:
        """What equal hits of one time are sorted by."""
        return self.name_of(slot), self.owner_of(slot), self.first_line_of(slot)

    def text_of(self, slot: int) -> ShelfText:
        """A text and where it stands."""
        ends = self._text_ends.rows
        begin = int(ends[slot - 1]) if slot else 0
        whole = self._text.rows[begin : int(ends[slot])].tobytes().decode()
        label, _, text = whole.partition(_LINE)
        return ShelfText(label, text, self.first_line_of(slot))

    def vector_of(self, slot: int) -> tuple[npt.NDArray[np.float32], int] | None:
        """A text's vector and the sequence of its fact, or None."""
        row = int(self.vectors.rows_of(np.array([slot]))[0])
        return None if row == NO_ROW else (self.vectors.vectors[row], int(self.vectors.fact_seq[row]))

    # what a search covers

    def scoped(self, owners: Collection[str] | None = None, places: Collection[str] | None = None) -> ScopedTexts:
        """The live texts of some owners and places; None for all. Kept until a text changes."""
        named = tuple(None if names is None else frozenset(names) for names in (owners, places))
        version, scoped = self._scopes.get(named, (-1, None))
        if scoped is None or version != self.version:
            mask = self.live
            for names, known, codes in ((owners, self.owners, self._owner), (places, self.places, self._place)):
                if names is not None:
                    wanted = np.zeros(len(known) + 1, bool)
                    wanted[[known.find(name) for name in names]] = True
                    wanted[-1] = False  # the code of an unknown name selects it
                    mask = mask & wanted[codes.rows]
            size = int(np.count_nonzero(mask))
            whole = size == len(mask)
            total = int((self.length if whole else self.length[mask]).sum(dtype=np.int64))
            scoped = ScopedTexts(len(mask), None if whole else mask, size, total)
            if len(self._scopes) >= SCOPES_KEPT:
                self._scopes.clear()
            self._scopes[named] = self.version, scoped
        return scoped

    def in_place(self, place: str) -> npt.NDArray[np.bool_]:
        """(n,) bool: which texts are in a place."""
        mask: npt.NDArray[np.bool_] = self._place.rows == self.places.find(place)
        return mask

    # changes

    def named(self, place: str, item: str) -> str:
        """What a text is called, by its place and item."""
        return item

    def take(self, rows: Rows) -> None:
        """Take in rows of the tables."""
        raise NotImplementedError

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """Drop what a removed row stood for; False if the values do not identify it."""
        return False

    def follow(self, commit: Commit) -> bool:
        """Take in a commit; False if the shelf must be loaded again."""
        if not commit.projections >= self.needed:
            return False
        if any(removed.get("model") == self.model for removed in commit.removed(CHUNK_VECTORS) if "model" in removed):
            return False
        if any(commit.rewrote(table, self.workspace_id) for table in self.tables):
            return False
        rows = commit.rows(self.workspace_id)
        for table in self.tables:
            for values in commit.removed(table):
                if table is not CHUNK_VECTORS and not self.drop(table, values, rows):
                    return False
        if any(rows.may_have(table) for table in self.tables):
            self.take(rows)
        self.seq = max(self.seq, commit.last_seq)
        return True

    def add(self, rows: Found) -> Slots:
        """Take in texts, each in the place of the one with its key and number, and their vectors; returns their slots.

        Args:
            rows: ``TEXT_COLUMNS``.
        """
        self.version += 1
        keys = [int(key) for key in values_of(rows, "key")]
        owners, places, items = (values_of(rows, name) for name in ("owner", "place", "item"))
        first = len(self)
        live = np.ones(len(keys), bool)
        times = np.zeros(len(keys), np.int64)
        for at, (key, number) in enumerate(zip(keys, values_of(rows, "number"), strict=True)):
            slots = self.slots.setdefault(key, {})
            self._names.setdefault(key, self.named(places[at], items[at]))
            former = slots.get(number)
            if former is not None and former >= first:
                live[former - first] = False  # written twice by one commit: the last counts
                self._dead += 1
            elif former is not None:
                self._bury(former)
            slots[number] = first + at
            live[at] = key not in self._hidden
            times[at] = self.time_of(key)
        terms, per_text = runs(rows, "terms", _TERMS)
        counts, _ = runs(rows, "counts", _COUNTS)
        text_of = np.repeat(np.arange(len(keys)), per_text)
        self.postings.append(build_segment(terms, (text_of + first).astype(np.int32), counts))
        self._merge()
        text = joined(rows, ("label", "text"), _LINE)
        self._text_ends.append(text.ends + len(self._text))
        self._text.append(text.data)
        self._live.append(live)
        self._length.append(np.bincount(text_of, counts, len(keys)))
        self._norm.append(np.sqrt(np.bincount(text_of, counts.astype(np.float64) ** 2, len(keys))))
        self._owner.append(self.owners.learn_all(owners))
        self._place.append(self.places.learn_all(places))
        self._first_line.append(array(rows, "first_line"))
        self._key.append(np.array(keys, np.uint64))
        self._hash.append(np.array(values_of(rows, "text_hash"), np.uint64))
        self._ts_ms.append(times)
        added = np.arange(first, first + len(keys))
        self._seek_vectors(added)
        return added

    def time_of(self, key: int) -> int:
        """The time of an item by which equal hits are sorted, milliseconds since the epoch; 0 if it does not count."""
        return 0

    def put_item(self, key: int, *, ts_ms: int, hidden: bool = False, place: str | None = None) -> None:
        """Set the time of an item, whether its texts are hidden, and where they are."""
        self.version += 1
        (self._hidden.add if hidden else self._hidden.discard)(key)
        slots = list(self.slots.get(key, {}).values())
        self._live.rows[slots] = not hidden
        self._ts_ms.rows[slots] = ts_ms
        if place is not None:
            self._place.rows[slots] = self.places.learn(place)

    def put_places(self, slots: Slots, places: Sequence[str]) -> None:
        """Set where texts are, other than their rows say."""
        self.version += 1
        self._place.rows[slots] = self.places.learn_all(places)

    def remove(self, key: int, number: int | None = None) -> None:
        """Remove a text of an item, all of them if ``number`` is None."""
        slots = self.slots.get(key)
        if slots is None:
            return
        self.version += 1
        for at in list(slots) if number is None else [number]:
            if (slot := slots.pop(at, None)) is not None:
                self._bury(slot)

    def _bury(self, slot: int) -> None:
        self._live.rows[slot] = False
        self._dead += 1

    def _merge(self) -> None:
        due = self.postings.due()
        if not due:
            return
        if sum(segment.size for segment in due) <= INLINE_MERGE_POSTINGS:
            self.postings.replace(due, merge_segments(due))
        else:
            self._unmerged = True  # it is loaded again, which merges all

    # vectors

    def _seek_vectors(self, slots: Slots) -> None:
        """Copy vectors that other slots of the same text have; the other new ones wait for theirs."""
        if self.model is None:
            return
        for slot, text_hash in zip(slots.tolist(), self._hash.rows[slots].tolist(), strict=True):
            other = self._embedded.get(text_hash)
            vector_and_seq = None if other is None else self.vector_of(other)
            self._lacks |= vector_and_seq is None and text_hash in self._stored
            if vector_and_seq is None:
                self._waiting.setdefault(text_hash, []).append(slot)
            else:
                self._put_vectors(np.array([slot]), vector_and_seq[0][None, :], np.array([vector_and_seq[1]]))

    def take_vectors(self, rows: Rows) -> None:
        """Take in vectors of texts that wait for theirs, in order of slots: those of an owner stay beside each other."""
        table = None
        if self.model is not None:
            table = rows.of(CHUNK_VECTORS, "text_hash", "vector", "seq", model=self.model)
        if table is None:
            return
        values, counts = runs(table, "vector", FLOAT32_LE)
        dim = next((count for count in counts.tolist() if count), 0)
        begins = np.cumsum(counts) - counts
        slots: list[int] = []
        at_row: list[int] = []
        for at, text_hash in enumerate(values_of(table, "text_hash")):
            if not dim or counts[at] != dim:
                continue  # a tombstone: the model does not take the text
            self._stored.add(text_hash)
            waiting = self._waiting.pop(text_hash, [])
            if waiting:
                self._embedded[text_hash] = waiting[-1]
                slots += waiting
                at_row += [at] * len(waiting)
        if slots:
            order = np.argsort(slots, kind="stable")
            places = np.array(at_row)[order]
            matrix = values[begins[places][:, None] + np.arange(dim)]
            self._put_vectors(np.array(slots)[order], matrix, sequences(table, "seq")[places])

    def _put_vectors(self, slots: Slots, vectors: npt.NDArray[np.float32], seqs: npt.NDArray[np.int64]) -> None:
        """Take in vectors of texts, ``(m, d)`` of any norm, and the sequences of their facts."""
        if self.vectors.dim not in (None, vectors.shape[1]):
            return  # of a model that changed its dimensions without being dropped: words alone count
        fresh = self.vectors.rows_of(slots) == NO_ROW
        self.vectors.append(slots[fresh].astype(np.int32), vectors[fresh], seqs[fresh])


class KindShelf(Shelf):
    """The texts of a kind of which nothing but the texts is known.

    Args:
        kind: The kind.
        workspace_id: The workspace.
        model: As in ``Shelf``.

    Attributes:
        items: What is known of each item, by key.
    """

    def __init__(self, kind: TextKind, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self.needed = frozenset((kind.table.view, CHUNK_VECTORS_PROJECTION))
        self.tables = (kind.table, CHUNK_VECTORS)
        self.items: dict[int, ShelfItem] = {}

    def time_of(self, key: int) -> int:
        """See ``Shelf``."""
        return self.items[key].ts_ms

    def take(self, rows: Rows) -> None:
        """Take in texts and vectors of the workspace."""
        texts = rows.of(self.tables[0], *TEXT_COLUMNS, *_ITEM_COLUMNS, order="key, number")
        if texts is not None:
            names = ("key", "item", "place", *_ITEM_COLUMNS)
            for key, *values, flags in zip(*(values_of(texts, name) for name in names), strict=True):
                self.items[int(key)] = known = ShelfItem(*values)
                self.put_item(int(key), ts_ms=known.ts_ms, hidden=bool(flags & HIDDEN))
            self.add(texts)
        self.take_vectors(rows)

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """See ``Shelf``."""
        if not {"key"} <= set(values) <= {"key", "number"}:
            return False
        self.remove(values["key"], values.get("number"))
        return True


ShelfT = TypeVar("ShelfT", bound=Shelf)


class TextSlot(Slot[ShelfT]):
    """The shelf of one kind in a workspace; loaded again in the background once it is worn.

    Args:
        cache: The cache.
        workspace_id: The workspace.
        make: Makes an empty shelf of a workspace for the vectors of a model.
    """

    def __init__(self, cache: HotCache, workspace_id: str, *, make: Callable[[str, str | None], ShelfT]) -> None:
        super().__init__(cache, workspace_id)
        self._empty = make

    def read(self) -> ShelfT:
        """See ``Slot``. Commits that happen meanwhile may be partly in it: taking them in again changes nothing."""
        views = self.cache.views
        index = self._empty(self.workspace_id, active_in(read_active_models(views), self.workspace_id))
        index.seq = views.view_seq(*index.needed)
        index.take(StoredRows(views, self.workspace_id))
        return index

    def extend(self, index: ShelfT, commit: Commit) -> bool:
        """See ``Slot``."""
        return index.follow(commit)

    def follow(self, commit: Commit) -> None:
        """See ``Slot``."""
        version = None if self.index is None else self.index.version
        super().follow(commit)
        index = self.index
        if index is None or self.behind:
            return
        if index.version != version:
            self.indexed_at = self.cache.clock()
        if index.worn or index.model != self.cache.active.of(self.workspace_id):
            self.load()
