"""Whether JOURNAL still holds everything that was acked.

Why: nats-server goes on without a block that is gone or cut, and counts its messages as deleted. Invariant: what is
missing and not explained by an erasure or an accepted loss that the views have folded is named, with since when, from the
next look on until it is explained. A look asks the broker for counts; for the list only when they have changed, or while
something is wrong.

A message whose bytes were changed is counted by the broker as if it were there. Only reading it shows that it is not, so
every read of the stream by this node (feed, catching up, rebuild, verify) counts the messages that it received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from ....schemas.errors import JournalDamaged, ViewsBehind
from ....schemas.sequence_set import Range, format_ranges, normalised, sequences_text, size_of, without
from ..broker.connection import BrokerConnection
from ..broker.streams import stream_gaps
from .watch_loop import Look

LOOK_EVERY_S: Final = 15.0
"""Seconds between two looks; one costs the broker and us less than a millisecond while nothing was deleted."""
FOLD_WAIT_S: Final = 5.0
"""Seconds for the views to fold what may explain a gap; after that the next look tells."""

_log = structlog.get_logger(__name__)


class GapWatch(Look):
    """Looks at JOURNAL at the start, after each reconnect and from time to time.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream.
        last_seq: Where the stream ended at the start.
        clock: The time, UTC.
        read: Sequences that reads of the stream did not return.
        explained: Sequences that the views know to be erased or accepted as lost; blocking.
        folded: Waits until the views have folded up to a sequence, some seconds; raises ``ViewsBehind``.
        kept: Names of views files that know what the stream has lost; blocking.
        said: What the broker's log says of damage; blocking.
        on_lost_end: Called with a sentence if the stream ends before where it ended earlier.
    """

    every_s = LOOK_EVERY_S
    after_reconnect = True

    def __init__(
        self,
        client: BrokerConnection,
        *,
        made: str,
        last_seq: int,
        clock: Callable[[], datetime],
        read: Callable[[], Sequence[Range]],
        explained: Callable[[], Sequence[Range]],
        folded: Callable[[int, float], Awaitable[int]],
        kept: Callable[[], Sequence[str]],
        said: Callable[[], Sequence[str]],
        on_lost_end: Callable[[str], None],
    ) -> None:
        self._client = client
        self._read = read
        self._explained = explained
        self._folded = folded
        self._read_kept = kept
        self._read_log = said
        self._on_lost_end = on_lost_end
        self._made = made
        self._last_seq = last_seq
        self._clock = clock
        self._missing: list[Range] = []
        self._kept: tuple[str, ...] = ()
        self._said: tuple[str, ...] = ()
        self._since: datetime | None = None
        self._seen: tuple[Any, ...] | None = None

    @property
    def missing(self) -> list[Range]:
        """Sequences that are missing and not explained."""
        return list(self._missing)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of views files that know what the stream has lost."""
        return self._kept

    @property
    def loss(self) -> str | None:
        """What the journal lacks and since when, None if nothing."""
        if self._since is None:
            return None
        parts = []
        if self._missing:
            parts.append(f"the journal lacks {sequences_text(self._missing)}, and no erasure explains it")
        if self._kept:
            parts.append(f"the stream has lost its end, which {', '.join(self._kept)} knows")
        return f"{'; '.join(parts)}, since {self._since.isoformat(timespec='seconds')}"

    @property
    def trouble(self) -> str | None:
        """What is wrong with the journal and what to do, None if nothing is."""
        loss = self.loss
        return None if loss is None else f"JournalDamaged: {loss} ({JournalDamaged.HINT})"

    def figures(self) -> dict[str, Any]:
        """What ``status`` shows."""
        return {
            "trouble": self.trouble,
            "missing": size_of(self._missing),
            "sequences": format_ranges(self._missing),
            "since": self._since,
            "views_kept": list(self._kept),
            "broker_said": list(self._said),
        }

    async def start(self) -> None:
        """Look for the first time."""
        await self.look()

    async def look(self) -> None:
        """Look once.

        Raises:
            BrokerError: If the broker does not tell.
        """
        self._said = tuple(await asyncio.to_thread(self._read_log))
        seen = await stream_gaps(self._client, details=False)
        if seen.made != self._made:
            return  # another stream: ``StreamWatch`` says so
        if seen.last_seq < self._last_seq:
            self._on_lost_end(
                f"the journal has lost its end: it went to {self._last_seq}, and ends at {seen.last_seq} now"
            )
            return
        self._last_seq = seen.last_seq
        read, kept = normalised(self._read()), tuple(await asyncio.to_thread(self._read_kept))
        now = (seen.count, tuple(read), kept)
        if self._since is None and (now == self._seen or not any(now)):
            self._seen = now
            return
        gaps = await stream_gaps(self._client)
        try:
            await self._folded(gaps.last_seq, FOLD_WAIT_S)
        except ViewsBehind:
            return  # what explains a gap may be on its way
        explained = await asyncio.to_thread(self._explained)
        self._judge(without(normalised([*gaps.ranges, *read]), normalised(explained)), kept)
        self._seen = now

    def _judge(self, missing: list[Range], kept: tuple[str, ...]) -> None:
        if not missing and not kept:
            if self._since is not None:
                _log.info("journal.explained")
            self._missing, self._kept, self._since = [], (), None
            return
        if self._since is None:
            _log.error("journal.damaged", missing=size_of(missing), sequences=format_ranges(missing), views_kept=kept)
        self._missing, self._kept = missing, kept
        self._since = self._since or self._clock()
