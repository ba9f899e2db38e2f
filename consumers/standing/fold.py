"""``retractions``, ``supersessions``, ``live_priorities`` and ``validities``: the current state of entries, with history.

Invariant: a retraction counts until it is restored, a priority until the next one; both keep their history.
Supersessions are stored as written; whether an entry may supersede another is decided on reading, because it depends on
both entries.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.rules import author_of, is_by_operator
from ...schemas.recall.events import PriorityChanged
from ...schemas.standing.events import RetractionMade, RetractionRestored
from ...schemas.standing.tables import (
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
from ..folds.payloads import decisions, end, succeed
from ..projection import Batch, FoldTransaction


class StandingsProjection:
    """Folds retractions, priorities, and ``supersedes`` and ``valid_at`` of entries."""

    name: ClassVar = STANDINGS_PROJECTION
    version: ClassVar = 2
    tables: ClassVar[Tables] = (RETRACTIONS, SUPERSESSIONS, LIVE_PRIORITIES, VALIDITIES)
    folds: ClassVar = (EntryRecorded, RetractionMade, RetractionRestored, PriorityChanged)

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
                targets = dict.fromkeys(one for one in entry.supersedes if one != entry.id)
                superseded += (SupersessionRow(event.workspace_id, target, *by, author, operator) for target in targets)
        tx.add(VALIDITIES, valid)
        tx.add(SUPERSESSIONS, superseded)
        for event, payload in decisions(batch, RetractionMade, RetractionRestored, PriorityChanged):
            if isinstance(payload, RetractionMade):
                succeed(tx, RETRACTIONS, _retracted(event, payload))
            elif isinstance(payload, RetractionRestored):
                for target in payload.targets.ids:
                    key = {"workspace_id": event.workspace_id, "kind": payload.kind.value, "target_id": target}
                    end(tx, RETRACTIONS, event.seq, **key)
            elif isinstance(payload, PriorityChanged):
                named = event.workspace_id, payload.target_entry_id, payload.new_priority.value
                succeed(tx, LIVE_PRIORITIES, [LivePriorityRow(*named, event.seq)])


def _retracted(event: EntryRecorded, made: RetractionMade) -> list[RetractionRow]:
    actor = event.entry.actor_type.value, event.entry.actor_id
    what = made.stale, made.superseded_by, made.reason
    return [
        RetractionRow(event.workspace_id, made.kind.value, target, *what, *actor, event.published_ms, event.seq)
        for target in made.targets.ids
    ]


PROJECTION = StandingsProjection
