"""Sends a file's batches: several concurrently, with retries while the service is unavailable, acked in order.

Invariant: a batch is acked completely or not at all, except for lines whose id belongs to another entry, which are
reported; and ``acked`` is called for batches in the order of the file, so what was acked before an interruption is a
prefix of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ....schemas.api import Receipt
from ....schemas.core.errors import (
    CrewJournalError,
    EntryConflict,
    FieldProblem,
    InvalidEntry,
    NotAllowed,
    NotFound,
    Unavailable,
    ViewsBehind,
)
from .. import connection
from ..connection import Target, async_client
from ..options import Where
from .key import import_mark
from .lines import BadLine, Line, LineBatch, bad_lines_of, refusal, with_line_numbers
from .sources.found import without_conversation

if TYPE_CHECKING:
    from ...client import AsyncCrewJournal, CrewJournal

IN_FLIGHT: Final = 4
"""Batches on their way at once: with one the service waits for the file, with more only the queue grows."""
ASKED_AT_ONCE: Final = 16
"""Batches of at most this many lines are not halved further; instead, each line is looked up. After titles have
changed, an import finds every entry with different content.
"""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_LAST_S: Final = 3.0
"""Seconds between tries while the service is away; a restart takes 1 to 4."""


Send = Callable[[Sequence[dict[str, Any]]], Awaitable[Sequence[Receipt]]]
"""Sends one batch; raises ``Unavailable`` if it is worth trying again."""
Held = Callable[[dict[str, Any]], Awaitable[Receipt | None]]
"""Looks up the receipt of the journal's entry with all fields of a record; None if there is no such entry."""


@dataclass(frozen=True, slots=True)
class BatchAck:
    """The result of a batch.

    Attributes:
        batch: Its lines.
        sent: The ack of each line that is in the journal.
        bad: Lines that were set aside.
        taken: Lines whose id belongs to another entry: they are left out, the rest is in the journal.
    """

    batch: LineBatch
    sent: Sequence[Receipt]
    bad: Sequence[BadLine]
    taken: Sequence[BadLine] = ()


@dataclass(slots=True)
class ImportRun:
    """One pass over the batches of a file.

    Attributes:
        send: Sends a batch.
        timeout_s: Seconds without a single ack until it gives up.
        skip_invalid: Whether bad lines are left out instead of ending the import.
        waiting: Called with the reason whenever the run waits for the service.
        held: Looks up a line whose id is already used, because a listing contains defaults that the first submission
            did not have.
        in_flight: Batches on their way at once; 1 keeps the order.
        last_ack: When the service acked last, by the monotonic clock.
    """

    send: Send
    timeout_s: float
    skip_invalid: bool = False
    waiting: Callable[[str], None] = lambda _why: None
    held: Held | None = None
    in_flight: int = IN_FLIGHT
    last_ack: float = field(default_factory=time.monotonic)

    async def run(self, batches: Iterable[LineBatch], acked: Callable[[BatchAck], None]) -> None:
        """Send every batch; ``acked`` is called for each, in the order of the file.

        Raises:
            InvalidEntry: Naming every problem of the first batch with bad lines; nothing of that batch was published.
            CrewJournalError: An error of the service; ``acked`` was called for all earlier batches.
        """
        under_way: deque[asyncio.Task[BatchAck]] = deque()
        try:
            for batch in batches:
                if batch.bad and not self.skip_invalid:
                    while under_way:
                        acked(await under_way.popleft())
                    raise refusal(batch.bad)
                under_way.append(asyncio.create_task(self._deliver(batch)))
                while len(under_way) >= self.in_flight or (under_way and under_way[0].done()):
                    acked(await under_way.popleft())
                await asyncio.sleep(0)  # lets running batches proceed between two reads of the file
            while under_way:
                acked(await under_way.popleft())
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _deliver(self, batch: LineBatch) -> BatchAck:
        lines, bad = list(batch.good), list(batch.bad)
        while lines:
            try:
                sent, taken = await self._send_around_taken(lines)
                return BatchAck(batch, sent, bad, taken)
            except InvalidEntry as error:
                refused = bad_lines_of(error, lines)
                if not refused:
                    raise
                if not self.skip_invalid:
                    raise refusal(refused) from None
                bad += refused
                gone = {line.number for line in refused}
                lines = [line for line in lines if line.number not in gone]
            except Unavailable:
                raise
            except CrewJournalError as error:
                refused = _forbidden(error, lines) if self.skip_invalid else []
                if not refused:
                    raise _with_lines(error, lines) from None
                bad += refused
                lines = [line for line in lines if line.number != refused[0].number]
        return BatchAck(batch, (), bad)

    async def _send_around_taken(self, lines: list[Line]) -> tuple[list[Receipt], list[BadLine]]:
        """Send lines except those whose id belongs to another entry, found by halving the batch and then one by one."""
        try:
            return list(await self._send_patiently(lines)), []
        except EntryConflict as error:
            if self.held is not None and len(lines) <= ASKED_AT_ONCE:
                gathered = await asyncio.gather(*(self.held(line.record) for line in lines))
                there = [receipt for receipt in gathered if receipt is not None]
                if there:
                    rest = [line for line, receipt in zip(lines, gathered, strict=True) if receipt is None]
                    sent, taken = await self._send_around_taken(rest) if rest else ([], [])
                    return there + sent, taken
            if len(lines) == 1:
                problem = FieldProblem("id", error.message, error.hint)
                return [], [BadLine(lines[0].number, lines[0].raw, (problem,), lines[0].at)]
        middle = len(lines) // 2
        sent, taken = await self._send_around_taken(lines[:middle])
        more_sent, more_taken = await self._send_around_taken(lines[middle:])
        return sent + more_sent, taken + more_taken

    async def _send_patiently(self, lines: Sequence[Line]) -> Sequence[Receipt]:
        pause = BACKOFF_FIRST_S
        while True:
            try:
                sent = await self.send([line.record for line in lines])
            except Unavailable as error:
                if time.monotonic() - self.last_ack >= self.timeout_s:
                    raise
                self.waiting(error.message)
                await asyncio.sleep(pause * (0.5 + random.random() / 2))
                pause = min(2 * pause, BACKOFF_LAST_S)
            else:
                self.last_ack = time.monotonic()
                return sent


def _forbidden(error: CrewJournalError, lines: list[Line]) -> list[BadLine]:
    """The lines that the token may not import; empty if the error is a different one, or names no line."""
    if not isinstance(error, NotAllowed) or error.field is None:
        return []
    return bad_lines_of(InvalidEntry((FieldProblem(error.field, error.message, error.hint),)), lines)


def _with_lines(error: CrewJournalError, lines: list[Line]) -> CrewJournalError:
    """The same error, naming lines of the file instead of places in the request."""
    message = error.message
    if "entries[" not in message and (error.field or "").startswith("entries["):
        message = f"{error.field}: {message}"
    named = with_line_numbers(message, lines)
    if named == message:
        named = (
            f"{lines[0].name} to {lines[-1].name}: {message}"
            if lines[0].at
            else f"lines {lines[0].number} to {lines[-1].number}: {message}"
        )
    return type(error)(named, hint=error.hint, field=error.field)


# The progress of an import, so that it can resume.


HEAD_BYTES: Final = 64 * 1024
"""Bytes of a file's beginning, hashed to recognise it."""
TAIL_BYTES: Final = 4 * 1024
"""Bytes before the offset, hashed to see that the file was appended to and not rewritten."""
SAVE_EVERY_S: Final = 0.5
"""Seconds between two saves; entries that are resent after a crash count once anyway."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """The progress of an import.

    Attributes:
        path: Absolute path of the file.
        offset: Bytes whose lines are all acked.
        line: Number of the last of these lines.
        last_seq: Highest sequence acked, 0 if nothing was.
        last_id: Id of the entry that has it.
        last_workspace: The workspace in that entry's line, None if the line named no workspace.
    """

    path: str
    offset: int = 0
    line: int = 0
    last_seq: int = 0
    last_id: str = ""
    last_workspace: str | None = None


class StateFile:
    """The progress file of one import.

    Args:
        directory: Directory of progress files, created when the first is written.
        source: The file that is imported.
        into: Target of the import; stored as a hash.
    """

    def __init__(self, directory: Path, source: Path, into: str) -> None:
        self._source = source.resolve()
        key = hashlib.sha256(f"{self._source}\x00{into}".encode(errors="surrogateescape")).hexdigest()[:32]
        self._file = directory / f"{key}.json"
        self._saved_at = 0.0

    def load(self, file: BinaryIO) -> ImportState:
        """The state from which to resume: the saved state if the file is unchanged, else a new state."""
        try:
            kept = json.loads(self._file.read_bytes())
            known = kept.pop("marks")
            state = ImportState(**kept)
            if known == _marks(file, state.offset, known[0]):
                return state
        except (OSError, ValueError, TypeError, AttributeError, LookupError):
            pass  # missing, torn or of another version
        return self.fresh()

    def fresh(self) -> ImportState:
        """The state before the first line."""
        return ImportState(str(self._source))

    def save(self, state: ImportState, file: BinaryIO, *, now: bool = False) -> None:
        """Keep ``state``; unless ``now``, at most every ``SAVE_EVERY_S`` seconds."""
        clock = time.monotonic()
        if not now and clock - self._saved_at < SAVE_EVERY_S:
            return
        self._saved_at = clock
        head_bytes = min(os.fstat(file.fileno()).st_size, HEAD_BYTES)
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(state) | {"marks": _marks(file, state.offset, head_bytes)}))
        draft.chmod(0o600)
        draft.replace(self._file)


def _marks(file: BinaryIO, offset: int, head_bytes: int) -> list[Any]:
    """Hashes by which a file is recognised: of its beginning, and of the bytes before ``offset``.

    A file that has become shorter has other hashes. The position of ``file`` stays.
    """
    start = max(0, offset - TAIL_BYTES)
    parts = os.pread(file.fileno(), head_bytes, 0), os.pread(file.fileno(), offset - start, start)
    return [head_bytes, *(f"{len(part)} {import_mark(part)}" for part in parts)]


# The service for an import: sends batches, looks up sent entries, and waits for the views.


VIEWS_WAIT_S: Final = 30.0
"""Seconds to wait for the views after an import: at 10,000 entries/s a lag of 300,000."""


class Sender:
    """Sends batches to the service, and finds it again after a restart."""

    def __init__(self, there: Target, where: Where) -> None:
        self._there = there
        self._where = where
        self._clients: list[AsyncCrewJournal] = []  # the last client is used; the others may have running requests
        self._finding = asyncio.Lock()

    async def send(self, records: Sequence[dict[str, Any]]) -> Sequence[Receipt]:
        """One batch, all or nothing."""
        if not self._clients:
            self._clients.append(async_client(self._there))
        try:
            return await self._clients[-1].append_batch(records)
        except Unavailable:
            await self._find_again()
            raise

    async def held(self, record: dict[str, Any]) -> Receipt | None:
        """See ``held_by``."""
        return await held_by(self._clients[-1], record)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    async def _find_again(self) -> None:
        async with self._finding:
            target = await asyncio.to_thread(find_again, self._there, self._where)
            if target != self._there:
                self._there = target
                self._clients.append(async_client(target))


async def held_by(journal: AsyncCrewJournal, record: dict[str, Any]) -> Receipt | None:
    """The receipt of the stored entry with the id of ``record``, if all fields of ``record`` are equal there; else None.

    The conversation of an imported turn may have another title there: people rename conversations.
    """
    try:
        entry = await journal.get(record["id"], workspace_id=record.get("workspace_id"))
    except NotFound:
        return None  # the views may be behind; then the id counts as used
    stored, wanted = without_conversation(entry.model_dump(mode="json")), without_conversation(record)
    same = all(stored.get(name) == value for name, value in wanted.items())
    return Receipt(id=entry.id, seq=entry.seq, duplicate=True) if same else None


def find_again(there: Target, where: Where) -> Target:
    """The service after a restart, which may have given it another port; ``there`` if it does not run at the moment."""
    if there.local or there.data_dir is None:
        return there
    try:
        return connection.resolve(where) or there
    except CrewJournalError:
        return there


def still_held(journal: CrewJournal, state: ImportState) -> bool:
    """Whether the journal still holds the last acked entry at its sequence; waits some seconds for views that are behind.

    Raises:
        CrewJournalError: If the token may not ask.
    """
    if not state.last_id:
        return False
    for min_seq in (None, state.last_seq):
        try:
            entry = journal.get(state.last_id, workspace_id=state.last_workspace, min_seq=min_seq)
        except NotFound:
            continue  # the views may be behind
        except Unavailable:
            break
        return entry.seq == state.last_seq
    return False


def views_behind(journal: CrewJournal, seq: int, *, wait_s: float = VIEWS_WAIT_S) -> int | None:
    """Wait at most ``wait_s`` seconds until the views have passed ``seq``, so that sent entries can be found.

    Returns:
        The number of sequences by which the views are behind; None if the service does not answer.
    """
    until = time.monotonic() + wait_s
    try:
        while True:
            try:
                journal.count(min_seq=seq)
            except ViewsBehind:
                if time.monotonic() >= until:
                    return max(0, seq - journal.count().view_seq)
            else:
                return 0
    except CrewJournalError:
        return None
