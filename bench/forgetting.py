"""An erasure of one person among many entries: how long it takes, and appends and recalls of others meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
from nats.js.api import StreamConfig
from support.processes import Stack

from bench.corpus import Corpus
from bench.figures import MS, Report, Target, say
from bench.journals import open_broker
from bench.watching import async_client_of, wait_idle
from crew_journal.services.erasure.use_cases import DELETED_AT_ONCE

ENTRIES: Final = 100_000
OF_PERSON: Final = 1_000
BATCH: Final = 500
PER_SECOND: Final = 10.0
"""Appends, and as many recalls."""
WARM_S: Final = 5.0
IDLE_S: Final = 30.0
P99_TIMES: Final = 2.0
"""Most by which the p99 may grow while an erasure runs."""
DEADLINE_S: Final = 600.0


async def _fill(client: httpx.AsyncClient, corpus: Corpus, of_person: int) -> None:
    every = corpus.entries // of_person
    for first in range(0, corpus.entries, BATCH):
        some = range(first, min(first + BATCH, corpus.entries))
        body = [corpus.submission(n) | ({} if n % every else {"data_subject_id": "maria"}) for n in some]
        (await client.post("/v1/journal", content=orjson.dumps(body))).raise_for_status()


class _Others:
    """Appends and recalls of others, at a steady pace."""

    def __init__(self, client: httpx.AsyncClient, corpus: Corpus) -> None:
        self._client = client
        self._corpus = corpus
        self._sent = 0

    async def until(self, done: Callable[[], bool]) -> tuple[list[float], list[float]]:
        """Seconds of each append and each recall until ``done``."""
        appends: list[float] = []
        recalls: list[float] = []
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            at = loop.time()
            while not done():
                entry = self._corpus.submission(self._sent % self._corpus.entries)
                entry["id"] = f"{entry['id']}_{self._sent}"
                self._sent += 1
                question = {"query": entry["summary"][:60], "k": 10, "workspace_id": "default", "recipe": "lexical"}
                group.create_task(self._timed(appends, "/v1/journal", entry))
                await asyncio.sleep(0.5 / PER_SECOND)
                group.create_task(self._timed(recalls, "/v1/recall", question))
                at += 1 / PER_SECOND
                await asyncio.sleep(max(0.0, at - loop.time()))
        return appends, recalls

    async def _timed(self, times: list[float], path: str, body: dict[str, Any]) -> None:
        began = time.perf_counter()
        (await self._client.post(path, content=orjson.dumps(body))).raise_for_status()
        times.append(time.perf_counter() - began)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))] * MS


async def _deletions(folder: Path, messages: int) -> tuple[float, float]:
    """Deletions a second that wait for each other, and ``DELETED_AT_ONCE`` at a time."""
    async with open_broker(folder, "durable") as (_, client, _):
        stream = client.jetstream()
        await stream.add_stream(StreamConfig(name="DELETED", subjects=["deleted"]))
        for _ in range(2 * messages):
            await stream.publish("deleted", b"x" * 500)
        began = time.perf_counter()
        for seq in range(1, messages + 1):
            await stream.delete_msg("DELETED", seq)
        middle = time.perf_counter()
        room = asyncio.Semaphore(DELETED_AT_ONCE)

        async def delete(seq: int) -> None:
            async with room:
                await stream.delete_msg("DELETED", seq)

        await asyncio.gather(*map(delete, range(messages + 1, 2 * messages + 1)))
        return messages / (middle - began), messages / (time.perf_counter() - middle)


async def _erase(client: httpx.AsyncClient) -> tuple[dict[str, float], int]:
    """Seconds from the request to its answer, to the announced scope and to the receipt; messages erased."""
    began = time.perf_counter()
    asked = await client.post(
        "/v1/admin/forget", json={"subject": "maria", "reason": "bench", "workspace_id": "default"}
    )
    asked.raise_for_status()
    seconds = {"answered": time.perf_counter() - began}
    path = f"/v1/admin/erasures/{asked.json()['erasure_id']}"
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await client.get(path, params={"workspace_id": "default"})
            state = answer.json().get("state")
            if state in {"scoped", "completed"}:
                seconds.setdefault("scoped", time.perf_counter() - began)
            if state == "completed":
                return {**seconds, "completed": time.perf_counter() - began}, int(answer.json()["messages"])
            await asyncio.sleep(0.1)


async def _during(work: Awaitable[Any], others: _Others) -> tuple[Any, list[float], list[float]]:
    task = asyncio.ensure_future(work)
    appends, recalls = await others.until(task.done)
    return await task, appends, recalls


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    entries, of_person = (5_000, 50) if quick else (ENTRIES, OF_PERSON)
    report = Report("forgetting", quick, {"entries": entries, "of_person": of_person, "per_second": PER_SECOND})
    one, many = await _deletions(folder / "raw", 200 if quick else 1_000)
    report.baseline("delete_msg, one after the other", one, "1/s", "durable profile")
    report.baseline(f"delete_msg, {DELETED_AT_ONCE} at once", many, "1/s", "durable profile")
    corpus = Corpus(entries, seed=31)
    with Stack(folder / "up", ("--embedder", "none")) as stack:
        await asyncio.to_thread(stack.up)
        async with async_client_of(stack) as client:
            await _fill(client, corpus, of_person)
            await asyncio.to_thread(wait_idle, stack, looks=5)
            others = _Others(client, corpus)
            await _during(asyncio.sleep(WARM_S), others)
            _, idle_appends, idle_recalls = await _during(asyncio.sleep(IDLE_S / 5 if quick else IDLE_S), others)
            say("forgetting: erases")
            (seconds, messages), appends, recalls = await _during(_erase(client), others)
    for name, value in seconds.items():
        report.figure(f"erasure {name}", value, "s", None, f"{messages:,} messages")
    for name, idle, meanwhile in (("append", idle_appends, appends), ("recall", idle_recalls, recalls)):
        report.baseline(f"{name}, idle, p99", _p99(idle), "ms", f"{len(idle)} of them")
        most = Target("at most", P99_TIMES * _p99(idle))
        report.figure(f"{name} during the erasure, p99", _p99(meanwhile), "ms", most, f"{len(meanwhile)} of them")
    return report
