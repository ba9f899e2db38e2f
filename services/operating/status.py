"""How the node is doing: the body of ``/v1/status``, the reasons of ``/readyz``, the gauges of ``/metrics``.

Invariant: nothing here is latched or configured; every figure is read from the part it speaks of when it is asked, and what
fails is named with since when. Tenants' figures are shown to their workspace only.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ...schemas.active_models import active_in, read_active_models
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.ports import ViewReader
from ...schemas.settings import FREE_DISK_FLOOR_BYTES
from ...schemas.timestamps import format_ts
from ...schemas.views import HEALTH_SNAPSHOTS

LETTERS: Final = """(
    SELECT projection, version, seq, subject, reason, parked_ms, workspace_id,
           CASE WHEN state = 'parked' AND EXISTS (
               SELECT 1 FROM checkpoint AS now
               WHERE now.projection = letter.projection AND now.version <> letter.version AND now.seq >= letter.seq
                 AND NOT EXISTS (SELECT 1 FROM dead_letters AS again WHERE again.projection = now.projection
                                 AND again.version = now.version AND again.seq = letter.seq)
           ) THEN 'folded' ELSE state END AS state
    FROM dead_letters AS letter)"""
"""The dead letters; ``folded`` is one whose event another version of the view has taken in its place since."""

_COUNTS: Final = f"""
SELECT (SELECT count(*) FROM journal_entries WHERE $1 IS NULL OR workspace_id = $1),
       (SELECT count(*) FROM journal_entries WHERE embeddable AND ($1 IS NULL OR workspace_id = $1)),
       (SELECT count(DISTINCT entry_seq) FROM journal_embeddings
        WHERE dim > 0 AND ($2 IS NULL OR model = $2) AND ($1 IS NULL OR workspace_id = $1)),
       (SELECT count(DISTINCT entry_seq) FROM journal_embeddings
        WHERE dim = 0 AND ($2 IS NULL OR model = $2) AND ($1 IS NULL OR workspace_id = $1)),
       (SELECT count(*) FROM {LETTERS} WHERE state = 'parked' AND ($1 IS NULL OR workspace_id = $1))
"""

_HEALTH: Final = f"""
SELECT band, count(*), min(score) FROM (
    SELECT band, score FROM {HEALTH_SNAPSHOTS} WHERE crew_id IS NULL
    QUALIFY row_number() OVER (PARTITION BY workspace_id ORDER BY measured_at DESC) = 1)
GROUP BY band
"""
_BANDS: Final = ("red", "yellow", "green")


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Where each figure comes from; made by the composition root.

    Attributes:
        version: Of the distribution.
        started_at: When the node was started.
        data_dir: Whose disk is watched.
        views: The views.
        projections: Name → version of each.
        stream: Asks the broker for JOURNAL: ``head``, ``messages``, ``bytes``.
        broker: The broker: url, version, durability, restarts …
        connection: The writer's connection: connected, since, last_error.
        folding: The host: stopped, since, laggards, parked …
        feed: The live feed: lag, last_error, since.
        reactors: Status of each reactor.
        embedder: The embedder: kind, reason, mode, model, error, since …
        stream_trouble: What is wrong with JOURNAL itself, None if nothing is.
        canary: The write probe: ok, last_error, since.
        ingest: Requests to append over NATS: requests, entries, refused, overloaded …
        cache: The hot indexes: workspaces, bytes.
        memory: Of a workspace (None: of all) the sweeps, and, if its second argument is true, the node's logs.
        journal: What the journal has lost: trouble, missing, sequences, since, views_kept, broker_said.
        damage: What is broken in the file of the views, None if nothing was found to be.
        views_trouble: Why DuckDB cannot use that file at the moment, None if it can.
        views_aside: The file that was put aside when the node started: name, reason, at; None if none was.
    """

    version: str
    started_at: datetime
    data_dir: Path
    views: ViewReader
    projections: Mapping[str, int]
    stream: Callable[[], Awaitable[Mapping[str, int]]]
    broker: Callable[[], Mapping[str, Any]]
    connection: Callable[[], Mapping[str, Any]]
    folding: Callable[[], Mapping[str, Any]]
    feed: Callable[[], Mapping[str, Any]]
    reactors: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
    embedder: Callable[[], Mapping[str, Any]]
    stream_trouble: Callable[[], str | None]
    canary: Callable[[], Mapping[str, Any]]
    ingest: Callable[[], Mapping[str, Any]]
    cache: Callable[[], Mapping[str, Any]]
    memory: Callable[[str | None, bool], Mapping[str, Any]]
    journal: Callable[[], Mapping[str, Any]]
    damage: Callable[[], str | None]
    views_trouble: Callable[[], str | None]
    views_aside: Mapping[str, Any] | None


def as_json(value: Any) -> Any:
    """Dataclasses, times, paths and enums as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return as_json(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if isinstance(value, datetime):
        return format_ts(value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _body(figures: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = as_json(figures)
    return body


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the parts that readiness hangs on; free bytes of disk included."""

    folding: Mapping[str, Any]
    canary: Mapping[str, Any]
    connection: Mapping[str, Any]
    stream_trouble: str | None
    journal: Mapping[str, Any]
    damage: str | None
    views_trouble: str | None
    free_bytes: int
    total_bytes: int

    def problems(self) -> list[str]:
        """Why the node cannot serve, in words; empty if it can."""
        reasons = []
        if self.journal.get("trouble"):
            reasons.append(str(self.journal["trouble"]))
        if self.damage is not None:
            reasons.append(f"{self.damage} (crew-journal rebuild)")
        if self.views_trouble is not None:
            reasons.append(f"the views cannot be used and are being reopened automatically: {self.views_trouble}")
        if self.folding.get("stopped"):
            reasons.append(f"folding has stopped: {self.folding['stopped']}")
        if not self.connection.get("connected", True):
            reasons.append(f"the broker is not connected: {self.connection.get('last_error') or 'reconnecting'}")
        elif self.canary.get("ok") is False:
            reasons.append(f"the broker does not accept writes: {self.canary.get('error')}")
        if self.stream_trouble is not None:
            reasons.append(self.stream_trouble)
        if self.free_bytes < FREE_DISK_FLOOR_BYTES:
            floor = FREE_DISK_FLOOR_BYTES // 2**20
            reasons.append(f"only {self.free_bytes // 2**20} MiB of disk are free, {floor} are needed")
        return reasons


class Node:
    """Implements ``services.http.ports.NodeStatus``."""

    def __init__(self, parts: NodeParts, *, clock: Callable[[], datetime]) -> None:
        self._parts = parts
        self._clock = clock

    async def status(self, *, workspace_id: str | None, node: bool) -> Mapping[str, Any]:
        """The body of ``/v1/status``; without ``node`` only the workspace's own figures."""
        parts = self._parts
        counts = await asyncio.to_thread(self._counts, workspace_id)
        memory = await asyncio.to_thread(parts.memory, workspace_id, node)
        embedder = parts.embedder()
        view_seq = parts.views.view_seq()
        look = await self._look()
        problems = look.problems()
        if not node:
            return _body(
                {
                    "workspace_id": workspace_id,
                    "view_seq": view_seq,
                    "ready": not problems,
                    "embedder": {"mode": embedder["mode"], "model": embedder["model"]},
                    "memory": memory,
                    **counts,
                }
            )
        head = await self._head()
        at = {name: parts.views.view_seq(name) for name in parts.projections}
        lag = {
            name: {"version": version, "seq": at[name], "lag": max(0, head["head"] - at[name])}
            for name, version in parts.projections.items()
        }
        return _body(
            {
                "version": parts.version,
                "workspace_id": workspace_id,
                "started_at": parts.started_at,
                "uptime_s": round((self._clock() - parts.started_at).total_seconds(), 1),
                "ready": not problems,
                "problems": problems,
                "stream": head,
                "view_seq": view_seq,
                "projections": lag,
                "journal_damage": look.journal,
                "views_put_aside": parts.views_aside,
                "folding": look.folding,
                "feed": parts.feed(),
                "reactors": await parts.reactors(),
                "broker": parts.broker(),
                "connection": look.connection,
                "canary": look.canary,
                "ingest": parts.ingest(),
                "disk": {
                    "free_bytes": look.free_bytes,
                    "total_bytes": look.total_bytes,
                    "floor_bytes": FREE_DISK_FLOOR_BYTES,
                },
                "embedder": embedder,
                "hot_index": parts.cache(),
                "memory": memory,
                **counts,
            }
        )

    async def not_ready(self) -> list[str]:
        """Why the node cannot serve, in words; empty if it can."""
        return (await self._look()).problems()

    async def _look(self) -> _Look:
        parts = self._parts
        disk = await asyncio.to_thread(shutil.disk_usage, parts.data_dir)
        return _Look(
            parts.folding(),
            parts.canary(),
            parts.connection(),
            parts.stream_trouble(),
            parts.journal(),
            parts.damage(),
            parts.views_trouble(),
            disk.free,
            disk.total,
        )

    async def gauges(self) -> Mapping[str, float]:
        """Figures for Prometheus; no tenant in any of them."""
        parts = self._parts
        counts = await asyncio.to_thread(self._counts, None)
        head = await self._head()
        embedder, look = parts.embedder(), await self._look()
        figures: dict[str, float] = {
            "crew_journal_stream_head": head["head"],
            "crew_journal_stream_bytes": head.get("bytes", 0),
            "crew_journal_view_seq": parts.views.view_seq(),
            "crew_journal_view_lag": max(0, head["head"] - parts.views.view_seq()),
            "crew_journal_entries": counts["entries"]["count"],
            "crew_journal_embeddings": counts["embeddings"]["count"],
            "crew_journal_embeddings_missing": counts["embeddings"]["missing"],
            "crew_journal_dead_letters": counts["dead_letters"]["parked"],
            "crew_journal_embedder_degraded": float(embedder["mode"] == "vector-degraded"),
            "crew_journal_ready": float(not look.problems()),
            "crew_journal_damaged": float(bool(look.journal.get("trouble"))),
            "crew_journal_missing_sequences": float(look.journal.get("missing", 0)),
            "crew_journal_broker_damage_warnings": float(len(look.journal.get("broker_said", ()))),
            "crew_journal_disk_free_bytes": look.free_bytes,
            "crew_journal_ingest_requests": float(parts.ingest().get("requests", 0)),
            "crew_journal_ingest_overloaded": float(parts.ingest().get("overloaded", 0)),
            "crew_journal_broker_restarts": float(parts.broker().get("restarts", 0)),
        }
        return figures | await asyncio.to_thread(self._health)

    def _health(self) -> dict[str, float]:
        """How many workspaces are in each band by their latest snapshot, and the worst score; none without snapshots."""
        rows = {band: (float(count), score) for band, count, score in self._parts.views.rows(_HEALTH)}
        if not rows:
            return {}
        figures = {f"crew_journal_health_{band}": rows.get(band, (0.0, None))[0] for band in _BANDS}
        figures["crew_journal_health_no_data"] = rows.get(None, (0.0, None))[0]
        scores = [score for _, score in rows.values() if score is not None]
        return figures | ({"crew_journal_health_worst_score": min(scores)} if scores else {})

    async def _head(self) -> dict[str, Any]:
        try:
            return dict(await self._parts.stream())
        except Exception as error:  # the broker is away: say so, and go by what the views have seen
            return {"head": self._parts.views.view_seq(), "unavailable": str(error) or type(error).__name__}

    def _counts(self, workspace_id: str | None) -> dict[str, dict[str, Any]]:
        views = self._parts.views
        model = active_in(read_active_models(views), workspace_id or SYSTEM_WORKSPACE)
        ((entries, embeddable, vectors, refused, parked),) = views.rows(_COUNTS, [workspace_id, model])
        return {
            "entries": {"count": entries},
            "embeddings": {
                "count": vectors,
                "embeddable": embeddable,
                "refused": refused,
                "missing": max(0, embeddable - vectors - refused),
                "model": model,
            },
            "dead_letters": {"parked": parked},
        }
