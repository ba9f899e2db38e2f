"""``erasures`` and ``erased_ids``: which erasures were requested, announced and completed, and which ids may not come back.

Invariant: an id is in ``erased_ids`` from the request on, so that no retry brings it back while the erasure is under way.
"""

from __future__ import annotations

from typing import ClassVar

import orjson

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import name_key
from ...schemas.core.sequence_set import size_of
from ...schemas.core.table import Tables
from ...schemas.entries.events import ErasureCompleted, ErasureRequested, ErasureScoped
from ...schemas.erasure.tables import ERASED_IDS, ERASURE_ROWS, ERASURES_PROJECTION, ErasedIdRow, ErasureRow
from ..folds.payloads import decisions, json_text
from ..projection import Batch, FoldTransaction


class ErasuresProjection:
    """Folds the three events of an erasure."""

    name: ClassVar = ERASURES_PROJECTION
    version: ClassVar = 2
    tables: ClassVar[Tables] = (ERASURE_ROWS, ERASED_IDS)
    folds: ClassVar = (ErasureRequested, ErasureScoped, ErasureCompleted)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record what the batch says, in stream order."""
        for event, payload in decisions(batch, *self.folds):
            assert isinstance(payload, (ErasureRequested, ErasureScoped, ErasureCompleted))
            name = {"workspace_id": event.workspace_id, "erasure_id": payload.erasure_id}
            known = tx.get(ERASURE_ROWS, **name)
            row = known[0] if known else _new(event, payload.erasure_id)
            if isinstance(payload, ErasureRequested):
                row = row._replace(reason=payload.reason)
                _bar(tx, event, payload.erasure_id, payload.entry_ids)
            elif isinstance(payload, ErasureScoped):
                state = "scoped" if row.state == "requested" else row.state
                messages = row.messages + size_of(payload.scope.ranges)
                row = row._replace(state=state, messages=messages, parts=row.parts + 1)
                _bar(tx, event, payload.erasure_id, payload.scope.ids)
            else:
                row = row._replace(
                    state="completed",
                    completed_ms=event.ts_ms,
                    counts=json_text(payload.counts),
                    not_proven=orjson.dumps(payload.not_proven).decode(),
                )
            tx.replace(ERASURE_ROWS, [row._replace(seq=event.seq)])


def _new(event: EntryRecorded, erasure_id: str) -> ErasureRow:
    entry = event.entry
    actor = entry.actor_type.value, entry.actor_id
    return ErasureRow(
        event.workspace_id, erasure_id, "requested", "", *actor, event.ts_ms, None, 0, 0, "{}", "[]", event.seq
    )


def _bar(tx: FoldTransaction, event: EntryRecorded, erasure_id: str, ids: tuple[str, ...]) -> None:
    rows = {
        key: ErasedIdRow(key, event.workspace_id, erasure_id)
        for key in (name_key((event.workspace_id, entry_id)) for entry_id in ids)
    }
    if rows:
        tx.replace(ERASED_IDS, list(rows.values()), tx.find(ERASED_IDS, list(rows)))


PROJECTION = ErasuresProjection
