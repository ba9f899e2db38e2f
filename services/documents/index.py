"""The hot index of memory documents: the texts of their chunks, and the size and state of each document.

Invariant: chunks of documents that the scanners block are in no hit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from ...schemas.core.table import Table
from ...schemas.documents.rules import TIERS
from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION, CHUNKS, DOCUMENTS, DOCUMENTS_PROJECTION
from ..index.arrow import Found, Written, values_of
from ..index.cache import HotCache, Indexes
from ..index.rows import Rows
from ..index.shelf import TEXT_COLUMNS, Shelf, TextSlot

CHUNK_COLUMNS = (
    "key", "owner", "tier", "doc_key", "number", "first_line", "breadcrumb", "text", "text_hash", "terms", "counts",
)  # fmt: skip
"""``TEXT_COLUMNS`` as the chunks call them."""
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
    tables: ClassVar[tuple[Table[Any], ...]] = (DOCUMENTS, CHUNKS, CHUNK_VECTORS)

    def __init__(self, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self.documents_held: dict[int, IndexedDocument] = {}
        self.blocked: dict[int, IndexedDocument] = {}

    def of_owners(self, owners: Collection[str] | None) -> list[IndexedDocument]:
        """The documents of some owners, of all if None."""
        return [document for document in self.documents_held.values() if owners is None or document.owner in owners]

    def named(self, place: str, item: str | None) -> str:
        """The label of a document; of a tier that is not known here, its name and key; without a tier, its key."""
        rule = TIERS.get(place)
        return rule.label_of(item) if rule is not None else f"{place}/{item}".removeprefix("/")

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
                held = IndexedDocument(owner, self.named(tier, doc_key), size, int(updated_ms), blocked)
                self.documents_held[int(key)] = held
                self.blocked.pop(int(key), None)
                if blocked:
                    self.blocked[int(key)] = held
                self.put_item(int(key), ts_ms=held.updated_ms, hidden=blocked)
        chunks = rows.of(CHUNKS, *CHUNK_COLUMNS, order="owner, key, number")
        if chunks is not None:
            self.add(_as_texts(chunks))
        self.take_vectors(rows)

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """See ``Shelf``."""
        if not {"key"} <= set(values) <= ({"key", "number"} if table is CHUNKS else {"key"}):
            return False
        self.remove(values["key"], values.get("number"))
        if table is DOCUMENTS:
            self.documents_held.pop(values["key"], None)
            self.blocked.pop(values["key"], None)
        return True


def _as_texts(chunks: Found) -> Found:
    if isinstance(chunks, Written):
        return Written({name: chunks.column(own) for name, own in zip(TEXT_COLUMNS, CHUNK_COLUMNS, strict=True)})
    return pa.table([chunks.column(name) for name in CHUNK_COLUMNS], names=list(TEXT_COLUMNS))


def document_indexes(cache: HotCache) -> Indexes[DocumentIndex]:
    """The hot indexes of memory documents."""
    return Indexes(cache, "documents", partial(TextSlot[DocumentIndex], make=DocumentIndex))
