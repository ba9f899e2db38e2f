"""Whether others hold every place for atomic batches, so that appends had better go one by one.

Why: nats-server keeps at most 50 batches of a stream open and an uncommitted one for 10 s (2.15.1), and no permission or
account limit of it forbids a client the headers that open one. Whoever may publish at all can take every place and go on
doing so; batches of ours then wait for ever, single messages do not (measured). Invariant: what is said to be crowded is
what the broker answered last, and batches are tried again by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import structlog

REFUSALS: Final = 3
"""Refusals of one batch until it goes one by one: with 0.1 s between them a burst has passed and nobody waits long."""
PAUSE_S: Final = 10.0
"""Seconds until a batch is tried again once they were crowded out: the server drops what nobody commits after 10."""

_log = structlog.get_logger(__name__)


class Crowding:
    """What the broker answered to our batches of late.

    Args:
        clock: The time, UTC, for those who read since when.
    """

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._until = 0.0
        self._refused = 0

    @property
    def refused(self) -> int:
        """Batches that the broker had no place for, so far."""
        return self._refused

    def figures(self) -> dict[str, Any]:
        """Since when batches are crowded out (None if they are not), and how many were refused, for ``status``."""
        return {"crowded_since": self._since, "refused": self._refused}

    def lasts(self, now: float) -> bool:
        """Whether a batch need not be tried at the event loop's time ``now``, seconds."""
        return now < self._until

    def refuse(self, times: int, now: float) -> bool:
        """Learn that a batch was refused for the ``times``-th time at ``now``; whether it is to go one by one."""
        self._refused += 1
        if times < REFUSALS and self._since is None:
            return False
        self._until = now + PAUSE_S
        if self._since is None:
            self._since = self._clock()
            _log.warning(
                "writer.batches_crowded_out",
                reason="other clients began atomic batches and do not commit them; entries are published one by one",
            )
        return True

    def let_in(self) -> None:
        """Learn that the broker opened a batch."""
        self._until = 0.0
        if self._since is not None:
            _log.warning("writer.batches_taken_again", since=self._since.isoformat(timespec="seconds"))
            self._since = None
