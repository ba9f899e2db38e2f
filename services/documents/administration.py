"""Use-cases of OWNER and ADMIN on a workspace's memory documents: settings, figures, the sweep of old versions.

Invariant: settings and sweeps are events; a workspace without a retention setting keeps every version.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from ...schemas.core.errors import FieldProblem, InvalidRequest
from ...schemas.core.operation import MAX_SEQ
from ...schemas.core.recorded_settings import MemorySettings
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
from ...schemas.sweeps.rules import VERSIONS_DUE, due_times
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..journal.intake.secrets import MODE_OF_SETTING
from ..node import Answers, Node
from ..sweeps.ticks import DueTick, record_tick

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

    In a workspace without settings, credentials are treated as the node's settings say.
    """

    def __init__(self, node: Node) -> None:
        self._default = MemoryConfigUpdated(scrubber=MODE_OF_SETTING[node.settings.secrets])
        self._node = node
        self._views = node.views
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
            ViewsBehind: If the views do not show the previous change in time.
            BrokerUnavailable: If no ack came in time.
        """
        async with self._changing:
            await self._views.wait_for(self._last_change, self._node.wait_s, DOCUMENTS_PROJECTION)
            before = await asyncio.to_thread(self._config, caller.workspace_id) or self._default
            given = request.model_dump(exclude={"workspace_id", "reset"}, exclude_none=True)
            reset = {name: getattr(self._default, name) for name in request.reset}
            wanted = MemoryConfigUpdated.model_validate(before.model_dump() | reset | given)
            days = (
                "versions are kept" if wanted.retention_days is None else f"versions for {wanted.retention_days} days"
            )
            decided = await self._node.decide(
                caller,
                wanted,
                f"Memory of {caller.workspace_id}: {days}, scrubber {wanted.scrubber}, verifier {wanted.verifier}",
            )
            self._last_change = decided.seq
        await self._node.shows(decided.seq, DOCUMENTS_PROJECTION)
        return _answer(caller.workspace_id, wanted, decided.seq)

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
        """Sweep now; returns once the event is folded.

        Raises:
            InvalidRequest: If the request gives no age and the workspace has no retention setting.
            BrokerUnavailable: If no ack came in time.
        """
        days = request.older_than_days
        if days is None:
            config = await asyncio.to_thread(self._config, caller.workspace_id)
            days = config.retention_days if config is not None else None
        if days is None:
            problem = FieldProblem("older_than_days", "is missing: the workspace sets no retention_days", "give it")
            raise InvalidRequest((problem,))
        cutoff_ms = max(0, to_ms(self._node.clock()) - days * DAY_MS)
        swept = await self._sweep_of(caller.workspace_id, cutoff_ms, request.keep_latest)
        decided = await self._node.decide(caller, swept, _summary(swept), DOCUMENTS_PROJECTION)
        return VersionsSweptAnswer(
            workspace_id=caller.workspace_id,
            before=format_ms(cutoff_ms),
            keep_latest=request.keep_latest,
            swept=swept.count,
            seq=decided.seq,
        )

    async def sweep_due(self) -> None:
        """Record today's sweep of every workspace with a retention setting; several nodes record it only once.

        A sweep that was missed during a downtime is not repeated, because the next sweep removes the same versions.

        Raises:
            BrokerUnavailable: If a sweep could not be recorded; the next call retries.
        """
        now_ms = to_ms(self._node.clock())
        [due_ms] = due_times(VERSIONS_DUE, now_ms - DAY_MS, now_ms)
        for workspace_id, days in await asyncio.to_thread(self._views.rows, _RETAINING, []):
            cutoff_ms = max(0, due_ms - days * DAY_MS)
            if self._swept.get(workspace_id) == cutoff_ms:
                continue
            if not await asyncio.to_thread(self._has_swept, workspace_id, cutoff_ms, due_ms):
                swept = await self._sweep_of(workspace_id, cutoff_ms, 0)
                tick = DueTick(due_ms, workspace_id, f"versions/{days}")
                await record_tick(self._node.journal, tick, swept, "versions_swept", _summary(swept))
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


ANSWERS: Final[Answers] = (
    (MEMORY_CONFIG_OPERATION, Administration.config),
    (CONFIGURE_MEMORY, Administration.configure),
    (MEMORY_STATS, Administration.stats),
    (SWEEP_VERSIONS, Administration.sweep),
)
