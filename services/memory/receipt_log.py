"""Records recalls as their receipts: one ``memory.searched`` each, published in the background.

Invariants: a recall does not wait for the broker. A receipt is handed out only while the broker stores what it is sent and
the queue has room; it is then published until it is acked, and is lost only if the node ends first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from ...schemas.errors import BrokerError, BrokerUnavailable, CrewJournalError
from ...schemas.events.memory import MemorySearched
from ...schemas.ids import uuid7_hex
from ...schemas.principal import Principal
from ..endings import end_task
from ..journal.intake.recorder import Recorder
from ..query.recall import AnsweredRecall

PREFIX: Final = "r_"
LINGER_S: Final = 1.0
"""Seconds that receipts are gathered before they are published, unless one is asked for: one commit instead of many.

At 100 recalls a second, a receipt costs 1.8 ms of CPU if they are gathered for 0.25 s, 0.9 ms if for 1 s.
"""
QUEUE: Final = 2_000
"""Receipts that wait to be published, 2 to 10 MB; beyond it, recalls get none."""
GROUP: Final = 64
"""Receipts published at once: they share one fsync, and take about 10 ms of the event loop."""
MOST_HITS: Final = 100
"""Hits that ``memory.searched`` may name."""
RETRY_S: Final = 1.0
"""Seconds until receipts are published again that the broker did not ack."""
STOP_TIMEOUT_S: Final = 5.0
"""Seconds that the last receipts may take while the node stops."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiptFigures:
    """What ``status`` shows.

    Attributes:
        pending: Receipts not yet published.
        published: Receipts published since start.
        refused: Recalls since start that got no receipt.
        error: Why the last receipts were not published, None if they were.
    """

    pending: int
    published: int
    refused: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Receipt:
    entry_id: str
    workspace_id: str
    crew_id: str | None
    agent_id: str | None
    payload: MemorySearched


class ReceiptLog:
    """Records recalls; used on the event loop.

    Args:
        journal: Records them.
        connected: Whether the broker can be reached.
    """

    def __init__(self, journal: Recorder, connected: Callable[[], bool]) -> None:
        self._journal = journal
        self._connected = connected
        self._waiting: dict[str, _Receipt] = {}
        self._due = asyncio.Event()
        self._hurry = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._published = 0
        self._refused = 0
        self._error: str | None = None

    async def start(self) -> None:
        """Publish in the background."""
        self._task = asyncio.create_task(self._run(), name="receipts")

    async def stop(self) -> None:
        """Publish the pending receipts and end; those that the broker does not take now are lost."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.flush()
        if self._waiting:
            _log.warning("receipts.lost_at_shutdown", receipts=len(self._waiting), error=self._error)

    def figures(self) -> ReceiptFigures:
        """Its counts."""
        return ReceiptFigures(len(self._waiting), self._published, self._refused, self._error)

    def record(self, answered: AnsweredRecall, rendered: Sequence[str] | None) -> str | None:
        """Record an answered recall.

        Args:
            answered: The recall.
            rendered: The hits whose text reached a prompt; None if nothing was rendered.

        Returns:
            The receipt; None if it cannot be stored now.
        """
        return self.keep(answered.principal, answered.workspace_id, _payload(answered, rendered))

    def keep(self, asker: Principal, workspace_id: str, payload: MemorySearched) -> str | None:
        """Record a search.

        Args:
            asker: Who asked.
            workspace_id: Where.
            payload: What was found.

        Returns:
            The receipt; None if it cannot be stored now.
        """
        if self._error is not None or len(self._waiting) >= QUEUE or not self._connected():
            self._refused += 1
            return None
        receipt = PREFIX + uuid7_hex()
        self._waiting[receipt] = _Receipt(receipt, workspace_id, asker.crew_id, asker.agent_id, payload)
        self._due.set()
        return receipt

    def hurry(self, receipt: str) -> bool:
        """Publish at once if this receipt is not acked yet; returns whether it is one of those."""
        if receipt in self._waiting:
            self._hurry.set()
            return True
        return False

    async def flush(self) -> bool:
        """Publish the pending receipts; returns whether all are settled."""
        async with self._flushing:
            while self._waiting:
                group = list(islice(self._waiting.values(), GROUP))
                acked = await asyncio.gather(*map(self._publish, group))
                if not all(acked):
                    return False
                self._error = None
        return True

    async def _publish(self, receipt: _Receipt) -> bool:
        """Publish one; returns whether it need not be tried again."""
        try:
            await self._journal.record(
                receipt.workspace_id,
                receipt.payload,
                summary=_summary(receipt.payload),
                entry_id=receipt.entry_id,
                crew_id=receipt.crew_id,
                agent_id=receipt.agent_id,
            )
            self._published += 1
        except (BrokerUnavailable, BrokerError) as error:
            self._error = error.message
            return False
        except CrewJournalError as error:
            _log.warning("receipts.not_recorded", receipt=receipt.entry_id, error=error.message)
        del self._waiting[receipt.entry_id]
        return True

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), LINGER_S)
            self._due.clear()
            self._hurry.clear()
            try:
                settled = await self.flush()
            except Exception:  # pending receipts are kept, and the next round tries again
                _log.exception("receipts.flush_failed")
                settled = False
            if not settled:
                self._due.set()
                await asyncio.sleep(RETRY_S)


def _summary(searched: MemorySearched) -> str:
    passages = f"{len(searched.chunks)} passages of documents"
    if not searched.hit_ids and searched.chunks:
        return f"Found {passages}"
    recalled = f"Recalled {len(searched.hit_ids)} memories"
    return f"{recalled} and {passages}" if searched.chunks else recalled


def _payload(answered: AnsweredRecall, rendered: Sequence[str] | None) -> MemorySearched:
    """The recorded entry: its payload names the searched agent and crew, the entry itself the asker.

    The agent and crew of an entry may read it, and a query of an OWNER about an agent is not for that agent.
    """
    asker, scope, response, mean = answered.principal, answered.scope, answered.response, answered.mean_cosine
    hits = response.hits[:MOST_HITS]
    return MemorySearched(
        query=answered.request.query,
        scope=scope.kind.value,
        crew_id=scope.crew_id or asker.crew_id,
        agent_id=scope.agent_id or asker.agent_id,
        recipe=response.recipe,
        model=response.model,
        hit_ids=tuple(hit.entry_id for hit in hits),
        mean_cosine=None if mean is None else max(-1.0, min(1.0, mean)),  # a cosine in float32 may lie beyond 1
        scores=tuple(hit.score for hit in hits),
        confidences=tuple(hit.confidence for hit in hits),
        mode=answered.request.mode,
        floor=answered.floor,
        rendered=None if rendered is None else tuple(rendered)[:MOST_HITS],
        asked_by=asker.token_id,
    )
