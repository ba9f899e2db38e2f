"""The present text of the documents that are being written, kept in memory.

Why: a check needs the size, the end and the sequence of a document, and reading 250 KB from DuckDB for each of 640 appends a
second is not possible. A document is read once; then every commit brings its new row.
Invariants: a row is never older than the views; what this node has sent and the views lack is counted as pending.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ....schemas.ports import CommittedBatch, ViewReader
from ....schemas.rules.documents import SCAN_OVERLAP, joint
from ....schemas.views import DOCUMENTS
from ....schemas.views.documents import DocumentRow
from .addressing import Address
from .scanning import Scanning, scanning
from .turns import Turns

KEPT: Final = 256
"""Documents kept after their last write: at most 64 MB, if all are topics of 250 KB; usually 1 MB."""
SELECT_ONE: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE key = ? AND workspace_id = ? AND owner = ?
    AND tier = ? AND doc_key IS NOT DISTINCT FROM ?"""
_SIZES: Final = f"SELECT tier, doc_key, seq, bytes FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ?"
_Name = tuple[str, str, str, str | None]


@dataclass(slots=True, eq=False)
class Pending:
    """A write that the views may lack.

    Attributes:
        whole: Whether it gives the whole text.
        size: Bytes that it adds, or that the document has after it.
        end: The last characters of what it adds.
        seq: Its sequence, once it is acked.
    """

    whole: bool
    size: int
    end: str
    seq: int | None = None

    def after(self, end: str) -> str:
        """The last characters of the document after it, if ``end`` are those before."""
        return self.end if self.whole else (end + self.end)[-SCAN_OVERLAP:]


@dataclass(slots=True)
class OwnerSizes:
    """Sizes of an owner's documents: (tier, key) → (sequence, bytes)."""

    sizes: dict[tuple[str, str | None], tuple[int, int]] = field(default_factory=dict)
    total: int = 0

    def take(self, name: tuple[str, str | None], seq: int, size: int) -> None:
        """Note the size of a document as of ``seq``; an older one than is known does not count."""
        known_seq, known = self.sizes.get(name, (-1, 0))
        if seq > known_seq:
            self.sizes[name] = seq, size
            self.total += size - known


@dataclass(slots=True)
class WrittenDocument:
    """A document that is being written.

    Attributes:
        row: Its row in the views; None if there is none.
        owner: The sizes of its owner's documents.
        turns: Who may write it now.
        scanning: Scans appended text.
        pending: What this node has sent and the views may lack, in the order of sending.
        users: Requests that write it now.
        stale: Whether it is to be read at its next write.
        loading: Held while it is read.
    """

    owner: OwnerSizes
    row: DocumentRow | None = None
    turns: Turns = field(default_factory=Turns)
    scanning: Scanning = field(default_factory=scanning)
    pending: list[Pending] = field(default_factory=list)
    users: int = 0
    stale: bool = True
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _end: str | None = None

    @property
    def seq(self) -> int:
        """The last write in the views; 0 if there is none."""
        return 0 if self.row is None else self.row.seq

    @property
    def content(self) -> str:
        """The text in the views."""
        return "" if self.row is None else self.row.content

    @property
    def size(self) -> int:
        """Bytes of the document once all that is pending is stored."""
        size = 0 if self.row is None else self.row.bytes
        for one in self.pending:
            size = one.size if one.whole else size + one.size
        return size

    @property
    def end(self) -> str:
        """Its last characters once all that is pending is stored."""
        if self._end is None:
            self._end = self.content[-SCAN_OVERLAP:]
            for one in self.pending:
                self._end = one.after(self._end)
        return self._end

    def reserve(self, text: str, *, whole: bool) -> Pending:
        """Count a write from now on."""
        added = text if whole else joint(self.end, text)
        made = Pending(whole, len(added.encode()), added[-SCAN_OVERLAP:])
        self._end = made.after(self.end)
        self.pending.append(made)
        return made

    def release(self, made: Pending) -> None:
        """Stop counting a write: the views have it, or it failed."""
        if made in self.pending:
            self.pending.remove(made)
            self._end = None

    def take(self, row: DocumentRow | None) -> None:
        """The row as the views have it now."""
        if row is None or row.seq >= self.seq:
            self.row = row
        self.pending = [one for one in self.pending if one.seq is None or one.seq > self.seq]
        self._end = None


class PresentDocuments:
    """The documents that this node writes.

    Args:
        views: Read once for each document, then followed; ``close`` ends that.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._documents: OrderedDict[_Name, WrittenDocument] = OrderedDict()
        self._owners: dict[tuple[str, str], OwnerSizes] = {}
        self._generation = views.generation
        self._forgotten = 0
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()

    @asynccontextmanager
    async def writing(self, address: Address) -> AsyncIterator[WrittenDocument]:
        """The document while it is written; its row is as new as the views or newer."""
        if self._views.generation != self._generation:
            self._generation = self._views.generation
            self._forget()
        name = (address.workspace_id, address.owner, address.tier, address.key)
        document = self._documents.get(name)
        if document is None:
            owner = self._owners.setdefault(name[:2], OwnerSizes())
            document = self._documents[name] = WrittenDocument(owner)
        self._documents.move_to_end(name)
        document.users += 1
        try:
            if document.stale:
                await self._load(document, address)
            yield document
        finally:
            document.users -= 1
            self._evict()

    async def _load(self, document: WrittenDocument, address: Address) -> None:
        async with document.loading:
            if not document.stale:
                return
            before, times = document.row, self._forgotten
            rows, sizes = await asyncio.to_thread(self._read, address)
            if document.row is before:
                document.row = None
            document.take(rows[0] if rows else document.row)
            for tier, key, seq, size in sizes:
                document.owner.take((tier, key), seq, size)
            document.stale = self._forgotten != times

    def _read(self, address: Address) -> tuple[list[DocumentRow], list[tuple[Any, ...]]]:
        rows = [DocumentRow(*row) for row in self._views.rows(SELECT_ONE, address.values)]
        return rows, self._views.rows(_SIZES, [address.workspace_id, address.owner])

    def _follow(self, batch: CommittedBatch) -> None:
        changes = batch.changes.get(DOCUMENTS.name)
        if changes is None:
            return
        if changes.removed or changes.rewritten:
            self._forget()
        for row in changes.rows(DocumentRow):
            owner = self._owners.get((row.workspace_id, row.owner))
            if owner is None:
                continue
            owner.take((row.tier, row.doc_key), row.seq, row.bytes)
            document = self._documents.get((row.workspace_id, row.owner, row.tier, row.doc_key))
            if document is not None:
                document.take(row)

    def _forget(self) -> None:
        """Read everything again at its next write."""
        self._forgotten += 1
        for owner in self._owners.values():
            owner.sizes, owner.total = {}, 0
        for document in self._documents.values():
            document.stale = True

    def _evict(self) -> None:
        for name in list(self._documents)[: len(self._documents) - KEPT]:
            document = self._documents[name]
            if not document.users and not document.pending:
                del self._documents[name]
        if len(self._documents) >= KEPT:
            used = {name[:2] for name in self._documents}
            self._owners = {name: sizes for name, sizes in self._owners.items() if name in used}
