"""Embeds what was missed, when an index sweep is due: embeddable entries without a vector of the active model.

Why beside the embed reactor: that one passes each entry once; what a reindex sets free again, or a durable that was lost
passed over, only a look at the views finds (contract §3, seed 1 ``IndexNew``). Invariants: facts have the ids of the embed
reactor's, so both together write once; each missing entry is tried once a sweep, oldest first, so poison at the head of the
queue holds up nobody ([TRAP]); a model that is away ends the sweep with the reason. What the embed reactor still has to come
to is left to it (``pending``): it does not look whether a vector is there, and beyond the broker's window for repeats a
second fact of the same id would be written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import orjson
import structlog
from nats.aio.client import Client

from crew_journal.consumers.backoff import doubled
from crew_journal.consumers.health_figures import active_model
from crew_journal.consumers.pull import acked_through
from crew_journal.consumers.reactor import Reactor, ReactorContext
from crew_journal.consumers.reactors.embed import EmbedReactor
from crew_journal.consumers.reactors.embed_batch import Embeddable, Embedded, Failed, embed_in_pieces, text_of
from crew_journal.consumers.reactors.embed_limits import durable_name
from crew_journal.consumers.sweeping import SweepLimits, SweepReactor, Swept, Tick
from crew_journal.schemas.entry import JournalEntry
from crew_journal.schemas.errors import EmbedderError, EmbedderInputRejected
from crew_journal.schemas.events.derived import encode_vector
from crew_journal.schemas.events.token_bits import encode_token_bits
from crew_journal.schemas.ports import Embedder, Published, Publisher, TokenBits, ViewReader
from crew_journal.schemas.settings import EMBED_BATCH
from crew_journal.schemas.timestamps import format_ms
from crew_journal.schemas.views import EMBEDDING_MODELS, EMBEDDINGS, ENTRIES, ENTRIES_PROJECTION, VECTORS_PROJECTION

RETRY_FIRST_S: Final = 300.0
RETRY_LAST_S: Final = 86_400.0
"""Seconds, by the ticks' due times, that a text which failed alone is left out of sweeps: doubled with each failure."""
GIVE_UP_AFTER: Final = 3
"""Refusals of one text, in as many sweeps, until a tombstone says that the model does not take it; a reindex tries again."""
TROUBLES_KEPT: Final = 10_000
"""Texts whose failures are remembered, about 2 MB; the oldest are forgotten and tried at once."""
_FIELDS: Final = ("id", "crew_id", "agent_id", "entry_type", "severity", "priority", "actor_type", "summary")
_MISSING: Final = f"""
SELECT e.seq, e.ts_ms, e.payload, {", ".join(f"e.{name}" for name in _FIELDS)} FROM {ENTRIES} e
WHERE e.workspace_id = $workspace AND e.embeddable AND e.seq < $until
  AND (e.ts_ms > $after_ts OR (e.ts_ms = $after_ts AND e.id > $after_id))
  AND NOT EXISTS (SELECT 1 FROM {EMBEDDINGS} v
                  WHERE v.workspace_id = $workspace AND v.model = $model AND v.entry_seq = e.seq)
ORDER BY e.ts_ms, e.id LIMIT {EMBED_BATCH}
"""
_MISSING_COUNT: Final = f"""
SELECT count(*), count(*) FILTER (e.seq >= $mine) FROM {ENTRIES} e
WHERE e.workspace_id = $workspace AND e.embeddable AND e.seq < $until
  AND NOT EXISTS (SELECT 1 FROM {EMBEDDINGS} v
                  WHERE v.workspace_id = $workspace AND v.model = $model AND v.entry_seq = e.seq)
"""
_KNOWN: Final = f"""SELECT (SELECT max(dropped_seq) FROM {EMBEDDING_MODELS} WHERE model = $1),
    (SELECT max(dim) FROM {EMBEDDINGS} WHERE model = $1 AND dim > 0)"""
_FIRST_MS: Final = -(2**62)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Model:
    """The model a sweep fills: what runs it, its last drop (part of the facts' ids), the dimensions the journal knows."""

    embedder: Embedder
    generation: int
    dim: int | None


@dataclass(frozen=True, slots=True)
class _Part:
    """What a sweep goes through: a workspace's entries before the sequence ``until``, as of the tick's due time."""

    workspace_id: str
    until: int
    due_ms: int


@dataclass(slots=True)
class _Trouble:
    """How one text has fared: failures, and the due time from which it is tried again, milliseconds since the epoch."""

    failures: int = 0
    not_before_ms: int = 0


class IndexReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the index sweep.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: Where the missing are looked for.
        embedder_for: What runs a model, None if nothing does; not closed here.
        clock: The time for ``status``.
        limits: Times.
    """

    name: ClassVar[str] = "index"
    version: ClassVar[int] = 1
    sweep: ClassVar[str] = "index"
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, VECTORS_PROJECTION)

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        views: ViewReader,
        *,
        embedder_for: Callable[[str], Embedder | None],
        clock: Callable[[], datetime],
        limits: SweepLimits | None = None,
    ) -> None:
        super().__init__(client, publisher, views, clock=clock, limits=limits)
        self._client = client
        self._embedder_for = embedder_for
        self._troubles: dict[tuple[str, int], _Trouble] = {}

    async def work(self, tick: Tick) -> Swept:
        """Embed what is missing, batch by batch, oldest first."""
        counts = Counter(proposed=0, written=0, repeated=0, refused=0, failed=0, put_off=0, pending=0)
        name = await asyncio.to_thread(active_model, self._views, tick.workspace_id)
        generation, dim = await asyncio.to_thread(self._known, name or "")
        acked = (
            None
            if name is None
            else await acked_through(self._client, durable_name(EmbedReactor.version, name, generation))
        )
        part = _Part(tick.workspace_id, tick.seq if acked is None else min(tick.seq, acked + 1), tick.due_ms)
        missing, pending = await asyncio.to_thread(self._count_missing, tick, part, name or "")
        counts["proposed"], counts["pending"] = missing - pending, pending
        if not counts["proposed"]:
            return Swept(counts)
        embedder = self._embedder_for(name) if name is not None else None
        if embedder is None:
            return Swept(counts, f"nothing here runs the model {name}" if name else "no model is active")
        try:
            await embedder.probe()
            await self._embed_all(part, _Model(embedder, generation, dim), counts)
        except EmbedderError as error:
            return Swept(counts, f"{embedder.model_id}: {error.message}")
        return Swept(counts)

    def _count_missing(self, tick: Tick, part: _Part, model: str) -> tuple[int, int]:
        """Entries without a vector before the tick, and how many of them the embed reactor still comes to."""
        params = {"workspace": tick.workspace_id, "until": tick.seq, "mine": part.until, "model": model}
        [(missing, pending)] = self._views.rows(_MISSING_COUNT, params)
        return int(missing), int(pending)

    def _known(self, model: str) -> tuple[int, int | None]:
        """A model's generation and, if the journal has vectors of it, its dimensions."""
        [(dropped, dim)] = self._views.rows(_KNOWN, [model])
        return int(dropped or 0), None if dim is None else int(dim)

    async def _embed_all(self, part: _Part, model: _Model, counts: Counter[str]) -> None:
        after = (_FIRST_MS, "")
        while batch := await asyncio.to_thread(self._missing, part, model.embedder.model_id, after):
            after = batch[-1].ts_ms, batch[-1].entry.id
            due = [one for one in batch if not self._is_put_off(model, one, part)]
            counts["put_off"] += len(batch) - len(due)
            if not due:
                continue
            async for piece in embed_in_pieces(model.embedder, due, model.dim):
                if isinstance(piece, Embedded):
                    await self._write(model, piece.candidates, piece.vectors, piece.tokens, counts)
                elif isinstance(piece, Failed):
                    await self._failed(model, piece, part, counts)

    def _missing(self, part: _Part, model: str, after: tuple[int, str]) -> list[Embeddable]:
        params = {
            "workspace": part.workspace_id,
            "until": part.until,
            "model": model,
            "after_ts": after[0],
            "after_id": after[1],
        }
        return [_embeddable(part.workspace_id, row) for row in self._views.rows(_MISSING, params)]

    def _is_put_off(self, model: _Model, one: Embeddable, part: _Part) -> bool:
        trouble = self._troubles.get((model.embedder.model_id, one.seq))
        return trouble is not None and part.due_ms < trouble.not_before_ms

    async def _write(
        self,
        model: _Model,
        entries: Sequence[Embeddable],
        vectors: Sequence[bytes],
        tokens: Sequence[TokenBits | None],
        counts: Counter[str],
    ) -> None:
        """Publish vectors, or (an empty one) tombstones."""
        made = zip(entries, vectors, tokens, strict=True)
        results = await asyncio.gather(*(self._publish_all(model, *one) for one in made))
        for entry, vector, result in zip(entries, vectors, results, strict=True):
            counts["repeated" if result.duplicate else "written" if vector else "refused"] += 1
            self._troubles.pop((model.embedder.model_id, entry.seq), None)

    async def _publish_all(
        self, model: _Model, entry: Embeddable, vector: bytes, tokens: TokenBits | None
    ) -> Published:
        """Publish an entry's facts as the embed reactor does: the same ids, the vector last."""
        name, version = model.embedder.model_id, EmbedReactor.version
        bits = entry.token_bits(name, tokens, self.identity)
        if bits is not None:
            await self.publish(encode_token_bits(bits, version, model.generation))
        return await self.publish(encode_vector(entry.vector(name, vector, self.identity), version, model.generation))

    async def _failed(self, model: _Model, piece: Failed[Embeddable], part: _Part, counts: Counter[str]) -> None:
        one = piece.candidate
        if len(self._troubles) >= TROUBLES_KEPT:
            del self._troubles[next(iter(self._troubles))]
        trouble = self._troubles.setdefault((model.embedder.model_id, one.seq), _Trouble())
        trouble.failures += 1
        pause_s = doubled(RETRY_FIRST_S, RETRY_LAST_S, trouble.failures - 1)
        trouble.not_before_ms = part.due_ms + round(pause_s * 1_000)
        give_up = isinstance(piece.error, EmbedderInputRejected) and trouble.failures >= GIVE_UP_AFTER
        _log.warning(
            "index.given_up" if give_up else "index.put_off",
            entry_id=one.entry.id,
            seq=one.seq,
            workspace=part.workspace_id,
            failures=trouble.failures,
            error=type(piece.error).__name__,
        )
        if give_up:
            await self._write(model, [one], [b""], [None], counts)
        else:
            counts["failed"] += 1


def _embeddable(workspace_id: str, row: Sequence[Any]) -> Embeddable:
    seq, ts_ms, payload, *values = row
    record: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    record |= {"workspace_id": workspace_id, "ts": format_ms(ts_ms), "payload": orjson.loads(payload)}
    entry = JournalEntry.model_validate({name: value for name, value in record.items() if value is not None})
    return Embeddable(int(seq), entry, int(ts_ms), text_of(entry))


def create(context: ReactorContext) -> Reactor | None:
    """The index reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    return IndexReactor(
        context.client, context.publisher, context.views, embedder_for=context.embedder_for, clock=context.clock
    )


REACTOR: Final = create
