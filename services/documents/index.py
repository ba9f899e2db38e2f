"""The hot index of memory documents: the texts of their chunks, and the size and state of each document.

Invariant: chunks of documents that the scanners block are in no hit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...schemas.core.table import Table
from ...schemas.documents.rules import TIERS
from ...schemas.documents.tables import (
    CHUNK_TEXTS,
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    DOCUMENTS,
    DOCUMENTS_PROJECTION,
)
from ..index.arrow import values_of
from ..index.cache import HotCache, Indexes
from ..index.rows import Rows
from ..index.shelf import TEXT_COLUMNS, Shelf, TextSlot

_DOCUMENT_COLUMNS = ("key", "owner", "tier", "doc_key", "bytes", "finding", "retracted", "updated_ms")


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document: its owner and label, the bytes of its text, its last write, and whether the scanners block it."""

    owner: str
    label: str
    bytes: int
    updated_ms: int
    blocked: bool


class DocumentIndex(Shelf):
    """The chunks and documents of a workspace; see ``Shelf``. ``documents_held`` has the documents by key."""

    needed: ClassVar[frozenset[str]] = frozenset((DOCUMENTS_PROJECTION, CHUNK_VECTORS_PROJECTION))
    tables: ClassVar[tuple[Table[Any], ...]] = (DOCUMENTS, CHUNK_TEXTS, CHUNK_VECTORS)

    def __init__(self, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self.documents_held: dict[int, IndexedDocument] = {}
        self.blocked: dict[int, IndexedDocument] = {}

    def of_owners(self, owners: Collection[str] | None) -> list[IndexedDocument]:
        """The documents of some owners, of all if None."""
        return [document for document in self.documents_held.values() if owners is None or document.owner in owners]

    def named(self, place: str, item: str) -> str:
        """The label of a document; of a tier that is not known here, its name and key; without a tier, its key."""
        rule = TIERS.get(place)
        return rule.label_of(item or None) if rule is not None else f"{place}/{item}".removeprefix("/")

    def time_of(self, key: int) -> int:
        """See ``Shelf``."""
        document = self.documents_held.get(key)
        return 0 if document is None else document.updated_ms

    def take(self, rows: Rows) -> None:
        """Take in documents, chunks and vectors of the workspace."""
        documents = rows.of(DOCUMENTS, *_DOCUMENT_COLUMNS)
        if documents is not None:
            columns = (values_of(documents, name) for name in _DOCUMENT_COLUMNS)
            for key, owner, tier, doc_key, size, finding, retracted, updated_ms in zip(*columns, strict=True):
                size, blocked = 0 if retracted else int(size), finding is not None
                held = IndexedDocument(owner, self.named(tier, doc_key or ""), size, int(updated_ms), blocked)
                self.documents_held[int(key)] = held
                self.blocked.pop(int(key), None)
                if blocked:
                    self.blocked[int(key)] = held
                self.put_item(int(key), ts_ms=held.updated_ms, hidden=blocked)
        chunks = rows.of(CHUNK_TEXTS, *TEXT_COLUMNS, order="owner, key, number")
        if chunks is not None:
            self.add(chunks)
        self.take_vectors(rows)

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """See ``Shelf``."""
        if not {"key"} <= set(values) <= ({"key", "number"} if table is CHUNK_TEXTS else {"key"}):
            return False
        self.remove(values["key"], values.get("number"))
        if table is DOCUMENTS:
            self.documents_held.pop(values["key"], None)
            self.blocked.pop(values["key"], None)
        return True


def document_indexes(cache: HotCache) -> Indexes[DocumentIndex]:
    """The hot indexes of memory documents."""
    return Indexes(cache, "documents", partial(TextSlot[DocumentIndex], make=DocumentIndex))
