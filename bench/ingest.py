"""Appending as an agent: requests over NATS against requests over HTTP, into one real ``up`` that folds meanwhile.

Both clients are this one process with the same entries; over HTTP it writes ready-made bytes, since httpx alone is slower
than the service. Rates are what an agent sees; the CPU of ``up`` and nats-server is what a request costs the node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import nats
import orjson
from support.processes import Stack

from bench.corpus import Corpus
from bench.figures import Report

CALLERS: Final = 256
CONNECTIONS: Final = 32
"""Connections of HTTP/1.1, each with one request under way; more are not faster."""
LIST: Final = 500
LISTS_AT_ONCE: Final = 4
FULL: Final = 10_000, 40_000
QUICK: Final = 1_000, 4_000
"""Entries sent one by one, and in lists."""
TIMEOUT_S: Final = 60
_HEAD: Final = (
    b"POST /v1/journal HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


async def _measure(
    report: Report,
    stack: Stack,
    name: str,
    bodies: Sequence[bytes],
    each: int,
    callers: int,
    send: Callable[[bytes], Awaitable[bytes]],
) -> None:
    feed = iter(bodies)

    async def caller() -> None:
        for body in feed:
            receipts = orjson.loads(await send(body))
            assert len(receipts["entries"]) == each, receipts

    def cpu() -> float:
        return sum(p.cpu_times().user + p.cpu_times().system for p in stack.processes())

    before, began = cpu(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.perf_counter() - began
    entries = len(bodies) * each
    report.figure(name, entries / took, "entries/s")
    report.figure(f"CPU of up and nats-server for it: {name}", (cpu() - before) / entries * 1e6, "µs/entry")


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    singles, listed = QUICK if quick else FULL
    report = Report("ingest", quick, {"singles": singles, "listed": listed})
    with Stack(folder / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        ready = await asyncio.to_thread(stack.up)
        token = (await asyncio.to_thread(stack.run, "token", "create", "--agent", "ada", "--nats", "--json")).document
        access = token["nats_access"]
        client = await nats.connect(access["address"], user=access["user"], password=access["password"])
        host, port = ready.http.removeprefix("http://").split(":")
        idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def over_nats(body: bytes) -> bytes:
            return (await client.request(access["subject"], body, timeout=TIMEOUT_S)).data

        async def over_http(body: bytes) -> bytes:
            reader, writer = stream = idle.pop() if idle else await asyncio.open_connection(host, int(port))
            writer.write(_HEAD % (token["token"].encode(), len(body)) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            idle.append(stream)
            return answer

        ways = (("NATS", over_nats, CALLERS), ("HTTP", over_http, CONNECTIONS)) * 2
        for seed, (way, send, callers) in enumerate(ways):
            turn = f"{way}{'' if seed < 2 else ' again'}"
            bodies = [orjson.dumps(submission) for submission in _submissions(singles, f"one{seed}")]
            await _measure(report, stack, f"{turn}: single appends, {callers} in flight", bodies, 1, callers, send)
            many = _submissions(listed, f"many{seed}")
            lists = [orjson.dumps(many[start : start + LIST]) for start in range(0, listed, LIST)]
            name = f"{turn}: lists of {LIST}, {LISTS_AT_ONCE} in flight"
            await _measure(report, stack, name, lists, LIST, LISTS_AT_ONCE, send)
            while idle:
                idle.pop()[1].close()  # the service would, after 30 s
        await client.close()
    return report


def _submissions(entries: int, prefix: str) -> list[dict[str, object]]:
    """Entries of one type that an agent may publish; who it is follows from token or subject."""
    corpus = Corpus(entries, prefix=prefix)
    kept = ("id", "ts", "severity", "trace_id", "summary", "payload")
    submissions = (corpus.submission(n) for n in range(entries))
    return [{"entry_type": "peer.conversation", **{name: turn[name] for name in kept}} for turn in submissions]
