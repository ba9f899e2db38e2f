"""A stream that is replaced while a node runs is named as the reason why it is not ready."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.embedding import until
from support.nats import running_broker
from support.running import running_node

from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.broker.streams import declare_streams
from crew_journal.services.journal.watch import StreamWatch, Watch


async def test_a_recreated_stream_is_noticed_after_a_reconnect(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await connect(broker.url, broker.user, broker.password, "test")
        watch = StreamWatch(client, (await declare_streams(client)).made)
        await watch.start()
        loop = Watch(client, watch)
        await loop.start()
        try:
            await client.was_reconnected()
            await declare_streams(client)  # declaring what is there makes nothing anew
            await watch.look()
            assert watch.trouble is None
            await client.jetstream().delete_stream(JOURNAL_STREAM)
            await declare_streams(client)
            await client.was_reconnected()

            async def noticed() -> bool:
                return watch.trouble is not None

            await until(noticed, "the other stream to be noticed")
            assert "start the node again" in str(watch.trouble)
        finally:
            await loop.stop()
            await client.close()


async def test_a_node_whose_stream_was_replaced_is_not_ready_and_is_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamWatch, "every_s", 0.05)
    async with running_broker(tmp_path / "broker") as broker:
        data_dir = tmp_path / "data"
        reach = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
        async with (
            running_node(data_dir, **reach) as runtime,
            AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
        ):
            await client.append({"entry_type": "run.completed", "summary": "before"})
            other = await connect(broker.url, broker.user, broker.password, "operator")
            await other.jetstream().delete_stream(JOURNAL_STREAM)
            await declare_streams(other)
            await other.close()

            async def named() -> bool:
                return any("is another one" in problem for problem in (await client.status())["problems"])

            await until(named, "the reason in the status")
            assert (await client.status())["ready"] is False
        async with (
            running_node(data_dir, **reach) as runtime,
            AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
        ):
            seq = (await client.append({"entry_type": "run.completed", "summary": "after"})).seq
            assert [entry.summary for entry in (await client.list(min_seq=seq)).entries] == ["after"]
            assert not (await client.status())["problems"]
