"""Connections without a token that cost a service what they can: ``python hostile.py HOST PORT SECONDS CONNECTIONS``.

A process of its own, so that it competes with the service and not with who measures it. Each connection follows one of
``WAYS`` in turn and is opened anew when the service has closed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable

PIECE = 64 * 1024
HUGE = 200 * 1024 * 1024
SLOW_S = 0.2
HEAD = b"POST /v1/journal HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def _send(writer: asyncio.StreamWriter, piece: bytes, total: int) -> None:
    for _ in range(total // len(piece)):
        writer.write(piece)
        await writer.drain()


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def slow_head(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in HEAD + b"X-Slow: " + b"a" * 10_000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(SLOW_S)


async def half_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"X-Half: " + b"a" * 30_000)
    await reader.read()


async def huge_line(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"X-Huge: ")
    await _send(writer, b"a" * PIECE, HUGE)


async def many_headers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    await _send(writer, b"a: b\r\n" * (PIECE // 6), HUGE)


async def slow_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 30000000\r\n\r\n" + b"[" * 60_000)
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(SLOW_S)


async def huge_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % HUGE)
    await _send(writer, b"[" * PIECE, HUGE)


async def huge_chunk_extension(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;x=")
    await _send(writer, b"a" * PIECE, HUGE)


async def unread(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
    for _ in range(20):
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(SLOW_S)
    while True:  # until the service has had enough: a write fails then
        writer.write(b"\r\n")
        await writer.drain()
        await asyncio.sleep(SLOW_S)


Way = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WAYS: tuple[Way, ...] = (
    silent,
    slow_head,
    half_head,
    huge_line,
    many_headers,
    slow_body,
    huge_body,
    huge_chunk_extension,
    unread,
)


async def _again(way: Way, host: str, port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                await way(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(SLOW_S)


async def main(host: str, port: int, seconds: float, connections: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(_again(WAYS[number % len(WAYS)], host, port))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
