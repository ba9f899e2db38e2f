"""Embeds the texts of documents, drawers, facts and entities that have no vector of the active model.

At the start it looks at every workspace, then at those in which something is written.
Why it looks into the views and not into the writes: chunks are made by the fold, and an append changes only the last ones;
and what was written while no model ran, or under a version that did not embed it, is found at the start.
A vector is stored by text, so what was embedded once is never embedded again. Invariants: it waits until the views have
passed its cause; ids depend on text and model alone, so running twice publishes once; a model that is away is waited for, a
text that it refuses gets a tombstone.

Durable: ack policy explicit, ack wait ``PullLimits.ack_wait_s`` (renewed while texts are embedded), unlimited deliveries;
the order of causes does not matter, because each is answered by a look at the present chunks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from ...schemas.active_models import active_in, read_active_models
from ...schemas.errors import BrokerError, EmbedderError, EmbedderInputRejected, FoldError, ViewsBehind
from ...schemas.events.chunk_vectors import encode_chunk_vector
from ...schemas.events.derived import FLOAT_BYTES
from ...schemas.events.drawers import DrawerFiled, DrawerRestored
from ...schemas.events.embeddings import MODEL_DECISIONS
from ...schemas.events.envelope import ChunkVectorDerived
from ...schemas.events.facts import EntityNamed, FactAsserted, FactEnded
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.ports import Embedder, Publisher, ViewReader
from ...schemas.rules.chunks import indexed_text
from ...schemas.rules.embed_text import cap_bytes
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES
from ...schemas.subjects import JOURNAL_STREAM, Family, parse_subject
from ...schemas.views import (
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    CHUNKS,
    DOCUMENTS,
    DOCUMENTS_PROJECTION,
    DRAWERS,
    DRAWERS_PROJECTION,
    ENTRIES_PROJECTION,
    FACTS,
    FACTS_PROJECTION,
    KG_ENTITIES,
    LIVE_DRAWER,
    VECTORS_PROJECTION,
    VERSIONS,
)
from ...schemas.views.entity_texts import entity_texts
from ...schemas.views.table import PRESENT
from ..feed.jetstream import API_TIMEOUT_S
from ..feed.positions import position_of
from ..reacting.durable import Durable
from ..reacting.pull_reactor import PullLimits, PullReactor
from ..reactor import Reactor, ReactorContext
from .embed_batch import Embedded, Failed, embed_in_pieces
from .index_rows import known

_DRAWER_EVENTS: Final = (DrawerFiled.ENTRY_TYPE, DrawerRestored.ENTRY_TYPE)
_GRAPH_EVENTS: Final = (FactAsserted.ENTRY_TYPE, FactEnded.ENTRY_TYPE, EntityNamed.ENTRY_TYPE)
FILTER_SUBJECTS: Final = (
    f"{Family.DOCUMENT.value}.>",
    *(f"{Family.CONTROL.value}.*.{entry_type}" for entry_type in (*MODEL_DECISIONS, *_DRAWER_EVENTS, *_GRAPH_EVENTS)),
)
NEEDS: Final = (
    DOCUMENTS_PROJECTION,
    DRAWERS_PROJECTION,
    ENTRIES_PROJECTION,
    FACTS_PROJECTION,
    CHUNK_VECTORS_PROJECTION,
    VECTORS_PROJECTION,
)
TAKEN: Final = 256
"""Causes of one turn; all of a workspace are answered by one look."""
WINDOW_S: Final = 0.5
"""Seconds to gather causes: a look at 100,000 chunks costs 50 ms."""
MAX_ACK_PENDING: Final = 1_024
VIEWS_WAIT_S: Final = 30.0
_WORKSPACES: Final = " UNION ".join(
    f"SELECT workspace_id FROM {table}" for table in (CHUNKS, DRAWERS, FACTS, KG_ENTITIES)
)
_MISSING: Final = f"""SELECT text_hash, any_value(said).breadcrumb, any_value(said).text, min(write_id) FROM (
        SELECT c.text_hash, {{'breadcrumb': c.breadcrumb, 'text': c.text}} AS said, v.write_id
        FROM {CHUNKS} c JOIN {DOCUMENTS} d ON d.key = c.key JOIN {VERSIONS} v ON v.seq = d.seq
        WHERE c.workspace_id = $workspace
        UNION ALL SELECT text_hash, {{'breadcrumb': '', 'text': content}}, entry_id
        FROM {DRAWERS} WHERE workspace_id = $workspace AND {LIVE_DRAWER}
        UNION ALL SELECT f.text_hash,
            {{'breadcrumb': '', 'text': coalesce(f.text, s.name || ' ' || f.predicate || ' ' || o.name)}}, f.entry_id
        FROM (FROM {FACTS} WHERE workspace_id = $workspace AND {PRESENT}) f
        JOIN (FROM {KG_ENTITIES} WHERE workspace_id = $workspace AND {PRESENT}) s ON s.entity_id = f.subject_id
        JOIN (FROM {KG_ENTITIES} WHERE workspace_id = $workspace AND {PRESENT}) o ON o.entity_id = f.object_id) AS known
    WHERE text_hash > $after AND NOT EXISTS (
        SELECT 1 FROM {CHUNK_VECTORS} e
        WHERE e.workspace_id = $workspace AND e.model = $model AND e.text_hash = known.text_hash)
    GROUP BY text_hash ORDER BY text_hash LIMIT {EMBED_BATCH}"""
_KNOWN_HASHES: Final = f"""SELECT text_hash FROM {CHUNK_VECTORS}
    WHERE workspace_id = ? AND model = ? AND text_hash IN (SELECT unnest(?::UBIGINT[]))"""
_AWAY: Final = (BrokerError, NatsError, ViewsBehind, EmbedderError)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkLimits(PullLimits):
    """Times of this reactor."""

    window_s: float = WINDOW_S


@dataclass(frozen=True, slots=True)
class _Text:
    """A text without a vector, and a write that brought it."""

    text_hash: int
    text: str
    write_id: str


class EmbedChunksReactor(PullReactor):
    """The reactor; it reads the views, so it runs where they are.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: Where chunks without a vector are looked for.
        embedder_for: What runs a model, None if nothing does; not closed here.
        clock: The time for ``status``.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "embed_chunks"
    version: ClassVar[int] = 1
    waits_for: ClassVar[tuple[type[Exception], ...]] = _AWAY

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        views: ViewReader,
        *,
        embedder_for: Callable[[str], Embedder | None],
        clock: Callable[[], datetime],
        limits: ChunkLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or ChunkLimits()
        durable = Durable(
            name=f"embed-chunks-v{self.version}",
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=MAX_ACK_PENDING,
            description="writes of documents, drawers and facts whose texts are to be embedded",
            sparse=True,
        )
        counted = ("proposed", "written", "repeated", "refused", "failed")
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=counted)
        self._client = client
        self._views = views
        self._embedder_for = embedder_for
        self._filled_all = False

    async def turn(self) -> None:
        """Embed what the written workspaces lack; in the first turn, what any workspace lacks."""
        limits = self._limits
        if not self._filled_all:
            stream = await self._client.jetstream(timeout=API_TIMEOUT_S).stream_info(JOURNAL_STREAM)
            await self._fill_each({None}, stream.state.last_seq)
            self._filled_all = True
        messages = await self._source.take(TAKEN, wait_s=limits.wait_s, window_s=limits.window_s)
        if not messages:
            return
        for message in messages:
            self._leases.hold(message)
        async with self._leases.renewed():
            workspaces = {_workspace(message.subject) for message in messages}
            await self._fill_each(workspaces, max(position_of(one.reply).seq for one in messages))
        for message in messages:
            await self._leases.ack(message)

    async def _fill_each(self, workspaces: Set[str | None], seq: int) -> None:
        """Embed what these workspaces lack (None: any) once the views have reached a sequence."""
        await self._views.wait_for(seq, VIEWS_WAIT_S, *NEEDS)
        if None in workspaces:
            workspaces = {str(name) for (name,) in await asyncio.to_thread(self._views.rows, _WORKSPACES)}
        for workspace_id in sorted(filter(None, workspaces)):
            await self._fill(workspace_id)

    async def _fill(self, workspace_id: str) -> None:
        """Embed every text of a workspace that has no vector of its active model.

        Raises:
            EmbedderError: If the model is away.
        """
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        if model is None or self._embedder_for(model) is None:
            return  # the activation of a model that runs here comes by this durable, too
        after = -1
        while texts := await asyncio.to_thread(self._missing, workspace_id, model, after):
            after = texts[-1].text_hash
            await self._embed(workspace_id, model, texts)
        entities = await asyncio.to_thread(self._missing_entities, workspace_id, model)
        for start in range(0, len(entities), EMBED_BATCH):
            await self._embed(workspace_id, model, entities[start : start + EMBED_BATCH])

    async def _embed(self, workspace_id: str, model: str, texts: Sequence[_Text]) -> None:
        embedder = self._embedder_for(model)
        if embedder is None:
            return
        generation, dim = await asyncio.to_thread(known, self._views, model)
        self._counts["proposed"] += len(texts)
        async for piece in embed_in_pieces(embedder, texts, dim):
            if isinstance(piece, Embedded):
                await self._write(workspace_id, model, generation, piece.candidates, piece.vectors)
            elif isinstance(piece, Failed) and isinstance(piece.error, EmbedderInputRejected):
                await self._write(workspace_id, model, generation, [piece.candidate], [b""])
            elif isinstance(piece, Failed):  # the next write in the workspace tries it again
                self._counts["failed"] += 1
                _log.warning("embed_chunks.failed", workspace=workspace_id, error=type(piece.error).__name__)

    def _missing(self, workspace_id: str, model: str, after: int) -> list[_Text]:
        named: dict[str, Any] = {"workspace": workspace_id, "model": model, "after": after}
        rows = self._views.rows(_MISSING, named)
        return [
            _Text(int(text_hash), cap_bytes(indexed_text(breadcrumb, text), EMBED_INPUT_BYTES), str(write_id))
            for text_hash, breadcrumb, text, write_id in rows
        ]

    def _missing_entities(self, workspace_id: str, model: str) -> list[_Text]:
        texts = {one.text_hash: one for one in entity_texts(self._views, workspace_id)}
        rows = self._views.rows(_KNOWN_HASHES, [workspace_id, model, list(texts)])
        found = {int(text_hash) for (text_hash,) in rows}
        return [
            _Text(text_hash, cap_bytes(one.text, EMBED_INPUT_BYTES), one.entry_id)
            for text_hash, one in texts.items()
            if text_hash not in found and one.entry_id is not None
        ]

    async def _write(
        self, workspace_id: str, model: str, generation: int, texts: Sequence[_Text], vectors: Sequence[bytes]
    ) -> None:
        """Publish vectors, or (an empty one) tombstones."""
        facts = [
            ChunkVectorDerived(
                seq=0,
                workspace_id=workspace_id,
                model=model,
                text_hash=one.text_hash,
                dim=len(vector) // FLOAT_BYTES,
                vector=vector,
                write_id=one.write_id,
                published_ms=0,
                reactor=self.identity,
            )
            for one, vector in zip(texts, vectors, strict=True)
        ]
        results = await asyncio.gather(
            *(self.publish(encode_chunk_vector(fact, self.version, generation)) for fact in facts)
        )
        for fact, result in zip(facts, results, strict=True):
            self._counts["repeated" if result.duplicate else "written" if fact.dim else "refused"] += 1


def _workspace(subject: str) -> str | None:
    """The workspace that a cause concerns; None for all."""
    try:
        workspace = parse_subject(subject).workspace
    except FoldError:
        return ""  # the projections park it; no workspace has this name
    return None if workspace == SYSTEM_WORKSPACE else workspace


def create(context: ReactorContext) -> Reactor | None:
    """The reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    return EmbedChunksReactor(
        context.client,
        context.publisher,
        context.views,
        embedder_for=context.embedder_for,
        clock=context.clock,
    )


REACTOR: Final = create
