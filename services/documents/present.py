"""A cache of the current text of the documents that are being written.

A check needs the size, the end and the sequence of a document; reading 250 KB from DuckDB for each of 640 appends per
second is too slow. A document is read once, and then every commit updates it. Invariants: a row is never older than the
views; writes that this node has sent and the views lack count as pending.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from ...schemas.core.errors import DocumentConflict
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.rules import AGENT_TOTAL_BYTES, SCAN_OVERLAP, joint, sha256_of
from ...schemas.documents.tables import DOCUMENTS, DocumentRow
from ...schemas.text.injection import finding_in
from ..desk import Caller
from .addressing import DocumentAddress
from .answers import too_large
from .drafts import Draft
from .reading import SELECT_PRESENT

# Combines calls into runs of blocking work in a thread: calls that arrive during a run share the next run.


Q = TypeVar("Q")
A = TypeVar("A")


class Grouped(Generic[Q, A]):
    """Combines single calls into calls of a batch function.

    Args:
        work: Answers several calls in order; runs in a thread, one run at a time.
        most: Maximum sum of ``size`` over the calls of a run; a larger call runs alone.
        size: Returns the size of a call.
    """

    def __init__(self, work: Callable[[list[Q]], Sequence[A]], most: int, size: Callable[[Q], int]) -> None:
        self._work = work
        self._most = most
        self._size = size
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, query: Q) -> A:
        """The answer to one call; raises the error of the run."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._waiting.append((query, future))
        if self._task is None:
            self._task = loop.create_task(self._run(), name="grouped calls")
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    answers = await asyncio.to_thread(self._work, [query for query, _ in group])
                except Exception as error:
                    for _, future in group:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(group, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._task = None

    def _next_group(self) -> list[tuple[Q, asyncio.Future[A]]]:
        count, total = 0, 0
        for query, _ in self._waiting:
            total += self._size(query)
            if count and total > self._most:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group


# Scans appends to one document for injections, many at once.


GROUP_CHARS: Final = 20_000
"""Maximum characters of the appends in one scan: about 50 ms."""
Scanning = Grouped[tuple[str, str], str | None]


def scanning() -> Scanning:
    """A scan function: takes the text before and the appended text, returns the scanners' finding or None."""
    return Grouped(_scan_group, GROUP_CHARS, lambda piece: len(piece[1]))


def _scan_group(group: list[tuple[str, str]]) -> list[str | None]:
    """The finding of each append. All appends are scanned together first, and one by one only if that gives a finding."""
    text = group[0][0]
    for _, piece in group:
        text += joint(text, piece)
    if finding_in(text) is None:
        return [None] * len(group)
    findings: list[str | None] = []
    clean = ""
    for before, piece in group:
        before = (before + clean)[-SCAN_OVERLAP:]
        findings.append(finding_in(before + joint(before, piece)))
        if findings[-1] is None:
            clean += joint(before, piece)
    return findings


# Orders the writes of a document: appends run concurrently, a write of the whole text runs alone.


class WriteTurns:
    """A shared/exclusive lock for the writes of one document on this node."""

    def __init__(self) -> None:
        self._together = 0
        self._left = asyncio.Event()
        self._alone: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Hold the lock shared with other appends."""
        while self._alone is not None:
            await asyncio.shield(self._alone)
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self._left.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock exclusively; later writes wait."""
        while self._alone is not None:
            await asyncio.shield(self._alone)
        mine = self._alone = asyncio.get_running_loop().create_future()
        try:
            while self._together:
                self._left.clear()
                await self._left.wait()
            yield
        finally:
            self._alone = None
            mine.set_result(None)


KEPT: Final = 256
"""Number of documents that stay cached after their last write: at most 64 MB, if all are topics of 250 KB; usually 1 MB."""
_SIZES: Final = f"SELECT tier, doc_key, seq, bytes FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ?"
_Name = tuple[str, str, str, str | None]


@dataclass(slots=True, eq=False)
class Pending:
    """A write that may be missing from the views.

    Attributes:
        whole: Whether the write replaces the whole text.
        size: Bytes appended, or bytes of the whole new text.
        end: The last characters of the written text.
        seq: Its sequence, once it is acked.
        late: Whether it still counts after ``counting`` ends, until the views have it.
    """

    whole: bool
    size: int
    end: str
    seq: int | None = None
    late: bool = False

    def after(self, end: str) -> str:
        """The document's last characters after this write; ``end`` are its last characters before."""
        return self.end if self.whole else (end + self.end)[-SCAN_OVERLAP:]


@dataclass(slots=True)
class OwnerSizes:
    """Sizes of an owner's documents: (tier, key) → (sequence, bytes)."""

    sizes: dict[tuple[str, str | None], tuple[int, int]] = field(default_factory=dict)
    total: int = 0

    def take(self, name: tuple[str, str | None], seq: int, size: int) -> None:
        """Note the size of a document as of ``seq``, unless a newer size is known."""
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
        turns: Lock for its writes.
        scanning: Scans appended text.
        pending: Writes that this node has sent and the views may lack, in the order of sending.
        users: Number of requests that are writing it.
        stale: Whether it must be read again at its next write.
        loading: Lock held while it is read.
    """

    owner: OwnerSizes
    row: DocumentRow | None = None
    turns: WriteTurns = field(default_factory=WriteTurns)
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
    def finding(self) -> str | None:
        """The scanners' finding for the text in the views."""
        return None if self.row is None else self.row.finding

    @property
    def size(self) -> int:
        """Bytes of the document after all pending writes."""
        size = 0 if self.row is None else self.row.bytes
        for write in self.pending:
            size = write.size if write.whole else size + write.size
        return size

    @property
    def end(self) -> str:
        """Its last characters after all pending writes."""
        if self._end is None:
            self._end = self.content[-SCAN_OVERLAP:]
            for write in self.pending:
                self._end = write.after(self._end)
        return self._end

    @contextmanager
    def counting(self, caller: Caller, draft: Draft) -> Iterator[Pending]:
        """Count a write as pending until the block ends; if it is ``late``, until the views have it.

        No other task runs between the check of the size and the counting.

        Raises:
            CapExceeded: As in ``check_size``.
        """
        if draft.action is not DocumentAction.RETRACT:
            self.check_size(caller, draft)
        pending = self.reserve(draft.content, whole=not draft.appends)
        try:
            yield pending
        finally:
            if not pending.late and pending in self.pending:
                self.pending.remove(pending)
                self._end = None

    def check_version(self, draft: Draft, *, gives_up: bool) -> None:
        """Refuse a whole text that expects a version other than the current one.

        Args:
            draft: The write.
            gives_up: Whether the number of attempts is used up.

        Raises:
            DocumentConflict: If it expects another version, or the attempts are used up.
        """
        field = "expected_seq"
        if not gives_up and draft.expected_seq in (None, self.seq):
            if draft.expected_sha256 in (None, sha256_of(self.content)):
                return
            field = "expected_sha256"
        hint = f"read it, then write with expected_seq={self.seq}"
        raise DocumentConflict(f"{draft.address.label} is at version {self.seq}", hint=hint, field=field)

    def check_size(self, caller: Caller, draft: Draft) -> None:
        """Refuse a write that makes the document, or all documents of its owner, too large.

        Raises:
            CapExceeded: If a size limit would be exceeded.
        """
        address, current = draft.address, self.size
        added = joint(self.end, draft.content) if draft.appends else draft.content
        projected = len(added.encode()) + (current if draft.appends else 0)
        cap = address.rule.cap_of(draft.source)
        total = self.owner.total - (self.row.bytes if self.row else 0) + projected
        if projected <= cap and total <= AGENT_TOTAL_BYTES:
            return
        refusal = too_large(caller, address, cap, projected, current, self.content, self.finding)
        if projected <= cap:
            refusal.message = f"the documents of {address.owner} would have {total} of {AGENT_TOTAL_BYTES} bytes"
            refusal.hint = "shorten or retract documents that are out of date"
        refusal.facts["total_bytes"] = total
        raise refusal

    def reserve(self, text: str, *, whole: bool) -> Pending:
        """Count a write as pending from now on."""
        added = text if whole else joint(self.end, text)
        pending = Pending(whole, len(added.encode()), added[-SCAN_OVERLAP:])
        self._end = pending.after(self.end)
        self.pending.append(pending)
        return pending

    def take(self, row: DocumentRow | None) -> None:
        """Take over the current row of the views."""
        if row is None or row.seq >= self.seq:
            self.row = row
        self.pending = [write for write in self.pending if write.seq is None or write.seq > self.seq]
        self._end = None


class PresentDocuments:
    """The documents that this node writes.

    Args:
        views: Read once for each document, then followed until ``close``.
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
    async def writing(self, address: DocumentAddress) -> AsyncIterator[WrittenDocument]:
        """The document while it is written; its row is at least as new as the views."""
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

    async def _load(self, document: WrittenDocument, address: DocumentAddress) -> None:
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

    def _read(self, address: DocumentAddress) -> tuple[list[DocumentRow], list[tuple[Any, ...]]]:
        rows = [DocumentRow(*row) for row in self._views.rows(SELECT_PRESENT, address.values)]
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
        """Have every document read again at its next write."""
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
