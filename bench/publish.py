"""Publishing: our writer against a bare one, with fsync, and over HTTP.

Rounds of both alternate, so that a disturbance of the machine hits both, and the ratio is the median of the rounds'.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import orjson
from nats.aio.client import Client
from support.processes import Stack

from bench.corpus import Corpus
from bench.figures import Report, at_least, at_most, median
from bench.journals import OWNER, open_broker, ready_made
from bench.raw_nats import RawWriter
from crew_journal.consumers.feed.replay import replay
from crew_journal.schemas.chain.checkpoint import Checkpoint, signed
from crew_journal.schemas.chain.events import SEALED_AT_MOST, ChainSealed
from crew_journal.schemas.chain.tree import Leaves, Tree
from crew_journal.schemas.core.ports import Identity
from crew_journal.services.journal import publishing
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.config import Durability
from crew_journal.services.journal.broker.connection import connect, encode_publish
from crew_journal.services.journal.broker.streams import DeclaredStreams, stream_head
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.publishing import Writer

CALLERS: Final = 256
WIDE_WINDOW: Final = 1_024
BATCH: Final = 500
HTTP_CONNECTIONS: Final = 4
RATIO_TARGET: Final = 0.6
ATOMIC_TARGET: Final = 8_000
HTTP_TARGET: Final = 5_000
LOG_TARGET: Final = 0.95
SEAL_TARGET_US: Final = 3.0
SEALED: Final = 20_000
"""Stored messages that are sealed."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rounds, and entries of each."""

    rounds: int
    interval: int
    durable_singles: int
    durable_batches: int
    http: int


FULL: Final = Sizes(5, 20_000, 3_000, 20_000, 60_000)
QUICK: Final = Sizes(3, 4_000, 500, 4_000, 10_000)


class NoIdentities:
    """Views that know no id yet: a lookup in an empty dictionary."""

    def find(self, workspace_id: str, entry_id: str) -> Identity | None:
        """Nothing."""
        return None

    def find_all(self, wanted: Sequence[tuple[str, str]]) -> list[Identity | None]:
        """Nothing, for each."""
        return [None] * len(wanted)


@asynccontextmanager
async def our_journal(broker: ManagedBroker, streams: DeclaredStreams, *, group: bool) -> AsyncIterator[Journal]:
    """The journal as the runtime composes it, but for the identity index."""
    client = await connect(broker.url, broker.user, broker.password, "bench")
    writer = Writer(client, atomic=streams.atomic, group_commit=group)
    await writer.open()
    try:
        yield Journal(writer, NoIdentities(), clock=lambda: datetime.now(UTC))
    finally:
        await writer.close()
        await client.close()


async def append_all(journal: Journal, submissions: Sequence[dict[str, Any]]) -> float:
    """Append with ``CALLERS`` callers at once; returns the seconds it took."""
    feed = iter(submissions)

    async def caller() -> None:
        for submission in feed:
            await journal.append(OWNER, submission)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


async def batches_all(journal: Journal, submissions: Sequence[dict[str, Any]], at_once: int) -> float:
    """Append in batches of ``BATCH``, ``at_once`` of them under way; returns the seconds it took."""
    feed = iter([submissions[i : i + BATCH] for i in range(0, len(submissions), BATCH)])

    async def caller() -> None:
        for batch in feed:
            await journal.append_batch(OWNER, batch)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    return time.perf_counter() - began


def _submissions(corpus: Corpus, *, with_id: bool = True) -> list[dict[str, Any]]:
    submissions = [{**corpus.submission(n), "workspace_id": corpus.workspace(n)} for n in range(corpus.entries)]
    if not with_id:
        for submission in submissions:
            del submission["id"]
    return submissions


async def _compare(
    report: Report, client: Client, broker: ManagedBroker, streams: DeclaredStreams, sizes: Sizes
) -> None:
    """The ``interval`` profile: bare and ours in turns."""
    bare = RawWriter(client, CALLERS)
    wide = RawWriter(client, WIDE_WINDOW)
    await bare.open()
    await wide.open()
    rates: dict[str, list[float]] = {"bare": [], "wide": [], "ours": [], "minted": []}
    async with our_journal(broker, streams, group=False) as journal:
        for number in range(sizes.rounds):
            seed = 100 + number
            events = ready_made(Corpus(sizes.interval, seed=seed, prefix="raw"), 0, sizes.interval)
            rates["bare"].append(sizes.interval / await bare.publish_all(events))
            submissions = _submissions(Corpus(sizes.interval, seed=seed))
            rates["ours"].append(sizes.interval / await append_all(journal, submissions))
            events = ready_made(Corpus(sizes.interval, seed=seed, prefix="wide"), 0, sizes.interval)
            rates["wide"].append(sizes.interval / await wide.publish_all(events))
            submissions = _submissions(Corpus(sizes.interval, seed=seed), with_id=False)
            rates["minted"].append(sizes.interval / await append_all(journal, submissions))
    report.baseline("bare pipelined nats-py, 256 in flight, interval", median(rates["bare"]), "entries/s")
    report.baseline("bare pipelined nats-py, 1,024 in flight, interval", median(rates["wide"]), "entries/s")
    report.figure("journal writer, 256 appends at once, ids given, interval", median(rates["ours"]), "entries/s")
    report.figure("journal writer, 256 appends at once, ids minted, interval", median(rates["minted"]), "entries/s")
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    report.figure(
        "journal writer / bare writer of 256 in flight, ids given",
        median(ratios),
        "ratio",
        at_least(RATIO_TARGET),
        f"median of {sizes.rounds} rounds in turns, {min(ratios):.2f} to {max(ratios):.2f}; validation, hashing and "
        "encoding included",
    )
    minted = [ours / bare for ours, bare in zip(rates["minted"], rates["bare"], strict=True)]
    report.figure("journal writer / bare writer of 256 in flight, ids minted", median(minted), "ratio")
    wider = [ours / bare for ours, bare in zip(rates["ours"], rates["wide"], strict=True)]
    report.figure("journal writer / bare writer of 1,024 in flight, ids given", median(wider), "ratio")


def _unsalted(subject: str, reply: str, headers: bytes, body: bytes) -> bytes:
    """The command that publishes a message without a salt, as before the log."""
    size = len(headers)
    return b"".join((f"HPUB {subject} {reply} {size} {size + len(body)}\r\n".encode(), headers, body, b"\r\n"))


async def _log(report: Report, client: Client, broker: ManagedBroker, streams: DeclaredStreams, sizes: Sizes) -> None:
    """What the transparency log costs: the salts of appends, and the CPU of sealing what was stored."""
    ratios, costs, count = [], [], sizes.interval // 8
    async with our_journal(broker, streams, group=False) as journal:
        for number in range(8 * sizes.rounds):
            rates, cpu = {}, {}
            for salted in (True, False) if number % 2 else (False, True):  # the second of two rounds may be faster
                submissions = _submissions(Corpus(count, seed=400 + number, prefix=f"log{salted}"))
                with patch.object(publishing, "encode_publish", encode_publish if salted else _unsalted):
                    began = time.process_time()
                    rates[salted] = count / await append_all(journal, submissions)
                    cpu[salted] = time.process_time() - began
            ratios.append(rates[True] / rates[False])
            costs.append(cpu[False] / cpu[True])
    report.figure(
        "appends with the log / without it, interval",
        median(ratios),
        "ratio",
        at_least(LOG_TARGET),
        f"median of {len(ratios)} rounds in turns, {min(ratios):.2f} to {max(ratios):.2f}",
    )
    report.figure("the same by CPU of the service", median(costs), "ratio", at_least(LOG_TARGET))
    reader = await connect(broker.url, broker.user, broker.password, "bench")
    head = await stream_head(client)
    leaves, tree, used = Leaves(salted=True), Tree(), []
    # sealed as they come, as by a node
    async for some in replay(reader, max(1, head - SEALED), head, batch=SEALED_AT_MOST):
        start = tree.size
        began = time.process_time()
        made = [leaves.leaf(message.subject, message.headers, message.data) for message in some]
        tree.extend(made)
        ChainSealed(
            first_seq=start + 1,
            last_seq=tree.size,
            leaves=base64.b64encode(b"".join(made)).decode(),
            peaks=tuple(peak.hex() for peak in tree.peaks),
            salted=True,
            checkpoint=signed(Checkpoint(tree.size, tree.root()), bytes(32)),
        ).model_dump_json()
        used.append((time.process_time() - began) / len(some) * 1e6)
    await reader.close()
    report.figure("CPU of sealing", median(used), "µs/message", at_most(SEAL_TARGET_US), f"{tree.size:,} messages")


async def _durable(
    report: Report, client: Client, broker: ManagedBroker, streams: DeclaredStreams, sizes: Sizes
) -> None:
    """The ``durable`` profile: fsync before every ack."""
    bare = RawWriter(client, CALLERS)
    await bare.open()
    events = ready_made(Corpus(sizes.durable_singles, seed=200, prefix="raw"), 0, sizes.durable_singles)
    report.baseline(
        "bare pipelined nats-py, 256 in flight, durable",
        sizes.durable_singles / await bare.publish_all(events),
        "entries/s",
    )
    if streams.atomic:
        events = ready_made(Corpus(sizes.durable_batches, seed=201, prefix="raw"), 0, sizes.durable_batches)
        began = time.perf_counter()
        for start in range(0, len(events), BATCH):
            await bare.publish_batch(events[start : start + BATCH])
        took = time.perf_counter() - began
        report.baseline("bare atomic batches of 500, one after the other, durable", len(events) / took, "entries/s")
    async with our_journal(broker, streams, group=True) as journal:
        submissions = _submissions(Corpus(sizes.durable_singles, seed=200))
        rate = sizes.durable_singles / await append_all(journal, submissions)
        report.figure(
            "single appends, 256 at once, durable", rate, "entries/s", None, "as the disk allows; group commit"
        )
        for at_once in (1, 4):
            submissions = _submissions(Corpus(sizes.durable_batches, seed=201 + at_once, prefix=f"at{at_once}"))
            rate = sizes.durable_batches / await batches_all(journal, submissions, at_once)
            target = at_least(ATOMIC_TARGET) if at_once == 1 and streams.atomic else None
            report.figure(f"batches of 500, {at_once} at once, durable", rate, "entries/s", target)


async def _http(report: Report, folder: Path, entries: int) -> None:
    """Batches over HTTP into a real ``up`` that folds at the same time."""
    corpus = Corpus(entries, seed=300)
    bodies = [
        orjson.dumps([corpus.submission(n) for n in range(start, min(entries, start + BATCH))])
        for start in range(0, entries, BATCH)
    ]
    with Stack(folder / "http", ("--embedder", "none", "--durability", "interval")) as stack:
        ready = await asyncio.to_thread(stack.up)
        headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
        async with httpx.AsyncClient(base_url=ready.http, headers=headers, timeout=60, trust_env=False) as client:
            feed = iter(bodies)
            last = 0

            async def caller() -> None:
                nonlocal last
                for body in feed:
                    answer = await client.post("/v1/journal", content=body)
                    answer.raise_for_status()
                    last = max(last, answer.json()["entries"][-1]["seq"])

            cpu = sum(p.cpu_times().user + p.cpu_times().system for p in stack.processes())
            began = time.perf_counter()
            await asyncio.gather(*(caller() for _ in range(HTTP_CONNECTIONS)))
            took = time.perf_counter() - began
            answer = await client.get("/v1/journal", params={"limit": 1, "min_seq": last}, timeout=120)
            while answer.status_code == 503:
                answer = await client.get("/v1/journal", params={"limit": 1, "min_seq": last}, timeout=120)
            answer.raise_for_status()
            folded = time.perf_counter() - began
            cpu = sum(p.cpu_times().user + p.cpu_times().system for p in stack.processes()) - cpu
    report.figure(
        f"HTTP batches of 500, {HTTP_CONNECTIONS} connections, interval",
        entries / took,
        "entries/s",
        at_least(HTTP_TARGET),
        "a real up, folding meanwhile; client in another process",
    )
    report.figure("the same until everything can be read", entries / folded, "entries/s")
    report.figure("CPU of up and nats-server for it", cpu / entries * 1e6, "µs/entry")


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    sizes = QUICK if quick else FULL
    report = Report("publish", quick, {"rounds": sizes.rounds, "entries": sizes.interval, "http_entries": sizes.http})
    profiles: tuple[Durability, ...] = ("interval", "durable")
    for durability in profiles:
        async with open_broker(folder / durability, durability) as (broker, client, streams):
            measure = _compare if durability == "interval" else _durable
            await measure(report, client, broker, streams, sizes)
            if durability == "interval":
                await _log(report, client, broker, streams, sizes)
    await _http(report, folder, sizes.http)
    return report
