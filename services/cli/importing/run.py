"""Sending a file's batches: several at once, again when the service is away, in order where it counts.

Invariant: a batch is acked whole or not at all, but for lines whose id belongs to another entry, which are named; and
``acked`` is called for batches in the order of the file, so what was acked before an interruption is a prefix of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ....schemas.api import Receipt
from ....schemas.errors import CrewJournalError, EntryConflict, FieldProblem, InvalidEntry, NotAllowed, Unavailable
from .lines import BadLine, Line, LineBatch, bad_lines_of, refusal, with_line_numbers

IN_FLIGHT: Final = 4
"""Batches on their way at once: with one the service waits for the file, with more only the queue grows."""
ASKED_AT_ONCE: Final = 16
"""Lines from which on the service is asked about each instead of halving further: an import whose titles are new finds every
entry there with other content."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_LAST_S: Final = 3.0
"""Seconds between tries while the service is away; a restart takes 1 to 4."""


Send = Callable[[Sequence[dict[str, Any]]], Awaitable[Sequence[Receipt]]]
"""Sends one batch; raises ``Unavailable`` if it is worth trying again."""
Held = Callable[[dict[str, Any]], Awaitable[Receipt | None]]
"""Where the journal holds an entry with all fields of a record, None if it does not."""


@dataclass(frozen=True, slots=True)
class BatchAck:
    """What became of a batch.

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
        waiting: Called with the reason each time it waits for the service.
        held: Asked about a line whose id is taken: a listing has defaults that the first submission left to the service.
        last_ack: When the service acked last, by the monotonic clock.
    """

    send: Send
    timeout_s: float
    skip_invalid: bool = False
    waiting: Callable[[str], None] = lambda _why: None
    held: Held | None = None
    last_ack: float = field(default_factory=time.monotonic)

    async def run(self, batches: Iterable[LineBatch], acked: Callable[[BatchAck], None]) -> None:
        """Send every batch; ``acked`` is called for each, in the order of the file.

        Raises:
            InvalidEntry: Naming every problem of the first batch with bad lines; nothing of that batch was published.
            CrewJournalError: What the service answered; ``acked`` was called for all batches before.
        """
        under_way: deque[asyncio.Task[BatchAck]] = deque()
        try:
            for batch in batches:
                if batch.bad and not self.skip_invalid:
                    while under_way:
                        acked(await under_way.popleft())
                    raise refusal(batch.bad)
                under_way.append(asyncio.create_task(self._deliver(batch)))
                while len(under_way) >= IN_FLIGHT or (under_way and under_way[0].done()):
                    acked(await under_way.popleft())
                await asyncio.sleep(0)  # let the batches under way move between two readings of the file
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
        """Send lines, except those whose id belongs to another entry; these are found by halving, then one by one."""
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
    """The line that the token may not import; none if the error is another one, or names no line."""
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
