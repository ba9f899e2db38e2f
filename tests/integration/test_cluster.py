"""The journal on three nats-servers: what was acknowledged survives the loss of the leader and of a disk."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from nats.aio.client import Client
from support.cli import Cli
from support.cluster import NAMES, Cluster, running_cluster
from support.journal import eventually
from support.running import running_node

from crew_journal.schemas.core.errors import CrewJournalError
from crew_journal.schemas.core.subjects import CANARY_STREAM, DEADLETTER_STREAM, JOURNAL_STREAM
from crew_journal.services.client import AsyncCrewJournal

WRITERS = 4
PAUSE_S = 1.0
"""Seconds between faults."""


async def write(client: AsyncCrewJournal, name: str, acked: list[str], stop: asyncio.Event) -> None:
    """Append entries one after the other; what fails is sent again under its id."""
    n = 0
    while not stop.is_set():
        entry_id = f"{name}-{n}"
        try:
            await client.append({"id": entry_id, "entry_type": "run.completed", "summary": f"{entry_id} is done"})
        except CrewJournalError:
            await asyncio.sleep(0.2)
            continue
        acked.append(entry_id)
        n += 1


async def faults(cluster: Cluster, acked: list[str]) -> None:
    """Kill the leader, then another server with its disk; each comes back before the next goes."""
    for wipe in (False, True):
        await asyncio.sleep(PAUSE_S)
        leader = await cluster.leader()
        victim = next(name for name in NAMES if name != leader) if wipe else leader
        await cluster.kill(victim, wipe=wipe)
        before = len(acked)
        await eventually(partial(_more, acked, before), "two servers of three take entries")
        await cluster.start(victim)
        await cluster.whole()


def _more(acked: list[str], before: int) -> bool:
    return len(acked) > before


async def test_acknowledged_entries_survive_a_lost_leader_and_a_lost_disk_once_each(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    async with running_cluster(tmp_path / "cluster") as cluster:
        async with (
            running_node(tmp_path / "data", nats=cluster.url, replicas=3) as node,
            AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
        ):
            acked: list[str] = []
            stop = asyncio.Event()
            writers = [asyncio.create_task(write(client, f"w{n}", acked, stop)) for n in range(WRITERS)]
            await faults(cluster, acked)
            stop.set()
            await asyncio.gather(*writers)
            last = await client.append({"entry_type": "run.completed", "summary": "the end"})
            assert (await client.count(types=["run.completed"], min_seq=last.seq)).count == len(acked) + 1
            status = await client.status()
            assert sorted(status["stream"]["copies"].values()) == ["current", "current", "leads"]
        async with (
            running_node(tmp_path / "data", nats=cluster.url) as node,
            AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
        ):
            assert (await client.count(types=["run.completed"], min_seq=last.seq)).count == len(acked) + 1
            copies = (await client.status())["stream"]["copies"]
            assert len(copies) == len(NAMES), "a start without the setting keeps the copies"


async def test_copies_that_one_server_cannot_hold_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    async with running_cluster(tmp_path / "cluster") as cluster:
        with pytest.raises(CrewJournalError, match="refuses stream JOURNAL") as refused:
            async with running_node(tmp_path / "data", nats=cluster.url, replicas=5):
                pass
        assert "--replicas" in refused.value.hint


async def test_a_backup_of_a_cluster_is_restored_into_a_single_node_and_into_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    file = str(tmp_path / "journal.backup")
    async with running_cluster(tmp_path / "cluster") as cluster:
        async with (
            running_node(tmp_path / "data", nats=cluster.url, replicas=3) as node,
            AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
        ):
            kept = await client.append({"entry_type": "run.completed", "summary": "the mill is moved"})
            own = Cli(tmp_path / "data", {"CREW_JOURNAL_URL": node.http_url, "CREW_JOURNAL_TOKEN": node.owner_token})
            await asyncio.to_thread(own, "backup", file)

        broker = Client()
        await broker.connect(cluster.url.split(","))
        for stream in (JOURNAL_STREAM, DEADLETTER_STREAM, CANARY_STREAM):
            await broker.jetstream().delete_stream(stream)
        await broker.close()

        there = {"CREW_JOURNAL_NATS": cluster.url, "CREW_JOURNAL_REPLICAS": "3"}
        for name, env in (("single", {}), ("moved", there)):
            await asyncio.to_thread(Cli(tmp_path / name, env), "restore", file)
            given = {"nats": cluster.url} if env else {}
            async with (
                running_node(tmp_path / name, **given) as node,
                AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
            ):
                entry = await client.get(kept.id)
                assert (entry.summary, entry.seq) == ("the mill is moved", kept.seq)
                assert len((await client.status())["stream"].get("copies", {})) == (len(NAMES) if env else 0)
