"""What an index sweep finds in the views: entries without a vector.

Invariant: pure reading, and only of what came before the sweep's tick.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import orjson

from ...schemas.core.entry import JournalEntry
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import format_ms
from ...schemas.entries.tables import ENTRIES
from ...schemas.models.tables import EMBEDDING_MODELS, EMBEDDINGS
from ...schemas.settings import EMBED_BATCH
from .embed_batch import Embeddable, text_of

_FIELDS: Final = ("id", "crew_id", "agent_id", "entry_type", "severity", "priority", "actor_type", "summary")
_COLUMNS: Final = f"e.seq, e.ts_ms, e.payload, {', '.join(f'e.{name}' for name in _FIELDS)}"
_WITHOUT_VECTOR: Final = f"""e.workspace_id = $workspace AND e.embeddable AND e.seq < $until
  AND NOT EXISTS (SELECT 1 FROM {EMBEDDINGS} v
                  WHERE v.workspace_id = $workspace AND v.model = $model AND v.entry_seq = e.seq)"""
_IS_LEFT: Final = "e.seq IN (SELECT unnest($left::BIGINT[]))"
_MISSING: Final = f"""
SELECT {_COLUMNS} FROM {ENTRIES} e WHERE {_WITHOUT_VECTOR} AND NOT {_IS_LEFT}
  AND (e.ts_ms > $after_ts OR (e.ts_ms = $after_ts AND e.id > $after_id))
ORDER BY e.ts_ms, e.id LIMIT {EMBED_BATCH}
"""
_MISSING_COUNT: Final = f"""SELECT count(*), count(*) FILTER (behind OR is_left)
FROM (SELECT e.seq >= $mine AS behind, {_IS_LEFT} AS is_left FROM {ENTRIES} e WHERE {_WITHOUT_VECTOR})"""
_KNOWN: Final = f"""SELECT (SELECT max(dropped_seq) FROM {EMBEDDING_MODELS} WHERE model = $1),
    (SELECT max(dim) FROM {EMBEDDINGS} WHERE model = $1 AND dim > 0)"""


def count_missing(
    views: ViewReader, workspace_id: str, until: int, since: int, left: Collection[int], model: str
) -> tuple[int, int]:
    """Entries before ``until`` without a vector of ``model``, and how many of them are ``left`` or not before ``since``."""
    params = {"workspace": workspace_id, "until": until, "mine": since, "left": list(left), "model": model}
    [(missing, behind)] = views.rows(_MISSING_COUNT, params)
    return int(missing), int(behind)


def known(views: ViewReader, model: str) -> tuple[int, int | None]:
    """A model's generation and, if the journal has vectors of it, its dimensions."""
    [(dropped, dim)] = views.rows(_KNOWN, [model])
    return int(dropped or 0), None if dim is None else int(dim)


def missing_after(
    views: ViewReader, workspace_id: str, until: int, left: Collection[int], model: str, after: tuple[int, str]
) -> list[Embeddable]:
    """The next entries without a vector after (time, id), except ``left``: oldest first, at most ``EMBED_BATCH``."""
    params = {
        "workspace": workspace_id,
        "until": until,
        "left": list(left),
        "model": model,
        "after_ts": after[0],
        "after_id": after[1],
    }
    return [_embeddable(workspace_id, row) for row in views.rows(_MISSING, params)]


def _embeddable(workspace_id: str, row: Sequence[Any]) -> Embeddable:
    seq, ts_ms, payload, *values = row
    record: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    record |= {"workspace_id": workspace_id, "ts": format_ms(ts_ms), "payload": orjson.loads(payload)}
    entry = JournalEntry.model_validate({name: value for name, value in record.items() if value is not None})
    return Embeddable(int(seq), entry, int(ts_ms), text_of(entry))
