"""Embeds what lacks a vector in the views: entries when an index sweep is due, texts of all kinds after each write.

Why beside the embed reactor, which passes each entry once: what a reindex sets free again, or a durable that was lost passed
over, only a look at the views finds (contract §3, seed 1 ``IndexNew``); and texts other than entries are made by folds, so
they are found in the views alone. Entries keep a reactor on their messages, because their vectors are what the link reactor
waits for.

Invariants: ids of facts depend on what is embedded and the model, not on the reactor, so running twice publishes once; a
text that stands in several places is embedded once; each missing text is tried once a look, and one that failed alone is
left out of the next looks for a while, so it delays no other ([TRAP]); a text that the model rejects gets a tombstone; a
model that is away ends the sweep with the reason, and the other reactor waits for it. What the embed reactor has not reached
yet is left to it (``pending``): it does not look for vectors, and beyond the broker's window for repeats a second fact of
the same id would be written.

Durables: that of sweeps as ``reacting/sweeping`` says; that of texts with ack policy explicit, ack wait
``PullLimits.ack_wait_s`` (renewed while texts are embedded), unlimited deliveries; the order of its causes does not matter,
because each leads to a query of the present texts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.errors import EmbedderError, EmbedderInputRejected
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import Embedder, Published, TokenBits
from ...schemas.core.subjects import Family
from ...schemas.core.texts import TextKind
from ...schemas.core.timestamps import to_ms
from ...schemas.documents.tables import CHUNK_VECTORS_PROJECTION
from ...schemas.entries.events import ErasureCompleted
from ...schemas.entries.tables import ENTRIES_PROJECTION
from ...schemas.erasure.tables import ERASURES_PROJECTION
from ...schemas.facts.events import EntityNamed, FactAsserted, FactEnded
from ...schemas.models.events import MODEL_DECISIONS
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.palace.events import DrawerFiled, DrawerRestored
from ...schemas.sweeps.rules import INDEX, Sweep
from ...schemas.texts import TEXT_KINDS
from ..reacting.pull import Remaining, doubled, remaining
from ..reacting.pull_reactor import ViewsLimits, ViewsReactor
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .embed_batch import TEXTS_VERSION, Embedded, Failed, Missing, embed_in_pieces
from .embed_reactor import EmbedReactor, durable_name
from .missing_rows import (
    count_missing,
    generation_of_texts,
    known,
    missing_after,
    missing_texts,
    wanted_in,
    workspaces_with_texts,
)

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
"""Seconds, in sweeps by the ticks' due times, that a text which failed alone is left out: doubled with each failure."""
GIVE_UP_AFTER: Final = 3
"""Refusals of one entry, in as many sweeps, until a tombstone records that the model rejects it; a reindex tries again."""
TROUBLES_KEPT: Final = 10_000
"""Texts whose failures are remembered, about 2 MB; the oldest are forgotten and tried at once."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model to fill: what runs it, its last drop (part of the facts' ids), the dimensions the journal knows."""

    embedder: Embedder
    generation: int
    dim: int | None


@dataclass(slots=True)
class _MissingTrouble:
    """Failures of one text, and from when it is tried again, milliseconds since the epoch."""

    failures: int = 0
    not_before_ms: int = 0


class Filler:
    """Embeds what lacks a vector and publishes the facts.

    Args:
        name: Of the reactor, for the log.
        identity: ``name@version`` of it.
        publish: Publishes a fact; returns after the ack.
        give_up_after: Refusals of one text until it gets a tombstone.
    """

    def __init__(
        self, name: str, identity: str, publish: Callable[[OutgoingMessage], Awaitable[Published]], give_up_after: int
    ) -> None:
        self._name = name
        self._identity = identity
        self._publish = publish
        self._give_up_after = give_up_after
        self._troubles: dict[tuple[str, int], _MissingTrouble] = {}

    async def fill(self, model: _Model, batch: Sequence[Missing], now_ms: int, counts: Counter[str]) -> None:
        """Embed a batch, without those put off, and count what became of each.

        Raises:
            EmbedderError: The model is out of order; what was published counts.
        """
        name = model.embedder.model_id
        due = [one for one in batch if not self._is_put_off(name, one, now_ms)]
        counts["put_off"] += len(batch) - len(due)
        if not due:
            return
        async for piece in embed_in_pieces(model.embedder, due, model.dim):
            if isinstance(piece, Embedded):
                await self._write(model, piece.candidates, piece.vectors, piece.tokens, counts)
            elif isinstance(piece, Failed):
                await self._failed(model, piece, now_ms, counts)

    def _is_put_off(self, model: str, one: Missing, now_ms: int) -> bool:
        trouble = self._troubles.get((model, one.key))
        return trouble is not None and now_ms < trouble.not_before_ms

    async def _write(
        self,
        model: _Model,
        batch: Sequence[Missing],
        vectors: Sequence[bytes],
        tokens: Sequence[TokenBits | None],
        counts: Counter[str],
    ) -> None:
        """Publish vectors, or (an empty one) tombstones."""
        items = zip(batch, vectors, tokens, strict=True)
        results = await asyncio.gather(*(self._publish_all(model, *item) for item in items))
        for one, vector, result in zip(batch, vectors, results, strict=True):
            counts["repeated" if result.duplicate else "written" if vector else "refused"] += 1
            self._troubles.pop((model.embedder.model_id, one.key), None)

    async def _publish_all(self, model: _Model, one: Missing, vector: bytes, tokens: TokenBits | None) -> Published:
        name, generation = model.embedder.model_id, model.generation
        *before, fact = one.facts(name, generation, vector, tokens, self._identity)
        for bits in before:
            await self._publish(bits)
        return await self._publish(fact)

    async def _failed(self, model: _Model, piece: Failed[Missing], now_ms: int, counts: Counter[str]) -> None:
        one, name = piece.candidate, model.embedder.model_id
        if len(self._troubles) >= TROUBLES_KEPT:
            del self._troubles[next(iter(self._troubles))]
        trouble = self._troubles.setdefault((name, one.key), _MissingTrouble())
        trouble.failures += 1
        pause_s = doubled(RETRY_FIRST_S, RETRY_LAST_S, trouble.failures - 1)
        trouble.not_before_ms = now_ms + round(pause_s * 1_000)
        give_up = isinstance(piece.error, EmbedderInputRejected) and trouble.failures >= self._give_up_after
        _log.warning(
            f"{self._name}.given_up" if give_up else f"{self._name}.put_off",
            source_id=one.source_id,
            model=name,
            failures=trouble.failures,
            error=type(piece.error).__name__,
        )
        if give_up:
            await self._write(model, [one], [b""], [None], counts)
        else:
            counts["failed"] += 1


# Entries, on the ticks of the index sweep.


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


@dataclass(frozen=True, slots=True)
class _SweepPart:
    """What a sweep goes through: entries before ``until`` but those ``left`` to the embed reactor, as of the due time."""

    workspace_id: str
    until: int
    left: frozenset[int]
    due_ms: int


class IndexReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the index sweep."""

    name: ClassVar[str] = "index"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = INDEX
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, VECTORS_PROJECTION)

    def prepare(self) -> None:
        """Begin without troubles."""
        self._filler = Filler(self.name, self.identity, self.publish, GIVE_UP_AFTER)

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
            await self._filler.fill(model, batch, part.due_ms, counts)


# Texts of all kinds, on the writes that make them.


WINDOW_S: Final = 0.5
"""Seconds to gather causes: a look at 100,000 texts costs 50 ms."""
_WRITES: Final = (
    *MODEL_DECISIONS,
    DrawerFiled,
    DrawerRestored,
    FactAsserted,
    FactEnded,
    EntityNamed,
    ErasureCompleted,
)
"""What makes or brings back texts that may lack a vector, beside writes of documents; an erasure takes the vector of a text
that also stands elsewhere, and leaves parts of documents that are texts of their own."""


@dataclass(frozen=True, slots=True)
class ChunkLimits(ViewsLimits):
    """Times of this reactor."""

    window_s: float = WINDOW_S


class EmbedChunksReactor(ViewsReactor):
    """Embeds the texts without a vector of every workspace at the start, then of those in which something is written.

    So texts that were written while no model ran, or under a version that did not embed them, are found at the start. It
    waits for a model that is unavailable.
    """

    name = "embed_chunks"
    version = TEXTS_VERSION
    filter_subjects = (
        f"{Family.DOCUMENT.value}.>",
        *(f"{Family.CONTROL.value}.*.{payload.ENTRY_TYPE}" for payload in _WRITES),
    )
    description = "writes of documents, drawers and facts whose texts are to be embedded"
    needs = (
        *sorted({kind.table.view for kind in TEXT_KINDS}),
        ERASURES_PROJECTION,
        ENTRIES_PROJECTION,
        CHUNK_VECTORS_PROJECTION,
        VECTORS_PROJECTION,
    )
    counted = ("proposed", "written", "repeated", "refused", "failed", "put_off")
    default_limits = ChunkLimits()
    kinds: ClassVar[tuple[TextKind, ...]] = TEXT_KINDS

    def prepare(self) -> None:
        """Begin without troubles."""
        self._filled_all = False
        self._filler = Filler(self.name, self.identity, self.publish, 1)

    async def turn(self) -> None:
        """Handle a batch; before the first one, embed the missing texts of all workspaces."""
        if not self._filled_all:
            await self.caught_up(await self._source.last_seq())
            await self._fill_all()
            self._filled_all = True
        await super().turn()

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Embed the texts without a vector of a workspace, or of all after a decision of the whole service."""
        if workspace_id == SYSTEM_WORKSPACE:
            await self._fill_all()
        else:
            await self._fill(workspace_id)

    async def _fill_all(self) -> None:
        for name in await asyncio.to_thread(workspaces_with_texts, self._views, self.kinds):
            await self._fill(name)

    async def _fill(self, workspace_id: str) -> None:
        """Embed every text of a workspace that lacks a vector of a wanted model which runs here.

        Raises:
            EmbedderError: If a model is unavailable.
        """
        await self.caught_up()
        for name in await asyncio.to_thread(wanted_in, self._views, workspace_id):
            embedder = self._context.embedder_for(name)
            if embedder is None:
                continue  # the decision about a model that runs here comes by this durable, too
            generation, dim = await asyncio.to_thread(known, self._views, name)
            generation = await asyncio.to_thread(generation_of_texts, self._views, workspace_id, generation)
            model = _Model(embedder, generation, dim)
            after = -1
            sought = self._views, workspace_id, name
            while texts := await asyncio.to_thread(missing_texts, *sought, after, self.kinds):
                after = texts[-1].key
                self._counts["proposed"] += len(texts)
                await self._filler.fill(model, texts, to_ms(self._context.clock()), self._counts)


REACTORS: Final = {"index": IndexReactor.create, "embed_chunks": EmbedChunksReactor.create}
