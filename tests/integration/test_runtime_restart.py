"""The whole node started again over a data directory that something happened to."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime import VIEWS_FILE

ENTRY = {"entry_type": "run.completed", "workspace_id": "acme"}


@asynccontextmanager
async def node(data_dir: Path) -> AsyncIterator[AsyncCrewJournal]:
    async with running_node(data_dir) as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client:
        yield client


def _files(data_dir: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in data_dir.glob(pattern))


def _lose_the_stream(data_dir: Path) -> None:
    for store in list(data_dir.rglob("jetstream")):
        shutil.rmtree(store)


async def _summaries(client: AsyncCrewJournal, seq: int) -> list[str]:
    page = await client.list(workspace_id="acme", min_seq=seq)
    return sorted(entry.summary for entry in page.entries)  # entries of one millisecond have no order of their own


async def test_a_node_started_again_goes_on_with_its_views(tmp_path: Path) -> None:
    async with node(tmp_path) as client:
        await client.append_batch([{**ENTRY, "summary": f"n {n}"} for n in range(3)])
    async with node(tmp_path) as client:
        appended = await client.append({**ENTRY, "summary": "after"})
        assert await _summaries(client, appended.seq) == ["after", "n 0", "n 1", "n 2"]
    assert _files(tmp_path, f"{VIEWS_FILE}*") == [VIEWS_FILE]


async def test_views_that_are_ahead_of_the_stream_are_put_aside_and_hide_nothing(tmp_path: Path) -> None:
    async with node(tmp_path) as client:
        await client.append_batch([{**ENTRY, "summary": f"lost {n}"} for n in range(5)])
        lost = await client.append({**ENTRY, "summary": "lost, too"})
        assert len(await _summaries(client, lost.seq)) == 6
    _lose_the_stream(tmp_path)
    async with node(tmp_path) as client:
        appended = await client.append({**ENTRY, "summary": "new"})
        assert appended.seq < lost.seq, "the sequence was used before"
        assert await _summaries(client, appended.seq) == ["new"]
    assert _files(tmp_path, f"{VIEWS_FILE}.of-*") == [f"{VIEWS_FILE}.of-{lost.seq}"]
