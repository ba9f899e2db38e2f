"""Classifies the drawers that were filed: the cold path of the palace (contract of the palace, §3 and §4).

A chat model reads several drawers in one call. It gives type, importance, summary and entities of drawers without a final
type, and only the entities of important drawers that the word lists classified. Then each newly classified drawer is
compared with its neighbours. Without a chat model, the type from the word lists is final.

Invariants: ``drawer.filed`` is acked once its drawer is done, so a crash at any step loses no drawer; recorded answers are
not requested again, so at most one call is repeated. The reactor waits for an unavailable model. Only unusable answers
about a single drawer are counted; the third makes the drawer ``failed``.

Durable: ack policy explicit, ack wait ``ClassifyLimits.ack_wait_s`` (renewed while it works), unlimited deliveries, at
most ``max_ack_pending`` unacked; in stream order, except for drawers that were put off after an unusable answer. With and
without a chat model it has different durables, so that a model that is configured later reads all drawers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from nats.aio.msg import Msg
from pydantic_core import from_json

from ...schemas.chat import ChatError, ChatUnavailable
from ...schemas.events import headers as h
from ...schemas.events.drawers import MOST_REJECTED, DrawerFiled, DrawerRestored
from ...schemas.subjects import Family, parse_subject
from ..prompts.drawers import SHOWN_CHARS, ReadDrawers, Understood, classification, understood
from ..reacting.llm_calls import MeteredChat
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from .palace_classify_reads import NEEDS, Graph, Waiting, graph_of, raw_entries_of, waiting_in
from .palace_compare import Comparing
from .palace_record import PalaceRecord

CALL_CHARS: Final = 40_000
"""Characters of drawers in one call, about 10,000 tokens."""
CALL_DRAWERS: Final = 20
"""Drawers in one call: their answer has up to 8,000 tokens."""
PROBE: Final = "The model answers."
"""Harmless text that is sent to a model after a failure, to distinguish an outage from a drawer that it cannot read."""
PURPOSE: Final = "palace_classify"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClassifyLimits(ViewsLimits):
    """Times of this reactor.

    Attributes:
        window_s: Seconds in which drawers are collected for one call.
        retry_s: Seconds until a model is asked again about a drawer after an unusable answer.
    """

    window_s: float = 2.0
    retry_s: float = 60.0


class PalaceClassifyReactor(ViewsReactor):
    """The reactor; ``chat`` classifies and compares."""

    name = "palace_classify"
    version = 1
    filter_subjects = tuple(
        f"{Family.CONTROL.value}.*.{entry_type}" for entry_type in (DrawerFiled.ENTRY_TYPE, DrawerRestored.ENTRY_TYPE)
    )
    description = "drawers to classify"
    needs = NEEDS
    counted = ("classified", "settled", "enriched", "compared", "rejected", "failed", "faults", "facts_left_out")
    uses_chat = True
    batch = 50
    """Drawers of one look (contract, §3)."""
    max_ack_pending = 256
    default_limits = ClassifyLimits()
    _limits: ClassifyLimits

    def prepare(self) -> None:
        """Make the parts that record and compare."""
        self._record = PalaceRecord(self.publish, self.name, self.identity, self._counts)
        self._comparing = Comparing(self._views, self._chat, self._record, self._context.embedder_for)

    def _durable_name(self) -> str:
        return f"palace-{'settle' if self._chat is None else 'classify'}-v{self.version}"

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Classify drawers, then compare each with its neighbours."""
        by_entry = await asyncio.to_thread(self._filings, workspace_id, messages)
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(by_entry))
        drawers = [waiting[entry_id] for entry_id in by_entry if entry_id in waiting]
        if self._chat is None:
            later = await self._settle_types(workspace_id, [drawer for drawer in drawers if drawer.raw])
        else:
            later = await self._classify(
                workspace_id, self._chat, [drawer for drawer in drawers if drawer.raw or drawer.to_enrich]
            )
        for entry_id in later:
            await self._leases.put_off(by_entry.pop(entry_id), self._limits.retry_s)
        await self.caught_up()
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(by_entry))
        around = None
        if any(drawer.to_compare for drawer in waiting.values()):
            around = await self._comparing.neighbourhood(workspace_id)
        for entry_id, message in by_entry.items():
            if around is not None and entry_id in waiting and waiting[entry_id].to_compare:
                drawer = waiting[entry_id]
                if await self._done(drawer, "compared", self._comparing.compare(workspace_id, drawer, around)):
                    self._counts["compared"] += 1
            await self._leases.ack(message)

    def _filings(self, workspace_id: str, messages: Sequence[Msg]) -> dict[str, Msg]:
        """The messages by the entry that filed the drawer that each is about.

        A restored drawer counts only if it is raw, because it failed before: what a caller restored is not superseded again.
        """
        by_entry, restored = {}, {}
        for message in messages:
            if parse_subject(message.subject).kind == DrawerRestored.ENTRY_TYPE:
                restored[DrawerRestored.model_validate(from_json(message.data)["payload"]).drawer_id] = message
            else:
                by_entry[(message.headers or {}).get(h.ENTRY_ID, "")] = message
        filed = raw_entries_of(self._views, workspace_id, list(restored))
        return by_entry | {filed[drawer_id]: message for drawer_id, message in restored.items() if drawer_id in filed}

    async def _done(self, drawer: Waiting, step: str, work: Awaitable[None]) -> bool:
        """Whether work on a drawer succeeded: a fault is logged and counted, so that it stops no other drawer."""
        try:
            await work
        except self.waits_for:
            raise
        except Exception as error:
            _log.error("palace.drawer_failed", drawer=drawer.drawer_id, step=step, error=type(error).__name__)
            self._counts["faults"] += 1
            return False
        return True

    async def _settle_types(self, workspace_id: str, drawers: Sequence[Waiting]) -> set[str]:
        """Make the types that the words gave final; returns the entries of drawers to put off."""
        later = set()
        for drawer in drawers:
            if await self._done(drawer, "settled", self._record.settled(workspace_id, drawer)):
                self._counts["settled"] += 1
            elif await self._reject(workspace_id, drawer):
                later.add(drawer.entry_id)
        return later

    async def _reject(self, workspace_id: str, drawer: Waiting) -> bool:
        """Count an unusable answer about a drawer alone; False if it is ``failed`` now."""
        self._counts["rejected"] += 1
        await self._record.rejected(workspace_id, [drawer], alone=True)
        if drawer.rejected + 1 < MOST_REJECTED:
            return True
        self._counts["failed"] += 1
        return False

    async def _classify(self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting]) -> set[str]:
        """Classify drawers; returns the entries of those to put off."""
        if not drawers:
            return set()
        graph = await asyncio.to_thread(graph_of, self._views, workspace_id)
        alone = [drawer for drawer in drawers if drawer.asked_alone]
        for part in _parts([drawer for drawer in drawers if not drawer.asked_alone]):
            answers = None
            if len(part) > 1:
                try:
                    answers = await self._ask(workspace_id, chat, part)
                except ChatUnavailable:  # perhaps because of one of them
                    await self._probe(workspace_id, chat)
                    alone += part
                    continue
                if answers is None:
                    await self._record.rejected(workspace_id, part, alone=False)
            if answers is None:
                alone += part
                continue
            for drawer, answer in zip(part, answers, strict=True):
                if not await self._take(workspace_id, drawer, answer, graph):
                    alone.append(drawer)
        return await self._classify_alone(workspace_id, chat, alone, graph)

    async def _classify_alone(
        self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting], graph: Graph
    ) -> set[str]:
        """Ask about each drawer by itself; returns the entries of those to put off.

        Raises:
            ChatUnavailable: If the model does not answer about a harmless text either. If it does, the drawer about which
                it does not answer is rejected.
        """
        later = set()
        for drawer in drawers:
            try:
                answers = await self._ask(workspace_id, chat, [drawer])
            except ChatUnavailable:
                await self._probe(workspace_id, chat)
                answers = None
            if answers is not None and await self._take(workspace_id, drawer, answers[0], graph):
                continue
            if await self._refused(workspace_id, drawer):
                later.add(drawer.entry_id)
        return later

    async def _probe(self, workspace_id: str, chat: MeteredChat) -> None:
        """Ask about a harmless text.

        Raises:
            ChatUnavailable: If the model does not answer.
        """
        try:
            await chat.complete(workspace_id, PURPOSE, classification([PROBE]), ReadDrawers)
        except ChatUnavailable:
            raise
        except ChatError:  # an answer without a form is an answer
            return

    async def _take(self, workspace_id: str, drawer: Waiting, answer: Understood, graph: Graph) -> bool:
        """Record an answer about a drawer; False if that failed."""
        if not await self._done(drawer, "classified", self._record.classified(workspace_id, drawer, answer, graph)):
            return False
        self._counts["classified" if drawer.raw else "enriched"] += 1
        return True

    async def _refused(self, workspace_id: str, drawer: Waiting) -> bool:
        """There is no usable answer about a drawer alone; whether it is asked about again."""
        if drawer.raw:
            return await self._reject(workspace_id, drawer)
        self._counts["rejected"] += 1
        await self._record.linked(workspace_id, drawer)
        return False

    async def _ask(self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting]) -> list[Understood] | None:
        """The model's answer about drawers; None if it is unusable."""
        prompt = classification([drawer.content for drawer in drawers])
        try:
            answer = await chat.complete(workspace_id, PURPOSE, prompt, ReadDrawers)
        except ChatUnavailable:
            raise
        except ChatError as error:
            _log.warning("palace.bad_answer", drawers=len(drawers), error=type(error).__name__)
            return None
        return understood(answer, len(drawers))


def _parts(drawers: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Split drawers into calls."""
    part: list[Waiting] = []
    chars = 0
    for drawer in drawers:
        size = min(len(drawer.content), SHOWN_CHARS)
        if part and (len(part) == CALL_DRAWERS or chars + size > CALL_CHARS):
            yield part
            part, chars = [], 0
        part.append(drawer)
        chars += size
    if part:
        yield part


REACTOR: Final = PalaceClassifyReactor.create
