"""Declaring the streams on a real nats-server."""

from __future__ import annotations

import pytest
import structlog
from nats.js.api import StreamConfig
from support.journal import eventually, journal_rig

from crew_journal.schemas.core.errors import BrokerUnavailable, StreamMismatch
from crew_journal.services.journal.broker.broker import ManagedBroker, free_port
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.broker.streams import api_request, declare_streams, stream_info


async def test_streams_are_declared_once_and_declaring_them_again_changes_nothing(broker: ManagedBroker) -> None:
    client = await connect(broker.url, broker.user, broker.password, "test")
    first = await declare_streams(client)
    before = {name: await stream_info(client, name) for name in ("JOURNAL", "DEADLETTER", "CANARY")}
    assert await declare_streams(client) == first
    for name, info in before.items():
        assert info is not None
        again = await stream_info(client, name)
        assert again is not None
        assert again["config"] == info["config"]
        assert again["created"] == info["created"]
    journal = before["JOURNAL"]
    assert journal is not None
    config = journal["config"]
    assert (config["max_age"], config["max_msgs"], config["max_bytes"]) == (0, -1, -1), "kept for ever"
    assert config["duplicate_window"] == 120 * 10**9
    assert config.get("compression", "none") == "none"
    assert config["allow_direct"] is True
    await client.close()


async def test_a_stream_that_expires_entries_is_refused_with_the_field_and_a_hint(broker: ManagedBroker) -> None:
    client = await connect(broker.url, broker.user, broker.password, "test")
    subjects = ["journal.>", "control.>", "document.>", "derived.>"]
    await client.jetstream().add_stream(StreamConfig(name="JOURNAL", subjects=subjects, max_age=3600))
    with pytest.raises(StreamMismatch, match=r"max_age is 3600000000000, needs 0") as caught:
        await declare_streams(client)
    assert caught.value.hint
    await client.close()


async def test_a_foreign_stream_on_our_subjects_is_a_mismatch(broker: ManagedBroker) -> None:
    client = await connect(broker.url, broker.user, broker.password, "test")
    await client.jetstream().add_stream(StreamConfig(name="OTHER", subjects=["journal.acme.>"]))
    with pytest.raises(StreamMismatch, match="refuses stream JOURNAL"):
        await declare_streams(client)
    await client.close()


async def test_atomic_batches_are_switched_on_when_the_server_has_learnt_them(broker: ManagedBroker) -> None:
    client = await connect(broker.url, broker.user, broker.password, "test")
    assert not (await declare_streams(client, atomic=False)).atomic
    version = client.connected_server_version
    upgraded = await declare_streams(client)
    assert upgraded.atomic is ((version.major, version.minor) >= (2, 12))
    info = await api_request(client, "STREAM.INFO.JOURNAL", None)
    assert bool(info["config"].get("allow_atomic")) is upgraded.atomic
    await client.close()


async def test_a_broker_that_is_not_there_is_unavailable_within_the_bound() -> None:
    with pytest.raises(BrokerUnavailable, match="cannot connect"):
        await connect(f"nats://127.0.0.1:{free_port()}", None, None, "test", deadline_s=0.5)


async def test_a_wrong_password_is_reported(broker: ManagedBroker) -> None:
    with pytest.raises(BrokerUnavailable, match=r"(?i)authorization"):
        await connect(broker.url, broker.user, "wrong", "test", deadline_s=60.0)


async def test_the_connection_tells_since_when_it_is_down_and_that_it_came_back(broker: ManagedBroker) -> None:
    async with journal_rig(broker) as rig:
        up = rig.client.state
        assert up.connected
        await broker.stop()
        await eventually(lambda: not rig.client.state.connected, "the loss is seen")
        assert rig.client.state.since >= up.since
        await broker.start()
        await eventually(lambda: rig.client.state.connected, "the reconnect is seen")
        assert (rig.client.state.reconnects, rig.client.state.last_error) == (1, None)


async def test_a_connection_closed_on_purpose_warns_of_nothing(broker: ManagedBroker) -> None:
    with structlog.testing.capture_logs() as logs:
        client = await connect(broker.url, broker.user, broker.password, "test")
        await client.close()
    assert not client.state.connected
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == []
