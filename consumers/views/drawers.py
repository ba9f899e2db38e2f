"""``drawers``, their uses and upkeep, ``drawer_centroids`` and ``palace_identities``: the palace.

Invariant: of two filings of one drawer the first counts until the drawer is deleted, pruned, merged or superseded; an event
about a drawer that does not exist changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from ...schemas.entry import ActorType
from ...schemas.events.drawers import (
    MOST_IMPORTANCE,
    MOST_REJECTED,
    CentroidComputed,
    DrawerAnswerRejected,
    DrawerClassified,
    DrawerDeleted,
    DrawerFiled,
    DrawerLinked,
    DrawerMerged,
    DrawerPruned,
    DrawerReinforced,
    DrawerRestored,
    DrawerState,
    DrawerSuperseded,
    DrawerUpdated,
    PalaceIdentitySet,
)
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.memory import MemoryReferenced, MemorySearched
from ...schemas.events.sweeps import SweepTicked
from ...schemas.ids import hash64, name_key
from ...schemas.rules import text
from ...schemas.rules.palace.upkeep import decayed
from ...schemas.rules.text import Analyzer
from ...schemas.views.drawers import (
    DRAWER_CENTROIDS,
    DRAWER_UPKEEP,
    DRAWER_USES,
    DRAWERS,
    DRAWERS_PROJECTION,
    PALACE_IDENTITIES,
    DrawerRow,
    DrawerUseRow,
    PalaceIdentityRow,
)
from ...schemas.views.table import Tables
from ..folds.chunk_terms import chunk_terms
from ..folds.drawer_upkeep import begin_again, centroid, decay, decays_of, keep_up, rejected_before
from ..folds.history import succeed
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

MOST_READS: Final = 2**53
"""Where counting stops; no event may overflow the column."""
IMPORTANCE_DIGITS: Final = 6
"""Decimal places of an importance that was reinforced."""


class DrawersProjection:
    """Folds ``drawer.*``, and what says that drawers were read."""

    name: ClassVar = DRAWERS_PROJECTION
    version: ClassVar = 5 + text.VERSION
    tables: ClassVar[Tables] = (DRAWERS, DRAWER_USES, DRAWER_UPKEEP, DRAWER_CENTROIDS, PALACE_IDENTITIES)

    def __init__(self) -> None:
        import Stemmer

        self._analyzer = Analyzer(Stemmer.Stemmer)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold each event in stream order; new drawers are written together."""
        new: dict[int, DrawerRow] = {}
        for event in batch.control(DrawerFiled.ENTRY_TYPE, *_FOLDS):
            if event.entry.entry_type == DrawerFiled.ENTRY_TYPE:
                row = self._row(event)
                if row.key not in new and not (former := _rows(tx, event, row.drawer_id)):
                    new[row.key] = row
                elif row.key not in new and not any(drawer.until_seq is None and _counts(drawer) for drawer in former):
                    succeed(tx, DRAWERS, [row])
                    begin_again(event, tx, row.drawer_id, filed=True)
                continue
            tx.add(DRAWERS, list(new.values()))
            new.clear()
            _FOLDS[event.entry.entry_type](event, tx)
        tx.add(DRAWERS, list(new.values()))

    def _row(self, event: EntryRecorded) -> DrawerRow:
        filed = payload_of(event, DrawerFiled)
        terms, counts = chunk_terms(self._analyzer, filed.content)
        return DrawerRow(
            name_key((event.workspace_id, filed.drawer_id)),
            event.workspace_id,
            filed.drawer_id,
            event.entry.id,
            filed.wing,
            filed.room,
            filed.hall,
            filed.content,
            filed.memory_type,
            filed.importance,
            filed.pipeline_tier.value,
            filed.state.value,
            summary="",
            superseded_by=None,
            cluster_id=None,
            added_by=filed.added_by,
            added_by_agent=filed.added_by_agent,
            source_file=filed.source_file,
            conversation=filed.conversation,
            filed_ms=event.published_ms if filed.filed_ms is None else filed.filed_ms,
            text_hash=hash64(filed.content),
            terms=terms,
            counts=counts,
            since_seq=event.seq,
            imported_from=filed.imported_from,
            author_type=event.entry.actor_type.value,
            author_name=event.entry.actor_id or "",
            author_crew=event.entry.crew_id,
        )


def _rows(tx: FoldTransaction, event: EntryRecorded, drawer_id: str) -> list[DrawerRow]:
    """All rows of a drawer, past ones included."""
    rows = tx.find(DRAWERS, [name_key((event.workspace_id, drawer_id))])
    return [row for row in rows if (row.workspace_id, row.drawer_id) == (event.workspace_id, drawer_id)]


def _open(tx: FoldTransaction, event: EntryRecorded, drawer_id: str) -> DrawerRow | None:
    return next((row for row in _rows(tx, event, drawer_id) if row.until_seq is None), None)


def _counts(row: DrawerRow) -> bool:
    return row.superseded_by is None and row.state != DrawerState.MERGED


def _change(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, **values: Any) -> None:
    row = _open(tx, event, drawer_id)
    if row is not None:
        changed = row._replace(**values)
        if changed != row:
            succeed(tx, DRAWERS, [changed._replace(since_seq=event.seq)])


def _classified(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerClassified)
    row = _open(tx, event, payload.drawer_id)
    if row is None or row.state == DrawerState.MERGED:  # an answer that came late
        return
    room = {} if payload.room is None else {"room": payload.room}
    begin_again(event, tx, payload.drawer_id)
    _change(
        event,
        tx,
        payload.drawer_id,
        memory_type=payload.memory_type,
        importance=payload.importance,
        pipeline_tier=payload.pipeline_tier.value,
        state=payload.state.value,
        summary=payload.summary,
        **room,
    )


def _updated(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerUpdated)
    _change(event, tx, payload.drawer_id, **payload.model_dump(exclude={"drawer_id"}, exclude_none=True))
    if payload.importance is not None:
        begin_again(event, tx, payload.drawer_id)


def _linked(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerLinked)
    if _open(tx, event, payload.drawer_id) is not None:
        counts = {"entity_count": payload.entity_count, "triple_count": payload.triple_count}
        keep_up(event, tx, payload.drawer_id, linked=True, **counts)


def _reinforced(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerReinforced)
    for drawer_id in dict.fromkeys(payload.drawer_ids):
        row = _open(tx, event, drawer_id)
        if row is not None and _counts(row):
            now = decayed(row.importance, decays_of(event, tx, drawer_id))
            _change(
                event, tx, drawer_id, importance=round(min(now + payload.boost, MOST_IMPORTANCE), IMPORTANCE_DIGITS)
            )
            begin_again(event, tx, drawer_id)


def _answer_rejected(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerAnswerRejected)
    for drawer_id in dict.fromkeys(payload.drawer_ids):
        row = _open(tx, event, drawer_id)
        if row is None:
            continue
        rejected = min(rejected_before(event, tx, drawer_id) + payload.alone, MOST_REJECTED)
        keep_up(event, tx, drawer_id, asked_alone=True, rejected=rejected)
        if rejected == MOST_REJECTED and row.state == DrawerState.RAW:
            _change(event, tx, drawer_id, state=DrawerState.FAILED.value)


def _merged(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerMerged)
    if payload.summary:
        _change(event, tx, payload.into, summary=payload.summary)
    for drawer_id in dict.fromkeys(payload.drawer_ids):
        if drawer_id != payload.into and _may_replace(event, tx, drawer_id, payload.into):
            _change(event, tx, drawer_id, cluster_id=payload.into, state=DrawerState.MERGED.value)


def _superseded(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, DrawerSuperseded)
    if payload.drawer_id != payload.superseded_by and _may_replace(event, tx, payload.drawer_id, payload.superseded_by):
        _change(event, tx, payload.drawer_id, superseded_by=payload.superseded_by, held_until_ms=payload.until_ms)


def _may_replace(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, by: str) -> bool:
    """Whether a drawer may replace another one: what an OWNER or ADMIN filed is replaced by what one of them filed.

    Otherwise an agent would remove a drawer of theirs by filing one that contradicts it.
    """
    row, other = _open(tx, event, drawer_id), _open(tx, event, by)
    of_operator = row is not None and row.author_type == ActorType.USER.value
    return not of_operator or (other is not None and other.author_type == ActorType.USER.value)


def _deleted(event: EntryRecorded, tx: FoldTransaction) -> None:
    _remove(event, tx, payload_of(event, DrawerDeleted).drawer_id)


def _pruned(event: EntryRecorded, tx: FoldTransaction) -> None:
    for drawer_id in dict.fromkeys(payload_of(event, DrawerPruned).drawer_ids):
        _remove(event, tx, drawer_id)


def _remove(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> None:
    row = _open(tx, event, drawer_id)
    if row is not None:
        tx.delete(DRAWERS, key=row.key, workspace_id=row.workspace_id, drawer_id=row.drawer_id, until_seq=None)
        if row.since_seq < event.seq:
            tx.add(DRAWERS, [row._replace(until_seq=event.seq, removed_by=event.entry.actor_type.value)])


def _restored(event: EntryRecorded, tx: FoldTransaction) -> None:
    drawer_id = payload_of(event, DrawerRestored).drawer_id
    rows = _rows(tx, event, drawer_id)
    if not rows:
        return
    last = max(rows, key=lambda row: (row.until_seq is None, row.until_seq or 0))
    failed = last.state == DrawerState.FAILED
    if last.until_seq is None and _counts(last) and not failed:
        return
    states = {DrawerState.MERGED.value: DrawerState.PROCESSED.value, DrawerState.FAILED.value: DrawerState.RAW.value}
    reverted = last._replace(
        state=states.get(last.state, last.state),
        superseded_by=None,
        cluster_id=None,
        held_until_ms=None,
        since_seq=event.seq,
        until_seq=None,
        removed_by="",
    )
    succeed(tx, DRAWERS, [reverted])
    begin_again(event, tx, drawer_id)
    if failed:
        keep_up(event, tx, drawer_id, rejected=0)


def _identity(event: EntryRecorded, tx: FoldTransaction) -> None:
    row = PalaceIdentityRow(
        event.workspace_id,
        payload_of(event, PalaceIdentitySet).content,
        event.published_ms,
        event.seq,
        author_type=event.entry.actor_type.value,
        author_name=event.entry.actor_id or "",
        author_agent=event.entry.agent_id or "",
    )
    succeed(tx, PALACE_IDENTITIES, [row])


def _referenced(event: EntryRecorded, tx: FoldTransaction) -> None:
    counts: Counter[str] = Counter()
    for reference in payload_of(event, MemoryReferenced).entries:
        counts[reference.entry_id] += reference.count
    _count_reads(event, counts, tx)


def _searched(event: EntryRecorded, tx: FoldTransaction) -> None:
    if event.entry.payload.get("rendered"):
        _count_reads(event, Counter(payload_of(event, MemorySearched).rendered or ()), tx)


def _count_reads(event: EntryRecorded, counts: Mapping[str, int], tx: FoldTransaction) -> None:
    rows = []
    for entry_id, count in counts.items():
        identity = {"workspace_id": event.workspace_id, "entry_id": entry_id}
        if tx.get(DRAWERS, **identity, until_seq=None):
            known = tx.get(DRAWER_USES, **identity)
            before = known[0] if known else DrawerUseRow(event.workspace_id, entry_id, 0, event.ts_ms)
            total = min(before.access_count + count, MOST_READS)
            rows.append(before._replace(access_count=total, last_accessed_ms=max(before.last_accessed_ms, event.ts_ms)))
    if rows:
        tx.replace(DRAWER_USES, rows)


_FOLDS: Final[dict[str, Callable[[EntryRecorded, FoldTransaction], None]]] = {
    DrawerClassified.ENTRY_TYPE: _classified,
    DrawerUpdated.ENTRY_TYPE: _updated,
    DrawerLinked.ENTRY_TYPE: _linked,
    DrawerReinforced.ENTRY_TYPE: _reinforced,
    DrawerAnswerRejected.ENTRY_TYPE: _answer_rejected,
    CentroidComputed.ENTRY_TYPE: centroid,
    SweepTicked.ENTRY_TYPE: decay,
    DrawerMerged.ENTRY_TYPE: _merged,
    DrawerSuperseded.ENTRY_TYPE: _superseded,
    DrawerPruned.ENTRY_TYPE: _pruned,
    DrawerDeleted.ENTRY_TYPE: _deleted,
    DrawerRestored.ENTRY_TYPE: _restored,
    PalaceIdentitySet.ENTRY_TYPE: _identity,
    MemoryReferenced.ENTRY_TYPE: _referenced,
    MemorySearched.ENTRY_TYPE: _searched,
}
PROJECTION = DrawersProjection
