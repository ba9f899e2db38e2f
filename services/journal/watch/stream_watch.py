"""Checks whether JOURNAL is still the stream from which the views were folded.

A stream that is deleted and created again starts at sequence 1; the views, whose checkpoints are higher, would silently
skip every new message. The stream's ``made_at`` is compared at the start (``consumers/host/opening``), and here while a
node runs.

Invariant: from the check after a replacement until its restart, the node is not ready and names the replaced stream as
the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from ....schemas.core.errors import JournalDamaged, ViewsBehind
from ....schemas.core.sequence_set import Range, format_ranges, normalised, sequences_text, size_of, without
from ....schemas.core.subjects import JOURNAL_STREAM
from ..broker.connection import BrokerConnection
from ..broker.streams import made_at, stream_gaps, stream_info
from .watch_loop import Look

LOOK_EVERY_S: Final = 15.0
"""Seconds between two checks; usually a replacement also interrupts the connection, after which a check follows at once."""

_log = structlog.get_logger(__name__)


class StreamWatch(Look):
    """Compares the creation time of JOURNAL with the time recorded in the views.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream from which the views were folded.
    """

    every_s = LOOK_EVERY_S
    after_reconnect = True

    def __init__(self, client: BrokerConnection, made: str) -> None:
        self._client = client
        self._made = made
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """A sentence if the stream was replaced, else None."""
        return self._trouble

    async def start(self) -> None:
        """Check for the first time."""
        await self.look()

    async def look(self) -> None:
        """Check once, unless a replacement was already found."""
        if self._trouble is not None:
            return
        info = await stream_info(self._client, JOURNAL_STREAM)
        made = made_at(info) if info is not None else "never"
        if made != self._made:
            self._trouble = (
                f"the stream {JOURNAL_STREAM} is another one than at the start (made {made}, before {self._made}): "
                "start the node again, its views are then folded from this one"
            )
            _log.error("stream.replaced", made=made, before=self._made)


# Checks whether JOURNAL still holds all acked messages.

"""Seconds between two checks; a check takes less than 1 ms if no message was deleted."""
FOLD_WAIT_S: Final = 5.0
"""Seconds to wait for the views to fold events that may explain a gap; otherwise the next check decides."""


class GapWatch(Look):
    """Checks JOURNAL at the start, after each reconnect and regularly.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream.
        last_seq: Last sequence of the stream at the start.
        clock: The time, UTC.
        read: Sequences that reads of the stream did not return.
        explained: Sequences that the views know to be erased or accepted as lost; blocking.
        folded: Waits until the views have folded up to a sequence, some seconds; raises ``ViewsBehind``.
        kept: Names of view files with entries that the stream has lost; blocking.
        said: Returns warnings about damage from the broker's log; blocking.
        on_lost_end: Called with a sentence if the stream has lost its last messages.
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
        """Names of view files with entries that the stream has lost."""
        return self._kept

    @property
    def loss(self) -> str | None:
        """A sentence about missing messages and since when they are missing, None if nothing is missing."""
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
        """A sentence about the loss and its remedy, None if nothing is missing."""
        loss = self.loss
        return None if loss is None else f"JournalDamaged: {loss} ({JournalDamaged.HINT})"

    def figures(self) -> dict[str, Any]:
        """Figures for ``status``."""
        return {
            "trouble": self.trouble,
            "missing": size_of(self._missing),
            "sequences": format_ranges(self._missing),
            "since": self._since,
            "views_kept": list(self._kept),
            "broker_said": list(self._said),
        }

    async def start(self) -> None:
        """Check for the first time."""
        await self.look()

    async def look(self) -> None:
        """Check once.

        Raises:
            BrokerError: If the broker does not tell.
        """
        self._said = tuple(await asyncio.to_thread(self._read_log))
        seen = await stream_gaps(self._client, details=False)
        if seen.made != self._made:
            return  # another stream; ``StreamWatch`` reports it
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
            return  # the event that explains the gap may not be folded yet
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
