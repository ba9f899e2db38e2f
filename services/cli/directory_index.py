"""Searches the memory documents of a directory without a service: the same chunks, terms and ranking.

Invariant: only regular ``.md`` files outside of links and hidden directories are read; nothing is written. Files in
which the scanners find an injection are listed and not searched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import Stemmer

from ...consumers.folds.words import chunk_terms
from ...schemas.core.errors import NotFound
from ...schemas.core.ids import hash64
from ...schemas.core.table import Table
from ...schemas.documents.rules import AGENT_TOTAL_BYTES, chunks_of
from ...schemas.documents.tables import CHUNK_TEXTS, DOCUMENTS
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.injection import finding_in
from ..documents.search import DocumentIndex, find_chunks
from ..index.arrow import Written
from ..index.shelf import TEXT_COLUMNS
from ..recall.asking import query_of
from .mirror.folder import MEMORY_DIR

SNIPPET_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file that is searched: its path below the root and its text."""

    label: str
    text: str
    updated_ms: int
    finding: str | None


@dataclass(frozen=True, slots=True)
class DirectoryHit:
    """A chunk that was found, as in the answer of ``POST /memory/search``."""

    file: str
    snippet: str
    score: float
    source: str
    line: int
    heading: str


class _FileRows:
    """Files as rows of the views; implements ``Rows``."""

    def __init__(self, files: list[MemoryFile], owner: str, analyzer: Analyzer) -> None:
        self._tables = {
            DOCUMENTS.name: _columns([_document(file, owner) for file in files]),
            CHUNK_TEXTS.name: _columns([row for file in files for row in _chunks(file, owner, analyzer)]),
        }

    def of(self, table: Table[Any], *_columns: str, order: str | None = None, **_equal: Any) -> Written | None:
        """See ``Rows``."""
        columns = self._tables.get(table.name)
        return Written(columns) if columns else None

    def may_have(self, table: Table[Any]) -> bool:
        """See ``Rows``."""
        return bool(self._tables.get(table.name))


class MemoryDirectory:
    """The documents below a directory, read once.

    Args:
        path: The directory; its ``.memory``, if it has one, else itself.
        source: ``agent`` or ``crew``: what hits name as their source.

    Raises:
        NotFound: If there is no such directory.
    """

    def __init__(self, path: Path, source: str) -> None:
        if not path.is_dir():
            raise NotFound(f"there is no directory {path}", hint="name the directory of an agent or crew with --path")
        inner = path / MEMORY_DIR
        self.root = inner if inner.is_dir() and not inner.is_symlink() else path
        self.files = list(_files(self.root))
        self._source = source
        self._analyzer = Analyzer(Stemmer.Stemmer)
        self._index = DocumentIndex("", None)
        self._index.take(_FileRows(self.files, source, self._analyzer))

    def status(self) -> dict[str, Any]:
        """The state of the index in the format of ``GET /memory/status``."""
        size = sum(len(file.text.encode()) for file in self.files)
        return {
            "path": str(self.root),
            "total_files": len(self.files),
            "total_chunks": self._index.scoped().size,
            "total_size_kb": -(-size // 1_024),
            "search_ready": True,
            "quarantined": self.quarantined,
        }

    @property
    def quarantined(self) -> list[str]:
        """The files that the scanners block."""
        return [file.label for file in self.files if file.finding is not None]

    def search(self, query: str, limit: int) -> list[DirectoryHit]:
        """The best chunks."""
        parsed_query = query_of(query, self._analyzer, None, None, None)
        found = find_chunks(
            self._index, parsed_query, limit, owners=None, analyzer=self._analyzer, snippet_chars=SNIPPET_CHARS
        )
        return [
            DirectoryHit(hit.label, hit.snippet, -hit.score, self._source, hit.first_line, hit.heading) for hit in found
        ]


def _files(root: Path) -> Iterator[MemoryFile]:
    for folder, names, files in os.walk(root, followlinks=False):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            if name.startswith(".") or not name.endswith(".md"):
                continue
            path = Path(folder, name)
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > AGENT_TOTAL_BYTES:
                continue
            text = path.read_text("utf-8", errors="replace")
            label = path.relative_to(root).as_posix()
            yield MemoryFile(label, text, about.st_mtime_ns // 1_000_000, finding_in(text))


def _document(file: MemoryFile, owner: str) -> dict[str, Any]:
    return {
        "key": hash64(file.label),
        "owner": owner,
        "tier": "",
        "doc_key": file.label,
        "bytes": len(file.text.encode()),
        "finding": file.finding,
        "retracted": False,
        "updated_ms": file.updated_ms,
    }


def _chunks(file: MemoryFile, owner: str, analyzer: Analyzer) -> Iterator[dict[str, Any]]:
    for number, chunk in enumerate(chunks_of(file.text)):
        terms, counts = chunk_terms(analyzer, chunk.indexed)
        key = hash64(file.label)
        values = (key, owner, "", file.label, number, chunk.first_line, chunk.breadcrumb, chunk.text)
        yield dict(zip(TEXT_COLUMNS, (*values, hash64(chunk.indexed), terms, counts), strict=True))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
