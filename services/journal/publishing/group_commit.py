"""Concurrent publishes share an atomic batch, and so one fsync of the broker.

Invariant: each caller gets the outcome of its own message. One message can cause the refusal of a batch, so its messages are
then sent singly; a message whose caller was cancelled is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from ....schemas.errors import BrokerError, BrokerUnavailable
from ....schemas.ports import Published
from ....schemas.settings import ATOMIC_BATCH
from .atomic import EncodedMessage

GROUP_MIN: Final = 48
"""Below this many waiting messages singles are faster: a batch costs 8 ms, a single with its fsync 0.17 (measured)."""
WAITED_S: Final = 1.0
"""Seconds behind the group before, from which a message's own deadline is watched; a group without an answer takes 30."""
_log = structlog.get_logger(__name__)


class GroupCommit:
    """Gathers the messages that are published while the group before them is in flight.

    Args:
        batch: Publishes a group until a deadline; None if the messages have to be published singly.
        single: Publishes one message until a deadline, seconds of the loop's clock.
        given_up: What to raise for a message without an ack.
        deadline_s: Seconds until a group gives up, and a message that waited behind another group.
    """

    def __init__(
        self,
        batch: Callable[[Sequence[EncodedMessage], float], Coroutine[Any, Any, list[Published] | None]],
        single: Callable[[EncodedMessage, float], Coroutine[Any, Any, Published]],
        given_up: Callable[[], BrokerError],
        deadline_s: float,
    ) -> None:
        self._batch = batch
        self._single = single
        self._given_up = given_up
        self._deadline_s = deadline_s
        self._waiting: list[tuple[EncodedMessage, asyncio.Future[Published], float]] = []
        self._committer: asyncio.Task[None] | None = None

    async def publish(self, message: EncodedMessage) -> Published:
        """Publish one message of JOURNAL, small enough for the broker, with what others publish now."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Published] = loop.create_future()
        self._waiting.append((message, future, loop.time() + self._deadline_s))
        if self._committer is None:
            self._committer = loop.create_task(self._commit_groups(), name="journal writer group commit")
        return await future

    async def _commit_groups(self) -> None:
        try:
            await asyncio.sleep(0)  # calls of the same turn of the loop join the group
            while self._waiting:
                group, self._waiting = self._waiting[:ATOMIC_BATCH], self._waiting[ATOMIC_BATCH:]
                await self._commit([member for member in group if not member[1].done()])
        finally:
            self._committer = None

    async def _commit(self, group: list[tuple[EncodedMessage, asyncio.Future[Published], float]]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline_s
        late = [loop.call_at(due, self._expire, future) for _, future, due in group if due < deadline - WAITED_S]
        try:
            await self._send(group, deadline)
        finally:
            for timer in late:
                timer.cancel()

    def _expire(self, future: asyncio.Future[Published]) -> None:
        if not future.done():
            future.set_exception(self._given_up())

    async def _send(
        self, group: list[tuple[EncodedMessage, asyncio.Future[Published], float]], deadline: float
    ) -> None:
        messages = [message for message, _, _ in group]
        outcomes: Sequence[Published | BaseException] | None = None
        if len(group) >= GROUP_MIN:
            try:
                outcomes = await self._batch(messages, deadline)
            except BrokerUnavailable as error:
                outcomes = [error] * len(group)
            except Exception as error:  # one message may be the cause: published singly, each gets its own outcome
                _log.warning("writer.group_refused", messages=len(group), error=type(error).__name__)
        if outcomes is None:
            flights = (self._single(m, deadline) for m in messages)
            outcomes = await asyncio.gather(*flights, return_exceptions=True)
        for (_, future, _), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
