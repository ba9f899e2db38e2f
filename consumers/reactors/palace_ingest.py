"""Files what users and agents say to each other: the hot path of the palace (contract of the palace, §2).

Steps of a chunk: classify, embed, compare with live drawers, choose a tier, publish its vector and then ``drawer.filed``.
Ids follow from the exchange and the chunk, so a run that is repeated files nothing twice.

Invariants: an exchange is filed once it has ended, and its first turn is acked only then, so a crash at any step loses
nothing; what is not filed (no choice of the workspace, a full palace) is in the journal and can be asked for again. Without
a model, drawers are filed without vectors, which ``embed_chunks`` adds.

Durable: ack policy explicit, ack wait ``PullLimits.ack_wait_s`` (renewed while it works), unlimited deliveries; order of
age but for exchanges that have not ended.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic_core import from_json

from ...schemas.errors import BrokerError, FoldError, ViewsBehind
from ...schemas.events.drawers import PalaceIngestAsked
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.ports import Embedder, Publisher, ViewReader
from ...schemas.rules.palace.exchanges import AGENT_TURN, QUIET_MS, USER_TURN, Exchange, Thresholds, exchanges_of
from ...schemas.settings import Settings
from ...schemas.subjects import Family, Subject, parse_subject
from ...schemas.timestamps import to_ms
from ..feed.positions import position_of
from ..reacting.durable import Durable
from ..reacting.pull_reactor import PullLimits, PullReactor
from ..reactor import Reactor, ReactorContext, ReactorStatus
from .palace_filing import Filing, Outcome
from .palace_reads import NEEDS, files_chat, turns_around, turns_since

FILTER_SUBJECTS: Final = (
    *(f"{Family.JOURNAL.value}.*.*.*.{entry_type}" for entry_type in (USER_TURN, AGENT_TURN)),
    f"{Family.CONTROL.value}.*.{PalaceIngestAsked.ENTRY_TYPE}",
)
TAKEN: Final = 256
"""Turns of one look at the views."""
MAX_ACK_PENDING: Final = 4_096
"""Unacked turns: more sessions at a time than this wait until some have ended their exchange."""
VIEWS_WAIT_S: Final = 30.0
CLOCKS_DIFFER_MS: Final = 5_000
"""How much the clocks of this process and of the broker may differ."""
EXCHANGES_AT_ONCE: Final = 128
DONE_KEPT: Final = 16_384
"""Exchanges remembered as done, about 2 MB; of others the views say it."""
_AWAY: Final = (BrokerError, NatsError, ViewsBehind)


@dataclass(frozen=True, slots=True)
class IngestLimits(PullLimits):
    """Times of this reactor.

    Attributes:
        window_s: Seconds in which turns are collected for one look at the views; an exchange ends after minutes.
        quiet_ms: Silence that ends an exchange, milliseconds.
        clocks_differ_ms: See ``CLOCKS_DIFFER_MS``.
    """

    window_s: float = 1.0
    quiet_ms: int = QUIET_MS
    clocks_differ_ms: int = CLOCKS_DIFFER_MS


class PalaceIngestReactor(PullReactor):
    """The reactor; it reads the views, so it runs where they are.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: Where turns and drawers are read.
        embedder_for: What runs a model, None if nothing does; not closed here.
        clock: The time: when an exchange has ended, never what is published of it.
        thresholds: Who decides the types.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "palace_ingest"
    version: ClassVar[int] = 1
    waits_for: ClassVar[tuple[type[Exception], ...]] = _AWAY

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        views: ViewReader,
        *,
        embedder_for: Callable[[str], Embedder | None],
        clock: Callable[[], datetime],
        thresholds: Thresholds,
        limits: IngestLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or IngestLimits()
        durable = Durable(
            name=f"palace-ingest-v{self.version}",
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=MAX_ACK_PENDING,
            description="turns of conversations to file as drawers",
            sparse=True,
        )
        counted = ("completed", "filed", "duplicates", "noise", "put_off", "without_vector", "skipped")
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=counted)
        self._views = views
        self._filing = Filing(views, self.publish, embedder_for, thresholds, f"{self.name}@{self.version}")
        self._done: OrderedDict[str, None] = OrderedDict()
        self._written = 0
        self._running = 0

    async def status(self) -> ReactorStatus:
        """How it is doing, with the exchanges in hand and the turns that wait."""
        status = await super().status()
        return replace(status, counts={**status.counts, "running": self._running, "waiting": status.pending})

    async def turn(self) -> None:
        """File the exchanges that have ended, and put off those that have not."""
        limits = self._limits
        messages = await self._source.take(TAKEN, wait_s=limits.wait_s, window_s=limits.window_s)
        if not messages:
            return
        for message in messages:
            self._leases.hold(message)
        async with self._leases.renewed():
            reached = max(position_of(one.reply).seq for one in messages)
            await self._views.wait_for(max(reached, self._written), VIEWS_WAIT_S, *NEEDS)
            of: dict[str, list[Msg]] = {}
            for message in messages:
                subject = _subject(message)
                if subject is None:
                    await self._leases.ack(message)
                elif subject.family is Family.CONTROL:
                    await self._replay(subject.workspace, message)
                else:
                    of.setdefault(subject.workspace, []).append(message)
            for workspace_id, some in of.items():
                await self._take(workspace_id, some)

    async def _take(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        if not await asyncio.to_thread(files_chat, self._views, workspace_id):
            self._counts["skipped"] += len(messages)
            for message in messages:
                await self._leases.ack(message)
            return
        seqs = [position_of(one.reply).seq for one in messages]
        now_ms = to_ms(self._clock()) - self._limits.clocks_differ_ms
        sessions = await asyncio.to_thread(turns_around, self._views, workspace_id, seqs, self._limits.quiet_ms)
        found = [one for turns in sessions for one in exchanges_of(turns, now_ms, self._limits.quiet_ms)]
        await self._file(workspace_id, [one for one in found if one.ended])
        going_on = {one.head.seq: one for one in found if not one.ended}
        for message, seq in zip(messages, seqs, strict=True):
            if (exchange := going_on.get(seq)) is None:
                await self._leases.ack(message)
            else:
                left_ms = exchange.turns[-1].published_ms + self._limits.quiet_ms + 1 - now_ms
                await self._leases.put_off(message, max(left_ms, 1) / 1_000)

    async def _replay(self, workspace_id: str, message: Msg) -> None:
        """File what is not filed of a workspace."""
        asked = PalaceIngestAsked.model_validate(from_json(message.data)["payload"])
        now_ms = to_ms(self._clock()) - self._limits.clocks_differ_ms
        sessions = await asyncio.to_thread(turns_since, self._views, workspace_id, asked.since_seq or 0)
        found = [one for turns in sessions for one in exchanges_of(turns, now_ms, self._limits.quiet_ms)]
        for one in found:
            self._done.pop(f"{workspace_id}/{one.head.entry_id}", None)
        await self._file(workspace_id, [one for one in found if one.ended])
        await self._leases.ack(message)

    async def _file(self, workspace_id: str, exchanges: Sequence[Exchange]) -> None:
        new = [one for one in exchanges if f"{workspace_id}/{one.head.entry_id}" not in self._done]
        for at in range(0, len(new), EXCHANGES_AT_ONCE):
            some = new[at : at + EXCHANGES_AT_ONCE]
            self._running = len(some)
            await self._views.wait_for(self._written, VIEWS_WAIT_S, *NEEDS)
            outcome: Outcome = await self._filing.file(workspace_id, some)
            self._written = max(self._written, outcome.last_seq)
            self._counts.update(outcome.counts)
            for one in some:
                self._done[f"{workspace_id}/{one.head.entry_id}"] = None
            while len(self._done) > DONE_KEPT:
                self._done.popitem(last=False)
            self._running = 0


def _subject(message: Msg) -> Subject | None:
    try:
        subject = parse_subject(message.subject)
    except FoldError:
        return None  # the projections park it
    return None if subject.workspace == SYSTEM_WORKSPACE else subject


def thresholds_of(settings: Settings) -> Thresholds:
    """The thresholds of a node."""
    return Thresholds.of(
        settings.heuristic_high, settings.heuristic_low, has_model=bool(settings.llm_model or settings.llm_base_url)
    )


def create(context: ReactorContext) -> Reactor | None:
    """The reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    return PalaceIngestReactor(
        context.client,
        context.publisher,
        context.views,
        embedder_for=context.embedder_for,
        clock=context.clock,
        thresholds=thresholds_of(context.settings),
    )


REACTOR: Final = create
