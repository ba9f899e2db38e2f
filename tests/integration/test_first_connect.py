"""The first connect to a broker: what is told when it comes to nothing, and that it always ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.journal import eventually

from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect

INFO = b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n'
REFUSAL = b"-ERR 'Authorization Violation'\r\n"
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@asynccontextmanager
async def scripted(*says: bytes) -> AsyncIterator[str]:
    """A broker that greets, and answers the n-th CONNECT with the n-th of ``says``; later and empty ones are reset."""
    answers = iter(says)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # a client that was cancelled is gone
            writer.write(INFO)
            await reader.readline()
            said = next(answers, b"")
            writer.write(said)
            await writer.drain()
            if not said:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"nats://{host}:{port}"


async def test_a_refusal_is_reported_although_other_attempts_were_cut_off() -> None:
    async with scripted(b"", b"", REFUSAL) as url:
        with pytest.raises(BrokerUnavailable, match=r"(?i)authorization"):
            await connect(url, "service", "wrong", "test", deadline_s=60.0)


async def test_a_first_connect_to_a_silent_server_ends_in_time() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BrokerUnavailable, match="cannot connect"):
            await connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", None, None, "test", deadline_s=0.1)


async def test_an_address_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(BrokerUnavailable, match="invalid connect url"):
        await connect("nats://127.0.0.1:port", None, None, "test", deadline_s=60.0)


@pytest.mark.parametrize("turns", range(30))
async def test_a_first_connect_that_is_cancelled_at_any_moment_ends_and_leaves_nothing_running(turns: int) -> None:
    async with scripted() as url:
        asked = asyncio.create_task(connect(url, None, None, "test", deadline_s=60.0))
        before = asyncio.all_tasks()
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not {task for task in asyncio.all_tasks() - before if "Client.connect" in repr(task.get_coro())}


async def test_a_connection_that_is_down_with_unsent_data_closes(broker: ManagedBroker) -> None:
    before = asyncio.all_tasks()
    client = await connect(broker.url, broker.user, broker.password, "test")
    await client.divert("some.>", lambda *_: None)
    await broker.stop()
    try:
        await eventually(lambda: not client.is_connected, "the loss is seen")
        client.send(b"PING\r\n")
        await client.close()
        assert client.is_closed
        assert client.ended.is_set()
        await eventually(lambda: not asyncio.all_tasks() - before, "nothing of it goes on")
    finally:
        await broker.start()
