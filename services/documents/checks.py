"""The checks of the text of a write: secrets, injections, pinned facts, size.

Invariant: a write that fails a check is refused; operators' writes are checked, too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import structlog

from ...schemas.core.errors import BrokerError, CapExceeded, DocumentConflict, Quarantined, WriteRefused
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.timestamps import format_ts
from ...schemas.documents.events import (
    DocumentAction,
    MemoryConfigUpdated,
    MemoryWriteRejected,
    MemoryWriteVerifierBlocked,
    RejectionReason,
)
from ...schemas.documents.rules import AGENT_TOTAL_BYTES, SCAN_OVERLAP, Scope, joint, owner_of, sha256_of
from ...schemas.documents.tables import DOCUMENTS, MEMORY_CONFIG, DocumentRow
from ...schemas.relations.judging import judge
from ...schemas.relations.rules import CONTRADICTS, Statement
from ...schemas.text.injection import finding_in
from ..data_dir import write_private
from ..desk import Caller
from ..journal.intake.append import Recorder
from ..journal.intake.secrets import HINT, Scrubs
from ..kept import KeptValues, in_thread
from .addressing import DocumentAddress
from .answers import too_large
from .drafts import Draft
from .reading import SELECT_PRESENT

# Combines calls into runs of blocking work in a thread: calls that arrive during a run share the next run.


# A cache of the current text of the documents that are being written.
#
# A check needs the size, the end and the sequence of a document; reading 250 KB from DuckDB for each of 640 appends
# per second is too slow. A document is read once, and then every commit updates it. Invariants: a row is never older
# than the views; writes that this node has sent and the views lack count as pending.


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


SHARED_WORDS: Final = 0.5
"""Minimum share of common words for comparing two lines; the rule itself requires more."""
SECRET: Final = "secret/"
"""Prefix of the finding for content with credentials, followed by their kinds."""
CONTRADICTION: Final = "verifier/pinned"
"""The finding of a content that contradicts a pinned fact."""
_VERIFIER: Final = f"SELECT verifier FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_PINS: Final = f"""SELECT content FROM {DOCUMENTS} WHERE workspace_id = ? AND tier = 'pins'
    AND owner IN (SELECT unnest(?::VARCHAR[]))"""


class Checks:
    """The checks.

    Args:
        views: The pinned facts, and the settings of workspaces; followed until ``close``.
        scrubs: Finds credentials.
    """

    def __init__(self, views: ViewReader, scrubs: Scrubs) -> None:
        self._views = views
        self._scrubs = scrubs
        self._verifiers = KeptValues(views, (MEMORY_CONFIG,), in_thread(self._verifier))
        self.close = self._verifiers.close

    async def scrub(self, draft: Draft) -> tuple[Draft, str | None]:
        """The write to store, without credentials unless the workspace keeps them, and a warning.

        Raises:
            WriteRefused: If the content holds credentials and the workspace blocks those.
        """
        workspace_id, reason, end = draft.address.workspace_id, draft.reason, draft.compared_end
        scrubbed = await self._scrubs.scrubbed(workspace_id, draft.content)
        if scrubbed.mode == "block" and scrubbed.kinds:
            named = ", ".join(scrubbed.kinds)
            refusal = WriteRefused(f"the content holds credentials: {named}", hint=HINT, field="content")
            refusal.finding = f"{SECRET}{named}"
            raise refusal
        if reason:
            reason = (await self._scrubs.scrubbed(workspace_id, reason)).text
        content = scrubbed.text
        changed = replace(draft, content=content, reason=reason, compared_end=end and content[-len(end) :])
        return changed, scrubbed.warning

    async def check_text(self, caller: Caller, draft: Draft, document: WrittenDocument) -> None:
        """Refuse a text that the scanners block, or that contradicts a pinned fact if the workspace checks this.

        Raises:
            Quarantined: If the scanners block it.
            WriteRefused: If it contradicts a pinned fact.
        """
        if draft.appends:
            finding = await document.scanning((document.end, draft.content))
        else:
            finding = await asyncio.to_thread(finding_in, draft.content)
        address = draft.address
        if finding is not None:
            raise blocked(address.label, finding)
        if address.tier == "pins" or await self._verifiers.of(address.workspace_id) == "off":
            return
        owners = [owner_of(Scope.WORKSPACE, None), address.owner]
        if caller.principal.crew_id is not None:
            owners.append(owner_of(Scope.CREW, caller.principal.crew_id))
        pin = await asyncio.to_thread(self._contradicted, address.workspace_id, owners, draft.content)
        if pin is not None:
            refusal = WriteRefused(
                f"the content contradicts a pinned fact: {pin}",
                hint="leave it out, or ask an OWNER or ADMIN to change pins.md",
                field="content",
            )
            refusal.finding = CONTRADICTION
            raise refusal

    def _verifier(self, workspace_id: str) -> str:
        """The workspace's setting whether texts are compared with pinned facts; blocking."""
        rows = self._views.rows(_VERIFIER, [workspace_id])
        return str(rows[0][0]) if rows else MemoryConfigUpdated().verifier

    def _contradicted(self, workspace_id: str, owners: list[str], content: str) -> str | None:
        """The pinned line that a line of ``content`` contradicts; blocking."""
        texts = [text for (text,) in self._views.rows(_PINS, [workspace_id, owners])]
        pins = [(line, _words(line)) for text in texts for line in map(_plain, text.splitlines()) if line]
        for line in filter(None, map(_plain, content.splitlines())):
            words = _words(line)
            for pin, pinned in pins:
                if 2 * len(words & pinned) < SHARED_WORDS * (len(words) + len(pinned)):
                    continue
                verdict = judge(Statement(line), Statement(pin), CONTRADICTS)
                if verdict is not None and not verdict.is_borderline:
                    return pin
        return None


def blocked(label: str, finding: str) -> Quarantined:
    """The refusal of a text in which the scanners found ``category/pattern``."""
    category, _, pattern = finding.partition("/")
    refusal = Quarantined(
        f"{label} would hold a possible prompt injection: category={category} pattern={pattern}",
        hint="say it in other words, without instructions to a reader; nothing was written",
        field="content",
    )
    refusal.finding = finding
    return refusal


def _plain(line: str) -> str:
    """A line without the marks of a list or heading."""
    return line.strip().lstrip("#-*>+ ").strip()


def _words(line: str) -> set[str]:
    return set(line.casefold().split())


# Records refused writes, and keeps the texts of injections for operators (contract §14).


QUARANTINE_FOLDER: Final = "quarantine"
REFUSALS: Final = (CapExceeded, Quarantined, WriteRefused)
"""The errors of a write that are recorded."""
_FINDING_CHARS: Final = 200
_log = structlog.get_logger(__name__)


class Quarantine:
    """The folder ``quarantine`` of a data directory.

    Args:
        data_dir: The data directory.
        clock: The time now, UTC.
    """

    def __init__(self, data_dir: Path, clock: Callable[[], datetime]) -> None:
        self._folder = data_dir / QUARANTINE_FOLDER
        self._clock = clock

    def keep(self, text: str, about: dict[str, str]) -> Path:
        """Write ``<sha256>.md``: the time, ``about`` and the hash as a header, then the text; blocking.

        Each text has one file, with the header of its last refusal.

        Raises:
            OSError: If it cannot be written.
        """
        sha256 = sha256_of(text)
        header = {"time": format_ts(self._clock()), **about, "sha256": sha256}
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{sha256}.md"
        write_private(path, "\n".join(["---", *(f"{name}: {value}" for name, value in header.items()), "---", text]))
        return path


def refused_texts(data_dir: Path, workspace_id: str) -> Iterator[Path]:
    """The kept files with refused texts of a workspace; blocking."""
    for path in sorted((data_dir / QUARANTINE_FOLDER).glob("*.md")):
        with path.open(encoding="utf-8", errors="replace") as file:
            header = takewhile(lambda line: line != "---\n", islice(file, 1, None))
            if f"workspace: {workspace_id}\n" in header:
                yield path


class Refusals:
    """Records refused writes.

    Args:
        journal: The journal that records them.
        quarantine: Keeps the texts of injections.
    """

    def __init__(self, journal: Recorder, quarantine: Quarantine) -> None:
        self._journal = journal
        self._quarantine = quarantine

    async def record(self, caller: Caller, draft: Draft, error: CapExceeded | Quarantined | WriteRefused) -> None:
        """Record why a write was refused; if it was an injection, keep the text."""
        address, why = draft.address, "it contradicts a pinned fact"
        written = {"tier": address.tier, "key": address.key, "owner": address.owner, "source": draft.source}
        if error.finding == CONTRADICTION:
            payload: ControlPayload = MemoryWriteVerifierBlocked(**written, problem="contradicts a pinned fact")
        else:
            why, size = _reason(error), None
            if isinstance(error, CapExceeded):
                size = error.facts.get("projected_size")
            elif isinstance(error, Quarantined):
                await self._keep(caller, draft, error.finding or "")
            payload = MemoryWriteRejected(
                **written,
                reason=why,
                finding=None if error.finding is None else error.finding[:_FINDING_CHARS],
                bytes=size if isinstance(size, int) else None,
                cap_bytes=address.rule.cap_of(draft.source) if why == "cap" else None,
            )
        summary = f"a write of {address.label} was refused: {why}"
        try:
            await self._journal.record(address.workspace_id, payload, summary=summary, **caller.author_fields)
        except BrokerError as failure:
            _log.warning("documents.refusal_not_recorded", owner=address.owner, error=type(failure).__name__)

    async def _keep(self, caller: Caller, draft: Draft, finding: str) -> None:
        address = draft.address
        about = {
            "workspace": address.workspace_id,
            "owner": address.owner,
            "document": address.label,
            "finding": finding,
            "source": draft.source,
            "written by": caller.acts_as[1],
        }
        try:
            await asyncio.to_thread(self._quarantine.keep, draft.content, about)
        except OSError as error:
            _log.warning("documents.not_quarantined", owner=address.owner, error=str(error))


def _reason(error: CapExceeded | Quarantined | WriteRefused) -> RejectionReason:
    if isinstance(error, CapExceeded):
        return "cap"
    if isinstance(error, Quarantined):
        return "injection"
    return "scrubber" if (error.finding or "").startswith(SECRET) else "provider"
