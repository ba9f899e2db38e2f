"""Other memories on the same conversations, questions and vectors as ours: ``python -m bench peers [--entries 100000]``.

Quality is measured in a store that holds the three development conversations alone, each question in its own conversation.
Latency, adding, freshness, memory and disk are measured in a store filled up to 10,000 entries with made-up texts and random
vectors, which cost a search what real ones cost.

Invariant: every peer has a virtual environment of its own in the folder of the run. One that cannot be installed or fails is
reported as such, with its last line of output.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.corpus import Corpus, random_units
from bench.figures import Report, say
from bench.journals import DIM
from bench.peers.ours import measure_ours
from bench.peers.page import write_page
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import lines_of
from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import install_minilm
from crew_journal.schemas.settings import Settings

ENTRIES: Final = 10_000
PACKAGES: Final = {
    "sqlite": "numpy",
    "chroma": "chromadb",
    "lancedb": "lancedb",
    "mempalace": "mempalace",
    "mem0": "mem0ai",
}
SMALL_ONLY: Final = ("mempalace", "mem0")
"""Peers that add one text at a time and are measured at 10,000 entries only."""
WORKER: Final = Path(__file__).with_name("worker.py")
QUIET: Final = {
    "MEM0_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "POSTHOG_DISABLED": "1",
    "HF_HUB_OFFLINE": "1",
    "MEMPALACE_EMBEDDING_MODEL": "minilm",
}
"""Peers send nothing anywhere."""


async def run(quick: bool, folder: Path, entries: int = ENTRIES) -> Report:
    """Measure all of them; a full run writes docs/peers.md.

    Raises:
        FileNotFoundError: If the development conversations are absent.
    """
    if quick:
        entries = 2_000
    source = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    turns, questions = lines_of(source / "journal.jsonl"), lines_of(source / "queries.jsonl")
    filler = Corpus(entries - len(turns), talk=True)
    report = Report("peers", quick, {"entries": entries, "turns": len(turns), "questions": len(questions)})
    say("peers: embedding the conversations")
    await _write_given(folder, turns, questions, filler)
    measured: dict[str, dict[str, Any]] = {}
    for name, package in PACKAGES.items():
        if entries > ENTRIES and name in SMALL_ONLY:
            continue
        say(f"peers: {name}")
        measured[name] = await asyncio.to_thread(_peer, name, package, folder)
    say("peers: crew-journal")
    try:
        measured["crew-journal"] = await measure_ours(folder / "ours", turns, questions, filler)
    except (TimeoutError, AssertionError) as error:  # the figures of the others took long
        measured["crew-journal"] = {"failed": str(error).splitlines()[0]}
    for name, figures in measured.items():
        for figure, value in figures.items():
            if isinstance(value, float):
                add = report.figure if name == "crew-journal" else report.baseline
                add(f"{name}: {figure}", value, figure.rpartition("_")[2])
        if "failed" in figures:
            say(f"peers: {name} failed: {figures['failed']}")
    if not quick:
        write_page(PROJECT / "docs", entries, measured)
    return report


async def _write_given(
    folder: Path, turns: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]], filler: Corpus
) -> None:
    cache = Settings().models_dir
    install_minilm(cache)
    embedder = MiniLmEmbedder(cache)
    turn_vectors = await embedder.embed_documents([turn["summary"] for turn in turns])
    query_vectors = [await embedder.embed_query(question["query"]) for question in questions]
    await embedder.close()
    real = [np.frombuffer(b"".join(vectors), "<f4").reshape(-1, DIM) for vectors in (turn_vectors, query_vectors)]
    np.save(folder / "vectors.npy", np.concatenate([real[0], random_units(filler.entries, DIM, 3), real[1]]))
    inputs = {
        "turns": [{"id": turn["id"], "text": turn["summary"], "agent": turn["agent_id"]} for turn in turns],
        "filler": [
            {
                "id": submission["id"],
                "text": f"{submission['summary']} {submission['payload']['text']}",
                "agent": submission["agent_id"],
            }
            for submission in filler.submissions()
        ],
        "questions": [
            {"text": question["query"], "agent": question["agent_id"], "relevant": question["relevant_ids"]}
            for question in questions
        ],
    }
    (folder / "given.json").write_text(json.dumps(inputs), "utf-8")


def _peer(name: str, package: str, folder: Path) -> dict[str, Any]:
    """The figures of a peer, or ``failed`` with its last line of output."""
    place = folder / name
    place.mkdir()
    for file_name in ("given.json", "vectors.npy"):
        (place / file_name).symlink_to(folder / file_name)
    python = place / "venv" / "bin" / "python"
    environment = {**os.environ, **QUIET, "HOME": str(place), "MEM0_DIR": str(place / "mem0")}
    command = [str(python), str(WORKER), name, str(place)]
    for step in (
        [sys.executable, "-m", "venv", str(place / "venv")],
        [str(python), "-m", "pip", "install", "--quiet", package],
        command,
    ):
        ran = subprocess.run(step, capture_output=True, text=True, env=environment, check=False)
        if ran.returncode != 0:
            return {"failed": (ran.stderr.strip().splitlines() or ["no output"])[-1]}
    figures: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    size = sum(file.stat().st_size for file in (place / "venv").rglob("*") if file.is_file() and not file.is_symlink())
    return {**figures, "installed_mb": size / 1e6}
