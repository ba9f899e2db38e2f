"""Memory of the whole stack at rest, and the time from the command to readiness."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.processes import Stack, wait_for

from bench.corpus import Corpus
from bench.figures import MB, Report, at_most, median
from bench.journals import prepare
from bench.watching import client_of, memory_of, wait_folded, wait_idle

READY_TARGET_S: Final = 4.0
IDLE_TARGET_MB: Final = 400
LARGE_TARGET_MB: Final = 900
"""Targets and figures are in MB, a million bytes."""
REST_LOOKS: Final = 6
"""Consecutive idle seconds until a stack counts as at rest: it tidies its views after two, and then gives memory back."""
SAMPLE: Final = ("--sample", "--embedder", "minilm")
LIBRARIES: Final = (
    "import duckdb, numpy, pyarrow, pydantic, starlette, uvicorn, nats, faststream.nats, tokenizers, safetensors, resource;"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)
"""Prints the memory of a process that has only imported the libraries, in KiB."""
KIB: Final = 1024

EMBEDDED_DEADLINE_S = 900.0
"""Seconds for MiniLM to work through the prepared journal's embeddable entries (60 to 75 a second)."""


def _ready(stack: Stack) -> float:
    """Seconds from the start of ``up`` until ``/readyz`` answers 200."""
    began = time.perf_counter()
    stack.up()
    with client_of(stack) as client:
        wait_for(lambda: client.get("/readyz").status_code == 200, "readiness", 60)
    return time.perf_counter() - began


def _starts(report: Report, folder: Path, options: Sequence[str], name: str, rounds: int) -> None:
    fresh, again = [], []
    for number in range(rounds):
        with Stack(folder / f"start-{name}-{number}", options) as stack:
            fresh.append(_ready(stack))
            wait_idle(stack)
            stack.terminate()
            again.append(_ready(stack))
    report.figure(f"up to ready, fresh, {name}", median(fresh), "s", at_most(READY_TARGET_S), f"median of {rounds}")
    report.figure(f"up to ready, again, {name}", median(again), "s", at_most(READY_TARGET_S), f"median of {rounds}")


def _sample_idle(report: Report, folder: Path) -> None:
    with Stack(folder / "sample", SAMPLE) as stack:
        _ready(stack)
        wait_idle(stack, looks=REST_LOOKS)
        memory = memory_of(stack)
    report.figure(
        "whole stack idle, MiniLM, sample journal",
        memory.rss / MB,
        "MB RSS",
        at_most(IDLE_TARGET_MB),
        memory.described,
    )


def _large(report: Report, folder: Path, corpus: Corpus, last_seq: int) -> None:
    """Idle memory after folding a prepared stream and after a restart, each with some recalls before."""
    with Stack(folder, ("--embedder", "minilm")) as stack:
        stack.up()
        took = wait_folded(stack, last_seq)
        report.figure("time to fold the prepared journal after ready", took, "s")
        for when in ("after folding and recall", "after a restart and recall"):
            with client_of(stack) as client:
                for query in corpus.queries(20):
                    body = {"query": query, "k": 10, "workspace_id": corpus.workspace(0)}
                    client.post("/v1/recall", json=body).raise_for_status()
            for looks, rested in ((1, "the first idle second"), (REST_LOOKS, "at rest")):
                wait_idle(stack, EMBEDDED_DEADLINE_S, looks)
                memory = memory_of(stack)
                report.figure(
                    f"whole stack idle, MiniLM, {corpus.entries:,} entries, {when}, {rested}",
                    memory.rss / MB,
                    "MB RSS",
                    at_most(LARGE_TARGET_MB),
                    memory.described,
                )
            stack.terminate()
            report.figure(f"up to ready with {corpus.entries:,} entries", _ready(stack), "s", at_most(READY_TARGET_S))


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    entries, vectors, rounds = (10_000, 1_000, 1) if quick else (100_000, 10_000, 3)
    report = Report("memory", quick, {"entries": entries, "vectors": vectors, "rounds": rounds})
    said = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", LIBRARIES], capture_output=True, check=True)
    report.baseline("a process that has imported the libraries and done nothing", int(said.stdout) * KIB / MB, "MB RSS")
    await asyncio.to_thread(_starts, report, folder, ("--embedder", "none"), "no embedder", rounds)
    await asyncio.to_thread(_starts, report, folder, SAMPLE, "MiniLM and sample", rounds)
    await asyncio.to_thread(_sample_idle, report, folder)
    corpus = Corpus(entries)
    filled = await prepare(folder / "large", corpus, vectors, model="all-MiniLM-L6-v2")
    await asyncio.to_thread(_large, report, folder / "large", corpus, filled.last_seq)
    return report
