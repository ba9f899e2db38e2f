"""One, two and three nodes on one journal: CPU of an append and of a recall, and memory, all processes on this machine.

The load is paced, so that CPU is compared at one rate. Appends and recalls go to the nodes in turns; of the recalls through
two or three nodes, a half or two thirds are therefore passed on to the owner of the workspace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
from support.nats import running_broker
from support.nodes import assigned, client_of, make_data_dirs, start_process

from bench.corpus import Corpus
from bench.figures import MB, MS, Report, percentile
from crew_journal.schemas.core.errors import CrewJournalError
from crew_journal.services.client import AsyncCrewJournal

NAMES: Final = ("a", "b", "c")
WORKSPACES: Final = 30
APPENDS_S: Final = 100
RECALLS_S: Final = 20
IN_BATCHES: Final = 25
BATCHES_S: Final = 20
"""Entries of a batch, and batches a second: 500 entries a second, as by eight clients that send what they gathered."""
LOADED: Final = 1_000, 20_000
"""Entries before the load, quick and full."""
SECONDS: Final = 4, 20
BATCH: Final = 500
QUARTILE: Final = 0.25
REST_S: Final = 3.0
RESTING: Final = 0.06
"""Share of a core for each node at rest: heartbeats, pulls of the reactors."""
REST_WITHIN_S: Final = 120.0


def _cpu(pids: Sequence[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(spent.user + spent.system for spent in times)


async def _paced(rate: int, seconds: int, call: Callable[[int], Awaitable[Any]]) -> tuple[list[float], int]:
    """Call at a rate, whatever the answers take; the seconds of each answer, and how many failed."""
    took: list[float] = []
    failed = 0

    async def one(n: int, due: float) -> None:
        nonlocal failed
        try:
            await call(n)
        except CrewJournalError:
            failed += 1
        else:
            took.append(time.monotonic() - due)

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(rate * seconds):
            due = began + n / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(one(n, due))
    return took, failed


async def _measured(
    report: Report,
    name: str,
    nodes: list[int],
    broker: int,
    rate: int,
    seconds: int,
    call: Callable[[int], Awaitable[Any]],
    each: int = 1,
) -> None:
    """CPU of a call, or of one of its ``each`` entries.

    It is the lower quartile over seconds, because sweeps take some whole seconds of their own.
    """
    load = asyncio.ensure_future(_paced(rate, seconds, call))
    ours, theirs = [_cpu(nodes)], [_cpu([broker])]
    for _ in range(seconds):
        await asyncio.sleep(1)
        ours.append(_cpu(nodes))
        theirs.append(_cpu([broker]))
    took, failed = await load
    seconds_of = ([after - before for before, after in pairwise(taken)] for taken in (ours, theirs))
    own, others = (percentile(taken, QUARTILE) / rate / each * MS for taken in seconds_of)
    mean = (ours[-1] - ours[0]) / rate / seconds / each * MS
    waited = f"p50 {percentile(took, 0.5) * MS:.1f}, p99 {percentile(took, 0.99) * MS:.1f} ms; {failed} failed"
    report.figure(
        f"{name}: CPU of all nodes", own, "ms each", note=f"lower quartile of seconds, mean {mean:.2f}; {waited}"
    )
    report.figure(f"{name}: share of the nodes, nats-server the rest", own / (own + others), "ratio")


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    loaded, seconds = (sizes[0 if quick else 1] for sizes in (LOADED, SECONDS))
    report = Report("nodes", quick, {"loaded": loaded, "appends_s": APPENDS_S, "recalls_s": RECALLS_S})
    for count in range(1, len(NAMES) + 1):
        names, place = NAMES[:count], folder / str(count)
        place.mkdir()
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(running_broker(place / "broker"))
            folders = make_data_dirs(place, names)
            starting = (start_process(folders[name], name, broker.url, broker.user, broker.password) for name in names)
            nodes = await asyncio.gather(*starting)
            for node in nodes:
                stack.push_async_callback(node.end)
            clients = [await stack.enter_async_context(client_of(node, timeout_s=60)) for node in nodes]
            for client in clients:
                await assigned(client, names)
            broker_pid = broker.status().pid
            assert broker_pid is not None
            what = f"{count} node{'s' if count > 1 else ''}"
            await _load(report, what, clients, [node.process.pid for node in nodes], broker_pid, loaded, seconds)
    return report


async def _load(
    report: Report, what: str, clients: list[AsyncCrewJournal], pids: list[int], broker: int, loaded: int, seconds: int
) -> None:
    corpus = Corpus(loaded + (APPENDS_S + BATCHES_S * IN_BATCHES) * seconds, workspaces=WORKSPACES)

    def entry(n: int) -> dict[str, Any]:
        return corpus.submission(n) | {"workspace_id": corpus.workspace(n)}

    def client_for(n: int) -> AsyncCrewJournal:
        return clients[n % len(clients)]

    async def settled(seq: int) -> float:
        """Wait until the nodes have folded and their reactors rest; their CPU at rest, of a core."""
        for client in clients:
            await client.count(min_seq=seq)
        began = time.monotonic()
        while True:
            before = _cpu(pids)
            await asyncio.sleep(REST_S)
            share = (_cpu(pids) - before) / REST_S
            if share < RESTING * len(pids) or time.monotonic() - began > REST_WITHIN_S:
                return share

    last = 0
    for first in range(0, loaded, BATCH):
        last = (await clients[0].append_batch([entry(n) for n in range(first, min(first + BATCH, loaded))]))[-1].seq
    await settled(last)

    async def append(n: int) -> None:
        nonlocal last
        last = max(last, (await client_for(n).append(entry(loaded + n))).seq)

    await _measured(report, f"{what}, append", pids, broker, APPENDS_S, seconds, append)

    async def append_batch(n: int) -> None:
        nonlocal last
        first = loaded + APPENDS_S * seconds + n * IN_BATCHES
        entries = [entry(place) for place in range(first, first + IN_BATCHES)]
        last = max(last, (await client_for(n).append_batch(entries))[-1].seq)

    name = f"{what}, append in batches of {IN_BATCHES}"
    await _measured(report, name, pids, broker, BATCHES_S, seconds, append_batch, IN_BATCHES)
    resting = await settled(last)
    report.figure(f"{what}, at rest: CPU of all nodes", resting * MS, "ms a second")
    workspaces = sorted({corpus.workspace(n) for n in range(loaded)})
    for workspace in workspaces:  # every node is asked, so that each would have every text in memory
        for client in clients:
            await client.recall("oil", workspace_id=workspace)

    async def recall(n: int) -> None:
        text = " ".join(entry(n * 37 % loaded)["summary"].split()[:4])
        await client_for(n).recall(text, workspace_id=workspaces[n // len(clients) % len(workspaces)])

    await _measured(report, f"{what}, recall", pids, broker, RECALLS_S, seconds, recall)
    kept = [(await client.status())["hot_index"]["bytes"] for client in clients]
    shares = " + ".join(f"{size / MB:.1f}" for size in kept)
    report.figure(f"{what}: texts in memory, all nodes", sum(kept) / MB, "MB", note=shares)
    resident = [psutil.Process(pid).memory_info().rss for pid in pids]
    report.figure(f"{what}: resident memory of a node, mean", sum(resident) / len(pids) / MB, "MB")
