"""One batch into DuckDB: one transaction for the group, alone where that fails, the poison found and parked.

Invariant: a checkpoint passes an event only after every fold took it or after its parking was acked; what fails for the
environment's fault commits nothing and parks nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import duckdb
import structlog

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.admission import insert_admitted
from crew_journal.consumers.host.faults import Fault, FoldingStopped, describe, fault_of
from crew_journal.consumers.host.prepare import Parked, Prepared
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.host.transaction import ProjectionTransaction, transaction, write_checkpoints
from crew_journal.consumers.projection import SHARED_POSTINGS, SHARED_TURNS, Batch, Projection
from crew_journal.schemas.events.envelope import EntryRecorded
from crew_journal.schemas.ports import CommittedBatch
from crew_journal.schemas.views import ADMISSION_PROJECTION, FULLTEXT_PROJECTION, TURNS_PROJECTION

Park = Callable[[Parked], Awaitable[None]]
_REASON_CHARS: Final = 1_000
"""What ``EventParked.reason`` holds."""

_log = structlog.get_logger(__name__)


def commit(
    con: duckdb.DuckDBPyConnection,
    projections: Sequence[Projection],
    batch: Batch,
    admitted: Sequence[EntryRecorded] | None,
) -> None:
    """Fold ``batch`` into ``projections`` in one transaction, checkpoints included; on the writer thread.

    Args:
        con: The writer's connection.
        projections: Who folds; all of them at the batch's start.
        batch: What is folded.
        admitted: New identities; None if admission is not part of this commit.
    """
    names = [projection.name for projection in projections]
    with transaction(con):
        if admitted is not None:
            insert_admitted(con, admitted)
            names.append(ADMISSION_PROJECTION)
        if batch.events:
            for projection in projections:
                projection.apply(batch, ProjectionTransaction(con, projection))
        write_checkpoints(con, names, batch.last_seq)


class Folder:
    """Commits batches and keeps account of who is where; used by the host under its lock."""

    def __init__(self, store: ViewStore, park: Park, *, replays: bool = False) -> None:
        """A folder of one store.

        Args:
            store: Where to.
            park: Hands one message to the dead letters.
            replays: Whether everything was folded before elsewhere (rebuild, verify): a parking is no news then.
        """
        self._store = store
        self._park = park
        self._told = _log.debug if replays else _log.warning
        self.suspended: dict[str, str] = {}
        self.parked: dict[str, int] = {}

    async def park(self, parked: Parked) -> None:
        """Hand one message to the dead letters; only then may the checkpoint pass it.

        Raises:
            FoldingStopped: If they cannot be reached.
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
            prepared: Parkings and messages of the batch.
            batch: Its events.
            members: Projections at or beyond the batch's start (those beyond crashed during a retry alone).

        Raises:
            FoldingStopped: For the environment's fault; some members may have committed, redelivery is harmless.
        """
        for parked in prepared.parked:
            await self.park(parked)
        start = batch.first_seq - 1
        level = [p for p in members if self._at(p) <= start]
        ahead = [p for p in members if self._at(p) > start]
        try:
            if not ahead:
                await self._commit(level, batch, batch.entries)
                return
        except Exception as error:
            if fault_of(error) is Fault.ENVIRONMENT:
                raise _stopped(error, batch) from error
        for projection in members:
            await self.fold_alone(projection, beyond(batch, self._at(projection)), prepared.messages)
        try:
            await self._commit([], batch, batch.entries)
        except Exception as error:
            raise _stopped(error, batch) from error

    async def fold_alone(
        self, projection: Projection, batch: Batch, messages: Mapping[int, RawMessage], *, quiet: bool = False
    ) -> None:
        """Fold a batch into one projection in transactions of its own; halves it until the poison is alone.

        Args:
            projection: Who folds.
            batch: What is folded; begins right behind its checkpoint.
            messages: Sequence → message, for parking.
            quiet: Whether this is catching up: caches are not extended.

        Raises:
            FoldingStopped: For the environment's fault.
        """
        if projection.name in self.suspended or batch.last_seq < batch.first_seq:
            return
        try:
            await self._commit([projection], batch, None, quiet=quiet)
            return
        except Exception as error:
            fault = fault_of(error)
            if fault is Fault.ENVIRONMENT:
                raise _stopped(error, batch) from error
            if fault is Fault.PROJECTION or not batch.events:
                self.suspended[projection.name] = f"{type(error).__name__} at {batch.first_seq}..{batch.last_seq}"
                _log.exception("projection_left_the_group", projection=projection.name, seq=batch.first_seq)
                return
            reason = describe(error)[:_REASON_CHARS]
        if len(batch.events) == 1:
            poison = messages[batch.events[0].seq]
            await self.park(Parked(projection.name, projection.version, poison, reason))
            passed = Batch((), batch.first_seq, batch.last_seq)
            await self.fold_alone(projection, passed, messages, quiet=quiet)
            return
        for half in halves(batch):
            await self.fold_alone(projection, half, messages, quiet=quiet)

    async def _commit(
        self,
        projections: Sequence[Projection],
        batch: Batch,
        admitted: Sequence[EntryRecorded] | None,
        *,
        quiet: bool = False,
    ) -> None:
        await self._store.write(lambda con: commit(con, projections, batch, admitted))
        names = [projection.name for projection in projections]
        moved = dict.fromkeys([*names, ADMISSION_PROJECTION] if admitted is not None else names, batch.last_seq)
        self._store.announce(moved, None if quiet else committed(batch, frozenset(moved)))

    def _at(self, projection: Projection) -> int:
        return self._store.view_seq(projection.name)


def committed(batch: Batch, names: frozenset[str]) -> CommittedBatch:
    """What listeners learn of a commit."""
    postings = batch.shared.get(SHARED_POSTINGS) if FULLTEXT_PROJECTION in names else None
    turns = batch.shared.get(SHARED_TURNS) if TURNS_PROJECTION in names else None
    return CommittedBatch(
        batch.first_seq,
        batch.last_seq,
        batch.entries,
        batch.vectors,
        postings,
        names,
        batch.links,
        batch.token_bits,
        turns,
    )


def beyond(batch: Batch, seq: int) -> Batch:
    """The part of ``batch`` behind ``seq``."""
    if seq < batch.first_seq:
        return batch
    return Batch([event for event in batch.events if event.seq > seq], seq + 1, batch.last_seq)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The batch cut between two of its events."""
    middle = len(batch.events) // 2
    left, right = batch.events[:middle], batch.events[middle:]
    return Batch(left, batch.first_seq, left[-1].seq), Batch(right, left[-1].seq + 1, batch.last_seq)


def _stopped(error: Exception, batch: Batch) -> FoldingStopped:
    if isinstance(error, FoldingStopped):
        return error
    return FoldingStopped(
        f"the batch {batch.first_seq}..{batch.last_seq} cannot be committed: {describe(error)}",
        hint="free disk or memory; folding goes on by itself",
    )
