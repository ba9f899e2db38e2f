"""Base of all reactors on a durable: start and stop, pauses, status.

Invariants: an error never ends a reactor: it returns the held messages and restarts after a growing pause. When it
stops, it returns unsettled messages, so that no message is lost. Only a fault of our code is logged as an error; if the
broker, a model or the views are unavailable, the reactor waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypedDict, Unpack

import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ...schemas.core import headers as h
from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.entry import MAX_SUMMARY, ActorType, Priority, Severity
from ...schemas.core.errors import BrokerError, CrewJournalError, EmbedderError, FoldError, ViewsBehind
from ...schemas.core.ids import derived_id, message_id, unforeseen
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import Published, Publisher, ViewReader
from ...schemas.core.subjects import control_subject, parse_subject
from ...schemas.core.timestamps import format_ms
from ...schemas.models.chat import ChatModel, ChatUnavailable
from ..endings import end_task
from ..feed.jetstream import REACTOR_ACK_WAIT_S, REACTOR_WAIT_S, REACTOR_WINDOW_S
from ..feed.messages import position_of
from ..reactor import ReactorContext, ReactorStatus
from .llm_calls import MeteredChat, chat_of
from .pull import Backoff, Durable, Leases, PullConsumer

# Publishes the facts of reactors once, even if a client has used their message ids.


async def publish_fact(publisher: Publisher, source: PullConsumer, fact: OutgoingMessage) -> Published:
    """Publish a fact; returns after the ack.

    Args:
        publisher: Publishes to JOURNAL.
        source: Any consumer of JOURNAL, to read the stored message of a duplicate.
        fact: The fact, including its deterministic ``Nats-Msg-Id``.

    Raises:
        BrokerUnavailable: If no ack came within the bound.
    """
    published = await publisher.publish(fact.subject, fact.body, fact.headers)
    if not published.duplicate or await source.subject_at(published.seq) in (fact.subject, None):
        return published
    headers = {**fact.headers, h.MSG_ID: unforeseen(fact.headers[h.MSG_ID])}
    return await publisher.publish(fact.subject, fact.body, headers)


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Times of a reactor that reads from a durable.

    Attributes:
        wait_s: Seconds that a request for the next message waits at the broker; a lost connection is noticed after this
            time.
        window_s: Seconds to let a batch fill.
        ack_wait_s: Seconds until the broker delivers a killed process's messages to another process; renewed three
            times in this time.
        backoff_first_s: Seconds of the first pause when the broker, the views or a model is unavailable.
        backoff_last_s: Seconds of the longest such pause.
        stop_s: Seconds that ``stop`` waits for the current turn before the held messages are returned.
    """

    wait_s: float = REACTOR_WAIT_S
    window_s: float = REACTOR_WINDOW_S
    ack_wait_s: float = REACTOR_ACK_WAIT_S
    backoff_first_s: float = 1.0
    backoff_last_s: float = 60.0
    stop_s: float = 10.0


class PullReactor(ABC):
    """A reactor on a durable; processes that use the same durable share the messages.

    Args:
        client: A connection that reconnects without limit; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        durable: The durable that it consumes.
        limits: Times.
        clock: The time for ``status``.
        draw: Uniform in [0, 1); spreads the pauses of several processes.
        counted: Counters that ``status`` shows from the start; other counters appear when they are first incremented.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    waits_for: ClassVar[tuple[type[Exception], ...]] = (BrokerError, NatsError)
    """Errors that say that the broker, the views or a model is unavailable."""

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        durable: Durable,
        limits: PullLimits,
        *,
        clock: Callable[[], datetime],
        draw: Callable[[], float],
        counted: Iterable[str],
    ) -> None:
        self._publisher = publisher
        self._source = PullConsumer(client, durable)
        self._leases = Leases(durable.ack_wait_s, durable.name)
        self._counts: Counter[str] = Counter(dict.fromkeys(counted, 0))
        self._durable = durable.name
        self._stop_s = limits.stop_s
        self._clock = clock
        self._backoff = Backoff(limits.backoff_first_s, limits.backoff_last_s, draw)
        self._state = "stopped"
        self._last_error: str | None = None
        self._since: datetime | None = None
        self._pending = 0
        self._written = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def turn(self) -> None:
        """Take messages, handle and settle them; may return without messages.

        Raises:
            Exception: Any error; the held messages are returned, and after a pause the next turn begins.
        """

    async def open(self) -> None:
        """Declare the durable, before the first turn and after every pause."""
        await self._source.open()

    @property
    def identity(self) -> str:
        """``name@version``, written into every fact."""
        return f"{self.name}@{self.version}"

    @property
    def durable(self) -> str:
        """The name of its durable."""
        return self._durable

    async def publish(self, fact: OutgoingMessage) -> Published:
        """Publish a fact; returns after the ack.

        Raises:
            BrokerUnavailable: If no ack came within the bound.
        """
        published = await publish_fact(self._publisher, self._source, fact)
        self._written = max(self._written, published.seq)
        return published

    async def start(self) -> None:
        """Begin; returns at once, even if the broker or a model is unavailable."""
        if self._task is None:
            self._stopping.clear()
            self._state = "waiting"
            self._task = asyncio.create_task(self._run(), name=self._durable)

    async def stop(self) -> None:
        """Finish the current turn within ``stop_s`` seconds, return the held messages, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        self._source.interrupt()
        await asyncio.wait({task}, timeout=self._stop_s)
        await end_task(task)
        self._state = "stopped"

    async def status(self) -> ReactorStatus:
        """The status; ``pending`` is the last known value if the broker does not answer."""
        if self._state != "stopped":
            with contextlib.suppress(BrokerError):
                self._pending = await self._source.pending()
        counts = dict(self._counts)
        return ReactorStatus(self.identity, self._state, self._pending, counts, self._last_error, self._since)

    async def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self.open()
                    while not self._stopping.is_set():
                        await self.turn()
                        self._recovered()
                except self.waits_for as error:
                    await self._fall_back(error)
                except Exception as error:  # a fault of our code: logged and retried
                    _log.error("reactor.fault", durable=self._durable, error=type(error).__name__, at=places(error))
                    await self._fall_back(error)
        finally:
            await self._leases.give_back()
            await self._source.close()

    async def _fall_back(self, error: Exception) -> None:
        await self._leases.give_back()
        if self._since is None:
            self._since = self._clock()
        self._state = "waiting"
        known = isinstance(error, CrewJournalError | NatsError)
        self._last_error = str(error) if known else f"{type(error).__name__}, see the log"
        pause_s = self._backoff.next()
        _log.warning(
            "reactor.waiting",
            durable=self._durable,
            error=type(error).__name__,
            failures=self._backoff.failures,
            retry_in_s=round(pause_s, 3),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    def _recovered(self) -> None:
        if self._since is not None:
            _log.info("reactor.recovered", durable=self._durable)
        self._backoff.reset()
        self._state = "running"
        self._last_error = None
        self._since = None


def places(error: BaseException) -> list[str]:
    """The locations in an error's traceback, for the log; without local variables, which may hold memory text."""
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]


# Encodes facts of reactors as control entries.
#
# Invariant: a fact's id and content hash depend on its cause alone. If a reactor runs again and computes different
# figures, the fact therefore counts as a repeat, and the first one stays.


_CONTENT_BYTES: Final = 16


class FactFields(TypedDict, total=False):
    """What a fact may say beside its payload; see ``encode_control``."""

    severity: Severity
    ts_ms: int | None
    crew_id: str | None
    priority: Priority
    refs: Mapping[str, list[str]] | None
    data_subject_id: str | None


def encode_control(
    workspace_id: str,
    payload: ControlPayload,
    *,
    fact_id: str,
    cause: str,
    reactor: str,
    summary: str,
    severity: Severity = Severity.INFO,
    ts_ms: int | None = None,
    crew_id: str | None = None,
    priority: Priority = Priority.NORMAL,
    refs: Mapping[str, list[str]] | None = None,
    data_subject_id: str | None = None,
) -> OutgoingMessage:
    """A control entry of a reactor as its message.

    Args:
        workspace_id: The workspace.
        payload: What the reactor found or did.
        fact_id: Id of the fact, derived from the cause.
        cause: Id of the entry from which the fact is derived.
        reactor: ``name@version``.
        summary: One line for the reader of the journal.
        severity: Severity of the entry.
        ts_ms: Time of the entry, milliseconds since the epoch; the broker's time if absent.
        crew_id: The crew that the fact concerns.
        priority: Its priority.
        refs: Further referenced ids, in addition to the cause.
        data_subject_id: The person whose personal data this is.
    """
    record: dict[str, Any] = {
        "id": fact_id,
        "workspace_id": workspace_id,
        "entry_type": payload.ENTRY_TYPE,
        "schema_version": payload.VERSION,
        "severity": severity.value,
        "priority": priority.value,
        "actor_type": ActorType.SYSTEM.value,
        "actor_id": reactor,
        "summary": summary,
        "payload": payload.model_dump(mode="json"),
        "refs": {"derived_from": [cause], **(refs or {})},
    }
    if ts_ms is not None:
        record["ts"] = format_ms(ts_ms)
    if crew_id is not None:
        record["crew_id"] = crew_id
    if data_subject_id is not None:
        record["data_subject_id"] = data_subject_id
    identity = message_id(workspace_id, fact_id)
    content = f"{payload.ENTRY_TYPE}\x00{identity}\x00{cause}".encode()
    headers = {
        h.MSG_ID: identity,
        h.ENTRY_ID: fact_id,
        h.CONTENT_HASH: hashlib.blake2b(content, digest_size=_CONTENT_BYTES).hexdigest(),
        h.FORMAT: h.FORMAT_VERSION,
        h.REACTOR: reactor,
        h.DERIVED_FROM: cause,
    }
    return OutgoingMessage(control_subject(workspace_id, payload.ENTRY_TYPE), orjson.dumps(record), headers)


# Base of reactors that read views: it takes messages, waits for the views, and handles messages by workspace.
#
# Invariants: a message is handled after the views have folded the message and everything that this reactor published
# before. It is acked or postponed only after it was handled, so that a crash loses nothing.
#
# Durable: ack policy explicit, ack wait ``ViewsLimits.ack_wait_s`` (renewed while a batch is being handled), unlimited
# deliveries, at most ``max_ack_pending`` unacked; in stream order, except for messages that were postponed or
# returned.


@dataclass(frozen=True, slots=True)
class ViewsLimits(PullLimits):
    """Times of a reactor that reads views.

    Attributes:
        views_wait_s: Seconds to wait for the views to fold a message before the message is returned.
    """

    views_wait_s: float = 30.0


class ViewsReactor(PullReactor):
    """A reactor that reads views, so that it runs in the process that has them.

    Args:
        context: The parts of the node; the reactor closes none of them.
        views: The views that it reads.
        chat: A chat model; closed at the end; None if absent.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    waits_for: ClassVar[tuple[type[Exception], ...]] = (
        *PullReactor.waits_for,
        ViewsBehind,
        EmbedderError,
        ChatUnavailable,
    )
    filter_subjects: ClassVar[tuple[str, ...]]
    description: ClassVar[str]
    """Description of the durable, for the broker's tools."""
    needs: ClassVar[tuple[str, ...]]
    """Projections that must have folded a message."""
    counted: ClassVar[tuple[str, ...]]
    """Counts that ``status`` shows from the start."""
    sparse: ClassVar[bool] = True
    """See ``Durable.sparse``."""
    uses_chat: ClassVar[bool] = False
    batch: ClassVar[int] = 256
    """Maximum number of messages of one turn."""
    max_ack_pending: ClassVar[int] = 1_024
    """Maximum number of unacked messages of all processes."""
    default_limits: ClassVar[ViewsLimits] = ViewsLimits()
    _limits: ViewsLimits

    def __init__(
        self,
        context: ReactorContext,
        views: ViewReader,
        *,
        chat: ChatModel | None = None,
        limits: ViewsLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or self.default_limits
        self._context = context
        self._views = views
        self._chat = None if chat is None else MeteredChat(chat, context.publisher, self.identity)
        durable = Durable(
            name=self._durable_name(),
            filter_subjects=self.filter_subjects,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=self.max_ack_pending,
            description=self.description,
            sparse=self.sparse,
        )
        super().__init__(
            context.client, context.publisher, durable, limits, clock=context.clock, draw=draw, counted=self.counted
        )
        self.prepare()

    @classmethod
    def create(cls, context: ReactorContext) -> Self | None:
        """The reactor of a node, or None in a process without views."""
        if context.views is None:
            return None
        return cls(context, context.views, chat=chat_of(context.settings) if cls.uses_chat else None)

    def prepare(self) -> None:
        """Create further parts of the reactor; called once, at the end of the constructor."""

    async def stop(self) -> None:
        """Stop, then close the chat model."""
        await super().stop()
        if self._chat is not None:
            await self._chat.close()

    async def turn(self) -> None:
        """Handle a batch."""
        limits = self._limits
        size = min(self.batch, self.max_ack_pending)
        by_workspace: dict[str, list[Msg]] = {}
        seq = 0
        for message in await self._source.take(size, wait_s=limits.wait_s, window_s=limits.window_s):
            workspace_id = self.workspace_of(message)
            if workspace_id is None:
                await message.ack()
                continue
            self._leases.hold(message)
            by_workspace.setdefault(workspace_id, []).append(message)
            seq = max(seq, position_of(message.reply).seq)
        if by_workspace:
            async with self._leases.renewed():
                await self.caught_up(seq)
                await self.handle_all(by_workspace)

    async def caught_up(self, seq: int = 0) -> None:
        """Wait until the views have folded a sequence and everything that this reactor published.

        Raises:
            ViewsBehind: After ``views_wait_s``.
        """
        await self._views.wait_for(max(seq, self._written), self._limits.views_wait_s, *self.needs, patient=True)

    async def record(
        self,
        workspace_id: str,
        payload: ControlPayload,
        n: int | str,
        *,
        cause: str,
        summary: str,
        key: str = "",
        **fields: Unpack[FactFields],
    ) -> str:
        """Publish what was found or done as a control entry; returns its id.

        Args:
            workspace_id: The workspace.
            payload: What was found or done.
            n: Its name among the entries of this cause.
            cause: Id of the entry it is derived from.
            summary: One line; cut where it is too long.
            key: What its id follows from, beside the workspace; the cause if empty.
            **fields: See ``encode_control``.

        Raises:
            BrokerUnavailable: If no ack came within the bound.
        """
        fact_id = derived_id(self.name, self.version, f"{workspace_id}/{key or cause}", n)
        await self.publish(
            encode_control(
                workspace_id,
                payload,
                fact_id=fact_id,
                cause=cause,
                reactor=self.identity,
                summary=summary[:MAX_SUMMARY],
                **fields,
            )
        )
        return fact_id

    async def handle_all(self, by_workspace: Mapping[str, Sequence[Msg]]) -> None:
        """Handle the messages of each workspace, one workspace after the other; an error in one does not stop the others.

        Raises:
            Exception: The first error, after all workspaces.
        """
        failed: Exception | None = None
        for workspace_id, messages in by_workspace.items():
            try:
                await self._settle(workspace_id, messages)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @abstractmethod
    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Handle messages of a workspace; messages that it neither acks nor postpones are acked afterwards.

        Raises:
            Exception: The held messages are returned, and after a pause the next turn begins.
        """

    def workspace_of(self, message: Msg) -> str | None:
        """The workspace of a message; None if the message does not concern the reactor."""
        try:
            return parse_subject(message.subject).workspace
        except FoldError:  # the projections park the message
            return None

    async def _settle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        await self.handle(workspace_id, messages)
        for message in self._leases.held(messages):
            await self._leases.ack(message)

    def _durable_name(self) -> str:
        return f"{self.name.replace('_', '-')}-v{self.version}"
