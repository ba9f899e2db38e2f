"""Tables of memory documents: the present text, every version, and chunks for search."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Int32, Ms, Seq, Table
from ..core.texts import TextKind, text_table
from ..entries.tables import ENTRIES_PROJECTION
from ..models.tables import DroppedRow

DOCUMENTS_PROJECTION: Final = "documents"
CHUNK_VECTORS_PROJECTION: Final = "chunk_vectors"


class DocumentRow(NamedTuple):
    """A document as it is now."""

    key: Seq  # ``ids.name_key`` of workspace, owner, tier and key ("" for none)
    workspace_id: str
    owner: str  # ``schemas/documents/rules.owner_of``
    tier: str
    doc_key: str | None
    content: str  # empty while it is retracted
    sha256: str
    bytes: Ms  # of the content in UTF-8
    finding: str | None  # ``category/pattern`` of what the scanners block in the content
    clean: (
        Int32 | None
    )  # characters that need no further scan; None if what was replaced is blocked (``schemas/documents/rules``)
    retracted: bool
    base_seq: Seq  # the last write that gave the whole text
    seq: Seq  # the last write
    writes: Int32
    created_ms: Ms
    updated_ms: Ms
    actor_type: str  # of the last write
    actor_id: str | None


class VersionRow(NamedTuple):
    """A write of a document, and what the document was after it."""

    key: Seq  # ``ids.name_key`` of workspace and write id
    workspace_id: str
    owner: str
    tier: str
    doc_key: str | None
    seq: Seq
    base_seq: Seq  # the text is the pieces from this write to ``seq``, joined as ``schemas/documents/rules`` says
    write_id: str
    action: str
    piece: str | None  # content of the write; None once it was swept
    sha256: str  # of the whole text
    parent_sha256: str | None
    bytes: Ms
    source: str
    actor_type: str
    actor_id: str | None
    data_subject_id: str | None
    derived_from: str  # JSON list of ids
    reason: str
    published_ms: Ms


class MemoryConfigRow(NamedTuple):
    """The settings of a workspace's memory documents: its last ``memory.config_updated``."""

    workspace_id: str
    retention: str | None  # JSON object: rule → days
    retention_days: Int32 | None
    scrubber: str
    verifier: str
    seq: Seq


class ShownWriteRow(NamedTuple):
    """A write that is listed as an entry; a repeated write is recognised by its row."""

    key: Seq  # ``VersionRow.key``
    seq: Seq


class ChunkVectorRow(NamedTuple):
    """The vector of a chunk's text by a model; ``dim`` 0 is a tombstone: the model refuses the text."""

    key: Seq  # ``ids.name_key`` of workspace, model and text hash
    workspace_id: str
    model: str
    text_hash: Seq  # as in ``TextRow``
    dim: Int32
    vector: bytes  # ``4 * dim`` bytes, little-endian float32
    published_ms: Ms
    seq: Seq


DOCUMENTS: Final = Table("memory_documents", DocumentRow, DOCUMENTS_PROJECTION, key=("key",))
VERSIONS: Final = Table("memory_versions", VersionRow, DOCUMENTS_PROJECTION, key=("key",))
CHUNK_TEXTS: Final = text_table("chunk_texts", DOCUMENTS_PROJECTION)
"""Pieces of documents (``schemas/documents/rules``). Retracted and blocked documents have none.

``place`` is the tier, ``item`` the document's key (empty for none), ``label`` the headings above the piece joined by
`` > ``, the source the write that brought the piece's last line.
"""
CHUNK_KIND: Final = TextKind("chunk", CHUNK_TEXTS)
CHUNK_VECTORS: Final = Table(
    "memory_chunk_vectors", ChunkVectorRow, CHUNK_VECTORS_PROJECTION, key=("workspace_id", "model", "text_hash")
)
CHUNK_MODELS_DROPPED: Final = Table("chunk_models_dropped", DroppedRow, CHUNK_VECTORS_PROJECTION, key=("model",))
MEMORY_CONFIG: Final = Table("memory_config", MemoryConfigRow, DOCUMENTS_PROJECTION, key=("workspace_id",))
SWEPT_VERSIONS: Final = f"""workspace_id = $1 AND seq < $2 AND piece IS NOT NULL AND seq NOT IN (
    SELECT seq FROM (SELECT seq, min(base_seq) FILTER (WHERE kept) OVER (PARTITION BY owner, tier, doc_key) AS needed
        FROM (SELECT seq, base_seq, owner, tier, doc_key, published_ms >= $3 OR row_number() OVER (
            PARTITION BY owner, tier, doc_key ORDER BY seq DESC) <= greatest($4, 1) AS kept
            FROM {VERSIONS} WHERE workspace_id = $1 AND seq < $2)) WHERE seq >= needed)"""
"""Which versions lose their text in a sweep of workspace $1 at sequence $2, before $3 (ms), that keeps the newest $4.

The text of a version is made of its piece and earlier ones, so every piece that a kept version needs is kept. The
newest version is always kept: its text is the document, and later appends need its pieces.
"""
SHOWN_WRITES: Final = Table("shown_writes", ShownWriteRow, ENTRIES_PROJECTION, key=("key",))
