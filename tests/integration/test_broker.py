"""The managed broker against a real nats-server: kept data, kept port, crashes, orphans."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from support.external import listens
from support.nats import PROJECT, connected, running_broker

from crew_journal.schemas.core.errors import BrokerError
from crew_journal.services.journal.broker.broker import (
    ManagedBroker,
    NatsBinary,
    end_child,
    free_port,
    port_is_free,
    version_text,
)
from crew_journal.services.journal.broker.config import Durability

DEADLINE_S = 120.0


async def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living_children() -> set[int]:
    """Of this process; a child that ended before it could write anything is told apart from one that lives on."""
    return {child.pid for child in psutil.Process().children() if alive(child.pid)}


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def wrapper(folder: Path, body: str, version: tuple[int, int, int] = (2, 15, 1)) -> NatsBinary:
    """A script in place of nats-server."""
    script = folder / "wrapped-nats-server"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return NatsBinary(script, version)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    with subprocess.Popen(["sleep", "120"]) as process:
        yield process
        process.kill()


async def test_a_started_broker_takes_connections_and_a_stopped_one_is_gone(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    broker = ManagedBroker(tmp_path, nats_server_binary, "durable")
    await broker.start()
    status = broker.status()
    assert status.running
    assert status.pid is not None
    assert status.version == version_text(nats_server_binary.version)
    assert (status.durability, status.restarts, status.last_exit) == ("durable", 0, None)
    async with connected(broker) as client:
        assert client.connected_url is not None
        assert client.connected_url.port == status.port
    assert os.getsid(status.pid) == status.pid != os.getsid(0), "Ctrl-C would reach it before we drained"
    await broker.stop()
    assert not broker.status().running
    assert not alive(status.pid)
    assert not await listens(status.port)
    await broker.stop()


async def test_a_connection_without_the_password_is_refused(broker: ManagedBroker) -> None:
    attempts: tuple[dict[str, Any], ...] = ({}, {"user": broker.user, "password": "guess"})
    for credentials in attempts:
        client = Client()
        with pytest.raises(NatsError, match=r"(?i)authorization"):
            await client.connect(broker.url, allow_reconnect=False, connect_timeout=int(DEADLINE_S), **credentials)


async def test_files_with_passwords_are_for_the_owner_alone(broker: ManagedBroker, tmp_path: Path) -> None:
    await broker.set_agent_users([])
    holding = [path for path in files_below(tmp_path) if broker.password.encode() in path.read_bytes()]
    assert {p.name for p in holding} == {"nats.conf", "broker.json"}
    for path in [*holding, tmp_path / "nats" / "agents.json"]:
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert (tmp_path / "nats").stat().st_mode & 0o777 == 0o700


async def test_port_password_and_messages_are_kept_across_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first, connected(first) as client:
        before = (first.url, first.user, first.password)
        js = client.jetstream()
        await js.add_stream(name="KEPT", subjects=["kept.>"])
        ack = await js.publish("kept.x", b"still here")
    async with running_broker(tmp_path) as second, connected(second) as client:
        assert (second.url, second.user, second.password) == before
        message = await client.jetstream().get_msg("KEPT", ack.seq)
        assert message.data == b"still here"
        assert second.status().moved_from_port is None


async def test_a_port_taken_by_someone_else_is_given_up_and_reported(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        old = first.status().port
    squatter = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", old)
    async with squatter, running_broker(tmp_path) as second:
        assert second.status().moved_from_port == old
        assert second.status().port != old
        async with connected(second):
            new = second.status().port
    async with running_broker(tmp_path) as third:
        assert third.status().port == new


async def test_a_killed_server_is_restarted_and_its_clients_reconnect(broker: ManagedBroker) -> None:
    async with connected(broker) as client:
        js = client.jetstream()
        await js.add_stream(name="KEPT", subjects=["kept.>"])
        await js.publish("kept.x", b"before")
        before = broker.status()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        await eventually(lambda: broker.status().restarts == 1, "restarted once")
        after = broker.status()
        assert after.running
        assert after.pid != before.pid
        assert after.port == before.port
        assert after.last_exit == -signal.SIGKILL
        await eventually(lambda: client.is_connected and client.stats["reconnects"] == 1, "reconnected")
        ack = await js.publish("kept.x", b"after", timeout=DEADLINE_S)
        assert ack.seq == 2
        assert (await js.get_msg("KEPT", 1)).data == b"before"


async def test_a_restarted_broker_keeps_its_port_and_its_clients(broker: ManagedBroker) -> None:
    before = broker.status()
    async with connected(broker) as client:
        await broker.restart()
        await eventually(lambda: broker.status().restarts == 1 and broker.status().running, "the restart")
        await eventually(lambda: client.is_connected, "the reconnect")
    after = broker.status()
    assert after.pid != before.pid
    assert after.port == before.port


async def test_a_server_that_cannot_be_restarted_is_tried_again_until_it_can(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    real = f'exec {nats_server_binary.path} "$@"'
    binary = wrapper(tmp_path, real)
    broker = ManagedBroker(tmp_path / "data", binary, "interval")
    await broker.start()
    try:
        pid = broker.status().pid
        assert pid is not None
        wrapper(tmp_path, "echo disk on fire; exit 3")
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: "disk on fire" in broker.status().last_error, "the fault is reported")
        assert not broker.status().running
        wrapper(tmp_path, real)
        await eventually(lambda: broker.status().running, "the broker is back")
        assert broker.status().last_error == ""
        assert await listens(broker.status().port)
    finally:
        await broker.stop()


async def test_stopping_while_it_cannot_be_restarted_ends_cleanly(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    binary = wrapper(tmp_path, f'exec {nats_server_binary.path} "$@"')
    broker = ManagedBroker(tmp_path / "data", binary, "interval")
    await broker.start()
    pid = broker.status().pid
    assert pid is not None
    wrapper(tmp_path, "exit 3")
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: bool(broker.status().last_error), "a restart has failed")
    await broker.stop()
    assert not await listens(broker.status().port)


CRASHING_OWNER = """
import asyncio, os, signal, sys
from pathlib import Path
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.broker import NatsBinary

async def main():
    broker = ManagedBroker(Path(sys.argv[1]), NatsBinary(Path(sys.argv[2]), (2, 10, 0)), "interval")
    await broker.start()
    print(broker.status().pid, broker.status().port, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_the_orphan_of_a_killed_owner_is_ended_and_its_port_taken_over(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASHING_OWNER, str(tmp_path), str(nats_server_binary.path), stdout=subprocess.PIPE
    )
    said, _ = await owner.communicate()
    orphan, port = map(int, said.splitlines()[-1].split())
    assert owner.returncode == -signal.SIGKILL
    assert alive(orphan), "without a living orphan this test proves nothing"
    async with running_broker(tmp_path) as broker:
        assert not alive(orphan)
        assert broker.status().pid != orphan
        assert broker.status().port == port


async def test_a_foreign_process_in_the_pid_file_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    async with running_broker(tmp_path):
        pass
    (tmp_path / "nats" / "nats.pid").write_text(str(stranger.pid))
    async with running_broker(tmp_path) as broker:
        assert broker.status().running
        assert stranger.poll() is None


@pytest.mark.parametrize("nonsense", ["", "no number", "-1", "0", "1", "999999999"])
async def test_nonsense_in_the_pid_file_does_not_stop_the_start(tmp_path: Path, nonsense: str) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "nats.pid").write_text(nonsense)
    async with running_broker(tmp_path) as broker:
        assert broker.status().running


async def test_a_refused_configuration_is_reported_in_the_servers_words(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    misspell = (
        f'sed s/sync_interval/sink_interval/ "$2" > {tmp_path}/bad; exec {nats_server_binary.path} -c {tmp_path}/bad'
    )
    broker = ManagedBroker(tmp_path, wrapper(tmp_path, misspell), "interval")
    with pytest.raises(BrokerError, match="while starting") as caught:
        await broker.start()
    assert "sink_interval" in str(caught.value)
    async with running_broker(tmp_path) as sound:
        assert sound.status().running


async def test_a_server_that_dies_while_starting_is_reported_with_the_end_of_its_log(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        broker = ManagedBroker(tmp_path, nats_server_binary, "interval", monitor_port=port)
        with pytest.raises(BrokerError, match="while starting") as caught:
            await broker.start()
    assert "address already in use" in str(caught.value)
    assert str(port) in str(caught.value)


async def test_a_server_that_never_gets_ready_is_ended_within_the_bound(tmp_path: Path) -> None:
    binary = wrapper(tmp_path, "exec sleep 120")
    broker = ManagedBroker(tmp_path / "data", binary, "interval", ready_timeout_s=0.3)
    before = living_children()
    with pytest.raises(BrokerError, match=r"not ready after 0\.3 s"):
        await broker.start()
    assert living_children() <= before


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    body = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 120"
    broker = ManagedBroker(tmp_path / "data", wrapper(tmp_path, body), "interval")
    starting = asyncio.create_task(broker.start())
    await eventually((tmp_path / "pid").exists, "the server is spawned")
    pid = int((tmp_path / "pid").read_text())
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not alive(pid)
    async with running_broker(tmp_path / "data") as another:
        assert another.status().running


async def test_a_server_that_ignores_term_is_killed(tmp_path: Path) -> None:
    body = "trap '' TERM; while :; do sleep 0.05; done"
    broker = ManagedBroker(
        tmp_path / "data", wrapper(tmp_path, body), "interval", ready_timeout_s=1.0, stop_timeout_s=0.2
    )
    before = living_children()
    with pytest.raises(BrokerError, match="not ready"):
        await broker.start()
    assert living_children() <= before


@pytest.mark.parametrize(("durability", "synced"), [("durable", {"always"}), ("interval", {250_000_000})])
async def test_the_running_server_says_it_syncs_as_the_profile_promises(
    tmp_path: Path, nats_server_binary: NatsBinary, durability: Durability, synced: set[object]
) -> None:
    port = free_port()
    broker = ManagedBroker(tmp_path, nats_server_binary, durability, monitor_port=port)
    await broker.start()
    try:
        page = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/jsz", None, DEADLINE_S)
        told = json.load(page)["config"]
    finally:
        await broker.stop()
    assert {"always" if told.get("sync_always") else told["sync_interval"]} == synced


async def test_a_port_with_a_listener_is_not_free() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    async with server:
        assert not port_is_free(server.sockets[0].getsockname()[1])
    assert port_is_free(free_port())


async def test_the_template_for_a_server_of_ones_own_starts_and_takes_entries(
    tmp_path: Path, nats_server_binary: NatsBinary
) -> None:
    port = free_port()
    environment = {
        "CREW_JOURNAL_NATS_PORT": str(port),
        "CREW_JOURNAL_NATS_STORE": str(tmp_path / "store"),
        "CREW_JOURNAL_NATS_PASSWORD": "made-for-this-test",
    }
    template = PROJECT / "deploy" / "nats.conf.template"
    server = await asyncio.create_subprocess_exec(
        str(nats_server_binary.path),
        "-c",
        str(template),
        "-l",
        str(tmp_path / "log"),
        env=environment,
    )
    try:
        client = Client()
        url = f"nats://127.0.0.1:{port}"
        await client.connect(
            url,
            user="crew-journal",
            password="made-for-this-test",
            reconnect_time_wait=0.05,  # type: ignore[arg-type]  # a float will do
            max_reconnect_attempts=int(DEADLINE_S / 0.05),
        )
        js = client.jetstream()
        await js.add_stream(name="JOURNAL", subjects=["journal.>"])
        assert (await js.publish("journal.w._._.note", b"{}")).seq == 1
        await client.close()
    finally:
        await end_child(server, patience_s=DEADLINE_S)
