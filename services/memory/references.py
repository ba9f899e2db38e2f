"""Which memories reached a prompt: receipts of recalls, and what callers say of them, batched into events.

Why: importance grows with use (contract §6), and use is what a prompt got to see, neither what was searched nor what was
found ([TRAP] of §5: the whole over-fetched lane was counted, and hits of full text alone never were). Recall itself writes
nothing; it leaves a receipt here, and the caller redeems it when it puts the hits into a prompt.

Invariants: a receipt counts once, and only for whom it was made out to; what is counted is published as
``memory.referenced`` exactly once, for a batch keeps its id until the broker has acked it. Memory is bounded: an outage
of the broker costs counts, loudly, never the service. Receipts live on the node that answered, for an hour at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from ...schemas.errors import CrewJournalError, InvalidQuery, NotFound
from ...schemas.events.memory import MemoryReferenced, ReferencedEntry
from ...schemas.ids import mint_entry_id
from ...schemas.operations.recall import UsedAnswer, UsedRequest
from ...schemas.principal import Principal
from ..desk import Caller
from ..endings import end_task
from ..journal.intake.recorder import Recorder
from ..query.recall import Answered

RECEIPT_TTL_S: Final = 3_600.0
"""Seconds a receipt can be redeemed; a prompt is built within seconds of its recall, a slow run within minutes."""
MAX_RECEIPT_ENTRIES: Final = 50_000
"""Entry ids kept in receipts, about 6 MB. At 10 recalls/s of 5 hits, a quarter of an hour. When they are too many, the
token that holds most, of the workspace that holds most, loses its oldest: no token in a loop pushes out another's."""
FLUSH_EVERY_S: Final = 3.0
"""Seconds between batches: nothing reads a count before the nightly decay."""
FLUSH_ENTRIES: Final = 1_000
"""Entries at which a batch is published at once; also the most one event may hold."""
MAX_PENDING_ENTRIES: Final = 50_000
"""Entries whose counts are kept while the broker is away, about 10 MB; further ones are lost and counted as dropped."""
STOP_TIMEOUT_S: Final = 5.0
"""Seconds that the last batch may take while the node stops."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReferenceFigures:
    """What ``status`` shows.

    Attributes:
        receipts: Receipts held.
        pending: Entries counted and not yet published.
        published: Entries published since start.
        dropped: Entries lost since start because too many were pending.
        error: Why the last batch was not published, None if it was.
    """

    receipts: int
    pending: int
    published: int
    dropped: int
    error: str | None


@dataclass(slots=True)
class _Receipt:
    """What a recall showed. ``group`` is the workspace of its token (None: of all), never a name that a request chose."""

    group: str | None
    token_id: str
    workspace_id: str
    agent_id: str | None
    entry_ids: frozenset[str]
    until: datetime
    used: bool = False

    @property
    def cost(self) -> int:
        return len(self.entry_ids) + 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """Counts under way to the broker; a retry has the same id and the same content."""

    workspace_id: str
    entry_id: str
    payload: MemoryReferenced


class ReferenceLog:
    """Receipts of recalls and the counts of what reached prompts; used on the event loop.

    Args:
        journal: Records the batches.
        clock: The time now, UTC.
        flush_every_s: Seconds between batches.
    """

    def __init__(
        self, journal: Recorder, *, clock: Callable[[], datetime], flush_every_s: float = FLUSH_EVERY_S
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._flush_every_s = flush_every_s
        self._receipts: OrderedDict[str, _Receipt] = OrderedDict()
        self._held = 0
        self._counts: dict[str, dict[str, int]] = {}
        self._outgoing: list[_Batch] = []
        self._due = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._published = 0
        self._dropped = 0
        self._error: str | None = None

    # life

    async def start(self) -> None:
        """Publish in the background."""
        self._task = asyncio.create_task(self._run(), name="references")

    async def stop(self) -> None:
        """Publish what is pending and end; what the broker does not take now is lost."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.flush()
        if lost := self.figures().pending:
            _log.warning("references.lost_at_shutdown", entries=lost, error=self._error)

    def figures(self) -> ReferenceFigures:
        """How it is doing."""
        pending = sum(len(batch.payload.entries) for batch in self._outgoing)
        pending += sum(map(len, self._counts.values()))
        return ReferenceFigures(len(self._receipts), pending, self._published, self._dropped, self._error)

    # receipts

    def offer(self, principal: Principal, workspace_id: str, receipt: str, entry_ids: Sequence[str]) -> None:
        """Make out the receipt of a recall: these entries may be said to have reached a prompt.

        Args:
            principal: Who recalled.
            workspace_id: Where the entries are.
            receipt: Its name, as the answer shows it.
            entry_ids: What the answer shows, and nothing else: not the lanes that were searched.
        """
        self._expire()
        agent = None if principal.role.administers else principal.agent_id
        until = self._clock() + timedelta(seconds=RECEIPT_TTL_S)
        self._forget(receipt)
        made = _Receipt(principal.workspace_id, principal.token_id, workspace_id, agent, frozenset(entry_ids), until)
        while self._receipts and self._held + made.cost > MAX_RECEIPT_ENTRIES:
            greediest = self._greediest()
            for name in greediest[: 1 + len(greediest) // 10]:  # a tenth at once: looking for them reads all receipts
                self._forget(name)
        self._receipts[receipt] = made
        self._held += made.cost

    def _greediest(self) -> list[str]:
        """The receipts, oldest first, of the token that holds most, of the group that holds most."""
        groups: Counter[str | None] = Counter()
        for held in self._receipts.values():
            groups[held.group] += held.cost
        group = max(groups, key=groups.__getitem__)
        tokens: Counter[str] = Counter()
        for held in self._receipts.values():
            if held.group == group:
                tokens[held.token_id] += held.cost
        token = max(tokens, key=tokens.__getitem__)
        return [name for name, held in self._receipts.items() if held.group == group and held.token_id == token]

    def observe(self, answered: Answered) -> None:
        """Make out the receipt of an answered recall."""
        response = answered.response
        shown = [hit.entry_id for hit in response.hits]
        self.offer(answered.principal, answered.workspace_id, response.receipt, shown)

    def used(self, principal: Principal, receipt: str, entry_ids: Sequence[str] | None = None) -> UsedAnswer:
        """Count the entries of a receipt, or some of them, as having reached a prompt; once.

        Args:
            principal: Who says so: the agent who recalled, or an OWNER or ADMIN of the workspace.
            receipt: The receipt of the recall.
            entry_ids: Which of its entries; all if None.

        Raises:
            NotFound: If there is no such receipt, or none for this token.
            InvalidQuery: If it does not hold one of the entries.
        """
        self._expire()
        known = self._receipts.get(receipt)
        if known is None or not _is_for(known, principal):
            raise NotFound(
                f"no receipt {receipt[:64]}",
                hint=f"the node that answered keeps a receipt for {RECEIPT_TTL_S / 60:g} minutes, in memory, so not over a "
                "restart, and for the token that recalled: use it in time, or recall again",
            )
        if known.used:
            return UsedAnswer(receipt=receipt, counted=0, already=True)
        chosen = known.entry_ids if entry_ids is None else frozenset(entry_ids)
        if foreign := sorted(chosen - known.entry_ids):
            raise InvalidQuery(
                f"the receipt does not hold {foreign[0][:64]}", hint="name hits of that recall", field="entry_ids"
            )
        self._held -= len(known.entry_ids)
        known.used, known.entry_ids = True, frozenset()
        self._count(known.workspace_id, sorted(chosen))
        return UsedAnswer(receipt=receipt, counted=len(chosen), already=False)

    async def redeem(self, caller: Caller, asked: UsedRequest) -> UsedAnswer:
        """``used`` as an operation."""
        return self.used(caller.principal, asked.receipt, asked.entry_ids)

    def _expire(self) -> None:
        now = self._clock()
        while self._receipts and (oldest := next(iter(self._receipts.items())))[1].until <= now:
            self._forget(oldest[0])

    def _forget(self, receipt: str) -> None:
        if (gone := self._receipts.pop(receipt, None)) is not None:
            self._held -= gone.cost

    # counting and publishing

    def _count(self, workspace_id: str, entry_ids: Sequence[str]) -> None:
        room = MAX_PENDING_ENTRIES - self.figures().pending
        counts = self._counts.setdefault(workspace_id, {})
        for entry_id in entry_ids:
            if entry_id not in counts:
                if room <= 0:
                    self._dropped += 1
                    continue
                room -= 1
            counts[entry_id] = counts.get(entry_id, 0) + 1
        if len(counts) >= FLUSH_ENTRIES:
            self._due.set()

    async def flush(self) -> bool:
        """Publish what is pending.

        Returns:
            Whether all of it was acked; what was not is kept and tried again.
        """
        async with self._flushing:
            counted, self._counts = self._counts, {}
            for workspace_id, counts in counted.items():
                self._outgoing += _batches(workspace_id, counts)
            while self._outgoing:
                batch = self._outgoing[0]
                size = len(batch.payload.entries)
                try:
                    await self._journal.record(
                        batch.workspace_id,
                        batch.payload,
                        summary=f"{size} {'memory' if size == 1 else 'memories'} reached prompts",
                        entry_id=batch.entry_id,
                    )
                except CrewJournalError as error:
                    if self._error is None:
                        _log.warning("references.not_published", error=error.message)
                    self._error = error.message
                    return False
                self._error = None
                self._published += size
                del self._outgoing[0]
        return True

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self._flush_every_s)
            self._due.clear()
            try:
                acked = await self.flush()
            except Exception:  # what was counted is kept, the next round tries again
                _log.exception("references.flush_failed")
                acked = False
            if not acked:
                await asyncio.sleep(self._flush_every_s)


def _is_for(receipt: _Receipt, principal: Principal) -> bool:
    if principal.workspace_id not in (None, receipt.workspace_id):
        return False
    return principal.role.administers or (receipt.agent_id is not None and receipt.agent_id == principal.agent_id)


def _batches(workspace_id: str, counts: dict[str, int]) -> list[_Batch]:
    counted = [ReferencedEntry(entry_id=entry_id, count=count) for entry_id, count in sorted(counts.items())]
    return [
        _Batch(workspace_id, mint_entry_id(), MemoryReferenced(entries=tuple(counted[first : first + FLUSH_ENTRIES])))
        for first in range(0, len(counted), FLUSH_ENTRIES)
    ]
