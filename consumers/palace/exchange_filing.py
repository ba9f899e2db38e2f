"""Files exchanges that have ended as drawers: chunks, types, vectors, comparison with live drawers, events.

Invariant: a chunk's vector is published before its ``drawer.filed``; both ids follow from their cause, so filing again after
a crash adds nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import structlog
from nats.errors import Error as NatsError
from pydantic_core import from_json

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.access.tables import NUDGES_PROJECTION, WORKSPACE_SETTINGS
from ...schemas.core.derived import FLOAT_BYTES, OutgoingMessage
from ...schemas.core.errors import BrokerError, EmbedderError
from ...schemas.core.ids import derived_id, hash64
from ...schemas.core.ports import DRAWER_KIND, Embedder, Finder, NearQuery, Published, ViewReader
from ...schemas.documents.tables import CHUNK_VECTORS_PROJECTION
from ...schemas.entries.rules import AGENT_RESPONSE, USER_MESSAGE
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.palace.events import MOST_DRAWERS, DrawerFiled
from ...schemas.palace.exchanges import (
    SAME_COSINE,
    WING,
    Exchange,
    ExchangeChunk,
    ExchangeTurn,
    Thresholds,
    chunk_of,
    filed_chunks,
    may_answer,
)
from ...schemas.palace.rules import drawer_id
from ...schemas.palace.tables import DRAWER_CENTROIDS, DRAWER_TEXTS, DRAWERS, DRAWERS_PROJECTION, LIVE_DRAWER
from ...schemas.text.marks import agree, marks_by_kind
from ..models.embed_batch import EmbeddableText, Embedded, embed_in_pieces
from ..models.missing_rows import known
from ..reacting.pull_reactor import encode_control

# Reads of the hot path of the palace: turns of conversations, and drawers with their vectors.


NEEDS: Final = (
    ENTRIES_PROJECTION,
    DRAWERS_PROJECTION,
    CHUNK_VECTORS_PROJECTION,
    VECTORS_PROJECTION,
    NUDGES_PROJECTION,
)
LOOK_BACK_MS: Final = 3_600_000
"""How far before a turn the exchange is looked for that it ends; a longer one comes by its own first turn."""
_SESSION: Final = "coalesce(agent_id, '') || '/' || coalesce(trace_id, run_id, '')"
_TURN: Final = f"seq, id, {_SESSION} AS session, entry_type, agent_id, summary, payload, published_ms, ts_ms"
_OF_TYPE: Final = f"workspace_id = $workspace AND entry_type IN ('{USER_MESSAGE}', '{AGENT_RESPONSE}')"
_AROUND: Final = f"""WITH taken AS (SELECT {_SESSION} AS session, published_ms FROM {ENTRIES}
        WHERE {_OF_TYPE} AND seq IN (SELECT unnest($seqs::UBIGINT[])))
    SELECT {_TURN} FROM {ENTRIES} WHERE {_OF_TYPE} AND {_SESSION} IN (SELECT session FROM taken)
        AND published_ms >= (SELECT min(published_ms) FROM taken) - {LOOK_BACK_MS} ORDER BY seq"""
_SINCE: Final = f"SELECT {_TURN} FROM {ENTRIES} WHERE {_OF_TYPE} AND seq >= $since ORDER BY seq"
_SETTINGS: Final = f"SELECT workspace_id, settings FROM {WORKSPACE_SETTINGS}"
_BETWEEN: Final = f"SELECT seq FROM {ENTRIES} WHERE {_OF_TYPE} AND seq > $after AND seq <= $until"
_CENTROIDS: Final = f"SELECT memory_type, vector FROM {DRAWER_CENTROIDS} WHERE workspace_id = ? AND model = ?"
_FILED: Final = f"SELECT entry_id FROM {DRAWERS} WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?))"
_SAME: Final = f"""SELECT item, text_hash FROM {DRAWER_TEXTS} WHERE workspace_id = ?
        AND (item IN (SELECT unnest(?)) OR text_hash IN (SELECT unnest(?::UBIGINT[])))"""
_TEXTS: Final = f"""SELECT drawer_id, content FROM {DRAWERS}
    WHERE workspace_id = ? AND {LIVE_DRAWER} AND drawer_id IN (SELECT unnest(?))"""
_LIVE: Final = f"SELECT count(*) FROM {DRAWERS} WHERE workspace_id = ? AND {LIVE_DRAWER}"


@dataclass(frozen=True, slots=True)
class Filed:
    """The live drawers that some chunks may repeat.

    Attributes:
        ids: Ids of those with the id or the text of a chunk.
        texts: Hashes of their texts.
        near: For each chunk, the ids of those whose cosine with it is above ``SAME_COSINE``.
        contents: The texts of all that are near a chunk, by id.
        count: How many drawers live.
    """

    ids: frozenset[str]
    texts: frozenset[int]
    near: Sequence[Sequence[str]]
    contents: Mapping[str, str]
    count: int


def filing_chat(views: ViewReader) -> frozenset[str]:
    """The workspaces that have chosen that their conversations are filed."""
    rows = views.rows(_SETTINGS)
    return frozenset(
        name
        for name, settings in rows
        if WorkspaceConfigured(settings=json.loads(settings)).chosen.palace_ingest is True
    )


def turns_around(views: ViewReader, workspace_id: str, seqs: Sequence[int], quiet_ms: int) -> list[list[ExchangeTurn]]:
    """The turns of the sessions that some turns belong to, by session, from an hour before the first of them.

    Turns that may belong to an exchange that began earlier are left out.
    """
    rows = views.rows(_AROUND, {"workspace": workspace_id, "seqs": list(seqs)})
    sessions = _by_session(rows)
    asked = set(seqs)
    taken = [turn.published_ms for turns in sessions for turn in turns if turn.seq in asked]
    begin = min(taken, default=0) - LOOK_BACK_MS
    return [turns[_first_whole(turns, begin, quiet_ms) :] for turns in sessions]


def seqs_of_turns(views: ViewReader, workspace_id: str, after: int, until: int) -> list[int]:
    """The sequences of the turns of a workspace behind one sequence, up to another."""
    rows = views.rows(_BETWEEN, {"workspace": workspace_id, "after": after, "until": until})
    return [int(seq) for (seq,) in rows]


def turns_since(views: ViewReader, workspace_id: str, seq: int) -> list[list[ExchangeTurn]]:
    """The turns of a workspace from a sequence on, by session."""
    return _by_session(views.rows(_SINCE, {"workspace": workspace_id, "since": seq}))


def filed_entries(views: ViewReader, workspace_id: str, entry_ids: Sequence[str]) -> set[str]:
    """Which of these entries filed a drawer, removed ones included."""
    return {entry_id for (entry_id,) in views.rows(_FILED, [workspace_id, list(entry_ids)])}


def centroids_in(views: ViewReader, workspace_id: str, model: str) -> dict[str, npt.NDArray[np.float32]]:
    """The centroids of a workspace, L2-normalised, by type."""
    rows = views.rows(_CENTROIDS, [workspace_id, model])
    return {row[0]: _unit(np.frombuffer(row[1], "<f4")) for row in rows}


def _unit(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)


def _first_whole(turns: Sequence[ExchangeTurn], begin_ms: int, quiet_ms: int) -> int:
    """The first turn that certainly begins an exchange."""
    for at, turn in enumerate(turns):
        before_ms = turns[at - 1].published_ms if at else begin_ms
        if (turn.is_user and not may_answer(turn)) or turn.published_ms - before_ms > quiet_ms:
            return at
    return len(turns)


def _by_session(rows: Sequence[tuple[Any, ...]]) -> list[list[ExchangeTurn]]:
    sessions: dict[str, list[ExchangeTurn]] = {}
    for seq, entry_id, session, entry_type, agent_id, summary, payload, published_ms, ts_ms in rows:
        said = from_json(payload)
        text, kind = said.get("text"), said.get("kind")
        turn = ExchangeTurn(
            int(seq),
            entry_id,
            session,
            entry_type,
            agent_id or "",
            text if isinstance(text, str) and text else summary,
            kind if isinstance(kind, str) else "",
            int(published_ms),
            int(ts_ms),
        )
        sessions.setdefault(session, []).append(turn)
    return list(sessions.values())


ADDED_BY: Final = "auto-ingest"
_NAME: Final = "palace_ingest"
_VERSION: Final = 1
_SESSION_CHARS: Final = 512
_SOURCES: Final = 50
"""Turns of an exchange that its drawers name."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Piece:
    """A chunk of an exchange that is being filed."""

    exchange: Exchange
    chunk: ExchangeChunk
    drawer_id: str
    entry_id: str
    text_hash: int
    vector: bytes = b""

    @property
    def text(self) -> str:
        """What is embedded."""
        return self.chunk.text


def chosen_pieces(pieces: Sequence[_Piece], filed: Filed, counts: Counter[str]) -> list[_Piece]:
    """The pieces to file: those whose text no live drawer and no piece before them has, or nearly has.

    A text with other numbers, dates, names or negations says something else, however near its vector is. Takes milliseconds
    for each piece that is near thousands of drawers.
    """
    ids, texts = set(filed.ids), set(filed.texts)
    chosen: list[int] = []
    width = max((len(piece.vector) for piece in pieces), default=0)
    zeros = bytes(width)  # a piece without a vector has a cosine of 0 with all
    vectors = np.frombuffer(b"".join(piece.vector or zeros for piece in pieces), "<f4").reshape(
        len(pieces), width // FLOAT_BYTES
    )
    among = vectors @ vectors.T
    marks = cache(marks_by_kind)
    for at, piece in enumerate(pieces):
        near = [filed.contents[name] for name in filed.near[at] if name in filed.contents]
        near += [pieces[index].text for index in chosen if among[at, index] > SAME_COSINE]
        same = piece.drawer_id in ids or piece.text_hash in texts
        if same or any(agree(marks(piece.text), marks(text)) for text in near):
            counts["duplicates"] += 1
        elif filed.count + len(chosen) >= MOST_DRAWERS:
            counts["put_off"] += 1
        else:
            ids.add(piece.drawer_id)
            texts.add(piece.text_hash)
            chosen.append(at)
    return [pieces[at] for at in chosen]


class Filing:
    """Files exchanges.

    Args:
        views: Where drawers are read.
        finder: Finds the drawers near a chunk; without it, only equal texts are found.
        publish: Publishes a fact; returns after the ack.
        embedder_for: What runs a model, None if nothing does.
        thresholds: Confidences that decide how a type is found.
        reactor: ``name@version``.
    """

    def __init__(
        self,
        views: ViewReader,
        finder: Finder | None,
        publish: Callable[[OutgoingMessage], Awaitable[Published]],
        embedder_for: Callable[[str], Embedder | None],
        thresholds: Thresholds,
        reactor: str,
    ) -> None:
        self._views = views
        self._finder = finder
        self._publish = publish
        self._embedder_for = embedder_for
        self._thresholds = thresholds
        self._reactor = reactor

    async def file(self, workspace_id: str, exchanges: Sequence[Exchange]) -> Counter[str]:
        """File exchanges; the views have reached what was filed before. Returns counts.

        Raises:
            BrokerUnavailable: If an event was not acked; it is safe to file all of them again.
        """
        counts: Counter[str] = Counter(completed=len(exchanges))
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        pieces_of = await asyncio.to_thread(self._pieces, workspace_id, exchanges)
        counts["noise"] = sum(not pieces for pieces in pieces_of)
        entry_ids = [piece.entry_id for pieces in pieces_of for piece in pieces]
        known_ids = await asyncio.to_thread(filed_entries, self._views, workspace_id, entry_ids)
        fresh = [piece for pieces in pieces_of for piece in pieces if piece.entry_id not in known_ids]
        generation = await self._embed(workspace_id, model, fresh)
        if model is not None:
            centroids = await asyncio.to_thread(centroids_in, self._views, workspace_id, model)
            for piece in fresh:
                self._ask_centroids(piece, centroids)
        near = await self._near(workspace_id, model, fresh)
        filed = await asyncio.to_thread(self._filed, workspace_id, fresh, near)
        chosen = await asyncio.to_thread(chosen_pieces, fresh, filed, counts)  # the event loop has other work meanwhile
        counts["filed"] = len(chosen)
        counts["without_vector"] = sum(not piece.vector for piece in chosen)
        if counts["put_off"]:
            _log.warning("palace.full", workspace=workspace_id, put_off=counts["put_off"])
        work = [self._file(workspace_id, model, generation, piece) for piece in chosen]
        for piece, error in zip(chosen, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(error, BrokerError | NatsError) or not isinstance(error, Exception | None):
                raise error
            if error is not None:  # a fault about one chunk stops no other
                _log.error("palace.not_filed", drawer=piece.drawer_id, error=type(error).__name__)
                counts["faults"] += 1
                counts["filed"] -= 1
        return counts

    def _pieces(self, workspace_id: str, exchanges: Sequence[Exchange]) -> list[list[_Piece]]:
        return [
            [
                self._piece(workspace_id, exchange, chunk, number)
                for number, chunk in enumerate(filed_chunks(text, self._thresholds))
            ]
            if (text := exchange.text) is not None
            else []
            for exchange in exchanges
        ]

    def _piece(self, workspace_id: str, exchange: Exchange, chunk: ExchangeChunk, number: int) -> _Piece:
        name = drawer_id(WING, chunk.room, chunk.text)
        cause = "/".join((workspace_id, *(turn.entry_id for turn in exchange.turns)))
        return _Piece(exchange, chunk, name, derived_id(_NAME, _VERSION, cause, number), hash64(chunk.text))

    async def _near(self, workspace_id: str, model: str | None, pieces: Sequence[_Piece]) -> list[list[str]]:
        """For each piece, the ids of the drawers that are near it."""
        with_vector = [at for at, piece in enumerate(pieces) if piece.vector]
        near: list[list[str]] = [[] for _ in pieces]
        if self._finder is None or model is None or not with_vector:
            return near
        vectors = [pieces[at].vector for at in with_vector]
        query = NearQuery(DRAWER_KIND, workspace_id, model, MOST_DRAWERS, SAME_COSINE, vectors=vectors)
        for at, texts in zip(with_vector, await self._finder.nearest(query), strict=True):
            near[at] = [text.item for text in texts if text.cosine > SAME_COSINE]
        return near

    def _filed(self, workspace_id: str, pieces: Sequence[_Piece], near: Sequence[Sequence[str]]) -> Filed:
        ids, hashes = [piece.drawer_id for piece in pieces], [piece.text_hash for piece in pieces]
        same = self._views.rows(_SAME, [workspace_id, ids, hashes])
        contents = self._views.rows(_TEXTS, [workspace_id, sorted({name for names in near for name in names})])
        [(count,)] = self._views.rows(_LIVE, [workspace_id])
        return Filed(
            frozenset(row[0] for row in same), frozenset(row[1] for row in same), near, dict(contents), int(count)
        )

    def _ask_centroids(self, piece: _Piece, centroids: Mapping[str, np.ndarray]) -> None:
        """Take the type of the nearest centroid if the word lists are not certain."""
        if not piece.vector or not self._thresholds.low <= piece.chunk.classified.confidence < self._thresholds.high:
            return
        vector = np.frombuffer(piece.vector, "<f4")
        cosines = {
            name: float(centroid @ vector) for name, centroid in centroids.items() if centroid.shape == vector.shape
        }
        if cosines:
            nearest = max(cosines.items(), key=lambda item: (item[1], item[0]))
            piece.chunk = chunk_of(piece.chunk.text, piece.chunk.classified, self._thresholds, nearest)
            piece.drawer_id = drawer_id(WING, piece.chunk.room, piece.chunk.text)

    async def _embed(self, workspace_id: str, model: str | None, pieces: Sequence[_Piece]) -> int:
        """Give pieces their vectors, as far as there is a model; returns its generation."""
        embedder = self._embedder_for(model) if model is not None else None
        if model is None or embedder is None or not pieces:
            return 0
        generation, dim = await asyncio.to_thread(known, self._views, model)
        try:
            async for part in embed_in_pieces(embedder, pieces, dim):
                if isinstance(part, Embedded):
                    for piece, vector in zip(part.candidates, part.vectors, strict=True):
                        piece.vector = vector
        except EmbedderError as error:  # they are filed without vectors, which embed_chunks adds
            _log.warning("palace.not_embedded", workspace=workspace_id, error=type(error).__name__)
        return generation

    async def _file(self, workspace_id: str, model: str | None, generation: int, piece: _Piece) -> None:
        exchange, chunk, head = piece.exchange, piece.chunk, piece.exchange.head
        if piece.vector and model is not None:
            text = EmbeddableText(workspace_id, piece.text_hash, chunk.text, piece.entry_id)
            for fact in text.facts(model, generation, piece.vector, None, self._reactor):
                await self._publish(fact)
        filed = DrawerFiled(
            drawer_id=piece.drawer_id,
            wing=WING,
            room=chunk.room,
            content=chunk.text,
            memory_type=chunk.memory_type,
            importance=chunk.importance,
            added_by=ADDED_BY,
            added_by_agent=next((turn.agent_id for turn in exchange.turns if turn.agent_id), ""),
            conversation=head.session[:_SESSION_CHARS],
            pipeline_tier=chunk.tier,
            state=chunk.state,
            filed_ms=exchange.said_ms,
        )
        await self._publish(
            encode_control(
                workspace_id,
                filed,
                fact_id=piece.entry_id,
                cause=head.entry_id,
                reactor=self._reactor,
                summary=f"An exchange is filed as {piece.drawer_id}",
                refs={"source_entry_ids": [turn.entry_id for turn in exchange.turns][:_SOURCES]},
            )
        )
