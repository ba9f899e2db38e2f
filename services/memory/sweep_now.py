"""A sweep on request: publishes a tick that is due now and waits for the end of the sweep.

Invariant: the answer is the sweep's own report, or an error if none came in time. Ticks that a downtime missed are published
first: a tick that is due now moves the time from which missed ones are counted.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from ...schemas.errors import Unavailable
from ...schemas.events.sweeps import SweepFinished
from ...schemas.operations.sweeps import SWEEP, SWEEP_EMBEDDINGS, SweepAnswer, SweepEmbeddingsRequest, SweepRequest
from ...schemas.ports import ViewReader
from ...schemas.sweep_list import INDEX, ON_REQUEST, Sweep
from ...schemas.timestamps import to_ms
from ...schemas.views import ENTRIES
from ..desk import Caller
from ..node import Answers, Node
from .sweeps import Sweeps
from .ticks import DueTick, publish_tick

WAIT_S: Final = 25.0
"""Seconds to wait for a sweep's end: less than a client waits for an answer (40), more than a night's health takes."""
POLL_S: Final = 0.05
"""Seconds between two looks for it; a look takes about a millisecond."""
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
        """Wait for a sweep whose events come before its end; of the others only the tick is awaited."""
        sweep = ON_REQUEST[request.sweep]
        if sweep.on_request == "end":
            return await self.run(caller.workspace_id, sweep)
        return await self._node.use(Sweeps).run_now(caller, request)

    async def index(self, caller: Caller, _asked: SweepEmbeddingsRequest) -> SweepAnswer:
        """Run the index sweep and say what it did."""
        return await self.run(caller.workspace_id, INDEX)

    async def run(self, workspace_id: str, sweep: Sweep) -> SweepAnswer:
        """Publish the missed ticks and one more, and wait until the sweep has finished.

        The views of the sweep then show it.

        Raises:
            BrokerUnavailable: If a tick was not acked.
            Unavailable: If the sweep does not end in time; it goes on all the same.
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


ANSWERS: Final[Answers] = ((SWEEP, SweepNow.sweep), (SWEEP_EMBEDDINGS, SweepNow.index))
