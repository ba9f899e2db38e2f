"""The whole node started again over a data directory that something happened to."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import duckdb
import httpx
import pytest
from support.embedding import until
from support.nats import connected, running_broker
from support.running import running_node
from support.stack import HTTP_TIMEOUT_S

from crew_journal.schemas.core.errors import NotAuthenticated, VerificationFailed, ViewsDamaged
from crew_journal.services.cli.operate import status_lines
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker import streams
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.runtime import views as runtime_views
from crew_journal.services.runtime.node import Runtime
from crew_journal.services.runtime.views import VIEWS_FILE

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


async def test_views_that_are_folded_again_are_complete_when_the_node_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path) as client:
        made = await client.create_token(role="AGENT", workspace_id="acme", agent_id="ada")
        await client.append({**ENTRY, "summary": "before", "agent_id": "ada"})
    with duckdb.connect(str(tmp_path / VIEWS_FILE)) as con:
        con.execute("DROP TABLE tokens")
        con.execute("DROP TABLE journal_entries")

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(runtime_views, "keep_up", never)  # nothing in the background mends it
    async with running_node(tmp_path) as runtime, AsyncCrewJournal(runtime.http_url, made.token) as agent:
        assert [entry.summary for entry in (await agent.list()).entries] == ["before"]


async def test_views_ahead_of_the_stream_are_kept_aside_and_the_node_says_what_to_do(
    tmp_path: Path,
) -> None:
    async with node(tmp_path) as client:
        await client.append_batch([{**ENTRY, "summary": f"lost {n}"} for n in range(5)])
        lost = await client.append({**ENTRY, "summary": "lost, too"})
        assert len(await _summaries(client, lost.seq)) == 6
    _lose_the_stream(tmp_path)
    async with node(tmp_path) as client:
        appended = await client.append({**ENTRY, "summary": "new"})
        assert appended.seq < lost.seq, "the sequence was used before"
        assert await _summaries(client, appended.seq) == ["new"]
        assert not (await client.status())["ready"]
    (ahead,) = _files(tmp_path, f"{VIEWS_FILE}.ahead-*")
    async with node(tmp_path) as client:
        (problem,) = (await client.status())["problems"]
        assert ahead in problem
        assert "salvage" in problem
    assert _files(tmp_path, f"{VIEWS_FILE}.ahead-*") == [ahead]


LONG = "ein langer Satz, der Platz braucht " * 40
HEADER_BYTES = 12_288


async def _fill(client: AsyncCrewJournal, count: int) -> int:
    acked = await client.append_batch([{**ENTRY, "summary": f"n {n} {LONG}"} for n in range(count)])
    await client.count(workspace_id="acme", min_seq=acked[-1].seq)
    return acked[-1].seq


def _rot(path: Path) -> None:
    """Flip bytes in every block, and leave the header."""
    data, chance = bytearray(path.read_bytes()), random.Random(1)
    for offset in range(HEADER_BYTES + 4096, len(data) - 64, 4 * 4096):
        data[offset : offset + 64] = chance.randbytes(64)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("a text", marks=pytest.mark.nightly),
        "cut",
        pytest.param("rotten", marks=pytest.mark.nightly),
        "a token of no workspace's form",
    ],
)
async def test_damaged_views_are_put_aside_at_the_start_and_folded_again_and_status_says_so(
    tmp_path: Path, damage: str
) -> None:
    async with node(tmp_path) as client:
        await _fill(client, 500)
    path = tmp_path / VIEWS_FILE
    if damage == "a text":
        path.write_text("hello\n" * 1000)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "a token of no workspace's form":
        with duckdb.connect(str(path)) as con:
            con.execute(
                "INSERT INTO tokens (token_id, sha256, role, workspace_id, label, created_ms) "
                "VALUES ('t1', 'ab', 'AGENT', '*', '', 0)"
            )
    else:
        _rot(path)
    async with node(tmp_path) as client:
        report = await client.status()
        (aside,) = _files(tmp_path, f"{VIEWS_FILE}.damaged-*")
        assert report["views_put_aside"]["name"] == aside
        assert report["views_put_aside"]["reason"].startswith("the views are damaged: ")
        assert report["ready"] is True
        assert report["entries"]["count"] == 500
    async with node(tmp_path) as client:
        assert (await client.status())["views_put_aside"] is None


async def test_views_damaged_while_served_are_reported_with_what_to_do_and_a_rebuild_mends_them(
    tmp_path: Path,
) -> None:
    async with node(tmp_path) as client:
        seq = await _fill(client, 500)
    async with (
        running_node(tmp_path) as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
        httpx.AsyncClient(base_url=runtime.http_url, timeout=HTTP_TIMEOUT_S) as http,
    ):
        _rot(tmp_path / VIEWS_FILE)  # what DuckDB has not read yet
        with pytest.raises(VerificationFailed, match="damaged: Corrupt") as failed:
            _ = [record async for record in client.verify()]
        assert "crew-journal rebuild" in failed.value.hint
        with pytest.raises(ViewsDamaged) as told:
            await client.list(workspace_id="acme", q="Platz")
        assert "crew-journal rebuild" in told.value.hint
        ready = await http.get("/readyz")
        assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert any("crew-journal rebuild" in reason for reason in ready.json()["reasons"])
        assert [record async for record in client.rebuild()][-1]["result"]["seq"] >= seq
        assert (await client.list(workspace_id="acme", q="Platz", min_seq=seq)).entries
        assert (await client.status())["ready"] is True
        assert [record async for record in client.verify()][-1]["result"]["equal"]


@asynccontextmanager
async def node_on(data_dir: Path, broker: ManagedBroker) -> AsyncIterator[Runtime]:
    reach = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
    async with running_node(data_dir, **reach) as runtime:
        yield runtime


def _client(runtime: Runtime, token: str | None = None) -> AsyncCrewJournal:
    return AsyncCrewJournal(runtime.http_url, token or runtime.owner_token)


@pytest.mark.parametrize(
    "stamped",
    [pytest.param(True, id="stamped"), pytest.param(False, id="of before the stamp", marks=pytest.mark.nightly)],
)
async def test_another_journal_shows_no_entry_and_honours_no_token_of_the_one_before(
    tmp_path: Path, stamped: bool
) -> None:
    data_dir = tmp_path / "data"
    async with running_broker(tmp_path / "a") as a, running_broker(tmp_path / "b") as b:
        async with node_on(data_dir, a) as runtime, _client(runtime) as owner:
            token = (await owner.create_token(role="ADMIN", workspace_id="acme")).token
            seq = (await owner.append({**ENTRY, "summary": "of a"})).seq
        async with node_on(tmp_path / "other", b) as runtime, _client(runtime) as owner:
            await owner.append_batch([{**ENTRY, "summary": f"of b {n}"} for n in range(seq + 5)])
        if not stamped:
            with duckdb.connect(str(data_dir / VIEWS_FILE)) as con:
                con.execute("DROP TABLE folded_stream")
        async with node_on(data_dir, b) as runtime, _client(runtime) as owner:
            last = (await owner.append({**ENTRY, "summary": "of b, after"})).seq
            assert await _summaries(owner, last) == sorted([*(f"of b {n}" for n in range(seq + 5)), "of b, after"])
            async with _client(runtime, token) as stranger:
                with pytest.raises(NotAuthenticated):
                    await stranger.count(workspace_id="acme")
            assert "another stream" in (await owner.status())["views_put_aside"]["reason"]
            assert [record async for record in owner.verify()][-1]["result"]["equal"]


async def test_a_copied_store_is_the_same_stream_and_its_views_are_kept(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with node(first) as client:
        await client.append_batch([{**ENTRY, "summary": f"n {n}"} for n in range(3)])
    shutil.copytree(first, second)
    async with node(second) as client:
        appended = await client.append({**ENTRY, "summary": "after"})
        assert await _summaries(client, appended.seq) == ["after", "n 0", "n 1", "n 2"]
        assert (await client.status())["views_put_aside"] is None
    assert _files(second, f"{VIEWS_FILE}*") == [VIEWS_FILE]


async def test_views_whose_newest_entry_was_deleted_from_the_stream_are_kept(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with running_broker(tmp_path / "a") as broker:
        async with node_on(data_dir, broker) as runtime, _client(runtime) as client:
            await client.append_batch([{**ENTRY, "summary": f"n {n}"} for n in range(3)])
        with duckdb.connect(str(data_dir / VIEWS_FILE), read_only=True) as con:
            ((newest,),) = con.execute("SELECT max(seq) FROM admitted").fetchall()
        async with connected(broker) as operator:
            await operator.jetstream().delete_msg("JOURNAL", newest)
        async with node_on(data_dir, broker) as runtime, _client(runtime) as client:
            assert (await client.status())["views_put_aside"] is None


async def test_the_page_of_status_says_that_the_broker_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "API_TIMEOUT_S", 0.2)
    async with (
        running_broker(tmp_path / "a") as broker,
        node_on(tmp_path / "data", broker) as runtime,
        _client(runtime) as client,
    ):
        await client.append({**ENTRY, "summary": "before"})
        await broker.stop()

        async def away() -> bool:
            return not (await client.status())["connection"]["connected"]

        await until(away, "the loss of the connection")
        page = dict(status_lines(await client.status()))
        assert page["ready"] == "NO"
        assert "JetStream does not answer" in page["journal"]
        assert "NOT CONNECTED" in page["broker"]
