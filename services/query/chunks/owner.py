"""The chunks of one owner's documents in memory: columns, texts, postings and vectors.

Why one of these for each owner: a search reads the owners of its scope alone, so nothing of another owner can reach hits,
document frequencies or lengths. A chunk's place (``slot``) never changes; a chunk that was replaced is dead, and its slot
is freed when the workspace is loaded again.

Invariant: ``live`` are exactly the chunks of the documents as they are now, without documents that the scanners block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ....schemas.rules.tiers import TIERS
from ..hot.arrow import Found, Written, array, joined, kept, runs, values_of
from ..hot.growable import GrowableArray
from ..hot.postings import INLINE_MERGE_POSTINGS, Postings, build_segment, merge_segments
from ..hot.vector_matrix import NO_ROW, VectorMatrix

CHUNK_COLUMNS: Final = (
    "key",
    "owner",
    "tier",
    "doc_key",
    "number",
    "first_line",
    "breadcrumb",
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
        tiers, doc_keys = values_of(hit, "tier"), values_of(hit, "doc_key")
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
        text = joined(hit, ("breadcrumb", "text"), _LINE)
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
