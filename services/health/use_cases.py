"""Returns the last measured health of a memory from the view; reading never computes it.

Invariant: the answer is a recorded snapshot, or says that there is none; only the embedder's state is current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import orjson

from ...schemas.core.errors import NotAllowed
from ...schemas.core.timestamps import format_ms
from ...schemas.health import operations as ops
from ...schemas.health.rules import band_of
from ...schemas.health.tables import HEALTH_PROJECTION, HEALTH_SNAPSHOTS
from ...schemas.relations.tables import RELATIONS
from ...schemas.sweeps.rules import HEALTH
from ..desk import Caller
from ..node import Answers, Node
from ..sweeps.use_cases import SweepNow

_METRICS: Final = ("freshness", "coverage", "coherence", "efficiency", "reachability")
_COLUMNS: Final = (
    "snapshot_date, measured_at, band, score, legacy_score, reasons, next_step, counts, model, rules, "
    + ", ".join((*_METRICS, *(f"legacy_{name}" for name in _METRICS)))
)
_SNAPSHOTS: Final = f"""SELECT {_COLUMNS} FROM {HEALTH_SNAPSHOTS}
    WHERE workspace_id = $workspace AND crew_id IS NOT DISTINCT FROM $crew AND snapshot_date >= $since
    ORDER BY measured_at DESC LIMIT $limit"""
_CREWS: Final = (
    f"SELECT DISTINCT crew_id FROM {HEALTH_SNAPSHOTS} WHERE workspace_id = ? AND crew_id IS NOT NULL ORDER BY 1"
)
_EVER: Final = ""
REVIEW_MAX: Final = 20
"""Maximum number of proposed contradictions in an answer."""
_REVIEW: Final = f"""SELECT src_entry_id, dst_entry_id, weight, reason FROM {RELATIONS} AS pair
    WHERE workspace_id = $workspace AND relation = 'contradicts' AND state = 'proposed'
      AND ($crew IS NULL OR crew_id = $crew)
      AND NOT EXISTS (
          SELECT 1 FROM {RELATIONS} AS known
          WHERE known.workspace_id = pair.workspace_id AND known.relation = 'supersedes' AND known.state = 'active'
            AND ((known.src_entry_id = pair.src_entry_id AND known.dst_entry_id = pair.dst_entry_id)
              OR (known.src_entry_id = pair.dst_entry_id AND known.dst_entry_id = pair.src_entry_id)))
    ORDER BY weight DESC, seq DESC LIMIT {REVIEW_MAX}"""


class MemoryHealth:
    """Shows health, and requests measurements."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views

    async def latest(self, caller: Caller, request: ops.HealthRequest) -> ops.HealthAnswer:
        """The latest snapshot of a workspace or crew; for administrators, also the proposed contradictions.

        Raises:
            NotAllowed: If the token is bound to another crew.
        """
        workspace_id, crew_id, profile, history_days = (
            caller.workspace_id,
            request.crew_id,
            request.profile,
            request.history,
        )
        _check_crew(caller, crew_id)
        rows = await self._read(workspace_id, crew_id, _EVER, 1)
        history: Sequence[Sequence[Any]] = ()
        if history_days:
            since = (self._node.clock() - timedelta(days=history_days - 1)).strftime("%Y-%m-%d")
            history = await self._read(workspace_id, crew_id, since, history_days)
        crews, review = (
            await asyncio.to_thread(self._named, workspace_id, crew_id) if caller.administers else (None, None)
        )
        snapshot = _snapshot(rows[0], profile) if rows else None
        return ops.HealthAnswer(
            **(snapshot.model_dump() if snapshot is not None else {"status": "no snapshot yet"}),
            workspace_id=workspace_id,
            crew_id=crew_id,
            profile=profile,
            embedder=dict(self._node.embedders.state(workspace_id)),
            crews=crews,
            review=review,
            history=tuple(_snapshot(row, profile) for row in history),
            hint="" if rows else "it is measured every night; `crew-journal health --recompute` measures it now",
            view_seq=self._views.view_seq(HEALTH_PROJECTION),
        )

    def _named(
        self, workspace_id: str, crew_id: str | None
    ) -> tuple[tuple[str, ...], tuple[ops.ProposedContradiction, ...]]:
        crews = tuple(str(name) for (name,) in self._views.rows(_CREWS, [workspace_id]))
        proposed = self._views.rows(_REVIEW, {"workspace": workspace_id, "crew": crew_id})
        return crews, tuple(
            ops.ProposedContradiction(src=src, dst=dst, weight=weight, reason=reason)
            for src, dst, weight, reason in proposed
        )

    async def measure(self, caller: Caller, request: ops.MeasureHealthRequest) -> ops.HealthAnswer:
        """Measure health now; returns when the snapshots can be read.

        Raises:
            BrokerUnavailable: If the sweep could not be requested.
            Unavailable: If the sweep did not end in time.
        """
        await self._node.use(SweepNow).run(caller.workspace_id, HEALTH)
        return await self.latest(caller, ops.HealthRequest(**request.model_dump()))

    async def _read(self, workspace_id: str, crew_id: str | None, since: str, limit: int) -> list[tuple[Any, ...]]:
        params = {"workspace": workspace_id, "crew": crew_id, "since": since, "limit": limit}
        return await asyncio.to_thread(self._views.rows, _SNAPSHOTS, params)


def _check_crew(caller: Caller, crew_id: str | None) -> None:
    if crew_id is not None and not caller.administers and crew_id != caller.principal.crew_id:
        raise NotAllowed(
            "the token is bound to another crew_id", hint="leave crew_id out or use that crew's token", field="crew_id"
        )


def _snapshot(row: Sequence[Any], profile: ops.Profile) -> ops.HealthSnapshot:
    date, measured_at, band, score, legacy_score, reasons, next_step, counts, model, rules, *metrics = row
    legacy = profile == "legacy"
    shown = metrics[len(_METRICS) :] if legacy else metrics[: len(_METRICS)]
    score = legacy_score if legacy else score
    return ops.HealthSnapshot(
        date=date,
        measured_at=format_ms(measured_at),
        status="no data" if score is None else "ok",
        score=score,
        band=band_of(score) if legacy else band,
        metrics=dict(zip(_METRICS, shown, strict=True)),
        reasons=() if legacy else tuple(orjson.loads(reasons)),
        next_step="" if legacy else next_step,
        counts=orjson.loads(counts),
        model=model,
        rules=rules,
    )


ANSWERS: Final[Answers] = ((ops.HEALTH, MemoryHealth.latest), (ops.MEASURE_HEALTH, MemoryHealth.measure))
