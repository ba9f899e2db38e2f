"""``memory_receipts``: what recalls showed to whom, and what of it reached a prompt.

Invariants: one row a recall that was recorded; the first use of a receipt counts, later ones change nothing. The text of
a query is in this table and in its entry, nowhere else. A search that found only documents is not a recall.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import ClassVar

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.memory import MemoryReferenced, MemorySearched
from ...schemas.ids import name_key
from ...schemas.views.memory import RECEIPTS, RECEIPTS_PROJECTION, ReceiptRow
from ...schemas.views.table import Tables
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction


class ReceiptsProjection:
    """Folds ``memory.searched`` and ``memory.referenced``."""

    name: ClassVar = RECEIPTS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (RECEIPTS,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Add receipts, and note their first uses."""
        searches = [(event, payload_of(event, MemorySearched)) for event in batch.control(MemorySearched.ENTRY_TYPE)]
        recalls = (_receipt(event, payload) for event, payload in searches if payload.hit_ids or not payload.chunks)
        added = {row.key: row for row in recalls}
        uses: dict[int, tuple[str, MemoryReferenced, int]] = {}
        for event in batch.control(MemoryReferenced.ENTRY_TYPE):
            use = payload_of(event, MemoryReferenced)
            if use.receipt is not None:
                key = name_key((event.workspace_id, use.receipt))
                uses.setdefault(key, (use.receipt, use, event.ts_ms))
        former = tx.find(RECEIPTS, [key for key in uses if key not in added]) if uses else []
        rows = {row.key: row for row in former} | added
        for key, (receipt, use, ts_ms) in uses.items():
            row = rows.get(key)
            if row is not None and row.receipt == receipt and row.used is None:
                rows[key] = row._replace(used=_json([entry.entry_id for entry in use.entries]), used_ms=ts_ms)
        if rows:
            tx.replace(RECEIPTS, list(rows.values()), former)


def _receipt(event: EntryRecorded, payload: MemorySearched) -> ReceiptRow:
    return ReceiptRow(
        key=name_key((event.workspace_id, event.entry.id)),
        workspace_id=event.workspace_id,
        receipt=event.entry.id,
        ts_ms=event.ts_ms,
        published_ms=event.published_ms,
        asked_by=payload.asked_by,
        agent_id=event.entry.agent_id,
        crew_id=event.entry.crew_id,
        scope=payload.scope,
        of_agent_id=payload.agent_id,
        of_crew_id=payload.crew_id,
        query=payload.query,
        recipe=payload.recipe,
        model=payload.model,
        mode=payload.mode,
        floor=payload.floor,
        mean_cosine=payload.mean_cosine,
        hits=_json(
            [
                {"entry_id": entry_id, "score": score, "confidence": confidence}
                for entry_id, score, confidence in islice(
                    zip_longest(payload.hit_ids, payload.scores, payload.confidences), len(payload.hit_ids)
                )
            ]
        ),
        rendered=payload.rendered is not None,
        used=None if payload.rendered is None else _json(payload.rendered),
        used_ms=None if payload.rendered is None else event.ts_ms,
        seq=event.seq,
    )


def _json(value: Sequence[object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PROJECTION = ReceiptsProjection
