"""Links each newly embedded entry to its nearest earlier ones, and proposes which of them it contradicts.

Invariants: all links of an entry are in the journal before its vector's fact is acked; a link's id follows from its two
entries, its relation and our version, so running twice publishes once; an entry that fails is put off alone, and nothing
that happens here touches the embedding. Facts of a model that is not the workspace's active one make no links.

Durable: ack policy explicit, ack wait ``LinkLimits.ack_wait_s`` (renewed while a batch is in hand), unlimited deliveries, at
most ``max_ack_pending`` unacked; order does not matter, as only what came before a fact counts for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from crew_journal.consumers.adapters.ollama_judge import Judge, OllamaJudge
from crew_journal.consumers.backoff import Backoff, doubled
from crew_journal.consumers.facts import publish_fact
from crew_journal.consumers.pull import Durable, PullConsumer
from crew_journal.consumers.reactor import Reactor, ReactorContext, ReactorStatus
from crew_journal.consumers.reactors.link_finder import LinkFinder
from crew_journal.schemas.decode import decode
from crew_journal.schemas.endings import end_task
from crew_journal.schemas.errors import BrokerError, CrewJournalError, FoldError, Unavailable
from crew_journal.schemas.events.derived import encode_link
from crew_journal.schemas.events.envelope import VectorDerived
from crew_journal.schemas.ports import Publisher
from crew_journal.schemas.rules.relations import CONTRADICTS
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.subjects import DerivedKind, Family, parse_subject

FILTER_SUBJECTS: Final = (f"{Family.DERIVED.value}.*.{DerivedKind.VECTOR.value}",)
_AWAY: Final = (BrokerError, Unavailable, NatsError)
"""Broker or views are away: nobody's entry is at fault."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Sizes and times of the link reactor.

    Attributes:
        batch: Vector facts in hand at once.
        wait_s: Seconds a request for the next one stands at the broker.
        window_s: Seconds to let a batch fill.
        ack_wait_s: Seconds until facts of a killed process come to another; renewed three times in it.
        max_ack_pending: Unacked facts over all processes, those put off included.
        backoff_first_s: Seconds of the first pause when broker or views are away.
        backoff_last_s: Seconds of the longest such pause.
        retry_first_s: Seconds until an entry that failed alone comes again; doubled with each delivery.
        retry_last_s: Seconds of the longest such delay.
        stop_s: Seconds ``stop`` waits for the batch in hand before it gives it back.
    """

    batch: int = 32
    wait_s: float = 2.0
    window_s: float = 0.05
    ack_wait_s: float = 60.0
    max_ack_pending: int = 1_024
    backoff_first_s: float = 1.0
    backoff_last_s: float = 60.0
    retry_first_s: float = 5.0
    retry_last_s: float = 600.0
    stop_s: float = 10.0


class LinkReactor:
    """The reactor; it searches the views, so it runs where they are.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        finder: Finds an entry's links.
        judge: Closed at the end; None if there is none.
        judge_trouble: Why there is no judge although one was asked for; ``status`` says so where nothing worse is wrong.
        clock: The time for ``status``.
        limits: Sizes and times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "link"
    version: ClassVar[int] = 1

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
        self._limits = limits or LinkLimits()
        self._publisher = publisher
        self._finder = finder
        self._judge = judge
        self._judge_trouble = judge_trouble
        self._clock = clock
        self._source = PullConsumer(
            client,
            Durable(
                name=f"{self.name}-v{self.version}",
                filter_subjects=FILTER_SUBJECTS,
                ack_wait_s=self._limits.ack_wait_s,
                max_ack_pending=self._limits.max_ack_pending,
                description="vectors whose entries are to be linked",
            ),
        )
        self._backoff = Backoff(self._limits.backoff_first_s, self._limits.backoff_last_s, draw)
        self._counts: Counter[str] = Counter(proposed=0, written=0, contradictions=0, repeated=0, skipped=0, failed=0)
        self._in_hand: dict[int, Msg] = {}
        self._state = "stopped"
        self._last_error: str | None = None
        self._since: datetime | None = None
        self._pending = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        """``link@<version>``, written into every fact."""
        return f"{self.name}@{self.version}"

    async def start(self) -> None:
        """Begin; returns at once, whether or not the broker is there."""
        if self._task is None:
            self._stopping.clear()
            self._state = "waiting"
            self._task = asyncio.create_task(self._run(), name=self.identity)

    async def stop(self) -> None:
        """Finish the batch in hand, at most ``stop_s`` seconds, give back the rest, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        self._source.interrupt()
        done, _ = await asyncio.wait({task}, timeout=self._limits.stop_s)
        if not done:
            await end_task(task)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if self._judge is not None:
            await self._judge.close()
        self._state = "stopped"

    async def status(self) -> ReactorStatus:
        """How it is doing; ``pending`` is the last known where the broker does not answer."""
        if self._state != "stopped":
            with contextlib.suppress(BrokerError):
                self._pending = await self._source.pending()
        error = self._last_error or self._judge_trouble
        return ReactorStatus(self.identity, self._state, self._pending, dict(self._counts), error, self._since)

    async def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self._source.open()
                    while not self._stopping.is_set():
                        await self._turn()
                        self._recovered()
                except Exception as error:  # whatever it is: said aloud, given back, tried again later
                    await self._fall_back(error)
        finally:
            await self._give_back()
            await self._source.close()

    async def _turn(self) -> None:
        limits = self._limits
        messages = await self._source.take(limits.batch, wait_s=limits.wait_s, window_s=limits.window_s)
        facts = await self._sort(messages)
        if not facts:
            return
        renewing = asyncio.create_task(self._renew(), name=f"{self.identity} renewing")
        try:
            outcomes = await asyncio.gather(*(self._link(fact) for fact in facts), return_exceptions=True)
        finally:
            await end_task(renewing)
        failed = [(fact, outcome) for fact, outcome in zip(facts, outcomes, strict=True) if outcome is not None]
        for _, error in failed:
            if isinstance(error, _AWAY) or not isinstance(error, Exception):
                raise error
        for fact, error in failed:
            await self._put_off(fact, error)

    async def _sort(self, messages: Sequence[Msg]) -> list[VectorDerived]:
        """Ack what makes no links; the rest is in our hands."""
        facts = []
        for message in messages:
            fact = _fact_of(message)
            if fact is None:
                self._counts["skipped"] += 1
                await message.ack()
                continue
            if (message.metadata.num_delivered or 1) == 1:
                self._counts["proposed"] += 1
            self._in_hand[fact.seq] = message
            facts.append(fact)
        return facts

    async def _link(self, fact: VectorDerived) -> None:
        """Publish every link of an entry, then ack its fact."""
        links = await self._finder.find(fact, self.identity)
        messages = [encode_link(link, self.version) for link in links]
        results = await asyncio.gather(*(publish_fact(self._publisher, self._source, one) for one in messages))
        for link, result in zip(links, results, strict=True):
            self._counts["repeated" if result.duplicate else "written"] += 1
            self._counts["contradictions"] += link.relation == CONTRADICTS and not result.duplicate
        await self._in_hand[fact.seq].ack()
        del self._in_hand[fact.seq]

    async def _put_off(self, fact: VectorDerived, error: BaseException) -> None:
        message = self._in_hand.pop(fact.seq)
        self._counts["failed"] += 1
        _log.error("link.put_off", entry_id=fact.entry_id, seq=fact.seq, error=type(error).__name__)
        times = (message.metadata.num_delivered or 1) - 1
        await message.nak(delay=doubled(self._limits.retry_first_s, self._limits.retry_last_s, times))

    async def _renew(self) -> None:
        """Keep what is in hand from being delivered to another meanwhile."""
        while True:
            await asyncio.sleep(self._limits.ack_wait_s / 3)
            for message in list(self._in_hand.values()):
                with contextlib.suppress(NatsError):
                    await message.in_progress()

    async def _give_back(self) -> None:
        for seq in sorted(self._in_hand):
            with contextlib.suppress(NatsError):
                await self._in_hand[seq].nak()
        self._in_hand.clear()

    async def _fall_back(self, error: Exception) -> None:
        await self._give_back()
        if self._since is None:
            self._since = self._clock()
        self._state = "waiting"
        known = isinstance(error, CrewJournalError | NatsError)
        self._last_error = str(error) if known else f"{type(error).__name__}, see the log"
        pause_s = self._backoff.next()
        _log.warning("link.waiting", error=type(error).__name__, retry_in_s=round(pause_s, 3))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    def _recovered(self) -> None:
        if self._since is not None:
            _log.info("link.recovered")
        self._backoff.reset()
        self._state = "running"
        self._last_error = None
        self._since = None


def _fact_of(message: Msg) -> VectorDerived | None:
    """The vector of a message; None for anything else, tombstones and what the projections park included."""
    metadata = message.metadata
    try:
        subject = parse_subject(message.subject)
        if subject.family is not Family.DERIVED or subject.kind != DerivedKind.VECTOR:
            return None
        published_ms = int(metadata.timestamp.timestamp() * 1_000)
        fact = decode(metadata.sequence.stream, message.subject, message.headers, message.data, published_ms)
    except FoldError:
        return None
    return fact if isinstance(fact, VectorDerived) and fact.dim else None


def create(context: ReactorContext) -> Reactor | None:
    """The link reactor of a node, or None in a process that has no views."""
    if context.views is None or context.similar is None:
        return None
    settings = context.settings
    judge, trouble = _judge_of(settings)
    finder = LinkFinder(context.views, context.similar, threshold=settings.similar_threshold, judge=judge)
    return LinkReactor(
        context.client, context.publisher, finder, judge=judge, judge_trouble=trouble, clock=context.clock
    )


def _judge_of(settings: Settings) -> tuple[Judge | None, str | None]:
    """The judge, or why there is none although one is set: a second opinion is no reason to keep a node from starting."""
    if not settings.judge_model:
        return None, None
    try:
        return OllamaJudge(settings.ollama_host, settings.judge_model), None
    except Unavailable as error:
        _log.warning("link.no_judge", model=settings.judge_model, error=error.message, hint=error.hint)
        return None, f"no judge of contradictions: {error.message}; {error.hint}"


REACTOR: Final = create
