"""The baselines on NATS: what nats-py itself does with ready-made bytes and nothing else.

Invariant: no validation, no encoding, no retry and no error handling here; whatever our writer and feeds do beyond this
is what they cost.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Final

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.subjects import JOURNAL_STREAM

PULL: Final = 2_000
"""Messages of one pull request (facts/nats.md, "Reading")."""
AHEAD: Final = 2
"""Pull requests under way at once."""
PENDING_ACKS: Final = 1_000_000


class RawWriter:
    """A pipelined publisher on one inbox: subscribe once, a future per message, a bound on the unacked ones."""

    def __init__(self, client: Client, window: int) -> None:
        self._client = client
        self._window = window
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._inbox = client.new_inbox() + "."
        self._number = 0
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Subscribe to the acks."""
        self._subscription = await self._client.subscribe(
            self._inbox + "*", cb=self._on_ack, pending_msgs_limit=PENDING_ACKS
        )

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _on_ack(self, message: Msg) -> None:
        self._waiting.pop(message.subject[len(self._inbox) :]).set_result(message.data)

    async def publish(self, message: OutgoingMessage) -> bytes:
        """Publish one and return its ack."""
        self._number += 1
        token = str(self._number)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        await self._client.publish(message.subject, message.body, self._inbox + token, message.headers)
        return await future

    async def publish_all(self, messages: Sequence[OutgoingMessage]) -> float:
        """Publish all with ``window`` callers at once; returns the seconds it took.

        Raises:
            RuntimeError: If the broker refused one.
        """
        feed = iter(messages)
        refused: list[bytes] = []

        async def caller() -> None:
            for message in feed:
                ack = await self.publish(message)
                if b'"error"' in ack or not ack:
                    refused.append(ack)

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(self._window)))
        took = time.perf_counter() - began
        if refused:
            raise RuntimeError(f"the broker refused {len(refused)} messages, the first with {refused[0]!r}")
        return took

    async def publish_batch(self, messages: Sequence[OutgoingMessage]) -> None:
        """One atomic batch of ready-made messages; returns after the commit's ack.

        Raises:
            RuntimeError: If the broker refused it.
        """
        batch = secrets.token_hex(12)
        last = len(messages)
        for number, message in enumerate(messages, 1):
            headers = {**message.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < last:
                await self._client.publish(message.subject, message.body, headers=headers)
                continue
            headers["Nats-Batch-Commit"] = "1"
            ack = await self.publish(OutgoingMessage(message.subject, message.body, headers))
            if b'"error"' in ack:
                raise RuntimeError(f"the broker refused a batch with {ack!r}")


async def pull_all(client: Client, expected: int) -> float:
    """Read ``expected`` messages of JOURNAL through one own inbox, undecoded; returns the seconds it took."""
    inbox = client.new_inbox()
    done = asyncio.Event()
    counts = {"seen": 0, "asked": 0}
    config = {
        "stream_name": JOURNAL_STREAM,
        "config": {"deliver_policy": "all", "ack_policy": "none", "mem_storage": True, "inactive_threshold": 10**10},
    }
    answer = await client.request(f"$JS.API.CONSUMER.CREATE.{JOURNAL_STREAM}", orjson.dumps(config), timeout=10)
    name = orjson.loads(answer.data)["name"]
    request = f"$JS.API.CONSUMER.MSG.NEXT.{JOURNAL_STREAM}.{name}"

    async def ask() -> None:
        counts["asked"] += PULL
        await client.publish(request, orjson.dumps({"batch": PULL, "expires": 30 * 10**9}), reply=inbox)

    async def on_message(message: Msg) -> None:
        if not message.reply:
            return  # a status
        counts["seen"] += 1
        if counts["seen"] >= expected:
            done.set()
        elif counts["asked"] - counts["seen"] <= PULL * (AHEAD - 1):
            await ask()

    subscription = await client.subscribe(inbox, cb=on_message, pending_msgs_limit=PENDING_ACKS)
    began = time.perf_counter()
    for _ in range(AHEAD):
        await ask()
    async with asyncio.timeout(300):
        await done.wait()
    took = time.perf_counter() - began
    await subscription.unsubscribe()
    await client.request(f"$JS.API.CONSUMER.DELETE.{JOURNAL_STREAM}.{name}", b"", timeout=10)
    return took
