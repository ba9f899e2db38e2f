"""Classifies the drawers that were filed: the cold path of the palace (contract of the palace, §3 and §4).

A chat model reads drawers together: type, importance, summary and entities of those whose type is not decided, entities
alone of important ones that the words decided. Then each newly classified drawer is compared with its neighbours. Without
a chat model, what the words said is final.

Invariants: ``drawer.filed`` is acked once its drawer is done, so a crash at any step strands nothing, and what is
recorded is not asked again: at most the call in flight is repeated. A model that is away is waited for; only its unusable
answers about one drawer alone are counted, and the third makes the drawer ``failed``.

Durable: ack policy explicit, ack wait ``ClassifyLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, at
most ``MAX_ACK_PENDING`` unacked; order of age but for drawers that come again after an unusable answer. With and without
a chat model it has different durables: a model that is configured later gets to see all drawers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ...schemas.chat import ChatError, ChatModel, ChatUnavailable
from ...schemas.errors import BrokerError, EmbedderError, FoldError, ViewsBehind
from ...schemas.events import headers as h
from ...schemas.events.drawers import MOST_REJECTED, DrawerFiled
from ...schemas.ports import Embedder, Publisher, ViewReader
from ...schemas.subjects import Family, parse_subject
from ..feed.positions import position_of
from ..prompts.drawers import SHOWN_CHARS, ReadDrawers, Understood, classification, understood
from ..reacting.durable import Durable
from ..reacting.llm_calls import MeteredChat
from ..reacting.pull_reactor import PullLimits, PullReactor
from ..reactor import Reactor, ReactorContext
from .palace_classify_reads import NEEDS, Waiting, graph_of, waiting_in
from .palace_compare import Comparing
from .palace_record import PalaceRecord

FILTER_SUBJECTS: Final = (f"{Family.CONTROL.value}.*.{DrawerFiled.ENTRY_TYPE}",)
BATCH: Final = 50
"""Drawers of one look (contract, §3)."""
CALL_CHARS: Final = 40_000
"""Characters of drawers in one call, about 10,000 tokens."""
CALL_DRAWERS: Final = 20
"""Drawers in one call: their answer has up to 8,000 tokens."""
MAX_ACK_PENDING: Final = 256
VIEWS_WAIT_S: Final = 30.0
PURPOSE: Final = "palace_classify"
_AWAY: Final = (BrokerError, NatsError, ViewsBehind, ChatUnavailable, EmbedderError)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClassifyLimits(PullLimits):
    """Times of this reactor.

    Attributes:
        window_s: Seconds in which drawers are collected for one call.
        retry_s: Seconds after which a model is asked again about a drawer of which its answer was unusable.
    """

    window_s: float = 2.0
    retry_s: float = 60.0


class PalaceClassifyReactor(PullReactor):
    """The reactor; it reads the views, so it runs where they are.

    Args:
        client: A connection that reconnects for ever; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        views: Where drawers are read.
        embedder_for: What runs an embedding model, None if nothing does; not closed here.
        clock: The time for ``status``.
        chat: Classifies and compares; closed at the end; None if there is none.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "palace_classify"
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
        chat: ChatModel | None = None,
        limits: ClassifyLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or ClassifyLimits()
        durable = Durable(
            name=f"palace-{'settle' if chat is None else 'classify'}-v{self.version}",
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=MAX_ACK_PENDING,
            description="drawers to classify",
            sparse=True,
        )
        counted = ("classified", "settled", "enriched", "compared", "rejected", "failed", "facts_left_out")
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=counted)
        self._views = views
        self._record = PalaceRecord(self.publish, self.name, self.identity, self._counts)
        self._chat = None if chat is None else MeteredChat(chat, publisher, self.identity)
        self._comparing = None if self._chat is None else Comparing(views, self._chat, self._record, embedder_for)

    async def stop(self) -> None:
        """Stop, then close the model."""
        await super().stop()
        if self._chat is not None:
            await self._chat.close()

    async def turn(self) -> None:
        """Work on the drawers that were filed."""
        limits = self._limits
        messages = await self._source.take(BATCH, wait_s=limits.wait_s, window_s=limits.window_s)
        if not messages:
            return
        for message in messages:
            self._leases.hold(message)
        async with self._leases.renewed():
            await self._caught_up(max(position_of(one.reply).seq for one in messages))
            of: dict[str, dict[str, Msg]] = {}
            for message in messages:
                workspace_id, entry_id = _workspace_of(message), (message.headers or {}).get(h.ENTRY_ID)
                if workspace_id is None or entry_id is None:  # the projections park it
                    await self._leases.ack(message)
                else:
                    of.setdefault(workspace_id, {})[entry_id] = message
            for workspace_id, some in of.items():
                await self._work(workspace_id, some)

    async def _caught_up(self, seq: int) -> None:
        await self._views.wait_for(max(seq, self._record.last_seq), VIEWS_WAIT_S, *NEEDS)

    async def _work(self, workspace_id: str, messages: Mapping[str, Msg]) -> None:
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(messages))
        drawers = [waiting[entry_id] for entry_id in messages if entry_id in waiting]
        if self._chat is None or self._comparing is None:
            for drawer in drawers:
                if drawer.raw:
                    await self._record.settled(workspace_id, drawer)
                    self._counts["settled"] += 1
            for message in messages.values():
                await self._leases.ack(message)
            return
        later = await self._classify(workspace_id, self._chat, [one for one in drawers if one.raw or one.to_enrich])
        for entry_id in later:
            await self._leases.put_off(messages[entry_id], self._limits.retry_s)
        rest = {entry_id: message for entry_id, message in messages.items() if entry_id not in later}
        await self._caught_up(0)
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(rest))
        around = None
        if any(one.to_compare for one in waiting.values()):
            around = await self._comparing.neighbourhood(workspace_id)
        for entry_id, message in rest.items():
            if around is not None and entry_id in waiting and waiting[entry_id].to_compare:
                await self._comparing.compare(workspace_id, waiting[entry_id], around)
                self._counts["compared"] += 1
            await self._leases.ack(message)

    async def _classify(self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting]) -> set[str]:
        """Classify drawers; returns the entries of those that are to come again."""
        if not drawers:
            return set()
        graph = await asyncio.to_thread(graph_of, self._views, workspace_id)
        alone = [one for one in drawers if one.asked_alone]
        for some in _parts([one for one in drawers if not one.asked_alone]):
            found = await self._ask(workspace_id, chat, some) if len(some) > 1 else None
            if len(some) > 1 and found is None:
                await self._record.rejected(workspace_id, some, alone=False)
            if found is None:
                alone += some
                continue
            for drawer, one in zip(some, found, strict=True):
                await self._record.classified(workspace_id, drawer, one, graph)
                self._counts["classified" if drawer.raw else "enriched"] += 1
        later = set()
        for drawer in alone:
            found = await self._ask(workspace_id, chat, [drawer])
            if found is not None:
                await self._record.classified(workspace_id, drawer, found[0], graph)
                self._counts["classified" if drawer.raw else "enriched"] += 1
                continue
            self._counts["rejected"] += 1
            if not drawer.raw:
                await self._record.linked(workspace_id, drawer)
                continue
            await self._record.rejected(workspace_id, [drawer], alone=True)
            if drawer.rejected + 1 < MOST_REJECTED:
                later.add(drawer.entry_id)
            else:
                self._counts["failed"] += 1
        return later

    async def _ask(self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting]) -> list[Understood] | None:
        """What a model says of drawers; None if its answer is unusable."""
        prompt = classification([one.content for one in drawers])
        try:
            answer = await chat.complete(workspace_id, PURPOSE, prompt, ReadDrawers)
        except ChatUnavailable:
            raise
        except ChatError as error:
            _log.warning("palace.bad_answer", drawers=len(drawers), error=type(error).__name__)
            return None
        return understood(answer, len(drawers))


def _parts(drawers: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Drawers in calls."""
    part: list[Waiting] = []
    chars = 0
    for one in drawers:
        size = min(len(one.content), SHOWN_CHARS)
        if part and (len(part) == CALL_DRAWERS or chars + size > CALL_CHARS):
            yield part
            part, chars = [], 0
        part.append(one)
        chars += size
    if part:
        yield part


def _workspace_of(message: Msg) -> str | None:
    try:
        return parse_subject(message.subject).workspace
    except FoldError:
        return None


def create(context: ReactorContext) -> Reactor | None:
    """The reactor of a node, or None in a process without views."""
    if context.views is None:
        return None
    chat = None
    if context.settings.llm_model or context.settings.llm_base_url:
        from ..adapters.chat import chat_model_of  # the HTTP client is imported where it is used

        chat = chat_model_of(context.settings)
    return PalaceClassifyReactor(
        context.client,
        context.publisher,
        context.views,
        embedder_for=context.embedder_for,
        clock=context.clock,
        chat=chat,
    )


REACTOR: Final = create
