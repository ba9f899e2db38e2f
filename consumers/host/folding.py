"""Folds one batch into DuckDB in one transaction.

If that fails, folds into each projection alone and parks the event at fault.

Invariant: a checkpoint passes an event only after the event was folded or its parking was acked. A fault of the
environment commits nothing and parks nothing. An event that records a parking is never parked, because that would never
end. A projection that parks too many events is suspended (``faults``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import duckdb
import structlog

from ...schemas.core.envelope import EntryRecorded, Event, TokenBitsDerived, VectorDerived
from ...schemas.core.errors import CrewJournalError, FoldError, ViewsDamaged
from ...schemas.core.ports import Changes, CommittedBatch
from ...schemas.decode import decode
from ...schemas.entries.tables import ADMISSION_PROJECTION, DECODE_STAGE
from ...schemas.operate.events import EventParked
from ...schemas.settings import PARKINGS_LIMIT
from ..feed.messages import RawMessage
from ..projection import Batch, Projection
from .admission import ADMISSION_VERSION, IdentityIndex, insert_admitted
from .faults import Fault, FoldingStopped, Leniency, describe, fault_of, write_strikes
from .store import ViewStore, ViewsUnusable
from .transaction import ProjectionTransaction, transaction, write_checkpoints

# Converts messages to the events that folds read: decodes each message once, removes repeats, collects faults.
#
# Invariant: the result depends on the log alone (the identity index only speeds up the search for the first entry with
# an id), so live feed, bulk replay and catch-up pass the same events to a projection, whatever their batches.


DECODE_NAME: Final = DECODE_STAGE
"""Stands in place of the projection's name in dead letters for messages that cannot be decoded."""
DECODE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that a projection (or ``decode``, or ``admission``) refused, and the reason.

    Attributes:
        projection: Name of the projection that refused it.
        version: Its version; (projection, version, seq) identifies the parking permanently.
        message: The unchanged message.
        reason: The reason, without the message's text.
    """

    projection: str
    version: int
    message: RawMessage
    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch ready to be folded.

    Attributes:
        first_seq: First stream sequence covered.
        last_seq: Last stream sequence covered, including gaps at the end.
        events: Canonical events in stream order.
        parked: Messages that ``decode`` and ``admission`` refused.
        messages: Sequence → message of every event, so that an event that a fold refuses can be parked.
    """

    first_seq: int
    last_seq: int
    events: list[Event]
    parked: list[Parked]
    messages: Mapping[int, RawMessage]


def in_order(messages: Sequence[RawMessage], after: int) -> list[RawMessage]:
    """The messages beyond ``after``, each once, in stream order: redelivery may repeat and reorder messages."""
    last = after
    for message in messages:
        if message.seq <= last:
            break
        last = message.seq
    else:
        return list(messages)
    once = {message.seq: message for message in messages if message.seq > after}
    return [once[seq] for seq in sorted(once)]


def prepare(messages: Sequence[RawMessage], index: IdentityIndex, first_seq: int, last_seq: int) -> Prepared:
    """Decode and admit; CPU only, so run it in a thread.

    Args:
        messages: Each once, in stream order.
        index: Adds the entries to itself.
        first_seq: First sequence the batch covers.
        last_seq: Last sequence the batch covers.
    """
    decoded: list[Event] = []
    parked: list[Parked] = []
    for message in messages:
        try:
            decoded.append(decode(message.seq, message.subject, message.headers, message.data, message.published_ms))
        except FoldError as error:
            parked.append(Parked(DECODE_NAME, DECODE_VERSION, message, error.message))
    by_seq = {message.seq: message for message in messages}
    entries = [event for event in decoded if isinstance(event, EntryRecorded)]
    refused: set[int] = set()
    for entry, first in zip(entries, index.admit(entries), strict=True):
        if first is None:
            continue
        refused.add(entry.seq)
        first_at, first_content = first
        if first_content != entry.content:
            reason = f"the id {entry.entry.id} belongs to the entry at {first_at}, which has other content"
            parked.append(Parked(ADMISSION_PROJECTION, ADMISSION_VERSION, by_seq[entry.seq], reason))
    events = [e for e in decoded if e.seq not in refused and not _is_of_a_repeat(e, index)]
    return Prepared(first_seq, last_seq, events, parked, by_seq)


def _is_of_a_repeat(event: Event, index: IdentityIndex) -> bool:
    """Whether the event is a vector (or token bits) of an entry that does not count because its id was already used.

    Only entries before the fact matter, so an index that is ahead gives the same result.
    """
    if not isinstance(event, VectorDerived | TokenBitsDerived):
        return False
    first = index.find(event.workspace_id, event.entry_id)
    return first is not None and first.seq < event.seq and first.seq != event.entry_seq


Park = Callable[[Parked], Awaitable[None]]
_REASON_CHARS: Final = 1_000
"""Maximum length of ``EventParked.reason``."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why and since when (UTC) a projection is out of the group."""

    reason: str
    since: datetime


def commit(
    con: duckdb.DuckDBPyConnection,
    projections: Sequence[Projection],
    batch: Batch,
    admitted: Sequence[EntryRecorded] | None,
    strikes: Mapping[Projection, int] | None = None,
) -> Changes:
    """Fold ``batch`` into ``projections`` in one transaction, checkpoints included; on the writer thread.

    Args:
        con: The writer's connection.
        projections: The projections, all with their checkpoint at the batch's start.
        batch: The events to fold.
        admitted: New identities; None if admission is not part of this commit.
        strikes: The projections' strikes after this commit (``faults``).

    Returns:
        The changes in the projections' tables.
    """
    changes: Changes = {}
    names = [projection.name for projection in projections]
    with transaction(con):
        if admitted is not None:
            insert_admitted(con, admitted)
            names.append(ADMISSION_PROJECTION)
        if batch.events:
            for projection in projections:
                projection.apply(batch, ProjectionTransaction(con, projection, changes))
        write_checkpoints(con, names, batch.last_seq)
        write_strikes(con, strikes or {})
    return changes


class BatchFolder:
    """Commits batches and tracks the checkpoint of each projection; used by the host under its lock."""

    def __init__(self, store: ViewStore, park: Park, *, replays: bool = False) -> None:
        """A folder for one store.

        Args:
            store: The store.
            park: Publishes one message to the dead letters.
            replays: Whether the events were folded before by another host (rebuild, verify); then parkings are not
                published.
        """
        self._store = store
        self._park = park
        self._replays = replays
        self._told = _log.debug if replays else _log.warning
        self.leniency = Leniency()
        self.reopened = store.reopened
        """``store.reopened`` when the host last read the checkpoints."""
        self.suspended: dict[str, Suspension] = {}
        self.parked: dict[str, int] = {}
        self._trying: set[str] = set()
        self.held: frozenset[str] = frozenset()
        """Projections that must keep rows of another version: suspended and never retried."""

    def hold(self, names: Iterable[str], reason: str) -> None:
        """Suspend projections until they are rebuilt, because their rows cannot be folded again now."""
        self.held = frozenset(names)
        self.suspended |= {name: Suspension(reason, datetime.now(UTC)) for name in self.held}

    def try_again(self, names: Iterable[str]) -> None:
        """Let suspended projections fold separately; they stay suspended until ``rejoin``."""
        self._trying.update(names)

    def failed(self, name: str) -> bool:
        """Whether a projection is suspended and not being tried again."""
        return name in self.suspended and name not in self._trying

    def rejoin(self, names: Iterable[str]) -> None:
        """Take projections back into the group."""
        names = tuple(names)
        self.held -= frozenset(names)
        for name in names:
            self.suspended.pop(name, None)
            self._trying.discard(name)

    def _suspend(self, projection: Projection, seq: int, reason: str, error: Exception) -> None:
        name, known = projection.name, self.suspended.get(projection.name)
        self._trying.discard(name)
        if known is not None and known.reason == reason:  # failed again: keep the first time
            return
        self.suspended[name] = Suspension(reason, known.since if known is not None else datetime.now(UTC))
        where = (
            None if self._replays or isinstance(error, CrewJournalError) else error
        )  # our own errors describe the fault
        tell = _log.debug if self._replays else _log.error
        tell("projection_left_the_group", projection=name, seq=seq, reason=reason, exc_info=where)

    async def park(self, parked: Parked) -> None:
        """Publish one message to the dead letters; only then may the checkpoint pass it.

        Raises:
            FoldingStopped: If the dead letters cannot be reached.
        """
        try:
            await self._park(parked)
        except Exception as error:
            raise FoldingStopped(
                f"the event at {parked.message.seq} cannot be parked: {type(error).__name__}",
                hint="is the broker up?",
            ) from error
        self.parked[parked.projection] = self.parked.get(parked.projection, 0) + 1
        self._told("event_parked", projection=parked.projection, seq=parked.message.seq)

    async def fold_group(self, prepared: Prepared, batch: Batch, members: Sequence[Projection]) -> None:
        """Fold a batch into every member and into admission.

        Args:
            prepared: The batch's parkings and messages.
            batch: The batch's events.
            members: Projections at or beyond the batch's start; a projection is beyond it after a crash during a
                separate retry.

        Raises:
            FoldingStopped: For a fault of the environment; some members may have committed, so that redelivery is
                harmless.
        """
        for parked in prepared.parked:
            await self.park(parked)
        start = batch.first_seq - 1
        level = [p for p in members if self._checkpoint_of(p) <= start]
        ahead = [p for p in members if self._checkpoint_of(p) > start]
        try:
            if not ahead:
                await self._commit(level, batch, batch.entries)
                return
        except Exception as error:
            if fault_of(error) is Fault.ENVIRONMENT:
                raise _stopped(error, batch) from error
        for projection in members:
            await self.fold_alone(projection, beyond(batch, self._checkpoint_of(projection)), prepared.messages)
        try:
            await self._commit([], batch, batch.entries)
        except Exception as error:
            raise _stopped(error, batch) from error

    async def fold_alone(
        self, projection: Projection, batch: Batch, messages: Mapping[int, RawMessage], *, quiet: bool = False
    ) -> None:
        """Fold a batch into one projection in separate transactions; halve it on failure until the faulty event is isolated.

        Args:
            projection: The projection.
            batch: The events, which begin right after the projection's checkpoint.
            messages: Sequence → message, for parking.
            quiet: Whether the projection is catching up; then caches are not extended.

        Raises:
            FoldingStopped: For the environment's fault.
        """
        if self.failed(projection.name) or batch.last_seq < batch.first_seq:
            return
        try:
            await self._commit([projection], batch, None, quiet=quiet)
            return
        except Exception as error:
            fault = fault_of(error)
            if fault is Fault.ENVIRONMENT:
                raise _stopped(error, batch) from error
            if fault is Fault.PROJECTION or not batch.events:
                self._suspend(projection, batch.first_seq, _where(error, batch), error)
                return
            if len(batch.events) == 1:
                await self._refused(projection, batch, messages, error, quiet=quiet)
                return
        for half in halves(batch):
            await self.fold_alone(projection, half, messages, quiet=quiet)

    async def _refused(
        self,
        projection: Projection,
        batch: Batch,
        messages: Mapping[int, RawMessage],
        error: Exception,
        *,
        quiet: bool,
    ) -> None:
        """Park the only event of ``batch`` and continue after it, or suspend the projection if parking is not allowed."""
        event, why = batch.events[0], describe(error)
        foreseen = isinstance(error, FoldError)
        if _records_a_parking(event):
            self._suspend(projection, event.seq, f"{why} of the parking recorded at {event.seq}", error)
            return
        if not foreseen and self.leniency.is_used_up(projection):
            more = f"more than {PARKINGS_LIMIT} events and one in a hundred could not be folded"
            self._suspend(projection, event.seq, f"{more}: {why} at {event.seq}", error)
            return
        reason = why[:_REASON_CHARS]
        await self.park(Parked(projection.name, projection.version, messages[event.seq], reason))
        passed = Batch((), batch.first_seq, batch.last_seq)
        strikes = {} if foreseen else self.leniency.after_parking(projection)
        try:
            await self._commit([projection], passed, None, quiet=quiet, strikes=strikes)
        except Exception as cause:
            raise _stopped(cause, batch) from cause  # the batch has no events, so the projection is not at fault

    async def _commit(
        self,
        projections: Sequence[Projection],
        batch: Batch,
        admitted: Sequence[EntryRecorded] | None,
        *,
        quiet: bool = False,
        strikes: Mapping[Projection, int] | None = None,
    ) -> None:
        after = self.leniency.after_fold(projections, len(batch.events)) if strikes is None else strikes
        changes = await self._store.write(lambda con: self._commit_known(con, projections, batch, admitted, after))
        self.leniency.learn(after)
        names = [projection.name for projection in projections]
        moved = dict.fromkeys([*names, ADMISSION_PROJECTION] if admitted is not None else names, batch.last_seq)
        news = CommittedBatch(
            batch.first_seq, batch.last_seq, batch.entries, frozenset(moved), changes, batch.documents
        )
        self._store.announce(moved, None if quiet else news)

    def _commit_known(
        self,
        con: duckdb.DuckDBPyConnection,
        projections: Sequence[Projection],
        batch: Batch,
        admitted: Sequence[EntryRecorded] | None,
        strikes: Mapping[Projection, int],
    ) -> Changes:
        """``commit`` on the writer thread, unless a failed commit may be in the file after all.

        Raises:
            ViewsUnusable: If the file was reopened after its checkpoints were read.
        """
        if self._store.reopened != self.reopened:
            raise ViewsUnusable(
                "the views were opened again; their checkpoints are read first", hint="it is tried again"
            )
        return commit(con, projections, batch, admitted, strikes)

    def _checkpoint_of(self, projection: Projection) -> int:
        return self._store.view_seq(projection.name)


def beyond(batch: Batch, seq: int) -> Batch:
    """The part of ``batch`` after ``seq``."""
    if seq < batch.first_seq:
        return batch
    return Batch([event for event in batch.events if event.seq > seq], seq + 1, batch.last_seq)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The batch cut between two of its events."""
    middle = len(batch.events) // 2
    left, right = batch.events[:middle], batch.events[middle:]
    return Batch(left, batch.first_seq, left[-1].seq), Batch(right, left[-1].seq + 1, batch.last_seq)


def _records_a_parking(event: Event) -> bool:
    """Whether the event records that another event could not be folded."""
    return isinstance(event, EntryRecorded) and event.control and event.entry.entry_type == EventParked.ENTRY_TYPE


def _where(error: Exception, batch: Batch) -> str:
    """What failed and where. Messages of other libraries are left out, because they may quote memory text."""
    error_text = (
        f"{type(error).__name__}: {error.message}" if isinstance(error, CrewJournalError) else type(error).__name__
    )
    return f"{error_text}, at {batch.first_seq}..{batch.last_seq}"


def _stopped(error: Exception, batch: Batch) -> FoldingStopped:
    if isinstance(error, FoldingStopped):
        return error
    return FoldingStopped(
        f"the batch {batch.first_seq}..{batch.last_seq} cannot be committed: {describe(error)}",
        hint=error.hint if isinstance(error, ViewsDamaged) else "free disk or memory; folding goes on by itself",
    )
