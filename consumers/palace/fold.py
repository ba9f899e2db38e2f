"""``drawers``, their texts, uses and upkeep, ``drawer_centroids`` and ``palace_identities``: the palace.

Invariant: of two filings of one drawer the first counts until the drawer is deleted, pruned, merged or superseded; an event
about a drawer that does not exist changes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
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
from ..folds.payloads import Current, payload_of, succeed
from ..folds.words import chunk_terms, text_analyzer
from ..projection import Batch, Folds, FoldTransaction

_FADING: Final = f"""SELECT drawer.key, drawer.drawer_id FROM {DRAWERS} AS drawer {UPKEEP}
    LEFT JOIN {DRAWER_USES} AS uses ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id
    WHERE drawer.workspace_id = ? AND {LIVE_DRAWER} AND state = '{DrawerState.PROCESSED}' AND memory_type <> '{DIARY}'
        AND filed_ms < ? AND coalesce(last_accessed_ms, 0) < ? AND coalesce(decayed_day, 0) < ?
        AND {IMPORTANCE_NOW} > {DECAY_FLOOR}
    ORDER BY drawer.key, drawer.drawer_id"""


_FILERS: Final = f"""SELECT DISTINCT workspace_id, entry_id, drawer_id FROM {DRAWERS}
    WHERE entry_id IN (SELECT unnest(?::VARCHAR[]))"""
_USES: Final = f"SELECT {DRAWER_USES.names} FROM {DRAWER_USES} WHERE entry_id IN (SELECT unnest(?::VARCHAR[]))"

MOST_READS: Final = 2**53
"""Where counting stops; no event may overflow the column."""
IMPORTANCE_DIGITS: Final = 6
"""Decimal places of an importance that was reinforced."""

_Name = tuple[str, str]
"""A workspace, and a drawer or an entry in it."""


def _decay(event: EntryRecorded, payload: SweepTicked, tx: FoldTransaction) -> None:
    """Let the drawers of a workspace decay for the day of a sweep, unless the workspace was silent (contract, §5)."""
    if payload.sweep != DECAY.name:
        return
    due_ms = to_ms(parse_ts(payload.due))
    day = due_ms // DAY_MS
    if not tx.rows(ACTIVE_DRAWERS, [event.workspace_id, due_ms - ACTIVE_MS]):
        return
    params = [event.workspace_id, due_ms - DECAY_AGE_DAYS * DAY_MS, due_ms - DECAY_UNREAD_DAYS * DAY_MS, day]
    upkeep = _Upkeep(tx)
    fading = tx.rows(_FADING, params)
    upkeep.read(key for key, _ in fading)
    for _, drawer_id in fading:
        name = event.workspace_id, drawer_id
        upkeep.put(name, decays=upkeep.of(name).decays + 1, decayed_day=day)
    upkeep.write()


def _centroid(event: EntryRecorded, payload: CentroidComputed, tx: FoldTransaction) -> None:
    row = DrawerCentroidRow(
        event.workspace_id,
        payload.memory_type,
        payload.model,
        base64.b64decode(payload.vector),
        payload.samples,
        payload.source_hash,
        event.published_ms,
    )
    tx.replace(DRAWER_CENTROIDS, [row])


def _identity(event: EntryRecorded, payload: PalaceIdentitySet, tx: FoldTransaction) -> None:
    row = PalaceIdentityRow(
        event.workspace_id,
        payload.content,
        event.published_ms,
        event.seq,
        author_type=event.entry.actor_type.value,
        author_name=event.entry.actor_id or "",
        author_agent=event.entry.agent_id or "",
    )
    succeed(tx, PALACE_IDENTITIES, [row])


def _counts(row: DrawerRow) -> bool:
    return row.superseded_by is None and row.state != DrawerState.MERGED


class _Upkeep:
    """The upkeep of the drawers that a batch concerns."""

    def __init__(self, tx: FoldTransaction) -> None:
        self._tx = tx
        self._former: dict[_Name, DrawerUpkeepRow] = {}
        self._changed: dict[_Name, DrawerUpkeepRow] = {}

    def read(self, keys: Iterable[int]) -> None:
        """Read the rows of drawers."""
        if wanted := sorted(keys):
            self._former |= {(row.workspace_id, row.drawer_id): row for row in self._tx.find(DRAWER_UPKEEP, wanted)}

    def of(self, name: _Name) -> DrawerUpkeepRow:
        """The upkeep of a drawer."""
        return self._changed.get(name) or self._former.get(name) or DrawerUpkeepRow(name_key(name), *name)

    def put(self, name: _Name, **values: Any) -> None:
        """Set columns of a drawer's upkeep."""
        self._changed[name] = self.of(name)._replace(**values)

    def begin_again(self, name: _Name) -> None:
        """Forget the decays of a drawer."""
        if name in self._changed or name in self._former:
            self.put(name, decays=0, decayed_day=0)

    def forget(self, name: _Name) -> None:
        """Forget the whole upkeep of a drawer that is filed again."""
        if name in self._changed or name in self._former:
            self._changed[name] = DrawerUpkeepRow(name_key(name), *name)

    def write(self) -> None:
        """Write what changed."""
        changed = [row for name, row in self._changed.items() if row != self._former.get(name)]
        keys = {row.key for row in changed}
        self._tx.replace(DRAWER_UPKEEP, changed, [row for row in self._former.values() if row.key in keys])


class _Drawers:
    """The drawers that some events of a batch concern: read once, changed in stream order, written once."""

    def __init__(self, events: Sequence[tuple[EntryRecorded, ControlPayload]], tx: FoldTransaction) -> None:
        self._tx = tx
        drawers = {(event.workspace_id, drawer_id) for event, said in events for drawer_id in _drawers_in(said)}
        self._named_entries = sorted({entry_id for _, said in events for entry_id in _entries_in(said)})
        self._filed_by: dict[_Name, str] = {}  # entry → the drawer that it filed
        if self._named_entries:
            for workspace_id, entry_id, drawer_id in tx.rows(_FILERS, [self._named_entries]):
                self._filed_by[workspace_id, entry_id] = drawer_id
                drawers.add((workspace_id, drawer_id))
        self._rows = Current(tx, DRAWERS, map(name_key, drawers))
        self._upkeep = _Upkeep(tx)
        self._upkeep.read(map(name_key, drawers))
        self._reads: dict[_Name, tuple[int, int]] = {}  # entry → how often it was read, and when last

    def write(self) -> None:
        """Write what changed, and the texts of the drawers that did."""
        self._rows.write()
        self._upkeep.write()
        if self._reads:
            known = {row[:2]: row for row in map(DrawerUseRow._make, self._tx.rows(_USES, [self._named_entries]))}
            used = [
                DrawerUseRow(*name, count, read_ms)
                if (before := known.get(name)) is None
                else before._replace(
                    access_count=min(before.access_count + count, MOST_READS),
                    last_accessed_ms=max(before.last_accessed_ms, read_ms),
                )
                for name, (count, read_ms) in self._reads.items()
            ]
            self._tx.replace(DRAWER_USES, used)
        self._renew_texts()

    def _renew_texts(self) -> None:
        names = list(self._rows.changed)
        former = (
            {row.key: row for row in self._tx.find(DRAWER_TEXTS, sorted({name[0] for name in names}))} if names else {}
        )
        live = [row for name in names if (row := self._rows.present.get(name)) is not None and _counts(row)]
        for key in former.keys() - {row.key for row in live}:
            self._tx.delete(DRAWER_TEXTS, key=key)
        texts = [_text_row(row, former.get(row.key)) for row in sorted(live, key=attrgetter("since_seq"))]
        changed = [row for row in texts if row != former.get(row.key)]
        self._tx.replace(DRAWER_TEXTS, changed, [former[row.key] for row in changed if row.key in former])

    def _current(self, event: EntryRecorded, drawer_id: str) -> DrawerRow | None:
        return self._rows.present.get(_row_name(event, drawer_id))

    def _change(self, event: EntryRecorded, drawer_id: str, **values: Any) -> None:
        row = self._current(event, drawer_id)
        if row is not None and (changed := row._replace(**values)) != row:
            self._rows.put(changed._replace(since_seq=event.seq))

    def file(self, event: EntryRecorded, said: DrawerFiled) -> None:
        """Add a drawer, unless there is one."""
        row = self._current(event, said.drawer_id)
        self._filed_by.setdefault((event.workspace_id, event.entry.id), said.drawer_id)
        if row is None or not _counts(row):
            self._rows.put(_drawer_row(event, said))
            self._upkeep.forget((event.workspace_id, said.drawer_id))

    def classify(self, event: EntryRecorded, said: DrawerClassified) -> None:
        """Take in the answer of a model, unless it came late."""
        row = self._current(event, said.drawer_id)
        if row is not None and row.state != DrawerState.MERGED:
            self._upkeep.begin_again((event.workspace_id, said.drawer_id))
            self._change(
                event,
                said.drawer_id,
                memory_type=said.memory_type,
                importance=said.importance,
                pipeline_tier=said.pipeline_tier.value,
                state=said.state.value,
                summary=said.summary,
                room=row.room if said.room is None else said.room,
            )

    def update(self, event: EntryRecorded, said: DrawerUpdated) -> None:
        """Set what a person set."""
        self._change(event, said.drawer_id, **said.model_dump(exclude={"drawer_id"}, exclude_none=True))
        if said.importance is not None:
            self._upkeep.begin_again((event.workspace_id, said.drawer_id))

    def link(self, event: EntryRecorded, said: DrawerLinked) -> None:
        """Note how many entities and facts a drawer named."""
        if self._current(event, said.drawer_id) is not None:
            counts = {"entity_count": said.entity_count, "triple_count": said.triple_count}
            self._upkeep.put((event.workspace_id, said.drawer_id), linked=True, **counts)

    def reinforce(self, event: EntryRecorded, said: DrawerReinforced) -> None:
        """Raise the importance of drawers that resemble a new one."""
        for drawer_id in dict.fromkeys(said.drawer_ids):
            row = self._current(event, drawer_id)
            if row is not None and _counts(row):
                now = decayed(row.importance, self._upkeep.of((event.workspace_id, drawer_id)).decays)
                importance = round(min(now + said.boost, MOST_IMPORTANCE), IMPORTANCE_DIGITS)
                self._change(event, drawer_id, importance=importance)
                self._upkeep.begin_again((event.workspace_id, drawer_id))

    def reject_answer(self, event: EntryRecorded, said: DrawerAnswerRejected) -> None:
        """Count unusable answers; a drawer alone with too many of them has failed."""
        for drawer_id in dict.fromkeys(said.drawer_ids):
            name = event.workspace_id, drawer_id
            row = self._current(event, drawer_id)
            if row is not None:
                rejected = min(self._upkeep.of(name).rejected + said.alone, MOST_REJECTED)
                self._upkeep.put(name, asked_alone=True, rejected=rejected)
                if rejected == MOST_REJECTED and row.state == DrawerState.RAW:
                    self._change(event, drawer_id, state=DrawerState.FAILED.value)

    def merge(self, event: EntryRecorded, said: DrawerMerged) -> None:
        """Let one drawer represent others."""
        if said.summary:
            self._change(event, said.into, summary=said.summary)
        for drawer_id in dict.fromkeys(said.drawer_ids):
            if drawer_id != said.into and self._may_replace(event, drawer_id, said.into):
                self._change(event, drawer_id, cluster_id=said.into, state=DrawerState.MERGED.value)

    def supersede(self, event: EntryRecorded, said: DrawerSuperseded) -> None:
        """Let a newer drawer stand for one."""
        if said.drawer_id != said.superseded_by and self._may_replace(event, said.drawer_id, said.superseded_by):
            self._change(event, said.drawer_id, superseded_by=said.superseded_by, held_until_ms=said.until_ms)

    def _may_replace(self, event: EntryRecorded, drawer_id: str, by: str) -> bool:
        """Whether a drawer may stand for another one: what an OWNER or ADMIN filed is replaced by what one of them filed.

        Otherwise an agent would remove a drawer of theirs by filing one that contradicts it.
        """
        row, other = self._current(event, drawer_id), self._current(event, by)
        of_operator = row is not None and row.author_type == ActorType.USER.value
        return not of_operator or (other is not None and other.author_type == ActorType.USER.value)

    def correct(self, event: EntryRecorded, said: StatementCorrected) -> None:
        """Retire what was corrected; who may correct a drawer was decided before the event was recorded."""
        retired: dict[str, str | None] = dict(said.ids("drawer"))
        for entry_id, by in said.ids("filing").items():
            drawer_id = self._filed_by.get((event.workspace_id, entry_id))
            if drawer_id is not None:
                retired[drawer_id] = self._filed_by.get((event.workspace_id, by or ""))
        for drawer_id, by in retired.items():
            self._change(event, drawer_id, superseded_by=by or event.entry.id, held_until_ms=event.published_ms)

    def delete(self, event: EntryRecorded, said: DrawerDeleted | DrawerPruned) -> None:
        """Remove drawers."""
        for drawer_id in _drawers_in(said):
            self._rows.end(_row_name(event, drawer_id), event.seq, removed_by=event.entry.actor_type.value)

    def restore(self, event: EntryRecorded, said: DrawerRestored) -> None:
        """Undo that a drawer was removed, merged or superseded, or that it failed."""
        last = self._rows.last(_row_name(event, said.drawer_id))
        if last is None or (last.until_seq is None and _counts(last) and last.state != DrawerState.FAILED):
            return
        states = {DrawerState.MERGED: DrawerState.PROCESSED, DrawerState.FAILED: DrawerState.RAW}
        reverted = last._replace(
            state=states.get(DrawerState(last.state), DrawerState(last.state)).value,
            superseded_by=None,
            cluster_id=None,
            held_until_ms=None,
            since_seq=event.seq,
            until_seq=None,
            removed_by="",
        )
        self._rows.put(reverted)
        name = event.workspace_id, said.drawer_id
        self._upkeep.begin_again(name)
        if last.state == DrawerState.FAILED:
            self._upkeep.put(name, rejected=0)

    def count_references(self, event: EntryRecorded, said: MemoryReferenced) -> None:
        """Count that drawers reached prompts."""
        for one in said.entries:
            self._count_read(event, one.entry_id, one.count)

    def count_rendered(self, event: EntryRecorded, said: MemorySearched) -> None:
        """Count that the drawers of a rendered recall reached a prompt."""
        for entry_id in said.rendered or ():
            self._count_read(event, entry_id, 1)

    def _count_read(self, event: EntryRecorded, entry_id: str, count: int) -> None:
        name = event.workspace_id, entry_id
        row = self._current(event, self._filed_by.get(name, ""))
        if row is not None and row.entry_id == entry_id:
            before, last_ms = self._reads.get(name, (0, event.ts_ms))
            self._reads[name] = min(before + count, MOST_READS), max(last_ms, event.ts_ms)


def _row_name(event: EntryRecorded, drawer_id: str) -> tuple[int, str, str]:
    return name_key((event.workspace_id, drawer_id)), event.workspace_id, drawer_id


def _drawers_in(said: ControlPayload) -> Iterable[str]:
    """The drawers that an event is about."""
    if isinstance(said, StatementCorrected):
        return said.ids("drawer")
    named = (getattr(said, name, None) for name in ("drawer_id", "into", "superseded_by"))
    return dict.fromkeys([*getattr(said, "drawer_ids", ()), *filter(None, named)])


def _entries_in(said: ControlPayload) -> Iterable[str]:
    """The entries by which an event may mean the drawers that they filed."""
    if isinstance(said, MemoryReferenced):
        return (one.entry_id for one in said.entries)
    if isinstance(said, StatementCorrected):
        filings = said.ids("filing")
        return filter(None, (*filings, *filings.values()))
    return (said.rendered or ()) if isinstance(said, MemorySearched) else ()


_FOLDS: Final[dict[type[ControlPayload], Callable[[_Drawers, EntryRecorded, Any], None]]] = {
    DrawerFiled: _Drawers.file,
    DrawerClassified: _Drawers.classify,
    DrawerUpdated: _Drawers.update,
    DrawerLinked: _Drawers.link,
    DrawerReinforced: _Drawers.reinforce,
    DrawerAnswerRejected: _Drawers.reject_answer,
    DrawerMerged: _Drawers.merge,
    DrawerSuperseded: _Drawers.supersede,
    StatementCorrected: _Drawers.correct,
    DrawerPruned: _Drawers.delete,
    DrawerDeleted: _Drawers.delete,
    DrawerRestored: _Drawers.restore,
    MemoryReferenced: _Drawers.count_references,
    MemorySearched: _Drawers.count_rendered,
}
_OTHERS: Final[dict[type[ControlPayload], Callable[[EntryRecorded, Any, FoldTransaction], None]]] = {
    SweepTicked: _decay,
    CentroidComputed: _centroid,
    PalaceIdentitySet: _identity,
}


class DrawersProjection:
    """Folds ``drawer.*``, and what says that drawers were read."""

    name: ClassVar = DRAWERS_PROJECTION
    version: ClassVar = 8 + text.VERSION
    tables: ClassVar[Tables] = (DRAWERS, DRAWER_TEXTS, DRAWER_USES, DRAWER_UPKEEP, DRAWER_CENTROIDS, PALACE_IDENTITIES)
    folds: ClassVar[Folds] = (*_FOLDS, *_OTHERS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold each event in stream order; what lies between two sweeps is read and written together."""
        part: list[tuple[EntryRecorded, ControlPayload]] = []
        for event, said in _read(batch):
            if type(said) in _FOLDS:
                part.append((event, said))
                continue
            if isinstance(said, SweepTicked):
                self._fold(part, tx)
                part = []
            _OTHERS[type(said)](event, said, tx)
        self._fold(part, tx)

    def _fold(self, events: Sequence[tuple[EntryRecorded, ControlPayload]], tx: FoldTransaction) -> None:
        if events:
            drawers = _Drawers(events, tx)
            for event, said in events:
                _FOLDS[type(said)](drawers, event, said)
            drawers.write()


_BY_TYPE: Final = {model.ENTRY_TYPE: model for model in (*_FOLDS, *_OTHERS)}


def _read(batch: Batch) -> Iterator[tuple[EntryRecorded, ControlPayload]]:
    for event in batch.control(*_BY_TYPE.values()):
        model = _BY_TYPE[event.entry.entry_type]
        if model is not MemorySearched or event.entry.payload.get("rendered"):
            yield event, payload_of(event, model)


def _text_row(row: DrawerRow, former: TextRow | None) -> TextRow:
    if former is not None and former.text == row.content:
        terms, counts = former.terms, former.counts
    else:
        terms, counts = chunk_terms(text_analyzer(), row.content)
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


def _drawer_row(event: EntryRecorded, filed: DrawerFiled) -> DrawerRow:
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


PROJECTION = DrawersProjection
