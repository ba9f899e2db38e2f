"""Embeds what was missed, when an index sweep is due: entries without a vector of the active model.

Why beside the embed reactor: that one passes each entry once; what a reindex sets free again, or a durable that was lost
passed over, only a look at the views finds (contract §3, seed 1 ``IndexNew``). Invariants: facts have the ids of the embed
reactor's, so both together write once; each missing entry is tried once a sweep, oldest first, so a text that fails at the
head of the queue delays no other ([TRAP]); a model that is away ends the sweep with the reason. What the embed reactor has
not reached yet is left to it (``pending``): it does not look for vectors, and beyond the broker's
window for repeats a second fact of the same id would be written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client

from ...schemas.core.derived import encode_vector
from ...schemas.core.errors import EmbedderError, EmbedderInputRejected
from ...schemas.core.ports import Embedder, Published, TokenBits
from ...schemas.entries.tables import ENTRIES_PROJECTION
from ...schemas.models.events import encode_token_bits
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.sweeps.rules import INDEX, Sweep
from ..reacting.backoff import doubled
from ..reacting.durable import Remaining, remaining
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .embed_batch import Embeddable, Embedded, Failed, embed_in_pieces
from .embed_reactor import EmbedReactor, durable_name
from .index_rows import count_missing, known, missing_after

# What the embed reactor will come to by itself, so that an index sweep leaves it alone and nothing else.


LOOKS: Final = 5
PAUSE_S: Final = 0.2
"""Messages and acks in transit are counted on neither side for some milliseconds."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is left to the embed reactor.

    Attributes:
        begins: All entries from this sequence on; None if absent.
        unsettled: Earlier entries that it holds, put off or returned.
    """

    begins: int | None = None
    unsettled: frozenset[int] = frozenset()


async def backlog_of(client: Client, durable: str, unsettled: Callable[[str], frozenset[int] | None]) -> Backlog:
    """What is left to the embed reactor on a durable, wherever it runs.

    Args:
        client: A connection to the broker.
        durable: The durable's name; if there is none, nothing is left to it.
        unsettled: What the reactor on it in this process took and did not ack yet; None where none runs here.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    left = await remaining(client, durable)
    for _ in range(LOOKS):
        unfinished = _accounted(left, unsettled(durable))
        if unfinished is None:
            break
        if len(unfinished) == left.unacked and left.waiting <= 1:
            return Backlog(left.delivered + 1 if left.to_come else None, unfinished)
        await asyncio.sleep(PAUSE_S)
        left = await remaining(client, durable)
    return Backlog(left.acked + 1 if left.unacked or left.to_come else None)


def _accounted(left: Remaining, unsettled: frozenset[int] | None) -> frozenset[int] | None:
    """Those of a reactor's unsettled messages that the broker may count; None if it has none to go past."""
    unfinished = frozenset(seq for seq in unsettled or () if left.acked < seq <= left.delivered)
    return unfinished or None


RETRY_FIRST_S: Final = 300.0
RETRY_LAST_S: Final = 86_400.0
"""Seconds, by the ticks' due times, that a text which failed alone is left out of sweeps: doubled with each failure."""
GIVE_UP_AFTER: Final = 3
"""Refusals of one text, in as many sweeps, until a tombstone records that the model rejects it; a reindex tries again."""
TROUBLES_KEPT: Final = 10_000
"""Texts whose failures are remembered, about 2 MB; the oldest are forgotten and tried at once."""
_COUNTED: Final = (
    "proposed",
    "written",
    "repeated",
    "refused",
    "failed",
    "put_off",
    "pending",
)
_TRIED: Final = ("written", "repeated", "refused", "failed", "put_off")
"""Outcomes of an entry in a sweep, one of these each; in a complete sweep they add up to ``proposed``, which until then is
the number of missing vectors."""
_FIRST_MS: Final = -(2**62)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Model:
    """The model a sweep fills: what runs it, its last drop (part of the facts' ids), the dimensions the journal knows."""

    embedder: Embedder
    generation: int
    dim: int | None


@dataclass(frozen=True, slots=True)
class _SweepPart:
    """What a sweep goes through: entries before ``until`` but those ``left`` to the embed reactor, as of the due time."""

    workspace_id: str
    until: int
    left: frozenset[int]
    due_ms: int


@dataclass(slots=True)
class _IndexTrouble:
    """Failures of one text, and the due time from which it is tried again, milliseconds since the epoch."""

    failures: int = 0
    not_before_ms: int = 0


class IndexReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the index sweep."""

    name: ClassVar[str] = "index"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = INDEX
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, VECTORS_PROJECTION)

    def prepare(self) -> None:
        """Begin without troubles."""
        self._troubles: dict[tuple[str, int], _IndexTrouble] = {}

    async def work(self, tick: Tick) -> Swept:
        """Embed entries without a vector, batch by batch, oldest first."""
        counts = Counter(dict.fromkeys(_COUNTED, 0))
        name = active_in(await asyncio.to_thread(read_active_models, self._views), tick.workspace_id)
        generation, dim = await asyncio.to_thread(known, self._views, name or "")
        part = await self._part(tick, name, generation)
        missing, pending = await asyncio.to_thread(
            count_missing, self._views, tick.workspace_id, tick.seq, part.until, part.left, name or ""
        )
        counts["proposed"], counts["pending"] = missing - pending, pending
        embedder = self._context.embedder_for(name) if name is not None else None
        if not counts["proposed"]:
            return Swept(counts)
        if embedder is None:
            return Swept(counts, f"nothing here runs the model {name}" if name else "no model is active")
        model = _Model(embedder, generation, dim)
        try:
            await embedder.probe()
            await self._embed_all(part, model, counts)
            counts["proposed"] = sum(counts[name] for name in _TRIED)  # the embed reactor may have come first with some
        except EmbedderError as error:
            return Swept(counts, f"{embedder.model_id}: {error.message}")
        return Swept(counts)

    async def _part(self, tick: Tick, model: str | None, generation: int) -> _SweepPart:
        """The part of the workspace that is not left to the embed reactor."""
        backlog = Backlog()
        if model is not None:
            durable = durable_name(EmbedReactor.version, model, generation)
            backlog = await backlog_of(self._context.client, durable, self._context.embed_unsettled)
        until = tick.seq if backlog.begins is None else min(tick.seq, backlog.begins)
        return _SweepPart(tick.workspace_id, until, backlog.unsettled, tick.due_ms)

    async def _embed_all(self, part: _SweepPart, model: _Model, counts: Counter[str]) -> None:
        after = (_FIRST_MS, "")
        name = model.embedder.model_id
        sought = part.workspace_id, part.until, part.left, name
        while batch := await asyncio.to_thread(missing_after, self._views, *sought, after):
            after = batch[-1].ts_ms, batch[-1].entry.id
            due = [candidate for candidate in batch if not self._is_put_off(model, candidate, part)]
            counts["put_off"] += len(batch) - len(due)
            if not due:
                continue
            async for piece in embed_in_pieces(model.embedder, due, model.dim):
                if isinstance(piece, Embedded):
                    await self._write(model, piece.candidates, piece.vectors, piece.tokens, counts)
                elif isinstance(piece, Failed):
                    await self._failed(model, piece, part, counts)

    def _is_put_off(self, model: _Model, candidate: Embeddable, part: _SweepPart) -> bool:
        trouble = self._troubles.get((model.embedder.model_id, candidate.seq))
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
        items = zip(entries, vectors, tokens, strict=True)
        results = await asyncio.gather(*(self._publish_all(model, *item) for item in items))
        for entry, vector, result in zip(entries, vectors, results, strict=True):
            counts["repeated" if result.duplicate else "written" if vector else "refused"] += 1
            self._troubles.pop((model.embedder.model_id, entry.seq), None)

    async def _publish_all(
        self, model: _Model, entry: Embeddable, vector: bytes, tokens: TokenBits | None
    ) -> Published:
        """Publish an entry's facts as the embed reactor does: the same ids, the vector last."""
        name, generation = model.embedder.model_id, model.generation
        bits = entry.token_bits(name, tokens, self.identity)
        if bits is not None:
            await self.publish(encode_token_bits(bits, EmbedReactor.version, generation))
        fact = entry.vector(name, vector, self.identity)
        return await self.publish(encode_vector(fact, EmbedReactor.version, generation))

    async def _failed(self, model: _Model, piece: Failed[Embeddable], part: _SweepPart, counts: Counter[str]) -> None:
        candidate = piece.candidate
        if len(self._troubles) >= TROUBLES_KEPT:
            del self._troubles[next(iter(self._troubles))]
        trouble = self._troubles.setdefault((model.embedder.model_id, candidate.seq), _IndexTrouble())
        trouble.failures += 1
        pause_s = doubled(RETRY_FIRST_S, RETRY_LAST_S, trouble.failures - 1)
        trouble.not_before_ms = part.due_ms + round(pause_s * 1_000)
        give_up = isinstance(piece.error, EmbedderInputRejected) and trouble.failures >= GIVE_UP_AFTER
        _log.warning(
            "index.given_up" if give_up else "index.put_off",
            entry_id=candidate.entry.id,
            seq=candidate.seq,
            workspace=part.workspace_id,
            failures=trouble.failures,
            error=type(piece.error).__name__,
        )
        if give_up:
            await self._write(model, [candidate], [b""], [None], counts)
        else:
            counts["failed"] += 1


REACTORS: Final = {"index": IndexReactor.create}
