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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from nats.aio.msg import Msg

from ...schemas.chat import ChatError, ChatUnavailable
from ...schemas.events import headers as h
from ...schemas.events.drawers import MOST_REJECTED, DrawerFiled
from ...schemas.subjects import Family
from ..prompts.drawers import SHOWN_CHARS, ReadDrawers, Understood, classification, understood
from ..reacting.llm_calls import MeteredChat
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from .palace_classify_reads import NEEDS, Waiting, graph_of, waiting_in
from .palace_compare import Comparing
from .palace_record import PalaceRecord

CALL_CHARS: Final = 40_000
"""Characters of drawers in one call, about 10,000 tokens."""
CALL_DRAWERS: Final = 20
"""Drawers in one call: their answer has up to 8,000 tokens."""
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
    filter_subjects = (f"{Family.CONTROL.value}.*.{DrawerFiled.ENTRY_TYPE}",)
    description = "drawers to classify"
    needs = NEEDS
    counted = ("classified", "settled", "enriched", "compared", "rejected", "failed", "facts_left_out")
    uses_chat = True
    batch = 50
    """Drawers of one look (contract, §3)."""
    max_ack_pending = 256
    default_limits = ClassifyLimits()
    _limits: ClassifyLimits

    def prepare(self) -> None:
        """Make the parts that record and compare."""
        self._record = PalaceRecord(self.publish, self.name, self.identity, self._counts)
        self._comparing = (
            None if self._chat is None else Comparing(self._views, self._chat, self._record, self._context.embedder_for)
        )

    def _durable_name(self) -> str:
        return f"palace-{'settle' if self._chat is None else 'classify'}-v{self.version}"

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Classify drawers, then compare each with its neighbours."""
        of = {(message.headers or {}).get(h.ENTRY_ID, ""): message for message in messages}
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(of))
        drawers = [waiting[entry_id] for entry_id in of if entry_id in waiting]
        if self._chat is None or self._comparing is None:
            for drawer in drawers:
                if drawer.raw:
                    await self._record.settled(workspace_id, drawer)
                    self._counts["settled"] += 1
            return
        later = await self._classify(workspace_id, self._chat, [one for one in drawers if one.raw or one.to_enrich])
        for entry_id in later:
            await self._leases.put_off(of.pop(entry_id), self._limits.retry_s)
        await self.caught_up()
        waiting = await asyncio.to_thread(waiting_in, self._views, workspace_id, list(of))
        around = None
        if any(one.to_compare for one in waiting.values()):
            around = await self._comparing.neighbourhood(workspace_id)
        for entry_id, message in of.items():
            if around is not None and entry_id in waiting and waiting[entry_id].to_compare:
                await self._comparing.compare(workspace_id, waiting[entry_id], around)
                self._counts["compared"] += 1
            await self._leases.ack(message)

    async def _classify(self, workspace_id: str, chat: MeteredChat, drawers: Sequence[Waiting]) -> set[str]:
        """Classify drawers; returns the entries of those to put off."""
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
        """The model's answer about drawers; None if it is unusable."""
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
    """Split drawers into calls."""
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


REACTOR: Final = PalaceClassifyReactor.create
