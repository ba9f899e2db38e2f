"""A sweep on request: publishes a tick that is due now and waits for the end of the sweep.

Invariant: the answer is the sweep's own report, or an error if no report came in time. Ticks that were missed during a
downtime are published first, because missed ticks are counted from the last tick.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from ...schemas.core.errors import NotFound, Unavailable
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.tables import ENTRIES
from ...schemas.models import rules as embed_policy
from ...schemas.models.events import ReindexRequested
from ...schemas.models.tables import EMBEDDINGS, read_active_models
from ...schemas.sweeps.events import SweepFinished
from ...schemas.sweeps.operations import (
    REINDEX,
    SWEEP,
    SWEEP_EMBEDDINGS,
    ReindexAnswer,
    ReindexRequest,
    SweepAnswer,
    SweepEmbeddingsRequest,
    SweepRequest,
)
from ...schemas.sweeps.rules import INDEX, ON_REQUEST, Sweep
from ..desk import Caller
from ..node import Answers, Node
from .scheduler import DueTick, Sweeps, publish_tick

WAIT_S: Final = 25.0
"""Seconds to wait for a sweep's end: less than a client waits for an answer (40 s), more than a nightly health sweep
takes.
"""
POLL_S: Final = 0.05
"""Seconds between two checks for the end; a check takes about 1 ms."""
_FINISHED: Final = f"""SELECT seq, payload FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ? AND seq > ?
    ORDER BY seq"""


class SweepNow:
    """Runs sweeps on request.

    Args:
        node: What use-cases share.
        wait_s: Seconds to wait for the end.
    """

    def __init__(self, node: Node, *, wait_s: float = WAIT_S) -> None:
        self._node = node
        self._views = node.views
        self._wait_s = wait_s

    async def sweep(self, caller: Caller, request: SweepRequest) -> SweepAnswer:
        """Run a sweep. Its end is awaited only if it publishes events before its end; otherwise only the tick is awaited."""
        sweep = ON_REQUEST[request.sweep]
        if sweep.on_request == "end":
            return await self.run(caller.workspace_id, sweep)
        return await self._node.use(Sweeps).run_now(caller, request)

    async def index(self, caller: Caller, _asked: SweepEmbeddingsRequest) -> SweepAnswer:
        """Run the index sweep and return its report."""
        return await self.run(caller.workspace_id, INDEX)

    async def run(self, workspace_id: str, sweep: Sweep) -> SweepAnswer:
        """Publish the missed ticks and a new tick, and wait until the sweep has finished.

        The views then show its results.

        Raises:
            BrokerUnavailable: If a tick was not acked.
            Unavailable: If the sweep does not end in time; it continues.
        """
        await self._node.use(Sweeps).catch_up(workspace_id)
        tick = DueTick(to_ms(self._node.clock()), workspace_id, sweep.name)
        ticked = await publish_tick(self._node.journal, tick)
        try:
            async with asyncio.timeout(self._wait_s):
                answer = await reported(self._views, tick, ticked.seq)
        except TimeoutError:
            raise Unavailable(
                f"the {sweep.name} sweep of {tick.due} has not finished within {self._wait_s:g} s",
                hint="it goes on; ask again later, and see the reactors in `crew-journal status`",
            ) from None
        await self._node.shows(answer.seq, *sweep.views)
        return answer


async def reported(views: ViewReader, tick: DueTick, after: int) -> SweepAnswer:
    """Wait for the report of the sweep of a tick at sequence ``after``; the caller bounds the time."""
    while (answer := await asyncio.to_thread(report_of, views, tick, after)) is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)  # the finish may come from another node, so there is no event to wait for
    return answer


def report_of(views: ViewReader, tick: DueTick, after: int) -> SweepAnswer | None:
    """The report of the sweep of a tick at sequence ``after``; None while there is none; blocking."""
    for seq, payload in views.rows(_FINISHED, [tick.workspace_id, SweepFinished.ENTRY_TYPE, after]):
        fields: dict[str, Any] = orjson.loads(payload)
        if fields.get("sweep") == tick.sweep and fields.get("due") == tick.due:
            return SweepAnswer(
                workspace_id=tick.workspace_id,
                sweep=tick.sweep,
                due=tick.due,
                seq=int(seq),
                counts=fields.get("counts") or {},
                error=fields.get("error"),
            )
    return None


# A reindex: the current embed policy is applied to all entries, and texts that a model refused are retried.


_MODELS: Final = f"SELECT DISTINCT model FROM {EMBEDDINGS} WHERE workspace_id = $workspace"
_REFUSED: Final = f"""SELECT count(*) FROM {EMBEDDINGS}
    WHERE workspace_id = $workspace AND dim = 0 AND ($model IS NULL OR model = $model)"""
_MISSING: Final = f"""SELECT count(*) FROM {ENTRIES} e WHERE e.workspace_id = $workspace AND e.embeddable AND NOT EXISTS (
    SELECT 1 FROM {EMBEDDINGS} v WHERE v.workspace_id = $workspace AND v.entry_seq = e.seq
    AND ($model IS NULL OR v.model = $model))"""


class Reindexing:
    """Requests a reindex of a workspace."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views

    async def request(self, caller: Caller, request: ReindexRequest) -> ReindexAnswer:
        """Record the request, and that the index sweep is due.

        Raises:
            NotFound: If the workspace knows no such model.
            BrokerUnavailable: If it was not acked; asking again is safe.
        """
        workspace_id, model = caller.workspace_id, request.model
        refused, missing = await asyncio.to_thread(self._count, workspace_id, model)
        payload = ReindexRequested(policy=embed_policy.VERSION, model=model, reason=request.reason)
        requested = await self._node.decide(
            caller, payload, f"reindex by embed policy {payload.policy}, {refused} refused texts are tried again"
        )
        tick = DueTick(to_ms(self._node.clock()), workspace_id, INDEX.name)
        await publish_tick(self._node.journal, tick)
        return ReindexAnswer(
            workspace_id=workspace_id,
            policy=payload.policy,
            model=model,
            seq=requested.seq,
            refused=refused,
            missing=missing,
            due=tick.due,
        )

    def _count(self, workspace_id: str, model: str | None) -> tuple[int, int]:
        if model is not None:
            active = read_active_models(self._views)
            held = {str(name) for (name,) in self._views.rows(_MODELS, {"workspace": workspace_id})}
            known = sorted(held | {active[of] for of in (workspace_id, SYSTEM_WORKSPACE) if of in active})
            if model not in known:
                named = ", ".join(known) or "none"
                raise NotFound("no vectors of that model here", hint=f"known are {named}", field="model")
        params = {"workspace": workspace_id, "model": model}
        [(refused,)], [(missing,)] = self._views.rows(_REFUSED, params), self._views.rows(_MISSING, params)
        return int(refused), int(missing)


ANSWERS: Final[Answers] = (
    (SWEEP, SweepNow.sweep),
    (SWEEP_EMBEDDINGS, SweepNow.index),
    (REINDEX, Reindexing.request),
)
