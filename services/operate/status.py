"""The state of the node: the body of ``/v1/status``, the reasons of ``/readyz``, the gauges of ``/metrics``.

Invariant: every figure is read from its part on request, and a failure is shown with the time of its beginning. Figures
of a workspace are shown only to its tokens.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ...schemas.core.errors import CrewJournalError, Unavailable
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import format_ts
from ...schemas.health.tables import HEALTH_SNAPSHOTS
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.settings import FREE_DISK_FLOOR_BYTES
from ..parts import Parts, end_task

LETTERS: Final = """(
    SELECT projection, version, seq, subject, reason, parked_ms, workspace_id,
           CASE WHEN state = 'parked' AND EXISTS (
               SELECT 1 FROM checkpoint AS now
               WHERE now.projection = letter.projection AND now.version <> letter.version AND now.seq >= letter.seq
                 AND NOT EXISTS (SELECT 1 FROM dead_letters AS again WHERE again.projection = now.projection
                                 AND again.version = now.version AND again.seq = letter.seq)
           ) THEN 'folded' ELSE state END AS state
    FROM dead_letters AS letter)"""
"""The dead letters; in state ``folded``, a later version of the view has folded the event in its place."""

_COUNTS: Final = f"""
SELECT (SELECT count(*) FROM journal_entries WHERE $1 IS NULL OR workspace_id = $1),
       (SELECT count(*) FROM journal_entries_archived WHERE $1 IS NULL OR workspace_id = $1),
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
_GAUGES: Final = {
    "stream_head": ("stream", "head"),
    "stream_bytes": ("stream", "bytes"),
    "damaged": ("journal_damage", "trouble"),
    "missing_sequences": ("journal_damage", "missing"),
    "broker_damage_warnings": ("journal_damage", "broker_said"),
    "disk_free_bytes": ("disk", "free_bytes"),
    "ingest_requests": ("ingest", "requests"),
    "ingest_overloaded": ("ingest", "overloaded"),
    "broker_restarts": ("broker", "restarts"),
    "contexts_assembled": ("context", "assembled"),
    "context_conflicts": ("context", "conflicts"),
    "context_stale_facts": ("context", "stale"),
    "context_drops": ("context", "dropped"),
}
"""Gauge → part and figure; a list counts by its length, a text as 1 if present."""


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


def disk_figures(data_dir: Path) -> dict[str, int]:
    """Bytes of a data directory's disk: free, total, and the minimum that must be free."""
    disk = shutil.disk_usage(data_dir)
    return {"free_bytes": disk.free, "total_bytes": disk.total, "floor_bytes": FREE_DISK_FLOOR_BYTES}


def space_trouble(data_dir: Path) -> str | None:
    """A sentence if the disk is nearly full, else None."""
    free, floor = shutil.disk_usage(data_dir).free, FREE_DISK_FLOOR_BYTES
    if free >= floor:
        return None
    return f"only {free // 2**20} MiB of disk are free, {floor // 2**20} are needed"


class NodeStatus:
    """Status, readiness and gauges of a node.

    Args:
        views: The views, in which entries, vectors and dead letters are counted.
        parts: The parts of the node.
        projections: Name → version of each.
        memory: Sweeps of a workspace (None: of all) and, if the second argument is true, the node's logs; blocking.
        provider: Health of the memory provider of a workspace (None: of all); answers within a second.
        about: Facts that do not change: ``version``, ``started_at``, ``views_put_aside``.
        clock: The time, UTC.
    """

    def __init__(
        self,
        views: ViewReader,
        parts: Parts,
        *,
        projections: Mapping[str, int],
        memory: Callable[[str | None, bool], Mapping[str, Any]],
        provider: Callable[[str | None], Awaitable[Mapping[str, Any]]],
        about: Mapping[str, Any],
        clock: Callable[[], datetime],
    ) -> None:
        self._views = views
        self._parts = parts
        self._projections = projections
        self._memory = memory
        self._provider = provider
        self._about = about
        self._clock = clock

    async def status(self, *, workspace_id: str | None, node: bool, counts: bool = True) -> dict[str, Any]:
        """The body of ``/v1/status``.

        Args:
            workspace_id: Show figures of this workspace alone; None for all.
            counts: Whether to show counts of the workspace's content, for OWNER and ADMIN.
            node: Whether to show the figures of the node's parts, for an OWNER of all workspaces.
        """
        problems = self.not_ready()
        body: dict[str, Any] = {
            "workspace_id": workspace_id,
            "view_seq": self._views.view_seq(),
            "ready": not problems,
            "memory": await asyncio.to_thread(self._memory, workspace_id, node),
            "memory_provider": await self._provider(workspace_id),
            **(await asyncio.to_thread(self._counts, workspace_id) if counts else {}),
        }
        if node:
            parts = await self._parts.figures()
            uptime_s = round((self._clock() - self._about["started_at"]).total_seconds(), 1)
            lags = self._lags(parts["stream"]["head"])
            body |= {**self._about, "uptime_s": uptime_s, "problems": problems, "projections": lags, **parts}
        else:
            embedder = await self.embedder()
            body["embedder"] = {"mode": embedder["mode"], "model": embedder["model"]}
        shown: dict[str, Any] = as_json(body)
        return shown

    def _lags(self, head: int) -> dict[str, Any]:
        at = {name: self._views.view_seq(name) for name in self._projections}
        return {
            name: {"version": version, "seq": at[name], "lag": max(0, head - at[name])}
            for name, version in self._projections.items()
        }

    @property
    def view_seq(self) -> int:
        """Sequence that all views have reached."""
        return self._views.view_seq()

    def not_ready(self) -> list[str]:
        """Why the node cannot serve; empty if it can."""
        return self._parts.troubles()

    async def embedder(self) -> dict[str, Any]:
        """The embedder, its model, and its last outcome."""
        shown: dict[str, Any] = as_json((await self._parts.figures("embedder"))["embedder"])
        return shown

    async def gauges(self) -> dict[str, float]:
        """Figures for Prometheus by name (``crew_journal_…``), without workspaces, agents or ids."""
        parts = as_json(await self._parts.figures("embedder", *{part for part, _ in _GAUGES.values()}))
        counts = await asyncio.to_thread(self._counts, None)
        view_seq = self._views.view_seq()
        return {
            **{f"crew_journal_{name}": _number(parts[part].get(key)) for name, (part, key) in _GAUGES.items()},
            "crew_journal_view_seq": view_seq,
            "crew_journal_view_lag": max(0, parts["stream"]["head"] - view_seq),
            "crew_journal_entries": counts["entries"]["count"],
            "crew_journal_embeddings": counts["embeddings"]["count"],
            "crew_journal_embeddings_missing": counts["embeddings"]["missing"],
            "crew_journal_dead_letters": counts["dead_letters"]["parked"],
            "crew_journal_embedder_degraded": float(parts["embedder"]["mode"] == "vector-degraded"),
            "crew_journal_ready": float(not self.not_ready()),
            **await asyncio.to_thread(self._health),
        }

    def _health(self) -> dict[str, float]:
        """The number of workspaces in each health band, by latest snapshot, and the worst score; empty if none."""
        rows = {band: (float(count), score) for band, count, score in self._views.rows(_HEALTH)}
        if not rows:
            return {}
        figures = {f"crew_journal_health_{band}": rows.get(band, (0.0, None))[0] for band in _BANDS}
        figures["crew_journal_health_no_data"] = rows.get(None, (0.0, None))[0]
        scores = [score for _, score in rows.values() if score is not None]
        return figures | ({"crew_journal_health_worst_score": min(scores)} if scores else {})

    def _counts(self, workspace_id: str | None) -> dict[str, dict[str, Any]]:
        model = active_in(read_active_models(self._views), workspace_id or SYSTEM_WORKSPACE)
        ((entries, archived, embeddable, vectors, refused, parked),) = self._views.rows(_COUNTS, [workspace_id, model])
        return {
            "entries": {"count": entries, "archived": archived},
            "embeddings": {
                "count": vectors,
                "embeddable": embeddable,
                "refused": refused,
                "missing": max(0, embeddable - vectors - refused),
                "model": model,
            },
            "dead_letters": {"parked": parked},
        }


def _number(figure: Any) -> float:
    if isinstance(figure, list):
        return float(len(figure))
    return float(bool(figure)) if isinstance(figure, str) else float(figure or 0)


# Long operations on a running node: rebuild, salvage, verify and backup.
#
# Invariant: one long operation at a time; progress is reported at once, and the last record is the result.


Progress = Callable[[int, int], None]
Records = AsyncIterator[Mapping[str, Any]]


class LongOperations:
    """Runs the long operations, one at a time.

    Args:
        rebuild: ``(names or None, whether a loss is accepted, token of the caller, progress)`` → the result.
        verify: ``(progress)`` → the result with ``equal``.
        salvage: A record for each lost entry, the last with ``result``.
        backup: Records of a backup, the last with ``result``.
    """

    def __init__(
        self,
        *,
        rebuild: Callable[[Sequence[str] | None, bool, str | None, Progress], Awaitable[Mapping[str, Any]]],
        verify: Callable[[Progress], Awaitable[Mapping[str, Any]]],
        salvage: Callable[[], Records],
        backup: Callable[[], Records],
    ) -> None:
        self._rebuild = rebuild
        self._verify = verify
        self._salvage = salvage
        self._backup = backup
        self._one_at_a_time = asyncio.Lock()
        self._watched: asyncio.Task[None] | None = None
        self.latest: Mapping[str, Any] | None = None
        """The operation that a page started last: ``name``, ``done``, ``total``, and ``result`` or ``error``."""

    def start(self, name: str, records: Records) -> None:
        """Run an operation in the background; ``latest`` shows how far it is.

        Raises:
            Unavailable: If one runs already.
        """
        self._refuse_second()
        self.latest = {"name": name, "done": 0, "total": 0}
        self._watched = asyncio.create_task(self._watch(name, records), name=f"{name} of a page")

    async def _watch(self, name: str, records: Records) -> None:
        try:
            async for record in records:
                self.latest = {"name": name, **record}
        except CrewJournalError as error:
            self.latest = {"name": name, "error": str(error)}

    async def stop(self) -> None:
        """End the operation that a page started."""
        await end_task(self._watched)

    def rebuild(
        self, projections: Sequence[str] | None, *, accept_loss: bool = False, actor: str | None = None
    ) -> Records:
        """Rebuild projections (all if None) beside the live views and swap; progress records, then ``result``.

        Raises:
            JournalDamaged: While iterating, if the journal has lost something and ``accept_loss`` is not given.
        """
        return self._long(lambda progress: self._rebuild(projections, accept_loss, actor, progress))

    async def salvage(self) -> Records:
        """Entries that the journal has lost and the views still have: ``entry`` or ``decision`` records, then ``result``."""
        async for record in self._alone(self._salvage):
            yield record

    async def backup(self) -> Records:
        """The streams as the broker copies them: ``stream`` and ``chunk`` records, then ``result``."""
        async for record in self._alone(self._backup):
            yield record

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let no long operation run meanwhile; raises ``Unavailable`` if one does."""
        self._refuse_second()
        async with self._one_at_a_time:
            yield

    async def _alone(self, work: Callable[[], Records]) -> Records:
        self._refuse_second()
        async with self._one_at_a_time:
            async for record in work():
                yield record

    def verify(self) -> Records:
        """Compare the live views with a fresh rebuild; progress records, then ``result``."""
        return self._long(self._verify)

    def _refuse_second(self) -> None:
        if self._one_at_a_time.locked():
            raise Unavailable("another rebuild, verify or backup is running", hint="wait for it to end, then ask again")

    async def _long(self, work: Callable[[Progress], Awaitable[Mapping[str, Any]]]) -> Records:
        self._refuse_second()
        async with self._one_at_a_time:
            records: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int) -> None:
                loop.call_soon_threadsafe(records.put_nowait, {"done": done, "total": total})

            task = asyncio.ensure_future(work(progress))
            task.add_done_callback(lambda _: loop.call_soon(records.put_nowait, None))
            try:
                while (record := await records.get()) is not None:
                    yield record
                yield {"result": as_json(await task)}
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
                elif not task.cancelled():
                    task.exception()  # whoever asked left before it was told
