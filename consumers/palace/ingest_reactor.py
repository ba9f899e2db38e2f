"""Files conversations of users and agents as drawers: the hot path of the palace (contract of the palace, §2).

Steps of a chunk: classify, embed, compare with live drawers, choose a tier, publish its vector and then
``drawer.filed``. Ids are derived from the exchange and the chunk, so that a repeated run files nothing twice.

Invariants: an exchange is filed after it has ended, and its first turn is acked only then, so that a crash loses
nothing. Turns that are not filed (the workspace does not file chat, or its palace is full) stay in the journal and can
be filed later on request. Without a model, drawers are filed without vectors, which ``embed_chunks`` adds.

Durable: ack policy explicit, ack wait ``PullLimits.ack_wait_s`` (renewed while it works), unlimited deliveries; in
stream order, except for exchanges that have not ended. It delivers only turns of workspaces that file them: a
``workspace.configured`` changes its filters, and is acked after the turns between this event and the change of the
filters are filed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nats.aio.msg import Msg
from pydantic_core import from_json

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.core.subjects import Family, parse_subject
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.rules import AGENT_RESPONSE, USER_MESSAGE
from ...schemas.palace.events import PalaceIngestAsked
from ...schemas.palace.exchanges import QUIET_MS, Exchange, Thresholds, exchanges_of
from ...schemas.settings import Settings
from ..feed.messages import position_of
from ..reacting.pull_reactor import ViewsLimits, ViewsReactor
from ..reactor import ReactorStatus
from .exchange_filing import NEEDS, Filing, filing_chat, seqs_of_turns, turns_around, turns_since

CLOCKS_DIFFER_MS: Final = 5_000
"""Maximum difference between the clocks of this process and of the broker."""
EXCHANGES_AT_ONCE: Final = 128
FILTERED_WORKSPACES: Final = 256
"""Maximum number of workspaces in the durable's filters; with more workspaces, it delivers the turns of all. A request
to the broker holds 1 MiB, and the broker compares every filter with every other.
"""
DONE_KEPT: Final = 16_384
"""Maximum number of exchanges that are remembered as filed, about 2 MB; for others the views are read."""


@dataclass(frozen=True, slots=True)
class IngestLimits(ViewsLimits):
    """Times of this reactor.

    Attributes:
        window_s: Seconds for which turns are collected before the views are read; an exchange ends after minutes.
        quiet_ms: Silence that ends an exchange, milliseconds.
        clocks_differ_ms: See ``CLOCKS_DIFFER_MS``.
    """

    window_s: float = 1.0
    quiet_ms: int = QUIET_MS
    clocks_differ_ms: int = CLOCKS_DIFFER_MS


class PalaceIngestReactor(ViewsReactor):
    """The reactor; it decides by the node's clock whether an exchange has ended."""

    name = "palace_ingest"
    version = 1
    filter_subjects = tuple(
        f"{Family.CONTROL.value}.*.{payload.ENTRY_TYPE}" for payload in (PalaceIngestAsked, WorkspaceConfigured)
    )
    description = "turns of conversations to file as drawers"
    needs = NEEDS
    counted = ("completed", "filed", "duplicates", "noise", "put_off", "without_vector", "faults", "skipped")
    max_ack_pending = 4_096
    """Maximum concurrent sessions; further sessions wait until an exchange has ended."""
    default_limits = IngestLimits()
    _limits: IngestLimits

    def prepare(self) -> None:
        """Create the filing part, with the thresholds of the settings."""
        thresholds = thresholds_of(self._context.settings)
        context = self._context
        self._filing = Filing(
            self._views, context.finder, self.publish, context.embedder_for, thresholds, self.identity
        )
        self._done: OrderedDict[str, None] = OrderedDict()
        self._running = 0
        self._followed: dict[str, int] = {}
        """Workspace whose turns the durable delivers → sequence after which it certainly delivers them."""

    async def status(self) -> ReactorStatus:
        """The status, with the numbers of exchanges being filed and of waiting turns."""
        status = await super().status()
        return replace(status, counts={**status.counts, "running": self._running, "waiting": status.pending})

    async def open(self) -> None:
        """Declare the durable for the workspaces that file turns, by the views at the stream's end.

        It is not declared earlier with fewer workspaces, because the broker permanently skips messages that match no
        filter.
        """
        await self.caught_up(await self._source.last_seq())
        await self._follow(await asyncio.to_thread(filing_chat, self._views))

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """File the ended exchanges, and postpone the others."""
        turns = []
        for message in messages:
            subject = parse_subject(message.subject)
            if subject.family is not Family.CONTROL:
                turns.append(message)
            elif subject.kind == PalaceIngestAsked.ENTRY_TYPE:
                await self._replay(workspace_id, message)
            else:
                await self._choose(workspace_id, message)
        if turns:
            await self._take(workspace_id, turns)

    async def _follow(self, filing: frozenset[str]) -> None:
        """Let the durable deliver only the turns of these workspaces."""
        names = sorted(filing) if len(filing) <= FILTERED_WORKSPACES else ["*"]
        kinds = (USER_MESSAGE, AGENT_RESPONSE)
        turns = [f"{Family.JOURNAL.value}.{name}.*.*.{kind}" for name in names for kind in kinds]
        await self._source.take_only((*self.filter_subjects, *turns))
        end = await self._source.last_seq()
        self._followed = {name: self._followed.get(name, end) for name in filing}

    async def _choose(self, workspace_id: str, message: Msg) -> None:
        """Apply a workspace's setting; file the turns between this event and the change of the filters."""
        filing = await asyncio.to_thread(filing_chat, self._views)
        if (workspace_id in filing) != (workspace_id in self._followed):
            await self._follow(filing)
        until = self._followed.get(workspace_id, 0)
        await self.caught_up(until)
        seqs = await asyncio.to_thread(seqs_of_turns, self._views, workspace_id, position_of(message.reply).seq, until)
        if left_ms := await self._file_around(workspace_id, seqs):
            await self._leases.put_off(message, min(left_ms.values()) / 1_000)

    async def _take(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        if workspace_id not in await asyncio.to_thread(filing_chat, self._views):
            self._counts["skipped"] += len(messages)
            return
        of = {position_of(message.reply).seq: message for message in messages}
        for seq, left_ms in (await self._file_around(workspace_id, list(of))).items():
            await self._leases.put_off(of[seq], left_ms / 1_000)

    async def _file_around(self, workspace_id: str, seqs: Sequence[int]) -> dict[int, int]:
        """File the ended exchanges that contain some turns; return when the others end.

        Returns:
            Sequence of the turn → milliseconds until its exchange ends.
        """
        if not seqs:
            return {}
        now_ms = to_ms(self._clock()) - self._limits.clocks_differ_ms
        sessions = await asyncio.to_thread(turns_around, self._views, workspace_id, seqs, self._limits.quiet_ms)
        found = [one for turns in sessions for one in exchanges_of(turns, now_ms, self._limits.quiet_ms)]
        await self._file(workspace_id, [one for one in found if one.ended])
        taken = set(seqs)
        return {
            one.head.seq: max(one.turns[-1].published_ms + self._limits.quiet_ms + 1 - now_ms, 1)
            for one in found
            if not one.ended and one.head.seq in taken
        }

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


REACTORS: Final = {"palace_ingest": PalaceIngestReactor.create}
