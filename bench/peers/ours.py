"""Crew Journal among the peers: a real ``up`` with MiniLM, asked over HTTP.

Invariant: measured as the peers are, except that every call is a request over HTTP to another process. Latency is that of
questions whose vector the service has kept, since the peers are given theirs; the first asking of the same questions is
reported beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from support.processes import Stack, wait_for

from bench.corpus import Corpus
from bench.figures import MB, MS, percentile
from bench.journals import DIM, open_broker, ready_made, vector_messages
from bench.peers.worker import BATCH, FRESH, WARM, K, disk_mb, scored
from bench.raw_nats import RawWriter
from bench.watching import client_of, memory_of, wait_idle
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID

OPTIONS: Final = ("--embedder", "minilm")
WORKSPACE: Final = "bench-00"
"""The workspace of the filler."""
PATIENCE_S: Final = 7_200.0
"""Seconds until all is at rest: the link reactor compares each vector of the filler, 4 ms of CPU each at 100,000."""


async def measure_ours(
    folder: Path, turns: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]], filler: Corpus
) -> dict[str, Any]:
    """The figures of Crew Journal."""
    await asyncio.to_thread(folder.mkdir)
    return await asyncio.to_thread(_quality, folder / "small", turns, questions) | await _large(
        folder / "large", turns, questions, filler
    )


def _added(client: httpx.Client, turns: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Add the turns in batches; entries a second until they can be found by words, and until all have a vector."""
    began, seq = time.perf_counter(), 0
    for first in range(0, len(turns), BATCH):
        body = [{**turn, "workspace_id": WORKSPACE} for turn in turns[first : first + BATCH]]
        answer = client.post("/v1/journal", json=body).raise_for_status().json()
        seq = answer["entries"][-1]["seq"]
    _asked(client, "anything", None, min_seq=seq)
    readable = time.perf_counter() - began

    def filled() -> bool:
        return client.get("/v1/status").raise_for_status().json()["embeddings"]["missing"] == 0

    wait_for(filled, "vectors of all turns", PATIENCE_S, 0.2)
    return len(turns) / readable, len(turns) / (time.perf_counter() - began)


def _asked(client: httpx.Client, text: str, agent: str | None, **more: Any) -> list[str]:
    where = {"scope": "workspace"} if agent is None else {"scope": "own", "agent_id": agent}
    body = {"query": text, "k": K, "workspace_id": WORKSPACE, "asked_at": "unknown", **where, **more}
    hits = client.post("/v1/recall", json=body).raise_for_status().json()["hits"]
    return [hit["entry_id"] for hit in hits]


def _quality(folder: Path, turns: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    with Stack(folder, OPTIONS) as stack:
        stack.up()
        with client_of(stack) as client:
            _added(client, turns)
            scores = [
                scored(_asked(client, q["query"], q["agent_id"]), frozenset(q["relevant_ids"])) for q in questions
            ]
    recalls, gains = zip(*scores, strict=True)
    return {"recall": statistics.mean(recalls), "ndcg": statistics.mean(gains)}


async def _large(
    folder: Path, turns: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]], filler: Corpus
) -> dict[str, Any]:
    async with open_broker(folder, "interval") as (_, client, _):
        writer = RawWriter(client, BATCH)
        await writer.open()
        first = (await client.jetstream().stream_info("JOURNAL")).state.last_seq + 1
        await writer.publish_all(ready_made(filler, 0, filler.entries))
        seqs = {n: first + n for n in range(filler.entries)}
        await writer.publish_all(list(vector_messages(filler, seqs, MODEL_ID, DIM)))
        await writer.close()
    return await asyncio.to_thread(_timed, folder, turns, questions, filler)


def _timed(
    folder: Path, turns: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]], filler: Corpus
) -> dict[str, Any]:
    with Stack(folder, OPTIONS) as stack:
        stack.up()
        with client_of(stack) as client:
            wait_idle(stack, PATIENCE_S)
            readable, embedded = _added(client, turns)
            wait_idle(stack, PATIENCE_S)
            for n in range(WARM):
                _asked(client, filler.submission(n)["summary"], None)
            first, again = ([_seconds(client, q["query"]) for q in questions] for _ in range(2))
            memory = memory_of(stack).rss / MB
            fresh = [_fresh(client, filler, n) for n in range(FRESH)]
            version = client.get("/v1/status").json().get("version", "")
    return {
        "version": version,
        "p50_ms": statistics.median(again) * MS,
        "p95_ms": percentile(again, 0.95) * MS,
        "first_p50_ms": statistics.median(first) * MS,
        "added_per_s": readable,
        "embedded_per_s": embedded,
        "fresh_ms": statistics.median(fresh) * MS,
        "memory_mb": memory,
        "disk_mb": disk_mb(folder),
    }


def _seconds(client: httpx.Client, text: str) -> float:
    began = time.perf_counter()
    _asked(client, text, None)
    return time.perf_counter() - began


def _fresh(client: httpx.Client, filler: Corpus, n: int) -> float:
    text = f"zq{n:04d} {filler.submission(n)['summary']}"
    entry = {"id": f"fresh-{n}", "workspace_id": WORKSPACE, "entry_type": "peer.conversation", "agent_id": "fresh"}
    began = time.perf_counter()
    answer = client.post("/v1/journal", json={**entry, "summary": text}).raise_for_status().json()
    while f"fresh-{n}" not in _asked(client, text, None, min_seq=answer["entries"][0]["seq"]):
        time.sleep(0.001)
    return time.perf_counter() - began
