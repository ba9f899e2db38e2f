"""The live tail: streams stored entries and then new ones as they are committed.

Invariants: no entry is missing or repeated between replay and live (the subscription begins before the replay is read,
and live entries up to the replay's sequence are dropped). A slow watcher has a bounded queue; when it is full, its
stream is cut with the sequence from which to resume. A watcher never slows folds or other watchers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import InvalidQuery, TooManyTails, Unavailable
from ...schemas.core.limits import TAIL_REPLAY_MAX, TAIL_SEED
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.principal import Principal
from ...schemas.documents.rules import updated_entry
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.settings import TAILS_PER_TOKEN
from .filters import EntryFilters, Visible, is_quiet
from .queries import JournalQueries
from .rows import StoredEntry

WATCHER_QUEUE: Final = 2_000
"""Maximum entries that wait for one watcher: two full batches of the host. Watchers share the entry objects."""
WATCHER_BYTES: Final = 8 << 20
"""Maximum bytes of entries that wait for one watcher: 2,000 entries of 4 KB. A single commit may exceed it if nothing
was waiting before.
"""
REPLAY_PAGE: Final = 50
"""Number of entries of a replay that are read at once: at most 13 MB."""
MAX_WATCHERS: Final = 500
"""Maximum number of live tails; each costs about 2 µs per committed entry."""


@dataclass(frozen=True, slots=True)
class TailEntry:
    """An entry."""

    entry: StoredEntry


@dataclass(frozen=True, slots=True)
class Gap:
    """A resuming watcher missed more entries than are replayed.

    Attributes:
        after: The sequence after which it resumed.
        before: The first sequence that it gets.
    """

    missed: int
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Idle:
    """No entry for the time of a heartbeat."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a watcher's stream.

    Attributes:
        reason: ``slow``, ``closing`` or ``revoked``.
        resume_after: Resume after this sequence to miss nothing.
    """

    reason: str
    resume_after: int


TailEvent = TailEntry | Gap | Idle | Cut


class _Watcher:
    def __init__(self, token_id: str, visible: Visible, filters: EntryFilters, bound: int) -> None:
        self.token_id = token_id
        self.visible = visible
        self.filters = filters
        self.waiting: deque[EntryRecorded] = deque()
        self.waiting_bytes = 0
        self.bound = bound
        self.cut: str | None = None
        self.wake = asyncio.Event()

    def offer(self, entries: Sequence[EntryRecorded]) -> None:
        if self.cut is not None:
            return
        kept_up = not self.waiting
        for event in entries:
            entry = event.entry
            if not self.visible.shows(entry) or is_quiet(entry.entry_type, self.filters.types):
                continue
            if not self.filters.matches(entry):
                continue
            if len(self.waiting) >= self.bound or (self.waiting_bytes >= WATCHER_BYTES and not kept_up):
                self.end("slow")
                return
            self.waiting.append(event)
            self.waiting_bytes += event.size
        if self.waiting:
            self.wake.set()

    def take(self) -> EntryRecorded:
        event = self.waiting.popleft()
        self.waiting_bytes -= event.size
        return event

    def end(self, reason: str) -> None:
        self.cut = self.cut or reason
        self.wake.set()


class LiveTail:
    """Sends committed entries to every watcher whose filters they match.

    Args:
        head: Gets the last sequence of the journal from the broker.
        queue: Most entries waiting for one watcher.
        per_token: Most live tails of one token; tokens of all workspaces have no such limit.
    """

    def __init__(
        self,
        views: ViewReader,
        queries: JournalQueries,
        *,
        head: Callable[[], Awaitable[int]],
        queue: int = WATCHER_QUEUE,
        per_token: int = TAILS_PER_TOKEN,
    ) -> None:
        self._views = views
        self._queries = queries
        self._head = head
        self._queue = queue
        self._per_token = per_token
        self._watchers: set[_Watcher] = set()
        self._closed = False
        self._unsubscribe = views.subscribe(self._committed)

    @property
    def watchers(self) -> int:
        """Number of watchers."""
        return len(self._watchers)

    def admit(self, principal: Principal) -> None:
        """Check that one more watcher is allowed.

        Raises:
            TooManyTails: If the token has reached its limit.
            Unavailable: If the node has reached its limit.
        """
        if (refusal := self._refusal(principal)) is not None:
            raise refusal

    async def resumes(self, after: int | None) -> None:
        """Check that a watcher does not resume after the end of the journal, as it may after the journal was restored.

        Raises:
            InvalidQuery: If the journal ends before ``after``.
            BrokerUnavailable: If the views are behind ``after`` and the broker does not answer.
        """
        if after is None or after <= self._views.view_seq(ENTRIES_PROJECTION):
            return
        if after > (head := await self._head()):
            raise InvalidQuery(
                f"Last-Event-ID {after} lies beyond the journal, which ends at {head}",
                hint="the journal was restored or replaced, or it is a different one; connect without Last-Event-ID",
                field="Last-Event-ID",
            )

    def _refusal(self, principal: Principal) -> Unavailable | None:
        if len(self._watchers) >= MAX_WATCHERS:
            return Unavailable(
                f"the node has {MAX_WATCHERS} live tails open, its maximum", hint="close some, or list with a cursor"
            )
        if principal.workspace_id is None:  # operators of the node
            return None
        mine = sum(watcher.token_id == principal.token_id for watcher in self._watchers)
        if mine < self._per_token:
            return None
        return TooManyTails(
            f"the token has {mine} live tails open; at most {self._per_token} are allowed",
            hint="close some (a broken one counts for up to 30 s), combine filters in one, or list with a cursor",
        )

    def close(self) -> None:
        """Cut every watcher, so that the server can stop."""
        self._closed = True
        self._unsubscribe()
        for watcher in self._watchers:
            watcher.end("closing")

    async def watch(
        self,
        principal: Principal,
        filters: EntryFilters,
        *,
        workspace: str | None,
        after: int | None,
        heartbeat_s: float,
    ) -> AsyncGenerator[TailEvent]:
        """Stream the replay, then live entries, until cut or closed.

        Args:
            principal: The caller.
            filters: Which entries.
            workspace: The workspace, for a token of all workspaces.
            after: Resume after this sequence; None begins with the newest ``TAIL_SEED`` entries.
            heartbeat_s: Seconds without an entry after which ``Idle`` is sent.

        Raises:
            NotAllowed: If the token is not for the workspace.
        """
        if self._refusal(principal) is not None:
            return  # other watchers were admitted meanwhile; a repeated request gets the error
        watcher = _Watcher(principal.token_id, Visible.to(principal, workspace), filters, self._queue)
        self._watchers.add(watcher)
        try:
            limit = TAIL_SEED if after is None else TAIL_REPLAY_MAX
            replay = await self._queries.replay(principal, filters, workspace=workspace, after=after, limit=limit)
            if replay.missed and after is not None:
                yield Gap(replay.missed, after, replay.seqs[0])
            last = max(after or 0, replay.upto)
            for start in range(0, len(replay.seqs), REPLAY_PAGE):
                page = replay.seqs[start : start + REPLAY_PAGE]
                for entry in await self._queries.replayed(principal, page, workspace=workspace):
                    yield TailEntry(entry)
            if self._closed:
                watcher.end("closing")
            while True:
                while watcher.waiting:
                    event = watcher.take()
                    if event.seq > last:
                        last = event.seq
                        yield TailEntry(StoredEntry.of_event(event))
                if watcher.cut is not None:
                    yield Cut(watcher.cut, last)
                    return
                watcher.wake.clear()
                try:
                    await asyncio.wait_for(watcher.wake.wait(), heartbeat_s)
                except TimeoutError:
                    yield Idle()
        finally:
            self._watchers.discard(watcher)

    def _committed(self, batch: CommittedBatch) -> None:
        if ENTRIES_PROJECTION in batch.projections and self._watchers:
            listed = _listed(batch)
            for (
                watcher
            ) in self._watchers:  # like in lists, a phrase never matches document writes, which have no postings
                watcher.offer(listed if watcher.filters.phrase is None else batch.entries)


def _listed(batch: CommittedBatch) -> Sequence[EntryRecorded]:
    """The entries that a commit added to the list, including document writes."""
    if not batch.documents or ENTRIES.name not in batch.changes:
        return batch.entries
    stored = {seq for columns in batch.changes[ENTRIES.name].written for seq in columns["seq"]}
    writes = [updated_entry(write) for write in batch.documents if write.seq in stored]
    return sorted((*batch.entries, *writes), key=attrgetter("seq"))
