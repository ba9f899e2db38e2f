"""Embeds the texts of documents, drawers, facts and entities that have no vector of the active model.

At the start it looks at every workspace, then at those in which something is written.
It reads the views and not the writes, because the fold makes the chunks and an append changes only the last ones. Texts
that were written while no model ran, or under a version that did not embed them, are found at the start. A vector is stored
by text, so a text is embedded once. Invariants: it waits until the views have folded its cause; ids depend on text and
model alone, so running twice publishes once; it waits for an unavailable model; a text that the model rejects gets a
tombstone.

Durable: ack policy explicit, ack wait ``PullLimits.ack_wait_s`` (renewed while texts are embedded), unlimited deliveries;
the order of causes does not matter, because each leads to a query of the present texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from nats.aio.msg import Msg

from ...schemas.core.derived import FLOAT_BYTES, OutgoingMessage
from ...schemas.core.envelope import ChunkVectorDerived
from ...schemas.core.errors import EmbedderInputRejected
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.subjects import Family
from ...schemas.core.texts import HIDDEN
from ...schemas.documents.chunks import indexed_text
from ...schemas.documents.tables import (
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    DOCUMENTS_PROJECTION,
)
from ...schemas.entries.tables import ENTRIES_PROJECTION
from ...schemas.facts.events import EntityNamed, FactAsserted, FactEnded
from ...schemas.facts.tables import FACTS_PROJECTION
from ...schemas.models.events import MODEL_DECISIONS, encode_chunk_vector
from ...schemas.models.rules import cap_bytes
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.palace.events import DrawerFiled, DrawerRestored
from ...schemas.palace.tables import DRAWERS_PROJECTION
from ...schemas.settings import EMBED_BATCH, EMBED_INPUT_BYTES
from ...schemas.texts import TEXT_KINDS
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from .embed_batch import Embedded, Failed, embed_in_pieces
from .index_rows import known

_MODEL_EVENTS: Final = tuple(payload.ENTRY_TYPE for payload in MODEL_DECISIONS)
_DRAWER_EVENTS: Final = (DrawerFiled.ENTRY_TYPE, DrawerRestored.ENTRY_TYPE)
_GRAPH_EVENTS: Final = (FactAsserted.ENTRY_TYPE, FactEnded.ENTRY_TYPE, EntityNamed.ENTRY_TYPE)
WINDOW_S: Final = 0.5
"""Seconds to gather causes: a look at 100,000 chunks costs 50 ms."""
_TEXTS: Final = " UNION ALL ".join(
    f"SELECT workspace_id, text_hash, label, text, source_id FROM {kind.table} WHERE flags & {HIDDEN} = 0"
    for kind in TEXT_KINDS
    if kind.embedded
)
_WORKSPACES: Final = f"SELECT DISTINCT workspace_id FROM ({_TEXTS}) ORDER BY workspace_id"
_MISSING: Final = f"""SELECT text_hash, arg_min(label, source_id), arg_min(text, source_id), min(source_id)
    FROM ({_TEXTS}) AS known
    WHERE workspace_id = $workspace AND text_hash > $after AND NOT EXISTS (
        SELECT 1 FROM {CHUNK_VECTORS} e
        WHERE e.workspace_id = $workspace AND e.model = $model AND e.text_hash = known.text_hash)
    GROUP BY text_hash ORDER BY text_hash LIMIT {EMBED_BATCH}"""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkLimits(ViewsLimits):
    """Times of this reactor."""

    window_s: float = WINDOW_S


@dataclass(frozen=True, slots=True)
class _MissingText:
    """A text without a vector, and a write that brought it."""

    text_hash: int
    text: str
    write_id: str


class EmbedChunksReactor(ViewsReactor):
    """The reactor."""

    name = "embed_chunks"
    version = 1
    filter_subjects = (
        f"{Family.DOCUMENT.value}.>",
        *(f"{Family.CONTROL.value}.*.{one}" for one in (*_MODEL_EVENTS, *_DRAWER_EVENTS, *_GRAPH_EVENTS)),
    )
    description = "writes of documents, drawers and facts whose texts are to be embedded"
    needs = (
        DOCUMENTS_PROJECTION,
        DRAWERS_PROJECTION,
        ENTRIES_PROJECTION,
        FACTS_PROJECTION,
        CHUNK_VECTORS_PROJECTION,
        VECTORS_PROJECTION,
    )
    counted = ("proposed", "written", "repeated", "refused", "failed")
    default_limits = ChunkLimits()

    _filled_all = False

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
        for (name,) in await asyncio.to_thread(self._views.rows, _WORKSPACES):
            await self._fill(str(name))

    async def _fill(self, workspace_id: str) -> None:
        """Embed every text of a workspace that has no vector of its active model.

        Raises:
            EmbedderError: If the model is unavailable.
        """
        await self.caught_up()
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        if model is None or self._context.embedder_for(model) is None:
            return  # the activation of a model that runs here comes by this durable, too
        after = -1
        while texts := await asyncio.to_thread(self._missing, workspace_id, model, after):
            after = texts[-1].text_hash
            await self._embed(workspace_id, model, texts)

    async def _embed(self, workspace_id: str, model: str, texts: Sequence[_MissingText]) -> None:
        embedder = self._context.embedder_for(model)
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

    def _missing(self, workspace_id: str, model: str, after: int) -> list[_MissingText]:
        params: dict[str, Any] = {"workspace": workspace_id, "model": model, "after": after}
        rows = self._views.rows(_MISSING, params)
        return [
            _MissingText(int(text_hash), cap_bytes(indexed_text(breadcrumb, text), EMBED_INPUT_BYTES), str(write_id))
            for text_hash, breadcrumb, text, write_id in rows
        ]

    async def _write(
        self, workspace_id: str, model: str, generation: int, texts: Sequence[_MissingText], vectors: Sequence[bytes]
    ) -> None:
        """Publish vectors, or (an empty one) tombstones."""
        results = await asyncio.gather(
            *(
                self.publish(
                    vector_fact(workspace_id, model, generation, text.text_hash, vector, text.write_id, self.identity)
                )
                for text, vector in zip(texts, vectors, strict=True)
            )
        )
        for vector, result in zip(vectors, results, strict=True):
            self._counts["repeated" if result.duplicate else "written" if vector else "refused"] += 1


def vector_fact(
    workspace_id: str, model: str, generation: int, text_hash: int, vector: bytes, write_id: str, reactor: str
) -> OutgoingMessage:
    """The vector of a text, or (an empty one) a tombstone; its id does not depend on the reactor that publishes it."""
    fact = ChunkVectorDerived(
        seq=0,
        workspace_id=workspace_id,
        model=model,
        text_hash=text_hash,
        dim=len(vector) // FLOAT_BYTES,
        vector=vector,
        write_id=write_id,
        published_ms=0,
        reactor=reactor,
    )
    return encode_chunk_vector(fact, EmbedChunksReactor.version, generation)


REACTORS: Final = {"embed_chunks": EmbedChunksReactor.create}
