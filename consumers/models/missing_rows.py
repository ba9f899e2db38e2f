"""What the views say about missing vectors: which models are wanted, and which entries and texts lack a vector of one.

Invariant: pure reading; of entries only what came before a sweep's tick.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import orjson

from ...schemas.core.entry import JournalEntry
from ...schemas.core.ports import ViewReader
from ...schemas.core.texts import HIDDEN, TextKind
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.rules import indexed_text
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.entries.tables import ENTRIES
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.models.rules import cap_bytes
from ...schemas.models.tables import EMBEDDING_MODELS, EMBEDDINGS, ModelState, active_in, read_active_models
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES
from ...schemas.texts import TEXT_KINDS
from .embed_batch import Embeddable, EmbeddableText, text_of

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
_LAST_ERASURE: Final = f"SELECT max(seq) FROM {ERASURE_ROWS} WHERE workspace_id = $1 AND state = 'completed'"
_ADDED: Final = f"SELECT model FROM {EMBEDDING_MODELS} WHERE state = '{ModelState.ADDED.value}' ORDER BY model"


def _texts_of(kinds: Iterable[TextKind]) -> str:
    return " UNION ALL ".join(
        f"SELECT workspace_id, text_hash, label, text, source_id FROM {kind.table} WHERE flags & {HIDDEN} = 0"
        for kind in kinds
        if kind.embedded
    )


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


def generation_of_texts(views: ViewReader, workspace_id: str, generation: int) -> int:
    """A model's generation for the texts of a workspace; each erasure begins a new one.

    An erasure takes vectors of texts that remain, and the broker still knows the ids of their facts.
    """
    [(erased,)] = views.rows(_LAST_ERASURE, [workspace_id])
    return max(generation, int(erased or 0))


def wanted_in(views: ViewReader, workspace_id: str) -> list[str]:
    """The models of which the texts of a workspace are to have vectors: the active one first, then those added."""
    active = active_in(read_active_models(views), workspace_id)
    added = [str(model) for (model,) in views.rows(_ADDED)]
    return added if active is None else [active, *(model for model in added if model != active)]


def workspaces_with_texts(views: ViewReader, kinds: Iterable[TextKind] = TEXT_KINDS) -> list[str]:
    """The workspaces that have texts to embed, by name."""
    sql = f"SELECT DISTINCT workspace_id FROM ({_texts_of(kinds)}) ORDER BY workspace_id"
    return [str(name) for (name,) in views.rows(sql)]


def missing_texts(
    views: ViewReader, workspace_id: str, model: str, after: int, kinds: Iterable[TextKind] = TEXT_KINDS
) -> list[EmbeddableText]:
    """The next texts without a vector after a text hash, of whatever kind: each once, at most ``EMBED_BATCH``.

    The cause of a text that stands in several places is the first by id of what brought it.
    """
    sql = f"""SELECT text_hash, arg_min(label, source_id), arg_min(text, source_id), min(source_id)
        FROM ({_texts_of(kinds)}) AS known
        WHERE workspace_id = $workspace AND text_hash > $after AND NOT EXISTS (
            SELECT 1 FROM {CHUNK_VECTORS} e
            WHERE e.workspace_id = $workspace AND e.model = $model AND e.text_hash = known.text_hash)
        GROUP BY text_hash ORDER BY text_hash LIMIT {EMBED_BATCH}"""
    rows = views.rows(sql, {"workspace": workspace_id, "model": model, "after": after})
    return [
        EmbeddableText(
            workspace_id, int(text_hash), cap_bytes(indexed_text(label, text), EMBED_INPUT_BYTES), str(source)
        )
        for text_hash, label, text, source in rows
    ]


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
