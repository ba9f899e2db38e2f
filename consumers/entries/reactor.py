"""Archives old entries of noisy types when a compaction sweep is due (contract §11).

The event names sequences, because the archived entries must not depend on when a fold runs. Invariants: a
``memory.compacted`` names entries of one crew, UTC day and type; its id is derived from the tick and its first
sequence, so that a repeated sweep archives once; only the folds of these events remove rows, in the same transaction in
which they add the archive's rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.entry import Priority, Severity
from ...schemas.core.ids import derived_id
from ...schemas.core.sequence_set import SequenceSet, format_ranges, ranges_of
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS, format_ms
from ...schemas.entries.events import PART_ENTRIES, MemoryCompacted
from ...schemas.entries.rules import AGE_DAYS, LEAST_BUCKET, PAYLOAD_CHARS, RUN_ENTRIES, SUMMARY_CHARS, TYPES
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION, FULLTEXT_PROJECTION
from ...schemas.relations.tables import RELATIONS_PROJECTION
from ...schemas.standing.tables import LIVE_PRIORITIES, STANDINGS_PROJECTION
from ...schemas.sweeps.rules import COMPACTION, Sweep
from ..reacting.pull_reactor import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick

_SECOND_MS: Final = 1_000
_DATE_CHARS: Final = 10
"""``YYYY-MM-DD`` of a formatted time."""
_OLD: Final = f"""FROM {ENTRIES} AS e
    LEFT JOIN (SELECT entry_id, priority AS live FROM {LIVE_PRIORITIES} WHERE workspace_id = $workspace AND {PRESENT}) AS p
        ON p.entry_id = e.id
    WHERE workspace_id = $workspace AND seq < $seq AND ts_ms < $cutoff
        AND entry_type IN ({", ".join(f"'{name}'" for name in TYPES)})
        AND '{Priority.PERMANENT.value}' NOT IN (e.priority, coalesce(p.live, e.priority))"""
"""An entry that was permanent when it was emitted stays, even if its live priority was lowered later (contract §11, §1)."""
_BUCKETS: Final = f"""SELECT crew_id, floor(ts_ms / {DAY_MS})::BIGINT AS day, entry_type, count(*) {_OLD}
    GROUP BY ALL HAVING count(*) >= {LEAST_BUCKET} ORDER BY day, crew_id NULLS FIRST, entry_type"""
_MEMBERS: Final = f"""SELECT crew_id, floor(ts_ms / {DAY_MS})::BIGINT AS day, entry_type, seq, ts_ms, size,
        strlen(summary) - strlen(left(summary, {SUMMARY_CHARS})) + strlen(payload) - strlen(left(payload, {PAYLOAD_CHARS}))
    {_OLD} AND ts_ms >= $first_day::BIGINT * {DAY_MS} AND ts_ms < ($last_day::BIGINT + 1) * {DAY_MS} ORDER BY seq"""
_READ_ENTRIES: Final = 10_000
"""Minimum number of entries per read: buckets are read together, because each read scans all entries."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Entries of a crew (None: without one), a UTC day (days since the epoch) and a type."""

    crew_id: str | None
    day: int
    entry_type: str
    count: int

    @property
    def date(self) -> str:
        """The day, ``YYYY-MM-DD``."""
        return format_ms(self.day * DAY_MS)[:_DATE_CHARS]


class CompactReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the compaction sweep."""

    name: ClassVar[str] = "compact"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = COMPACTION
    needs: ClassVar[tuple[str, ...]] = (
        ENTRIES_PROJECTION,
        FULLTEXT_PROJECTION,
        RELATIONS_PROJECTION,
        STANDINGS_PROJECTION,
    )

    async def work(self, tick: Tick) -> Swept:
        """Publish an event for each bucket, the oldest days first, and wait until all are folded."""
        cutoff_ms = tick.due_ms - AGE_DAYS * DAY_MS
        old = {"workspace": tick.workspace_id, "seq": tick.seq, "cutoff": cutoff_ms}
        buckets = [Bucket(*row) for row in await asyncio.to_thread(self._views.rows, _BUCKETS, old)]
        archived = created = freed = 0
        for group in together(buckets):
            if archived >= RUN_ENTRIES:
                break
            of_group = {**old, "first_day": group[0].day, "last_day": group[-1].day}
            members: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
            for row in await asyncio.to_thread(self._views.rows, _MEMBERS, of_group):
                members.setdefault(row[:3], []).append(row[3:])
            for bucket in group:
                entries = members.get((bucket.crew_id, bucket.day, bucket.entry_type), [])[: RUN_ENTRIES - archived]
                for compaction in compacted(bucket, entries, cutoff_ms):
                    await self.publish(self._fact(compaction, bucket, tick))
                    archived, freed = archived + compaction.count, freed + compaction.bytes_freed
                created += bool(entries)
        await self.caught_up()
        counts = {
            "entries_archived": archived,
            "entries_left": sum(bucket.count for bucket in buckets) - archived,
            "buckets_created": created,
            "bytes_freed": freed,
            "cutoff_ms": cutoff_ms,
        }
        return Swept(counts, severity=Severity.NOTICE)

    def _fact(self, compaction: MemoryCompacted, bucket: Bucket, tick: Tick) -> OutgoingMessage:
        cause = f"{tick.workspace_id}/{tick.entry_id}"
        first_seq = compaction.entries.ranges[0][0]
        crew = f"of crew {bucket.crew_id}" if bucket.crew_id is not None else "without a crew"
        return encode_control(
            tick.workspace_id,
            compaction,
            fact_id=derived_id(self.name, self.version, cause, str(first_seq)),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=f"archived {compaction.count} entries {bucket.entry_type} {crew}, {bucket.date}",
            ts_ms=(bucket.day + 1) * DAY_MS - _SECOND_MS,
            crew_id=bucket.crew_id,
        )


def together(buckets: Sequence[Bucket]) -> list[list[Bucket]]:
    """Groups of buckets that are read at once: whole days, of at least ``_READ_ENTRIES`` entries except the last group."""
    groups: list[list[Bucket]] = []
    entries = _READ_ENTRIES
    for bucket in buckets:
        if entries >= _READ_ENTRIES and (not groups or bucket.day != groups[-1][-1].day):
            groups.append([])
            entries = 0
        groups[-1].append(bucket)
        entries += bucket.count
    return groups


def compacted(bucket: Bucket, members: Sequence[tuple[Any, ...]], cutoff_ms: int) -> list[MemoryCompacted]:
    """The events of a bucket.

    Args:
        bucket: The bucket.
        members: Rows (sequence, ``ts`` in ms, bytes of the message, bytes that the archive does not keep), by sequence.
        cutoff_ms: All are older, milliseconds since the epoch.
    """
    parts = [members[start : start + PART_ENTRIES] for start in range(0, len(members), PART_ENTRIES)]
    compactions = []
    for part, rows in enumerate(parts, 1):
        seqs, times, sizes, cut = zip(*rows, strict=True)
        compactions.append(
            MemoryCompacted(
                part=part,
                parts=len(parts),
                crew_id=bucket.crew_id,
                bucket_date=bucket.date,
                entry_type=bucket.entry_type,
                count=len(rows),
                bytes_sum=sum(sizes),
                bytes_freed=sum(cut),
                first_ts=format_ms(min(times)),
                last_ts=format_ms(max(times)),
                cutoff=format_ms(cutoff_ms),
                entries=SequenceSet(sequences=format_ranges(ranges_of(seqs))),
            )
        )
    return compactions


REACTORS: Final = {"compact": CompactReactor.create}
