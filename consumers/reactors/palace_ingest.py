"""Files conversations of users and agents as drawers: the hot path of the palace (contract of the palace, §2).

Steps of a chunk: classify, embed, compare with live drawers, choose a tier, publish its vector and then ``drawer.filed``.
Ids follow from the exchange and the chunk, so a run that is repeated files nothing twice.

Invariants: an exchange is filed once it has ended, and its first turn is acked only then, so a crash at any step loses
nothing. Turns that are not filed (the workspace does not file chat, or its palace is full) stay in the journal and can be
filed later on request. Without a model, drawers are filed without vectors, which ``embed_chunks`` adds.

Durable: ack policy explicit, ack wait ``PullLimits.ack_wait_s`` (renewed while it works), unlimited deliveries; in stream
order, except for exchanges that have not ended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nats.aio.msg import Msg
from pydantic_core import from_json

from ...schemas.events.drawers import PalaceIngestAsked
from ...schemas.rules.palace.exchanges import AGENT_TURN, QUIET_MS, USER_TURN, Exchange, Thresholds, exchanges_of
from ...schemas.settings import Settings
from ...schemas.subjects import Family, parse_subject
from ...schemas.timestamps import to_ms
from ..feed.positions import position_of
from ..reacting.views_reactor import ViewsLimits, ViewsReactor
from ..reactor import ReactorStatus
from .palace_filing import Filing
from .palace_reads import NEEDS, files_chat, turns_around, turns_since

CLOCKS_DIFFER_MS: Final = 5_000
"""How much the clocks of this process and of the broker may differ."""
EXCHANGES_AT_ONCE: Final = 128
DONE_KEPT: Final = 16_384
"""Exchanges remembered as done, about 2 MB; for others the views are read."""


@dataclass(frozen=True, slots=True)
class IngestLimits(ViewsLimits):
    """Times of this reactor.

    Attributes:
        window_s: Seconds in which turns are collected for one look at the views; an exchange ends after minutes.
        quiet_ms: Silence that ends an exchange, milliseconds.
        clocks_differ_ms: See ``CLOCKS_DIFFER_MS``.
    """

    window_s: float = 1.0
    quiet_ms: int = QUIET_MS
    clocks_differ_ms: int = CLOCKS_DIFFER_MS


class PalaceIngestReactor(ViewsReactor):
    """The reactor; the clock of the node says when an exchange has ended."""

    name = "palace_ingest"
    version = 1
    filter_subjects = (
        *(f"{Family.JOURNAL.value}.*.*.*.{entry_type}" for entry_type in (USER_TURN, AGENT_TURN)),
        f"{Family.CONTROL.value}.*.{PalaceIngestAsked.ENTRY_TYPE}",
    )
    description = "turns of conversations to file as drawers"
    needs = NEEDS
    counted = ("completed", "filed", "duplicates", "noise", "put_off", "without_vector", "faults", "skipped")
    max_ack_pending = 4_096
    """More sessions at a time than this wait until some have ended their exchange."""
    default_limits = IngestLimits()
    _limits: IngestLimits

    def prepare(self) -> None:
        """Make the part that files, with the thresholds of the settings."""
        thresholds = thresholds_of(self._context.settings)
        self._filing = Filing(self._views, self.publish, self._context.embedder_for, thresholds, self.identity)
        self._done: OrderedDict[str, None] = OrderedDict()
        self._running = 0

    async def status(self) -> ReactorStatus:
        """The status, with the exchanges that are being filed and the turns that wait."""
        status = await super().status()
        return replace(status, counts={**status.counts, "running": self._running, "waiting": status.pending})

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """File the exchanges that have ended, and put off those that have not."""
        turns = []
        for message in messages:
            if parse_subject(message.subject).family is Family.CONTROL:
                await self._replay(workspace_id, message)
            else:
                turns.append(message)
        if turns:
            await self._take(workspace_id, turns)

    async def _take(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        if not await asyncio.to_thread(files_chat, self._views, workspace_id):
            self._counts["skipped"] += len(messages)
            return
        seqs = [position_of(message.reply).seq for message in messages]
        now_ms = to_ms(self._clock()) - self._limits.clocks_differ_ms
        sessions = await asyncio.to_thread(turns_around, self._views, workspace_id, seqs, self._limits.quiet_ms)
        exchanges = [exchange for turns in sessions for exchange in exchanges_of(turns, now_ms, self._limits.quiet_ms)]
        await self._file(workspace_id, [exchange for exchange in exchanges if exchange.ended])
        going_on = {exchange.head.seq: exchange for exchange in exchanges if not exchange.ended}
        for message, seq in zip(messages, seqs, strict=True):
            if exchange := going_on.get(seq):
                left_ms = exchange.turns[-1].published_ms + self._limits.quiet_ms + 1 - now_ms
                await self._leases.put_off(message, max(left_ms, 1) / 1_000)

    async def _replay(self, workspace_id: str, message: Msg) -> None:
        """File the exchanges of a workspace that are not filed yet."""
        request = PalaceIngestAsked.model_validate(from_json(message.data)["payload"])
        now_ms = to_ms(self._clock()) - self._limits.clocks_differ_ms
        sessions = await asyncio.to_thread(turns_since, self._views, workspace_id, request.since_seq or 0)
        exchanges = [exchange for turns in sessions for exchange in exchanges_of(turns, now_ms, self._limits.quiet_ms)]
        for exchange in exchanges:
            self._done.pop(f"{workspace_id}/{exchange.head.entry_id}", None)
        await self._file(workspace_id, [exchange for exchange in exchanges if exchange.ended])

    async def _file(self, workspace_id: str, exchanges: Sequence[Exchange]) -> None:
        new = [exchange for exchange in exchanges if f"{workspace_id}/{exchange.head.entry_id}" not in self._done]
        for at in range(0, len(new), EXCHANGES_AT_ONCE):
            batch = new[at : at + EXCHANGES_AT_ONCE]
            self._running = len(batch)
            await self.caught_up()
            self._counts.update(await self._filing.file(workspace_id, batch))
            for exchange in batch:
                self._done[f"{workspace_id}/{exchange.head.entry_id}"] = None
            while len(self._done) > DONE_KEPT:
                self._done.popitem(last=False)
            self._running = 0


def thresholds_of(settings: Settings) -> Thresholds:
    """The thresholds of a node."""
    return Thresholds.of(
        settings.heuristic_high, settings.heuristic_low, has_model=bool(settings.llm_model or settings.llm_base_url)
    )


REACTOR: Final = PalaceIngestReactor.create
