"""Health on the real node, as it is started: the outage of Ollama shows, with since when, and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.embedding import until
from support.ollama_server import OllamaServer
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

ENTRY = {"entry_type": "peer.escalation", "summary": "the disk of the build host is full", "crew_id": "core"}


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    with OllamaServer() as started:
        yield started


@pytest.fixture
async def node(tmp_path: Path, ollama: OllamaServer) -> AsyncIterator[Runtime]:
    async with running_node(tmp_path / "node", embedder="ollama", ollama_host=ollama.url) as runtime:
        yield runtime


async def missing(journal: AsyncCrewJournal) -> int:
    return int((await journal.status())["embeddings"]["missing"])


async def test_an_outage_of_ollama_turns_health_from_green_and_its_end_turns_it_back(
    node: Runtime, ollama: OllamaServer
) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        receipts = await journal.append_batch([{**ENTRY, "ts": None} for _ in range(4)])
        await journal.count(min_seq=receipts[-1].seq)

        async def filled() -> object:
            return await missing(journal) == 0

        await until(filled, "all vectors")
        before = await journal.measure_health()
        assert before.metrics["coverage"] == 100.0
        assert (before.band, before.embedder["mode"]) == ("green", "vector")

        ollama.stop()
        late = await journal.append(ENTRY)
        await journal.count(min_seq=late.seq)

        async def degraded() -> object:
            return (await journal.health()).embedder["mode"] == "vector-degraded"

        await until(degraded, "the failure")
        during = await journal.measure_health()
        assert during.band in ("yellow", "red")
        assert "nomic-embed-text does not answer" in during.reasons[0]
        assert during.embedder["since"] in during.reasons[0]
        assert ollama.url not in during.model_dump_json(), "an address is nothing for every token"
        swept = await journal.sweep_embeddings()
        assert (swept.counts["proposed"], swept.counts["pending"]) == (0, 1), "it is left to the embed reactor"

        ollama.start()
        await until(filled, "the late vector")
        after = await journal.measure_health()
        assert after.band == "green"
        assert after.reasons == ()
