"""``memory_documents``, ``memory_versions``, ``chunk_texts``: the documents that their writes make.

Invariants: a write counts once, by its id in its workspace; a document's text, hash, finding and chunks are functions of its
writes in stream order, however these were batched. An append costs what it adds: the whole text is read, hashed and stored
once a document and batch, and only its last chunks are made again.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from ...schemas.core.envelope import DocumentWritten
from ...schemas.core.ids import hash64, name_key
from ...schemas.core.table import Tables
from ...schemas.core.texts import TextRow
from ...schemas.documents.events import DocumentAction, MemoryConfigUpdated, MemoryVersionsSwept
from ...schemas.documents.rules import SCAN_OVERLAP, Chunk, appended_finding, chunks_of, joint, stable_chunks
from ...schemas.documents.tables import (
    CHUNK_TEXTS,
    DOCUMENTS,
    DOCUMENTS_PROJECTION,
    MEMORY_CONFIG,
    SWEPT_VERSIONS,
    VERSIONS,
    DocumentRow,
    MemoryConfigRow,
    VersionRow,
)
from ...schemas.text import analyzer as text
from ...schemas.text import injection
from ...schemas.text.injection import finding_in
from ..folds.payloads import decisions, json_text
from ..folds.words import chunk_terms, text_analyzer
from ..projection import Batch, FoldTransaction

_STORED_CHUNKS: Final = f"""SELECT key, first_line, last_line, text_hash FROM {CHUNK_TEXTS}
    WHERE key IN (SELECT unnest(?::UBIGINT[])) ORDER BY key, number"""
_SOURCE: Final = f"""SELECT seq, write_id, published_ms FROM {VERSIONS} WHERE workspace_id = ? AND owner = ? AND tier = ?
    AND doc_key IS NOT DISTINCT FROM ? AND seq >= ? AND bytes >= ? ORDER BY seq LIMIT 1"""
"""The first write after which the present text was that long."""
_SWEEP: Final = f"UPDATE {VERSIONS} SET piece = NULL WHERE {SWEPT_VERSIONS}"


class DocumentsProjection:
    """Folds writes of documents, sweeps of their versions and settings."""

    name: ClassVar = DOCUMENTS_PROJECTION
    version: ClassVar = 103 + text.VERSION + injection.REVISION
    tables: ClassVar[Tables] = (DOCUMENTS, VERSIONS, CHUNK_TEXTS, MEMORY_CONFIG)
    folds: ClassVar = (DocumentWritten, MemoryVersionsSwept, MemoryConfigUpdated)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Take in the batch's writes, then sweep; a sweep is about versions before it, so the order does not matter."""
        if batch.documents:
            self._write(batch.documents, tx)
        for event, swept in decisions(batch, MemoryVersionsSwept):
            tx.rewrite(
                VERSIONS,
                event.workspace_id,
                _SWEEP,
                [event.workspace_id, event.seq, swept.cutoff_ms, swept.keep_latest],
            )
        for event, wanted in decisions(batch, MemoryConfigUpdated):
            settings = wanted.model_dump()
            settings["retention"] = None if wanted.retention is None else json_text(wanted.retention)
            row = MemoryConfigRow(event.workspace_id, **settings, seq=event.seq)
            tx.replace(MEMORY_CONFIG, [row])

    def _write(self, writes: Sequence[DocumentWritten], tx: FoldTransaction) -> None:
        named = [(name_key((write.workspace_id, write.write_id)), write) for write in writes]
        seen = {row.key for row in tx.find(VERSIONS, [key for key, _ in named])}
        keyed = [(document_key(write), write) for write in writes]
        former = {row.key: row for row in tx.find(DOCUMENTS, sorted({key for key, _ in keyed}))}
        documents: dict[int, _Document] = {}
        versions: list[VersionRow] = []
        for (version_key, write), (key, _) in zip(named, keyed, strict=True):
            if version_key in seen:
                continue
            seen.add(version_key)
            if (document := documents.get(key)) is None:
                document = documents[key] = _Document(key, former.get(key))
            versions.append(document.take(version_key, write))
        if not versions:
            return
        tx.add(VERSIONS, versions)
        rows = {key: document.row() for key, document in documents.items()}
        tx.replace(DOCUMENTS, list(rows.values()), [former[key] for key in rows if key in former])
        self._chunk(documents, former, rows, tx)

    def _chunk(
        self,
        documents: dict[int, _Document],
        former: dict[int, DocumentRow],
        rows: dict[int, DocumentRow],
        tx: FoldTransaction,
    ) -> None:
        """Make the chunks of the documents again, of those that were appended to the last ones."""
        had = {key for key, row in former.items() if key in rows and _is_searched(row)}
        grown = sorted(key for key in had if not documents[key].rebased and _is_searched(rows[key]))
        stored: dict[int, list[tuple[int, int, int]]] = {key: [] for key in grown}
        for key, *span in tx.rows(_STORED_CHUNKS, [grown]) if grown else ():
            stored[key].append((span[0], span[1], span[2]))
        added: list[TextRow] = []
        for key, row in rows.items():
            chunks: list[Chunk] = []
            first = 0
            if key in stored:
                known = stored[key]
                first = stable_chunks([(begin, end) for begin, end, _ in known])
                chunks = chunks_of(row.content, known[first][0] if first else 1)
                while chunks and first < len(known) and _span(chunks[0]) == known[first]:
                    chunks.pop(0)
                    first += 1
                for number in range(first, len(known)):
                    tx.delete(CHUNK_TEXTS, key=key, number=number)
            else:
                if key in had:
                    tx.delete(CHUNK_TEXTS, key=key)
                if _is_searched(row):
                    chunks = chunks_of(row.content)
            for number, chunk in enumerate(chunks, first):
                source = documents[key].source_of(chunk.last_line) or _earlier_source(row, chunk.last_line, tx)
                added.append(self._text_row(row, number, chunk, source))
        tx.add(CHUNK_TEXTS, added)

    def _text_row(self, row: DocumentRow, number: int, chunk: Chunk, source: _Source) -> TextRow:
        indexed = chunk.indexed
        terms, counts = chunk_terms(text_analyzer(), indexed)
        return TextRow(
            row.key,
            row.workspace_id,
            row.owner,
            row.doc_key or "",
            chunk.text,
            hash64(indexed),
            terms,
            counts,
            source.write_id,
            source.published_ms,
            source.seq,
            place=row.tier,
            number=number,
            first_line=chunk.first_line,
            last_line=chunk.last_line,
            label=chunk.breadcrumb,
        )


def document_key(write: DocumentWritten) -> int:
    """``DocumentRow.key`` of a write's document."""
    return name_key((write.workspace_id, write.owner, write.tier, write.key or ""))


def _is_searched(row: DocumentRow) -> bool:
    return not row.retracted and row.finding is None


def _span(chunk: Chunk) -> tuple[int, int, int]:
    return chunk.first_line, chunk.last_line, hash64(chunk.indexed)


class _Source(NamedTuple):
    """A write that brought a line."""

    seq: int
    write_id: str
    published_ms: int


def _earlier_source(row: DocumentRow, line: int, tx: FoldTransaction) -> _Source:
    """The write of an earlier batch that brought a line, whose chunk was cut anew: once in 500 characters of a list."""
    until = len("\n".join(row.content.split("\n")[:line]).encode())
    params = [row.workspace_id, row.owner, row.tier, row.doc_key, row.base_seq, until]
    [source] = tx.rows(_SOURCE, params)
    return _Source(*source)


class _Document:
    """A document while the writes of one batch are taken in.

    Attributes:
        rebased: Whether its text was given as a whole, or retracted, in this batch.
    """

    def __init__(self, key: int, former: DocumentRow | None) -> None:
        self._key = key
        self._former = former
        self._last: DocumentWritten | None = None
        self._pieces = [] if former is None else [former.content]
        self._hash = hashlib.sha256(former.content.encode() if former is not None else b"")
        self._sha256 = None if former is None else former.sha256
        self._bytes = 0 if former is None else former.bytes
        self._end = "" if former is None else former.content[-1:]
        self._retracted = former is None or former.retracted
        self._base_seq = 0 if former is None else former.base_seq
        self._writes = 0 if former is None else former.writes
        self._created_ms: int | None = None if former is None else former.created_ms
        self._newlines = 0 if former is None else former.content.count("\n")
        self._former_lines = self._newlines + (self._end not in ("", "\n"))
        self._lines: list[int] = []  # of the text after each write that counts for it
        self._sources: list[_Source] = []
        self.rebased = False

    def take(self, key: int, write: DocumentWritten) -> VersionRow:
        """The version that a write makes."""
        action = write.action
        if action == DocumentAction.APPEND and not self._retracted:
            self._append(joint(self._end, write.content))
        else:
            self._begin(joint("", write.content) if action == DocumentAction.APPEND else write.content)
            self._base_seq = write.seq
        self._lines.append(self._newlines + (self._end not in ("", "\n")))
        self._sources.append(_Source(write.seq, write.write_id, write.published_ms))
        self._retracted = action == DocumentAction.RETRACT
        parent, self._sha256 = self._sha256, self._hash.hexdigest()
        self._writes += 1
        self._last = write
        if self._created_ms is None:
            self._created_ms = write.published_ms
        return VersionRow(
            key,
            write.workspace_id,
            write.owner,
            write.tier,
            write.key,
            write.seq,
            self._base_seq,
            write.write_id,
            action,
            write.content,
            self._sha256,
            parent,
            self._bytes,
            write.source,
            write.actor_type,
            write.actor_id,
            write.data_subject_id,
            json.dumps(write.derived_from) if write.derived_from else "[]",
            write.reason,
            write.published_ms,
        )

    def _begin(self, content: str) -> None:
        self.rebased = True
        self._pieces, self._bytes, self._end = [], 0, ""
        self._newlines, self._former_lines, self._lines, self._sources = 0, 0, [], []
        self._hash = hashlib.sha256()
        self._append(content)

    def _append(self, piece: str) -> None:
        encoded = piece.encode()
        self._pieces.append(piece)
        self._hash.update(encoded)
        self._bytes += len(encoded)
        self._newlines += piece.count("\n")
        self._end = piece[-1:]

    def source_of(self, line: int) -> _Source | None:
        """The write of this batch that brought a line; None if an earlier batch did."""
        return None if line <= self._former_lines else self._sources[bisect_left(self._lines, line)]

    def row(self) -> DocumentRow:
        """The document after the last write."""
        last = self._last
        assert last is not None  # there is no document without a write
        assert self._sha256 is not None
        assert self._created_ms is not None
        content = "".join(self._pieces)
        clean, finding = self._judged(content)
        return DocumentRow(
            self._key,
            last.workspace_id,
            last.owner,
            last.tier,
            last.key,
            content,
            self._sha256,
            self._bytes,
            finding,
            clean,
            self._retracted,
            self._base_seq,
            last.seq,
            self._writes,
            self._created_ms,
            last.published_ms,
            last.actor_type,
            last.actor_id,
        )

    def _judged(self, content: str) -> tuple[int | None, str | None]:
        if not self.rebased:
            assert self._former is not None  # what begins here has its text from here
            clean = self._former.clean
            return (None, self._former.finding) if clean is None else appended_finding(content, clean)
        base = self._pieces[0]
        if (finding := finding_in(base)) is not None:
            return None, finding
        clean = max(len(base) - SCAN_OVERLAP, 0)
        return appended_finding(content, clean) if len(self._pieces) > 1 else (clean, None)


PROJECTION = DocumentsProjection
