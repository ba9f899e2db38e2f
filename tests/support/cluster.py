"""Three nats-servers with JetStream as one cluster on loopback, which tests kill, wipe and start again."""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from support.nats import nats_binary

from crew_journal.schemas.core.errors import BrokerError, BrokerUnavailable
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.services.journal.broker.broker import free_port
from crew_journal.services.journal.broker.streams import stream_copies, stream_info

NAMES: Final = ("n1", "n2", "n3")
START_S: Final = 30.0
"""Seconds for a cluster to elect a leader; it takes about 2 s."""
POLL_S: Final = 0.1
_CONFIG: Final = """server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}" }}
cluster {{ name: crew, listen: "127.0.0.1:{route}", no_advertise: true, routes: [{routes}] }}
"""


@dataclass
class Cluster:
    """Servers ``n1`` to ``n3`` below a directory.

    Attributes:
        directory: Where configurations, logs and stores are.
        ports: Server → its port for clients.
        processes: The running servers.
    """

    directory: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in NAMES})
    processes: dict[str, Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        routes = {name: free_port() for name in NAMES}
        for name in NAMES:
            config = _CONFIG.format(
                name=name,
                port=self.ports[name],
                store=self.directory / name,
                route=routes[name],
                routes=", ".join(f'"nats://127.0.0.1:{port}"' for port in routes.values()),
            )
            (self.directory / f"{name}.conf").write_text(config)

    @property
    def url(self) -> str:
        """The addresses of all servers."""
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports.values())

    async def start(self, name: str) -> None:
        """Start a server with the disk that it had."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                nats_binary().path, "-c", str(self.directory / f"{name}.conf"), stdout=log, stderr=log
            )

    async def kill(self, name: str, *, wipe: bool = False) -> None:
        """End a server with SIGKILL; with ``wipe``, its disk is lost, too."""
        process = self.processes.pop(name)
        process.kill()
        await process.wait()
        if wipe:
            await asyncio.to_thread(shutil.rmtree, self.directory / name)

    async def leader(self) -> str:
        """The server that leads JOURNAL, once there is one."""
        async with asyncio.timeout(START_S):
            while True:
                for name, state in (await self.copies()).items():
                    if state == "leads" and name in self.processes:
                        return name
                await asyncio.sleep(POLL_S)

    async def whole(self) -> dict[str, str]:
        """The copies of JOURNAL, once all servers have all of it."""
        async with asyncio.timeout(START_S):
            while True:
                copies = await self.copies()
                if sorted(copies.values()) == ["current"] * (len(NAMES) - 1) + ["leads"]:
                    return copies
                await asyncio.sleep(POLL_S)

    async def copies(self) -> dict[str, str]:
        """``stream_copies`` of JOURNAL; empty while no server answers."""
        client = Client()
        try:
            await client.connect(self.url.split(","), allow_reconnect=False, connect_timeout=1)
            return stream_copies(await stream_info(client, JOURNAL_STREAM) or {})
        except (NatsError, OSError, TimeoutError, BrokerError, BrokerUnavailable):
            return {}
        finally:
            with suppress(NatsError, OSError):
                await client.close()


@asynccontextmanager
async def running_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Three servers that see each other, ended when the block is left."""
    cluster = Cluster(directory)
    try:
        for name in NAMES:
            await cluster.start(name)
        await _elected(cluster)
        yield cluster
    finally:
        for name in list(cluster.processes):
            await cluster.kill(name)


async def _elected(cluster: Cluster) -> None:
    """Wait until JetStream answers, which it does when its servers have elected a leader."""
    async with asyncio.timeout(START_S):
        while True:
            client = Client()
            try:
                await client.connect(cluster.url.split(","), allow_reconnect=False, connect_timeout=1)
                await client.jetstream().account_info()
            except (NatsError, OSError, TimeoutError):
                await asyncio.sleep(POLL_S)
            else:
                return
            finally:
                with suppress(NatsError, OSError):
                    await client.close()
