"""Links each newly embedded entry to its nearest earlier ones, and proposes which of them it contradicts or retires.

Invariants: all links of an entry are in the journal before its vector's fact is acked; a link's id follows from its two
entries, its relation and our version, so running twice publishes once; an entry that fails is put off alone, and nothing
that happens here touches the embedding. Facts of a model that is not the workspace's active one make no links.

Durable: ack policy explicit, ack wait ``LinkLimits.ack_wait_s`` (renewed while a batch is in hand), unlimited deliveries, at
most ``max_ack_pending`` unacked; order does not matter, because only entries before a fact count for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ...schemas.chat import ChatUnavailable
from ...schemas.decode import decode
from ...schemas.errors import BrokerError, FoldError, Unavailable
from ...schemas.events.derived import encode_link
from ...schemas.events.envelope import VectorDerived
from ...schemas.ports import Publisher
from ...schemas.rules.relations import CONTRADICTS, SUPERSEDES
from ...schemas.settings import JUDGE_TIMEOUT_S
from ...schemas.subjects import DerivedKind, Family, parse_subject
from ..feed.jetstream import LINK_ACK_PENDING
from ..feed.positions import position_of
from ..reacting.backoff import doubled
from ..reacting.durable import Durable
from ..reacting.judge import ChatJudge, Judge
from ..reacting.leases import deliveries
from ..reacting.llm_calls import MeteredChat
from ..reacting.pull_reactor import PullLimits, PullReactor
from ..reactor import Reactor, ReactorContext, ReactorStatus
from .link_finder import LinkFinder

FILTER_SUBJECTS: Final = (f"{Family.DERIVED.value}.*.{DerivedKind.VECTOR.value}",)
_AWAY: Final = (BrokerError, Unavailable, NatsError)
"""The broker or the views are unavailable: no entry is at fault."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkLimits(PullLimits):
    """Sizes and times of the link reactor.

    Attributes:
        batch: Vector facts in hand at once.
        max_ack_pending: Unacked facts over all processes, those put off included.
        retry_first_s: Seconds until an entry that failed alone comes again; doubled with each delivery.
        retry_last_s: Seconds of the longest such delay.
    """

    batch: int = 32
    max_ack_pending: int = LINK_ACK_PENDING
    retry_first_s: float = 5.0
    retry_last_s: float = 600.0


@dataclass(frozen=True, slots=True)
class _Cause:
    """A vector whose entry is to be linked, and the message that is acked for it."""

    fact: VectorDerived
    message: Msg


class LinkReactor(PullReactor):
    """The reactor; it searches the views, so it runs where they are.

    Args:
        client: A connection that reconnects without limit; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        finder: Finds an entry's links.
        judge: Closed at the end; None if absent.
        judge_trouble: Why there is no judge although one is configured; ``status`` shows it unless there is another error.
        clock: The time for ``status``.
        limits: Sizes and times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "link"
    version: ClassVar[int] = 1
    waits_for: ClassVar[tuple[type[Exception], ...]] = _AWAY

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        finder: LinkFinder,
        *,
        judge: Judge | None = None,
        judge_trouble: str | None = None,
        clock: Callable[[], datetime],
        limits: LinkLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or LinkLimits()
        durable = Durable(
            name=f"{self.name}-v{self.version}",
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=limits.max_ack_pending,
            description="vectors whose entries are to be linked",
        )
        counted = ("proposed", "written", "contradictions", "updates", "repeated", "skipped", "failed")
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=counted)
        self._finder = finder
        self._judge = judge
        self._judge_trouble = judge_trouble

    async def stop(self) -> None:
        """Stop, then close the judge."""
        await super().stop()
        if self._judge is not None:
            await self._judge.close()

    async def status(self) -> ReactorStatus:
        """The status, or why there is no judge."""
        status = await super().status()
        return replace(status, last_error=status.last_error or self._judge_trouble)

    async def turn(self) -> None:
        """Link the entries of a batch of vectors; one that fails is put off alone."""
        limits = self._limits
        messages = await self._source.take(limits.batch, wait_s=limits.wait_s, window_s=limits.window_s)
        causes = await self._sort(messages)
        if not causes:
            return
        async with self._leases.renewed():
            outcomes = await asyncio.gather(*(self._link(cause) for cause in causes), return_exceptions=True)
        failed = [(cause, outcome) for cause, outcome in zip(causes, outcomes, strict=True) if outcome is not None]
        for _, error in failed:
            if isinstance(error, _AWAY) or not isinstance(error, Exception):
                raise error
        for cause, error in failed:
            await self._put_off(cause, error)

    async def _sort(self, messages: Sequence[Msg]) -> list[_Cause]:
        """Ack messages that lead to no links; hold and return the others."""
        causes = []
        for message in messages:
            fact = _fact_of(message)
            if fact is None:
                self._counts["skipped"] += 1
                await message.ack()
                continue
            if deliveries(message) == 1:
                self._counts["proposed"] += 1
            self._leases.hold(message)
            causes.append(_Cause(fact, message))
        return causes

    async def _link(self, cause: _Cause) -> None:
        """Publish every link of an entry, then ack its fact."""
        links = await self._finder.find(cause.fact, self.identity)
        results = await asyncio.gather(*(self.publish(encode_link(link, self.version)) for link in links))
        for link, result in zip(links, results, strict=True):
            self._counts["repeated" if result.duplicate else "written"] += 1
            self._counts["contradictions"] += link.relation == CONTRADICTS and not result.duplicate
            self._counts["updates"] += link.relation == SUPERSEDES and not result.duplicate
        await self._leases.ack(cause.message)

    async def _put_off(self, cause: _Cause, error: BaseException) -> None:
        self._counts["failed"] += 1
        fact, message = cause.fact, cause.message
        _log.error("link.put_off", entry_id=fact.entry_id, seq=fact.seq, error=type(error).__name__)
        times = deliveries(message) - 1
        await self._leases.put_off(message, doubled(self._limits.retry_first_s, self._limits.retry_last_s, times))


def _fact_of(message: Msg) -> VectorDerived | None:
    """The vector of a message; None for anything else, tombstones and what the projections park included."""
    place = position_of(message.reply)
    try:
        subject = parse_subject(message.subject)
        if subject.family is not Family.DERIVED or subject.kind != DerivedKind.VECTOR:
            return None
        fact = decode(place.seq, message.subject, message.headers, message.data, place.published_ms)
    except FoldError:
        return None
    return fact if isinstance(fact, VectorDerived) and fact.dim else None


def create(context: ReactorContext) -> Reactor | None:
    """The link reactor of a node, or None in a process that has no views."""
    if context.views is None or context.similar is None:
        return None
    judge, trouble = _judge_of(context)
    finder = LinkFinder(context.views, context.similar, threshold=context.settings.similar_threshold, judge=judge)
    return LinkReactor(
        context.client, context.publisher, finder, judge=judge, judge_trouble=trouble, clock=context.clock
    )


def _judge_of(context: ReactorContext) -> tuple[Judge | None, str | None]:
    """The judge, or why there is none although one is set; a node starts without its judge."""
    settings = context.settings
    if not settings.judge_model:
        return None, None
    from ..adapters.chat import chat_model_of  # the HTTP client is imported where it is used

    try:
        chat = chat_model_of(settings, settings.judge_model, timeout_s=JUDGE_TIMEOUT_S)
    except ChatUnavailable as error:
        _log.warning("link.no_judge", model=settings.judge_model, error=error.message, hint=error.hint)
        return None, f"no judge of contradictions: {error.message}; {error.hint}"
    if chat is None:
        return None, None
    return ChatJudge(MeteredChat(chat, context.publisher, f"{LinkReactor.name}@{LinkReactor.version}")), None


REACTOR: Final = create
