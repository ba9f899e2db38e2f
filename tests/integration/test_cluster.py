"""The journal on three nats-servers: what was acknowledged survives the loss of the leader and of a disk."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from support.cluster import NAMES, Cluster, running_cluster
from support.journal import eventually
from support.running import running_node

from crew_journal.schemas.core.errors import CrewJournalError
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
        with pytest.raises(CrewJournalError, match="refuses stream JOURNAL"):
            async with running_node(tmp_path / "data", nats=cluster.url, replicas=5):
                pass
