"""``memory_receipts``: the hits that recalls returned, to whom, and which of them reached a prompt.

Invariants: one row per recorded recall; the first use of a receipt counts, and later uses change nothing. The text of a
query is stored only in this table and in its entry. A search that found only documents is not a recall.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import ClassVar

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import name_key
from ...schemas.core.table import Tables
from ...schemas.recall.events import MemoryReferenced, MemorySearched
from ...schemas.recall.tables import RECEIPTS, RECEIPTS_PROJECTION, ReceiptRow
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class ReceiptsProjection:
    """Folds ``memory.searched`` and ``memory.referenced``."""

    name: ClassVar = RECEIPTS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (RECEIPTS,)
    folds: ClassVar = (MemorySearched, MemoryReferenced)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Add receipts, and note their first uses."""
        searches = decisions(batch, MemorySearched)
        recalls = (_receipt(event, shown) for event, shown in searches if shown.hit_ids or not shown.chunks)
        added = {row.key: row for row in recalls}
        uses: dict[int, tuple[str, MemoryReferenced, int]] = {}
        for event, use in decisions(batch, MemoryReferenced):
            if use.receipt is not None:
                key = name_key((event.workspace_id, use.receipt))
                uses.setdefault(key, (use.receipt, use, event.ts_ms))
        former = tx.find(RECEIPTS, [key for key in uses if key not in added]) if uses else []
        found = {row.key: row for row in former} | added
        for key, (receipt, use, ts_ms) in uses.items():
            row = found.get(key)
            if row is not None and row.receipt == receipt and row.used is None:
                found[key] = row._replace(
                    used=_json([*(one.entry_id for one in use.entries), *use.chunks]), used_ms=ts_ms
                )
        if found:
            tx.replace(RECEIPTS, list(found.values()), former)


def _receipt(event: EntryRecorded, shown: MemorySearched) -> ReceiptRow:
    return ReceiptRow(
        key=name_key((event.workspace_id, event.entry.id)),
        workspace_id=event.workspace_id,
        receipt=event.entry.id,
        ts_ms=event.ts_ms,
        published_ms=event.published_ms,
        asked_by=shown.asked_by,
        agent_id=event.entry.agent_id,
        crew_id=event.entry.crew_id,
        scope=shown.scope,
        of_agent_id=shown.agent_id,
        of_crew_id=shown.crew_id,
        query=shown.query,
        recipe=shown.recipe,
        model=shown.model,
        mode=shown.mode,
        floor=shown.floor,
        mean_cosine=shown.mean_cosine,
        hits=_json(_hits(shown)),
        rendered=shown.rendered is not None,
        used=None if shown.rendered is None else _json([*shown.rendered, *_rendered_documents(shown)]),
        used_ms=None if shown.rendered is None else event.ts_ms,
        seq=event.seq,
    )


def _hits(shown: MemorySearched) -> list[dict[str, object]]:
    """The hits in their order: entries, and among them texts of other kinds, each at its rank."""
    hits: list[dict[str, object]] = [
        {"entry_id": entry_id, "score": score, "confidence": confidence}
        for entry_id, score, confidence in islice(
            zip_longest(shown.hit_ids, shown.scores, shown.confidences), len(shown.hit_ids)
        )
    ]
    for text in sorted(shown.texts, key=lambda text: text.rank):
        hit = {"entry_id": text.entry_id or text.id, "score": text.confidence, "confidence": text.confidence}
        hits.insert(text.rank, {**hit, "kind": text.kind, "id": text.id})
    return hits


def _rendered_documents(shown: MemorySearched) -> list[str]:
    return [text.id for text in shown.texts if text.rendered]


def _json(value: Sequence[object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PROJECTION = ReceiptsProjection
