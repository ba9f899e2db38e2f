"""The hot index of the chunks of one workspace: its owners, loaded in one read of each table, extended by every commit.

Invariant: after ``load``, and after ``extend`` by each later commit, the index holds what the views hold: the same function
takes in rows of both. Vectors are of ``model`` alone, found by the hash of what was embedded: a text that stands in several
chunks, or comes back, is embedded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ....schemas.active_models import active_in, read_active_models
from ....schemas.ports import ViewReader
from ....schemas.views import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION, CHUNKS, DOCUMENTS, DOCUMENTS_PROJECTION
from ..hot.arrow import runs, sequences, values_of
from ..hot.rows import Commit, Rows, StoredRows
from ..hot.vector_matrix import FLOAT32_LE
from .owner import CHUNK_COLUMNS, OwnerChunks, Slots, by_owner

NEEDED: Final = frozenset((DOCUMENTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
"""Projections that must have taken part in a commit for an index to follow it."""
DEAD_KEPT: Final = 2_000
"""Dead chunks, beyond as many as live, from which an index is loaded again to free them."""
_TABLES: Final = (DOCUMENTS, CHUNKS, CHUNK_VECTORS)
_DOCUMENT_COLUMNS: Final = ("key", "owner", "tier", "doc_key", "bytes", "finding", "retracted", "updated_ms")


class ChunkIndex:
    """The chunks of a workspace.

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
        self._owner_of: dict[int, OwnerChunks] = {}  # by document
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

    def take(self, rows: Rows) -> None:
        """Take in documents, chunks and vectors of the workspace."""
        documents = rows.of(DOCUMENTS, *_DOCUMENT_COLUMNS)
        if documents is not None:
            self.taken += 1
            columns = (values_of(documents, name) for name in _DOCUMENT_COLUMNS)
            for values in zip(*columns, strict=True):
                row = dict(zip(_DOCUMENT_COLUMNS, values, strict=True))
                self._owner(row["owner"], row["key"]).put_document(row["key"], row)
        chunks = rows.of(CHUNKS, *CHUNK_COLUMNS, order="owner, key, number")
        if chunks is not None:
            for name, part in by_owner(chunks):
                owner = self._owner(name)
                for key in dict.fromkeys(values_of(part, "key")):
                    self._owner_of[key] = owner
                self._seek_vectors(owner, owner.add(part))
        self._take_vectors(rows)

    def remove(self, values: Mapping[str, Any]) -> bool:
        """Take chunks away of which a commit deleted the rows with these values; False if it cannot tell which."""
        if not {"key"} <= set(values) <= {"key", "number"}:
            return False
        if (owner := self._owner_of.get(values["key"])) is not None:
            owner.remove(values["key"], values.get("number"))
        return True

    def forget(self, values: Mapping[str, Any]) -> bool:
        """Take a document away of which a commit deleted the row; False if it cannot tell which."""
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

    def _seek_vectors(self, owner: OwnerChunks, slots: Slots) -> None:
        """Copy vectors that other chunks of the same text have; the other new chunks wait for theirs."""
        if self.model is None:
            return
        for slot, text_hash in zip(slots.tolist(), owner.hashes[slots].tolist(), strict=True):
            held = self._embedded.get(text_hash)
            found = None if held is None else held[0].vector_of(held[1])
            self._lacks |= found is None and text_hash in self._stored
            if found is None:
                self._waiting.setdefault(text_hash, []).append((owner, slot))
            else:
                owner.put_vectors(np.array([slot]), found[0][None, :], np.array([found[1]]))

    def _take_vectors(self, rows: Rows) -> None:
        found = None
        if self.model is not None:
            found = rows.of(CHUNK_VECTORS, "text_hash", "vector", "seq", model=self.model)
        if found is None:
            return
        values, counts = runs(found, "vector", FLOAT32_LE)
        dim = next((count for count in counts.tolist() if count), 0)
        begins = np.cumsum(counts) - counts
        seqs = sequences(found, "seq")
        chosen: dict[OwnerChunks, tuple[list[int], list[int]]] = {}
        for at, text_hash in enumerate(values_of(found, "text_hash")):
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
    """Whether a commit says all that changed in an index."""
    if not commit.projections >= NEEDED or any(removed["model"] == index.model for removed in _vectors_gone(commit)):
        return False
    return not any(commit.rewrote(table, index.workspace_id) for table in _TABLES)


def _vectors_gone(commit: Commit) -> Iterator[Mapping[str, Any]]:
    return (removed for removed in commit.removed(CHUNK_VECTORS) if "model" in removed)


def extend(index: ChunkIndex, commit: Commit) -> bool:
    """Take in a commit; False if the index must be loaded again."""
    if not can_follow(index, commit):
        return False
    for values in commit.removed(CHUNKS):
        if not index.remove(values):
            return False
    for values in commit.removed(DOCUMENTS):
        if not index.forget(values):
            return False
    if any(commit.written(table) is not None for table in _TABLES):
        index.take(commit.rows(index.workspace_id))
    index.seq = max(index.seq, commit.last_seq)
    return True
