"""``retractions``, ``supersessions``, ``live_priorities`` and ``validities``: which entries count now, and which did when.

Invariant: a retraction counts until it is restored, a priority until the next one; both keep their history. Supersessions
are recorded as written: who may supersede whom is decided when they are read, because it depends on both entries.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.memory import PriorityChanged
from ...schemas.events.retractions import RetractionMade, RetractionRestored
from ...schemas.rules.actors import author_of, is_by_operator
from ...schemas.timestamps import to_ms
from ...schemas.views.standings import (
    LIVE_PRIORITIES,
    RETRACTIONS,
    STANDINGS_PROJECTION,
    SUPERSESSIONS,
    VALIDITIES,
    LivePriorityRow,
    RetractionRow,
    SupersessionRow,
    ValidityRow,
)
from ...schemas.views.table import Tables
from ..folds.history import end, succeed
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction


class StandingsProjection:
    """Folds retractions, priorities, and ``supersedes`` and ``valid_at`` of entries."""

    name: ClassVar = STANDINGS_PROJECTION
    version: ClassVar = 2
    tables: ClassVar[Tables] = (RETRACTIONS, SUPERSESSIONS, LIVE_PRIORITIES, VALIDITIES)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record what the batch says, in stream order."""
        superseded: list[SupersessionRow] = []
        valid: list[ValidityRow] = []
        for event in batch.entries:
            entry = event.entry
            valid_ms = None if entry.valid_at is None else to_ms(entry.valid_at)
            if valid_ms is not None:
                valid.append(ValidityRow(event.workspace_id, event.seq, valid_ms))
            if entry.supersedes:
                by = (entry.id, event.seq, entry.agent_id, event.ts_ms if valid_ms is None else valid_ms)
                author = author_of(entry.actor_type.value, entry.actor_id)
                operator = is_by_operator(entry.agent_id, entry.entry_type, entry.actor_type.value)
                targets = dict.fromkeys(entry_id for entry_id in entry.supersedes if entry_id != entry.id)
                superseded += (SupersessionRow(event.workspace_id, target, *by, author, operator) for target in targets)
        tx.add(VALIDITIES, valid)
        tx.add(SUPERSESSIONS, superseded)
        for event in batch.controls:
            if event.entry.entry_type == RetractionMade.ENTRY_TYPE:
                succeed(tx, RETRACTIONS, _retracted(event, payload_of(event, RetractionMade)))
            elif event.entry.entry_type == RetractionRestored.ENTRY_TYPE:
                restored = payload_of(event, RetractionRestored)
                for target in restored.targets.ids:
                    key = {"workspace_id": event.workspace_id, "kind": restored.kind.value, "target_id": target}
                    end(tx, RETRACTIONS, event.seq, **key)
            elif event.entry.entry_type == PriorityChanged.ENTRY_TYPE:
                changed = payload_of(event, PriorityChanged)
                values = event.workspace_id, changed.target_entry_id, changed.new_priority.value
                succeed(tx, LIVE_PRIORITIES, [LivePriorityRow(*values, event.seq)])


def _retracted(event: EntryRecorded, payload: RetractionMade) -> list[RetractionRow]:
    actor = event.entry.actor_type.value, event.entry.actor_id
    content = payload.stale, payload.superseded_by, payload.reason
    return [
        RetractionRow(event.workspace_id, payload.kind.value, target, *content, *actor, event.published_ms, event.seq)
        for target in payload.targets.ids
    ]


PROJECTION = StandingsProjection
