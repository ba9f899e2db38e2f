"""The hot index of the chunks of one workspace: its owners, loaded in one read of each table, extended by every commit.

Invariant: after ``load``, and after ``extend`` by each later commit, the index holds what the views hold: the same function
takes in rows of both. Vectors are of ``model`` alone, found by the hash of what was embedded: a text that stands in several
chunks, or comes back, is embedded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ....schemas.active_models import active_in, read_active_models
from ....schemas.ports import ViewReader
from ....schemas.views import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION, CHUNKS, DOCUMENTS, DOCUMENTS_PROJECTION
from ..hot.arrow import values_of
from ..hot.rows import Commit, Rows, StoredRows
from .owner import CHUNK_COLUMNS, OwnerChunks, by_owner
from .texts import TextIndex

NEEDED: Final = frozenset((DOCUMENTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
"""Projections that must have taken part in a commit for an index to follow it."""
_TABLES: Final = (DOCUMENTS, CHUNKS, CHUNK_VECTORS)
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
        chunks = rows.of(CHUNKS, *CHUNK_COLUMNS, order="owner, key, number")
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
