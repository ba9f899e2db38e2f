"""Reads of the hot path of the palace: turns of conversations, and drawers with their vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json

from ...schemas.events.workspaces import WorkspaceConfigured
from ...schemas.ports import ViewReader
from ...schemas.rules.actors import AGENT_RESPONSE, USER_MESSAGE
from ...schemas.rules.palace.exchanges import ExchangeTurn, may_answer
from ...schemas.views import (
    CHUNK_VECTORS,
    CHUNK_VECTORS_PROJECTION,
    DRAWERS,
    DRAWERS_PROJECTION,
    ENTRIES,
    ENTRIES_PROJECTION,
    LIVE_DRAWER,
    NUDGES_PROJECTION,
    VECTORS_PROJECTION,
    WORKSPACE_SETTINGS,
)
from ...schemas.views.drawers import DRAWER_CENTROIDS

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
_DRAWERS: Final = f"""SELECT drawer_id, entry_id, d.text_hash, {LIVE_DRAWER} AS live, v.vector FROM {DRAWERS} d
    LEFT JOIN {CHUNK_VECTORS} v ON v.workspace_id = d.workspace_id AND v.model = $model AND v.text_hash = d.text_hash
        AND v.dim > 0
    WHERE d.workspace_id = $workspace"""


@dataclass(frozen=True, slots=True)
class Filed:
    """The drawers of a workspace.

    Attributes:
        entries: Ids of the entries that filed one, removed ones included.
        live: Ids of live drawers.
        texts: Hashes of the texts of live drawers.
        vectors: (n, d) float32 of live drawers, L2-normalised; None without any.
        embedded: Ids of the drawers of ``vectors``, in order.
    """

    entries: frozenset[str]
    live: frozenset[str]
    texts: frozenset[int]
    vectors: npt.NDArray[np.float32] | None
    embedded: tuple[str, ...] = ()


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


def filed_in(views: ViewReader, workspace_id: str, model: str | None) -> Filed:
    """The drawers of a workspace, with the vectors of a model."""
    drawers = views.columns(_DRAWERS, {"workspace": workspace_id, "model": model or ""})
    live = drawers.filter(drawers["live"])
    with_vector = live.filter(live["vector"].is_valid())
    vectors = with_vector["vector"].combine_chunks()
    return Filed(
        frozenset(drawers["entry_id"].to_pylist()),
        frozenset(live["drawer_id"].to_pylist()),
        frozenset(live["text_hash"].to_pylist()),
        np.frombuffer(b"".join(vectors.to_pylist()), "<f4").reshape(len(vectors), -1) if len(vectors) else None,
        tuple(with_vector["drawer_id"].to_pylist()),
    )


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
