"""A sequence that is missing from the journal is explained by an erasure or an accepted loss, or it is damage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats.aio.client import Client
from support.events import control
from support.nats import connected, running_broker
from support.running import running_node
from support.stack import HTTP_TIMEOUT_S, until

from crew_journal.consumers.entries.fold import EntriesProjection
from crew_journal.consumers.entries.turns_fold import TurnsProjection
from crew_journal.schemas.core.errors import InvalidQuery, JournalDamaged
from crew_journal.schemas.core.sequence_set import SequenceSet, format_ranges, ranges_of
from crew_journal.schemas.entries.events import ErasureScoped
from crew_journal.services.cli.checks import CheckVerdict, check_running
from crew_journal.services.cli.operate import status_lines
from crew_journal.services.cli.options import Where
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.broker.streams import stream_gaps
from crew_journal.services.journal.watch import GapWatch, Watch
from crew_journal.services.runtime.node import Runtime

ENTRY = {"workspace_id": "acme", "entry_type": "run.completed"}


@dataclass
class Live:
    """A node on a broker of its own, and a way to delete behind its back."""

    runtime: Runtime
    client: AsyncCrewJournal
    operator: Client

    async def fill(self, count: int) -> list[int]:
        acked = await self.client.append_batch(
            [{**ENTRY, "id": f"e{n}", "summary": f"n {n}", "priority": "high"} for n in range(count)]
        )
        await self.client.count(workspace_id="acme", min_seq=acked[-1].seq)
        return [one.seq for one in acked]

    async def delete(self, sequences: list[int]) -> None:
        for seq in sequences:
            await self.operator.jetstream().delete_msg("JOURNAL", seq)

    async def reasons(self) -> list[str]:
        async with httpx.AsyncClient(base_url=self.runtime.http_url, timeout=HTTP_TIMEOUT_S) as http:
            return list((await http.get("/readyz")).json()["reasons"])

    async def entries(self) -> dict[str, dict[str, Any]]:
        """What is shown of each entry of an agent, but for its place in the stream."""
        page = await self.client.list(workspace_id="acme", limit=500, types=[ENTRY["entry_type"]])
        return {entry.id: entry.model_dump(exclude={"seq"}) for entry in page.entries}

    async def shown(self) -> set[str]:
        return set(await self.entries())


@asynccontextmanager
async def live(data_dir: Path, broker: ManagedBroker) -> AsyncIterator[Live]:
    reach: dict[str, Any] = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
    async with (
        running_node(data_dir, **reach) as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
        connected(broker) as operator,
    ):
        yield Live(runtime, client, operator)


async def erase(on: Live, sequences: list[int], ids: list[str]) -> None:
    """As an erasure does: say which, then delete them."""
    scope = SequenceSet(sequences=format_ranges(ranges_of(sequences)), ids=tuple(sorted(ids)))
    made = control(ErasureScoped(erasure_id="x1", scope=scope), "d_erasure", workspace="acme")
    await on.operator.jetstream().publish(made.subject, made.body, headers=made.headers)
    await on.delete(sequences)


async def last(records: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    return [record async for record in records][-1]["result"]


async def test_a_hundred_deletions_that_an_erasure_explains_are_no_damage_and_one_more_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker") as broker:
        async with live(tmp_path / "data", broker) as on:
            sequences = await on.fill(150)
            await erase(on, sequences[:100], [f"e{n}" for n in range(100)])
            await last(on.client.rebuild())
            assert await on.reasons() == []
            assert await on.shown() == {f"e{n}" for n in range(100, 150)}
        async with live(tmp_path / "data", broker) as on:
            assert await on.reasons() == []
            assert (await last(on.client.verify()))["equal"]
            await on.delete([sequences[120]])
            with pytest.raises(JournalDamaged, match=f"lacks 1 sequence \\({sequences[120]}\\)"):
                await last(on.client.rebuild())
            (reason,) = await on.reasons()
            assert "JournalDamaged" in reason
            assert "since" in reason
        async with live(tmp_path / "data", broker) as on:
            (reason,) = await on.reasons()
            assert f"({sequences[120]})" in reason
            assert "e120" in await on.shown(), "reads go on"
            written = await on.client.append({**ENTRY, "summary": "appends go on"})
            assert (await on.client.count(workspace_id="acme", min_seq=written.seq)).count == 52
            status = await on.client.status()
            assert status["journal_damage"]["missing"] == 1
            assert dict(status_lines(status))["ready"] == "NO"
            async with httpx.AsyncClient(base_url=on.runtime.http_url, timeout=HTTP_TIMEOUT_S) as http:
                assert "crew_journal_missing_sequences 1.0" in (await http.get("/metrics")).text
            where = Where(tmp_path / "data", on.runtime.http_url, on.runtime.owner_token)
            found = await asyncio.to_thread(lambda: {one.check: one for one in check_running(None, where)})  # type: ignore[arg-type]  # not read here
            assert found["up"].verdict is CheckVerdict.FAIL
            assert "salvage" in found["up"].found


async def test_salvage_brings_back_what_was_lost_and_nothing_that_was_erased(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker") as broker, live(tmp_path / "data", broker) as on:
        sequences = await on.fill(20)
        token = await on.client.create_token(role="AGENT", workspace_id="acme", agent_id="ada")
        head = (await stream_gaps(on.operator)).last_seq
        before = await on.entries()
        await erase(on, sequences[:3], ["e0", "e1", "e2"])
        await on.delete([sequences[5], sequences[6], head])
        records = [record async for record in on.client.salvage()]
        assert [record["entry"]["id"] for record in records if "entry" in record] == ["e5", "e6"]
        assert [record["decision"]["entry_type"] for record in records if "decision" in record] == ["token.created"]
        counts = {"entries": 2, "decisions": 1, "unreadable": 0, "unreadable_sequences": "", "damaged_files": []}
        assert records[-1] == {"result": counts}
        with pytest.raises(InvalidQuery):
            await last(on.client.rebuild(["entries"], accept_loss=True))
        done = await last(on.client.rebuild(accept_loss=True))
        assert (done["lost"]["missing"], done["lost"]["known_entries"]) == (3, 3)
        assert (tmp_path / "data" / done["kept_as"]).exists()
        assert await on.reasons() == []
        assert await on.shown() == {f"e{n}" for n in range(3, 20)} - {"e5", "e6"}
        acked = await on.client.append_batch([record["entry"] for record in records if "entry" in record])
        await on.client.count(workspace_id="acme", min_seq=acked[-1].seq)
        assert await on.entries() == {name: before[name] for name in before.keys() - {"e0", "e1", "e2"}}
        async with AsyncCrewJournal(on.runtime.http_url, token.token) as agent:
            with pytest.raises(Exception, match="token"):
                await agent.list()
        await last(on.client.rebuild())
        assert (await last(on.client.verify()))["equal"]


@pytest.mark.parametrize("projection", [TurnsProjection, EntriesProjection])
async def test_a_view_of_a_new_version_keeps_its_rows_while_the_journal_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, projection: Any
) -> None:
    async with running_broker(tmp_path / "broker") as broker:
        async with live(tmp_path / "data", broker) as on:
            sequences = await on.fill(10)
            await on.delete([sequences[4]])
        monkeypatch.setattr(projection, "version", projection.version + 1)
        async with live(tmp_path / "data", broker) as on:
            assert await on.shown() == {f"e{n}" for n in range(10)}, "the former version's rows are shown"
            assert any("JournalDamaged" in reason for reason in await on.reasons())
            (out,) = (await on.client.status())["folding"]["laggards"]
            assert out["projection"] == projection.name
            assert "former version" in out["error"]
            assert [record["entry"]["id"] async for record in on.client.salvage() if "entry" in record] == ["e4"]
        async with live(tmp_path / "data", broker) as on:
            await last(on.client.rebuild(accept_loss=True))
            assert await on.reasons() == []
            assert (await on.client.status())["folding"]["laggards"] == []
            assert await on.shown() == {f"e{n}" for n in range(10)} - {"e4"}
        async with live(tmp_path / "data", broker) as on:
            assert await on.reasons() == []


async def test_a_new_version_that_finds_an_unreadable_message_at_the_start_says_that_the_journal_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path / "broker") as broker, live(tmp_path / "data", broker) as on:
        seq = (await on.fill(10))[4]
    block = next((tmp_path / "broker").rglob("JOURNAL/msgs/1.blk"))
    block.write_bytes(block.read_bytes().replace(b'"summary":"n 4"', b'"summary":"n X"'))
    monkeypatch.setattr(EntriesProjection, "version", EntriesProjection.version + 1)
    async with running_broker(tmp_path / "broker") as broker, live(tmp_path / "data", broker) as on:
        assert await on.shown() == {f"e{n}" for n in range(10)}
        assert any(f"the journal lacks 1 sequence ({seq})" in reason for reason in await on.reasons())


async def test_a_gap_that_comes_while_the_node_runs_is_noticed_and_explained_later(
    broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch alone, at a pace that a test can wait for."""
    monkeypatch.setattr(GapWatch, "every_s", 0.05)
    client = await connect(broker.url, broker.user, broker.password, "watched")
    explains: list[tuple[int, int]] = []
    ended: list[str] = []

    async def folded(seq: int, _wait_s: float) -> int:
        return seq

    def watching(made: str, last_seq: int) -> GapWatch:
        return GapWatch(
            client,
            made=made,
            last_seq=last_seq,
            clock=lambda: datetime.now(UTC),
            read=lambda: (),
            explained=lambda: explains,
            folded=folded,
            kept=lambda: (),
            said=lambda: (),
            on_lost_end=ended.append,
        )

    js = client.jetstream()
    await js.add_stream(name="JOURNAL", subjects=["journal.>"])
    for number in range(10):
        await js.publish("journal.w.c.a.x", str(number).encode())
    made = (await stream_gaps(client)).made
    watch = watching(made, 10)
    await watch.start()
    loop = Watch(client, watch)
    await loop.start()
    try:
        assert watch.trouble is None
        await js.delete_msg("JOURNAL", 4)
        await js.purge_stream("JOURNAL", seq=3)
        await until(lambda: watch.missing == [(1, 2), (4, 4)])
        assert "the journal lacks 3 sequences (1-2,4), and no erasure explains it" in (watch.trouble or "")
        explains += [(1, 5)]
        await until(lambda: watch.trouble is None)
        await js.purge_stream("JOURNAL")
        await until(lambda: watch.missing == [(6, 10)])
        assert not ended
        await js.delete_stream("JOURNAL")
        await js.add_stream(name="JOURNAL", subjects=["journal.>"])
        await watch.look()
        assert not ended, "another stream is another matter"
        again = watching((await stream_gaps(client)).made, 7)
        await again.look()
        assert "ends at 0" in ended[0]
    finally:
        await loop.stop()
        await client.close()
