"""From the publish to the first recall that finds the entry, under light load, as a client sees it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import httpx
from nats.aio.client import Client
from nats.aio.msg import Msg
from support.processes import Stack

from bench.corpus import Corpus
from bench.figures import Report, latencies
from bench.journals import open_broker, ready_made
from bench.watching import async_client_of

RATE: Final = 10.0
"""Entries a second."""
P50_MS: Final = 150.0
P99_MS: Final = 500.0
POLL_S: Final = 0.005
DEADLINE_S: Final = 10.0


async def _found(client: httpx.AsyncClient, word: str, entry_id: str, min_seq: int | None) -> None:
    body: dict[str, Any] = {"query": word, "k": 5, "recipe": "lexical", "workspace_id": "bench-00"}
    if min_seq is not None:
        body["min_seq"] = min_seq
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        answer = await client.post("/v1/recall", json=body)
        if answer.status_code != httpx.codes.NOT_FOUND:  # the workspace is not known before its first entry is folded
            answer.raise_for_status()
        if any(hit["entry_id"] == entry_id for hit in answer.json().get("hits", ())):
            return
        if min_seq is not None:
            raise RuntimeError(f"recall with min_seq {min_seq} does not find {entry_id}")
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"{entry_id} is not found after {DEADLINE_S:g} s")


async def _measure(client: httpx.AsyncClient, corpus: Corpus, *, with_min_seq: bool) -> list[tuple[float, float]]:
    """Seconds from before the publish until found, and the publish's own share, one entry every tenth of a second."""
    loop = asyncio.get_running_loop()
    times: list[tuple[float, float]] = []

    async def measure_append(n: int) -> None:
        word = f"zq{corpus.prefix}{n:06d}"
        entry = corpus.submission(n)
        entry |= {
            "summary": f"{entry['summary']} {word}",
            "entry_type": "chat.user_message",
            "workspace_id": "bench-00",
        }
        began = time.perf_counter()
        answer = await client.post("/v1/journal", json=entry)
        answer.raise_for_status()
        acked = time.perf_counter()
        seq = answer.json()["entries"][0]["seq"]
        await _found(client, word, entry["id"], seq if with_min_seq else None)
        times.append((time.perf_counter() - began, acked - began))

    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for n in range(corpus.entries):
            await asyncio.sleep(max(0.0, start + n / RATE - loop.time()))  # the load's own rhythm
            group.create_task(measure_append(n))
    return times


async def _raw(client: Client, entries: int) -> list[float]:
    """Publish to delivery through JetStream, with nothing of ours."""
    times: list[float] = []
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def on_message(message: Msg) -> None:
        arrived.put_nowait(time.perf_counter())

    stream = client.jetstream()
    subscription = await stream.subscribe("journal.>", cb=on_message, ordered_consumer=True)
    for message in ready_made(Corpus(entries, prefix="raw"), 0, entries):
        began = time.perf_counter()
        await stream.publish(message.subject, message.body, headers=message.headers)
        times.append(await arrived.get() - began)
        await asyncio.sleep(1 / RATE / 10)
    await subscription.unsubscribe()
    return times


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    entries = 30 if quick else 400
    report = Report("freshness", quick, {"entries": entries, "per_second": RATE})
    async with open_broker(folder / "raw", "durable") as (_, client, _):
        raw = await _raw(client, entries)
    report.baseline("publish to delivery, raw nats-py, durable, p50", sorted(raw)[len(raw) // 2] * 1_000, "ms")
    with Stack(folder / "up", ("--embedder", "none")) as stack:
        await asyncio.to_thread(stack.up)
        async with async_client_of(stack) as client:
            await _measure(client, Corpus(5, prefix="warm"), with_min_seq=False)
            polled = await _measure(client, Corpus(entries, prefix="poll"), with_min_seq=False)
            waited = await _measure(client, Corpus(entries, prefix="wait"), with_min_seq=True)
    note = "durable profile, publish over HTTP included"
    latencies(report, "publish to recallable, polling every 5 ms", [t for t, _ in polled], P50_MS, P99_MS, note)
    latencies(report, "publish to recallable, min_seq", [t for t, _ in waited], P50_MS, P99_MS, note)
    latencies(report, "of which the publish", [p for _, p in [*polled, *waited]], None, None)
    return report
