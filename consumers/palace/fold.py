"""``drawers``, their texts, uses and upkeep, ``drawer_centroids`` and ``palace_identities``: the palace.

Invariant: of two filings of one drawer the first counts until the drawer is deleted, pruned, merged or superseded; an event
about a drawer that does not exist changes nothing.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import hash64, name_key
from ...schemas.core.payload import ControlPayload
from ...schemas.core.table import Tables
from ...schemas.core.texts import WORKSPACE_OWNER, TextRow
from ...schemas.core.timestamps import DAY_MS, parse_ts, to_ms
from ...schemas.palace.events import (
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
from ...schemas.palace.rules import ACTIVE_MS, DECAY_AGE_DAYS, DECAY_FLOOR, DECAY_UNREAD_DAYS, DIARY, decayed
from ...schemas.palace.tables import (
    ACTIVE_DRAWERS,
    DRAWER_CENTROIDS,
    DRAWER_TEXTS,
    DRAWER_UPKEEP,
    DRAWER_USES,
    DRAWERS,
    DRAWERS_PROJECTION,
    IMPORTANCE_NOW,
    LIVE_DRAWER,
    PALACE_IDENTITIES,
    UPKEEP,
    DrawerCentroidRow,
    DrawerRow,
    DrawerUpkeepRow,
    DrawerUseRow,
    PalaceIdentityRow,
)
from ...schemas.recall.events import MemoryReferenced, MemorySearched
from ...schemas.standing.events import StatementCorrected
from ...schemas.sweeps.events import SweepTicked
from ...schemas.sweeps.rules import DECAY
from ...schemas.text import analyzer as text
from ...schemas.text.analyzer import Analyzer
from ..folds.payloads import payload_of, succeed
from ..folds.words import chunk_terms
from ..projection import Batch, Folds, FoldTransaction

# Folds the upkeep of drawers, which is not in their rows: decays, unusable answers, links, centroids.


_FILED_BY: Final = f"""SELECT entry_id, drawer_id FROM {DRAWERS}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""
_FADING: Final = f"""SELECT drawer.key, drawer.drawer_id FROM {DRAWERS} AS drawer {UPKEEP}
    LEFT JOIN {DRAWER_USES} AS uses ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.PROCESSED}' AND memory_type <> '{DIARY}'
        AND filed_ms < ? AND coalesce(last_accessed_ms, 0) < ? AND coalesce(decayed_day, 0) < ?
        AND {IMPORTANCE_NOW} > {DECAY_FLOOR}
    ORDER BY drawer.key, drawer.drawer_id"""


def decay(event: EntryRecorded, tx: FoldTransaction) -> None:
    """Let the drawers of a workspace decay for the day of a sweep, unless the workspace was silent (contract, §5)."""
    payload = payload_of(event, SweepTicked)
    if payload.sweep != DECAY.name:
        return
    due_ms = to_ms(parse_ts(payload.due))
    day = due_ms // DAY_MS
    if not tx.rows(ACTIVE_DRAWERS, [event.workspace_id, due_ms - ACTIVE_MS]):
        return
    params = [event.workspace_id, due_ms - DECAY_AGE_DAYS * DAY_MS, due_ms - DECAY_UNREAD_DAYS * DAY_MS, day]
    fading = tx.rows(_FADING, params)
    former = {(row.workspace_id, row.drawer_id): row for row in _former(tx, [key for key, _ in fading])}
    rows = []
    for key, drawer_id in fading:
        before = former.get((event.workspace_id, drawer_id)) or DrawerUpkeepRow(key, event.workspace_id, drawer_id)
        rows.append(before._replace(decays=before.decays + 1, decayed_day=day))
    tx.replace(DRAWER_UPKEEP, rows, list(former.values()))


def keep_up(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, **values: Any) -> None:
    """Set columns of a drawer's upkeep."""
    before, former = _row(event, tx, drawer_id)
    tx.replace(DRAWER_UPKEEP, [before._replace(**values)], former)


def rejected_before(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> int:
    """Unusable answers about a drawer alone until now."""
    return _row(event, tx, drawer_id)[0].rejected


def decays_of(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> int:
    """Nights on which a drawer decayed since its importance was last set."""
    return _row(event, tx, drawer_id)[0].decays


def begin_again(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, *, filed: bool = False) -> None:
    """Forget the decays of a drawer, or, when it is filed again, all of its upkeep."""
    before, former = _row(event, tx, drawer_id)
    new = DrawerUpkeepRow(*before[:3]) if filed else before._replace(decays=0, decayed_day=0)
    if former and new != before:
        tx.replace(DRAWER_UPKEEP, [new], former)


def centroid(event: EntryRecorded, tx: FoldTransaction) -> None:
    """Set the centroid of a type."""
    payload = payload_of(event, CentroidComputed)
    vector = base64.b64decode(payload.vector)
    row = DrawerCentroidRow(
        event.workspace_id,
        payload.memory_type,
        payload.model,
        vector,
        payload.samples,
        payload.source_hash,
        event.published_ms,
    )
    tx.replace(DRAWER_CENTROIDS, [row])


def _row(event: EntryRecorded, tx: FoldTransaction, drawer_id: str) -> tuple[DrawerUpkeepRow, list[DrawerUpkeepRow]]:
    key = name_key((event.workspace_id, drawer_id))
    former = _former(tx, [key])
    identity = (event.workspace_id, drawer_id)
    row_ = next((row for row in former if (row.workspace_id, row.drawer_id) == identity), None)
    return row_ or DrawerUpkeepRow(key, *identity), former


def _former(tx: FoldTransaction, keys: list[int]) -> list[DrawerUpkeepRow]:
    return tx.find(DRAWER_UPKEEP, keys) if keys else []


MOST_READS: Final = 2**53
"""Where counting stops; no event may overflow the column."""
IMPORTANCE_DIGITS: Final = 6
"""Decimal places of an importance that was reinforced."""


def _rows(tx: FoldTransaction, event: EntryRecorded, drawer_id: str) -> list[DrawerRow]:
    """All rows of a drawer, past ones included."""
    found = tx.find(DRAWERS, [name_key((event.workspace_id, drawer_id))])
    return [row for row in found if (row.workspace_id, row.drawer_id) == (event.workspace_id, drawer_id)]


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
    said = payload_of(event, DrawerClassified)
    row = _open(tx, event, said.drawer_id)
    if row is None or row.state == DrawerState.MERGED:  # an answer that came late
        return
    room = {} if said.room is None else {"room": said.room}
    begin_again(event, tx, said.drawer_id)
    _change(
        event,
        tx,
        said.drawer_id,
        memory_type=said.memory_type,
        importance=said.importance,
        pipeline_tier=said.pipeline_tier.value,
        state=said.state.value,
        summary=said.summary,
        **room,
    )


def _updated(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerUpdated)
    _change(event, tx, said.drawer_id, **said.model_dump(exclude={"drawer_id"}, exclude_none=True))
    if said.importance is not None:
        begin_again(event, tx, said.drawer_id)


def _linked(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerLinked)
    if _open(tx, event, said.drawer_id) is not None:
        counts = {"entity_count": said.entity_count, "triple_count": said.triple_count}
        keep_up(event, tx, said.drawer_id, linked=True, **counts)


def _reinforced(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerReinforced)
    for drawer_id in dict.fromkeys(said.drawer_ids):
        row = _open(tx, event, drawer_id)
        if row is not None and _counts(row):
            now = decayed(row.importance, decays_of(event, tx, drawer_id))
            _change(event, tx, drawer_id, importance=round(min(now + said.boost, MOST_IMPORTANCE), IMPORTANCE_DIGITS))
            begin_again(event, tx, drawer_id)


def _answer_rejected(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerAnswerRejected)
    for drawer_id in dict.fromkeys(said.drawer_ids):
        row = _open(tx, event, drawer_id)
        if row is None:
            continue
        rejected = min(rejected_before(event, tx, drawer_id) + said.alone, MOST_REJECTED)
        keep_up(event, tx, drawer_id, asked_alone=True, rejected=rejected)
        if rejected == MOST_REJECTED and row.state == DrawerState.RAW:
            _change(event, tx, drawer_id, state=DrawerState.FAILED.value)


def _merged(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerMerged)
    if said.summary:
        _change(event, tx, said.into, summary=said.summary)
    for drawer_id in dict.fromkeys(said.drawer_ids):
        if drawer_id != said.into and _may_replace(event, tx, drawer_id, said.into):
            _change(event, tx, drawer_id, cluster_id=said.into, state=DrawerState.MERGED.value)


def _superseded(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, DrawerSuperseded)
    if said.drawer_id != said.superseded_by and _may_replace(event, tx, said.drawer_id, said.superseded_by):
        _change(event, tx, said.drawer_id, superseded_by=said.superseded_by, held_until_ms=said.until_ms)


def _corrected(event: EntryRecorded, tx: FoldTransaction) -> None:
    """Who may correct a drawer was decided before the event was recorded."""
    said = payload_of(event, StatementCorrected)
    filings = said.ids("filing")
    drawer_of = _filed_by(tx, event, [name for names in filings.items() for name in names if name is not None])
    retired = said.ids("drawer") | {
        drawer_of[name]: drawer_of.get(by or "") for name, by in filings.items() if name in drawer_of
    }
    for drawer_id, by in retired.items():
        _change(event, tx, drawer_id, superseded_by=by or event.entry.id, held_until_ms=event.published_ms)


def _filed_by(tx: FoldTransaction, event: EntryRecorded, entry_ids: Sequence[str]) -> dict[str, str]:
    """Entry → the drawer that it filed."""
    return dict(tx.rows(_FILED_BY, [event.workspace_id, list(entry_ids)])) if entry_ids else {}


def _may_replace(event: EntryRecorded, tx: FoldTransaction, drawer_id: str, by: str) -> bool:
    """Whether a drawer may stand for another one: what an OWNER or ADMIN filed is replaced by what one of them filed.

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
    for one in payload_of(event, MemoryReferenced).entries:
        counts[one.entry_id] += one.count
    _count_reads(event, counts, tx)


def _searched(event: EntryRecorded, tx: FoldTransaction) -> None:
    if event.entry.payload.get("rendered"):
        _count_reads(event, Counter(payload_of(event, MemorySearched).rendered or ()), tx)


def _count_reads(event: EntryRecorded, counts: Mapping[str, int], tx: FoldTransaction) -> None:
    rows = []
    for entry_id, count in counts.items():
        named = {"workspace_id": event.workspace_id, "entry_id": entry_id}
        if tx.get(DRAWERS, **named, until_seq=None):
            known = tx.get(DRAWER_USES, **named)
            before = known[0] if known else DrawerUseRow(event.workspace_id, entry_id, 0, event.ts_ms)
            total = min(before.access_count + count, MOST_READS)
            rows.append(before._replace(access_count=total, last_accessed_ms=max(before.last_accessed_ms, event.ts_ms)))
    if rows:
        tx.replace(DRAWER_USES, rows)


_FOLDS: Final[dict[type[ControlPayload], Callable[[EntryRecorded, FoldTransaction], None]]] = {
    DrawerClassified: _classified,
    DrawerUpdated: _updated,
    DrawerLinked: _linked,
    DrawerReinforced: _reinforced,
    DrawerAnswerRejected: _answer_rejected,
    CentroidComputed: centroid,
    SweepTicked: decay,
    DrawerMerged: _merged,
    DrawerSuperseded: _superseded,
    StatementCorrected: _corrected,
    DrawerPruned: _pruned,
    DrawerDeleted: _deleted,
    DrawerRestored: _restored,
    PalaceIdentitySet: _identity,
    MemoryReferenced: _referenced,
    MemorySearched: _searched,
}
_BY_TYPE: Final = {payload.ENTRY_TYPE: fold for payload, fold in _FOLDS.items()}


class DrawersProjection:
    """Folds ``drawer.*``, and what says that drawers were read."""

    name: ClassVar = DRAWERS_PROJECTION
    version: ClassVar = 8 + text.VERSION
    tables: ClassVar[Tables] = (DRAWERS, DRAWER_TEXTS, DRAWER_USES, DRAWER_UPKEEP, DRAWER_CENTROIDS, PALACE_IDENTITIES)
    folds: ClassVar[Folds] = (DrawerFiled, *_FOLDS)

    def __init__(self) -> None:
        import Stemmer

        self._analyzer = Analyzer(Stemmer.Stemmer)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold each event in stream order; new drawers are written together."""
        new: dict[int, DrawerRow] = {}
        events = batch.control(DrawerFiled, *_FOLDS)
        for event in events:
            if event.entry.entry_type == DrawerFiled.ENTRY_TYPE:
                row = self._row(event)
                if row.key not in new and not (former := _rows(tx, event, row.drawer_id)):
                    new[row.key] = row
                elif row.key not in new and not any(one.until_seq is None and _counts(one) for one in former):
                    succeed(tx, DRAWERS, [row])
                    begin_again(event, tx, row.drawer_id, filed=True)
                continue
            tx.add(DRAWERS, list(new.values()))
            new.clear()
            _BY_TYPE[event.entry.entry_type](event, tx)
        tx.add(DRAWERS, list(new.values()))
        self._renew_texts(
            {name_key((event.workspace_id, name)) for event in events for name in _named_in(event, tx)}, tx
        )

    def _renew_texts(self, keys: set[int], tx: FoldTransaction) -> None:
        """Make the texts of these drawers those of their rows."""
        if not keys:
            return
        live = {row.key: row for row in tx.find(DRAWERS, sorted(keys)) if row.until_seq is None and _counts(row)}
        former = {row.key: row for row in tx.find(DRAWER_TEXTS, sorted(keys))}
        for key in former.keys() - live.keys():
            tx.delete(DRAWER_TEXTS, key=key)
        texts = {key: self._text_row(row, former.get(key)) for key, row in live.items()}
        changed = [row for key, row in texts.items() if row != former.get(key)]
        tx.replace(DRAWER_TEXTS, changed, [former[row.key] for row in changed if row.key in former])

    def _text_row(self, row: DrawerRow, former: TextRow | None) -> TextRow:
        if former is not None and former.text == row.content:
            terms, counts = former.terms, former.counts
        else:
            terms, counts = chunk_terms(self._analyzer, row.content)
        return TextRow(
            row.key,
            row.workspace_id,
            WORKSPACE_OWNER,
            row.drawer_id,
            row.content,
            hash64(row.content),
            terms,
            counts,
            row.entry_id,
            row.filed_ms,
            row.since_seq,
            place=f"{row.wing}/{row.room}",
            last_line=row.content.count("\n") + 1,
            importance=row.importance,
        )

    @staticmethod
    def _row(event: EntryRecorded) -> DrawerRow:
        filed = payload_of(event, DrawerFiled)
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
            since_seq=event.seq,
            imported_from=filed.imported_from,
            author_type=event.entry.actor_type.value,
            author_name=event.entry.actor_id or "",
            author_crew=event.entry.crew_id,
        )


def _named_in(event: EntryRecorded, tx: FoldTransaction) -> Iterable[str]:
    """The drawers that an event is about."""
    payload = event.entry.payload
    if event.entry.entry_type.startswith("drawer."):
        yield from payload.get("drawer_ids", ())
        yield from (payload[name] for name in ("drawer_id", "into") if name in payload)
    elif event.entry.entry_type == StatementCorrected.ENTRY_TYPE:
        said = payload_of(event, StatementCorrected)
        yield from said.ids("drawer")
        yield from _filed_by(tx, event, list(said.ids("filing"))).values()


PROJECTION = DrawersProjection
