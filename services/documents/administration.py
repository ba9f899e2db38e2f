"""What OWNER and ADMIN decide and see of a workspace's memory documents: settings, figures, the sweep of old versions.

Invariant: settings and sweeps are events; a workspace that sets no retention keeps every version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Final

import orjson

from ...schemas.core.entry import ActorType
from ...schemas.core.errors import FieldProblem, InvalidRequest, ViewsBehind
from ...schemas.core.operation import MAX_SEQ
from ...schemas.core.ports import ViewReader
from ...schemas.core.recorded_settings import MemorySettings, ScrubberMode
from ...schemas.core.timestamps import DAY_MS, format_ms, to_ms
from ...schemas.documents.events import MemoryConfigUpdated, MemoryVersionsSwept
from ...schemas.documents.operations import (
    CONFIGURE_MEMORY,
    MEMORY_STATS,
    SWEEP_VERSIONS,
    ConfigureMemoryRequest,
    MemoryConfigAnswer,
    MemoryConfigRequest,
    MemoryStatsAnswer,
    MemoryStatsRequest,
    SweepVersionsRequest,
    TierFigures,
    VersionsSweptAnswer,
)
from ...schemas.documents.operations import MEMORY_CONFIG as MEMORY_CONFIG_OPERATION
from ...schemas.documents.tables import DOCUMENTS, DOCUMENTS_PROJECTION, MEMORY_CONFIG, SWEPT_VERSIONS, VERSIONS
from ...schemas.entries.tables import ENTRIES
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.sweeps.rules import VERSIONS_DUE, due_times
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..journal.intake.recorder import Recorder
from ..journal.intake.secrets import DEFAULT_MODE
from ..sweeps.ticks import DueTick, record_tick

# Waits until the views show what was recorded.


async def until_shown(views: ViewReader, seq: int, *projections: str) -> None:
    """Wait, for ``MIN_SEQ_WAIT_S`` at most, until projections have passed a sequence that was recorded."""
    with contextlib.suppress(ViewsBehind):
        await views.wait_for(seq, MIN_SEQ_WAIT_S, *projections)


_CONFIG: Final = f"SELECT {', '.join(MemorySettings.model_fields)} FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_RETAINING: Final = f"SELECT workspace_id, retention_days FROM {MEMORY_CONFIG} WHERE retention_days IS NOT NULL"
_COUNT: Final = f"SELECT count(*) FROM {VERSIONS} WHERE {SWEPT_VERSIONS}"
_SWEEPS: Final = f"""SELECT payload FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ?
    AND published_ms >= ?"""
_STATS: Final = f"""SELECT owner, tier, documents, retracted, blocked, bytes, versions, swept, version_bytes, updated_ms
    FROM (SELECT owner, tier, count(*) FILTER (NOT retracted) AS documents, count(*) FILTER (retracted) AS retracted,
          count(finding) AS blocked, sum(bytes)::BIGINT AS bytes, max(updated_ms) AS updated_ms
          FROM {DOCUMENTS} WHERE workspace_id = $1 GROUP BY ALL)
    JOIN (SELECT owner, tier, count(*) AS versions, count(*) FILTER (piece IS NULL) AS swept,
          coalesce(sum(strlen(piece)), 0)::BIGINT AS version_bytes
          FROM {VERSIONS} WHERE workspace_id = $1 GROUP BY ALL) USING (owner, tier) ORDER BY owner, tier"""


class Administration:
    """The use-cases.

    Args:
        views: The views of documents.
        journal: Records settings and sweeps.
        clock: The time now, UTC.
        scrubber: What is done with credentials in a workspace without settings.
    """

    def __init__(
        self,
        views: ViewReader,
        journal: Recorder,
        *,
        clock: Callable[[], datetime],
        scrubber: ScrubberMode = DEFAULT_MODE,
    ) -> None:
        self._default = MemoryConfigUpdated(scrubber=scrubber)
        self._views = views
        self._journal = journal
        self._clock = clock
        self._changing = asyncio.Lock()
        self._last_change = 0
        self._swept: dict[str, int] = {}

    async def config(self, caller: Caller, _asked: MemoryConfigRequest) -> MemoryConfigAnswer:
        """The settings; the defaults if there are none.

        Raises:
            NotFound: If there is no such workspace.
        """
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        config_row = await asyncio.to_thread(self._config, caller.workspace_id)
        if config_row is None:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        return _answer(caller.workspace_id, config_row or self._default, view_seq)

    async def configure(self, caller: Caller, request: ConfigureMemoryRequest) -> MemoryConfigAnswer:
        """Record settings; returns once they apply to writes.

        Raises:
            ViewsBehind: If the views do not show the change before this one in time.
            BrokerUnavailable: If no ack came within the bound.
        """
        async with self._changing:
            await self._views.wait_for(self._last_change, MIN_SEQ_WAIT_S, DOCUMENTS_PROJECTION)
            before = await asyncio.to_thread(self._config, caller.workspace_id) or self._default
            given = request.model_dump(exclude={"workspace_id", "reset"}, exclude_none=True)
            reset = {name: getattr(self._default, name) for name in request.reset}
            wanted = MemoryConfigUpdated.model_validate(before.model_dump() | reset | given)
            days = (
                "versions are kept" if wanted.retention_days is None else f"versions for {wanted.retention_days} days"
            )
            recorded = await self._journal.record(
                caller.workspace_id,
                wanted,
                summary=f"Memory of {caller.workspace_id}: {days}, scrubber {wanted.scrubber}, verifier {wanted.verifier}",
                actor_type=ActorType.USER,
                actor_id=caller.actor,
            )
            self._last_change = recorded.seq
        await until_shown(self._views, recorded.seq, DOCUMENTS_PROJECTION)
        return _answer(caller.workspace_id, wanted, recorded.seq)

    async def stats(self, caller: Caller, _asked: MemoryStatsRequest) -> MemoryStatsAnswer:
        """Figures by owner and tier.

        Raises:
            NotFound: If there is no such workspace.
        """
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        rows = await asyncio.to_thread(self._views.rows, _STATS, [caller.workspace_id])
        if not rows:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        names = tuple(TierFigures.model_fields)
        tiers = tuple(
            TierFigures(**dict(zip(names, (*figures, format_ms(updated)), strict=True))) for *figures, updated in rows
        )
        return MemoryStatsAnswer(
            workspace_id=caller.workspace_id,
            tiers=tiers,
            documents=sum(tier.documents for tier in tiers),
            bytes=sum(tier.bytes for tier in tiers),
            versions=sum(tier.versions for tier in tiers),
            version_bytes=sum(tier.version_bytes for tier in tiers),
            view_seq=view_seq,
        )

    async def sweep(self, caller: Caller, request: SweepVersionsRequest) -> VersionsSweptAnswer:
        """Sweep now; returns once it is folded.

        Raises:
            InvalidRequest: If no age is given and the workspace sets none.
            ViewsBehind: If it was recorded and is not folded in time.
            BrokerUnavailable: If no ack came within the bound.
        """
        days = request.older_than_days
        if days is None:
            config = await asyncio.to_thread(self._config, caller.workspace_id)
            days = config.retention_days if config is not None else None
        if days is None:
            problem = FieldProblem("older_than_days", "is missing: the workspace sets no retention_days", "give it")
            raise InvalidRequest((problem,))
        cutoff_ms = max(0, to_ms(self._clock()) - days * DAY_MS)
        swept = await self._sweep_of(caller.workspace_id, cutoff_ms, request.keep_latest)
        recorded = await self._journal.record(
            caller.workspace_id, swept, summary=_summary(swept), actor_type=ActorType.USER, actor_id=caller.actor
        )
        await until_shown(self._views, recorded.seq, DOCUMENTS_PROJECTION)
        return VersionsSweptAnswer(
            workspace_id=caller.workspace_id,
            before=format_ms(cutoff_ms),
            keep_latest=request.keep_latest,
            swept=swept.count,
            seq=recorded.seq,
        )

    async def sweep_due(self) -> None:
        """Record today's sweep of every workspace that sets a retention, once however many nodes do so.

        A sweep that a downtime missed is not repeated: the next one removes the same versions.

        Raises:
            BrokerUnavailable: If one could not be recorded; the next call tries again.
        """
        now_ms = to_ms(self._clock())
        [due_ms] = due_times(VERSIONS_DUE, now_ms - DAY_MS, now_ms)
        for workspace_id, days in await asyncio.to_thread(self._views.rows, _RETAINING, []):
            cutoff_ms = max(0, due_ms - days * DAY_MS)
            if self._swept.get(workspace_id) == cutoff_ms:
                continue
            if not await asyncio.to_thread(self._has_swept, workspace_id, cutoff_ms, due_ms):
                swept = await self._sweep_of(workspace_id, cutoff_ms, 0)
                tick = DueTick(due_ms, workspace_id, f"versions/{days}")
                await record_tick(self._journal, tick, swept, "versions_swept", _summary(swept))
            self._swept[workspace_id] = cutoff_ms

    async def _sweep_of(self, workspace_id: str, cutoff_ms: int, keep_latest: int) -> MemoryVersionsSwept:
        named = [workspace_id, MAX_SEQ, cutoff_ms, keep_latest]
        [(count,)] = await asyncio.to_thread(self._views.rows, _COUNT, named)
        return MemoryVersionsSwept(cutoff_ms=cutoff_ms, keep_latest=keep_latest, count=count)

    def _has_swept(self, workspace_id: str, cutoff_ms: int, since_ms: int) -> bool:
        rows = self._views.rows(_SWEEPS, [workspace_id, MemoryVersionsSwept.ENTRY_TYPE, since_ms])
        return any(orjson.loads(payload)["cutoff_ms"] == cutoff_ms for (payload,) in rows)

    def _config(self, workspace_id: str) -> MemoryConfigUpdated | None:
        for values in self._views.rows(_CONFIG, [workspace_id]):
            return MemoryConfigUpdated(**dict(zip(MemorySettings.model_fields, values, strict=True)))
        return None


def _summary(swept: MemoryVersionsSwept) -> str:
    return f"Texts of {swept.count} versions of documents from before {format_ms(swept.cutoff_ms)} are swept"


def _answer(workspace_id: str, config: MemoryConfigUpdated, view_seq: int) -> MemoryConfigAnswer:
    return MemoryConfigAnswer(workspace_id=workspace_id, **config.model_dump(), view_seq=view_seq)


ANSWERS: Final = (
    (MEMORY_CONFIG_OPERATION, Administration.config),
    (CONFIGURE_MEMORY, Administration.configure),
    (MEMORY_STATS, Administration.stats),
    (SWEEP_VERSIONS, Administration.sweep),
)
