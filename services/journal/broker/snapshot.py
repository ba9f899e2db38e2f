"""JetStream's copies of a stream, made and restored: every message with its sequence and time, and every gap.

Why not republish: the sequences are what views, receipts and facts name, and a message that was erased must stay missing.
Invariant: a copy is of one moment, while appends go on; a stream that exists is never overwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any, Final

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ....schemas.errors import BrokerError, BrokerUnavailable
from .streams import api_request

CHUNK_BYTES: Final = 128 * 1024
"""Bytes of a chunk, the broker's own default; a message may have 1 MiB."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes that the broker sends ahead of acks."""
SILENCE_S: Final = 60.0
"""Seconds between two chunks: before the first one, the broker reads and packs all blocks."""
_OK: Final = (None, "204")
"""Status of the message that ends a copy."""


class SnapshotStarted(dict[str, Any]):
    """Configuration and state of the stream that is copied, as JetStream has them."""


async def snapshot(client: Client, stream: str) -> AsyncIterator[SnapshotStarted | bytes]:
    """A copy of a stream: first its configuration and state, then the chunks.

    Raises:
        BrokerError: If JetStream refuses, or ends the copy early.
        BrokerUnavailable: If it goes silent.
    """
    inbox = client.new_inbox()
    chunks: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=chunks.put)
    try:
        params = {
            "deliver_subject": inbox,
            "no_consumers": True,
            "chunk_size": CHUNK_BYTES,
            "window_size": WINDOW_BYTES,
        }
        answer = _checked(await api_request(client, f"STREAM.SNAPSHOT.{stream}", params), f"a copy of {stream}")
        yield SnapshotStarted(config=answer["config"], state=answer["state"])
        while True:
            try:
                message = await asyncio.wait_for(chunks.get(), SILENCE_S)
            except TimeoutError:
                raise BrokerUnavailable(
                    f"the broker sent nothing of {stream} for {SILENCE_S:.0f} s", hint="see its log, and try again"
                ) from None
            if message.data:
                if message.reply:  # the last chunk has none
                    await message.respond(b"")
                yield message.data
                continue
            status = (message.headers or {}).get("Status")
            if status not in _OK:
                why = (message.headers or {}).get("Description", status)
                raise BrokerError(f"the broker ended the copy of {stream}: {why}", hint="try again")
            return
    finally:
        await subscription.unsubscribe()


async def restore(
    client: Client, config: Mapping[str, Any], state: Mapping[str, Any], chunks: AsyncIterable[bytes]
) -> None:
    """Make a stream from a copy of it.

    Raises:
        BrokerError: If JetStream refuses, because the stream exists or the copy is not one.
        BrokerUnavailable: If it goes silent.
    """
    name = str(config["name"])
    what = f"the copy of {name}"
    started = await api_request(client, f"STREAM.RESTORE.{name}", {"config": config, "state": state})
    subject = str(_checked(started, what)["deliver_subject"])
    async for chunk in chunks:
        await _sent(client, subject, chunk, what)
    made = await _sent(client, subject, b"", what)
    for field in ("messages", "last_seq"):
        if made["state"][field] != state[field]:
            raise BrokerError(
                f"{what} is incomplete: {field} is {made['state'][field]}, not {state[field]}",
                hint="use another backup",
            )


async def _sent(client: Client, subject: str, chunk: bytes, what: str) -> dict[str, Any]:
    try:
        answer = await client.request(subject, chunk, timeout=SILENCE_S)
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"the broker does not take {what}: {error}", hint="see its log, and try again"
        ) from None
    return _checked(orjson.loads(answer.data), what) if answer.data else {}


def _checked(answer: dict[str, Any], what: str) -> dict[str, Any]:
    if (error := answer.get("error")) is not None:
        raise BrokerError(f"the broker refuses {what}: {error.get('description', error)}")
    return answer
