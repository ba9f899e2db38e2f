"""Several nodes on one journal: in this process, or each in a process that tests stop, kill and wake up."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.processes import COMMAND, Stack
from support.running import running_node

from crew_journal.schemas.cluster.slots import first_two, slot_of
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.data_dir import make_private, subject_key
from crew_journal.services.runtime.node import Runtime

SHARED: Final = ("subject.key", "admin.token")
"""Files that all nodes of a journal share."""
POLL_S: Final = 0.1
START_S: Final = 60.0
"""Seconds for a node in a process of its own to start; it takes 3 s."""


def make_data_dirs(directory: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """A data directory for each node, with the same keys."""
    from crew_journal.services.access.tokens import ensure_owner_token

    folders = {name: directory / name for name in names}
    first = folders[names[0]]
    make_private(first)
    subject_key(first)
    ensure_owner_token(first)
    for folder in list(folders.values())[1:]:
        make_private(folder)
        for shared in SHARED:
            shutil.copy2(first / shared, folder / shared)
    return folders


def owned_by(name: str, names: tuple[str, ...], *, but: tuple[str, ...] = ()) -> str:
    """A workspace for which a node decides."""
    found = (f"w{n}" for n in range(10_000))
    return next(w for w in found if first_two(slot_of(w), names)[0] == name and w not in but)


def client_of(node: Runtime | NodeProcess, **given: Any) -> AsyncCrewJournal:
    """A client of one node with the owner's token."""
    return AsyncCrewJournal(node.http_url, token=node.owner_token, **given)


async def assigned(client: AsyncCrewJournal, names: tuple[str, ...]) -> None:
    """Return when the node that the client asks acts with these nodes."""
    async with asyncio.timeout(START_S):
        while [node.name for node in (await client.cluster()).nodes if node.assigned] != sorted(names):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def running_nodes(directory: Path, names: tuple[str, ...], **given: Any) -> AsyncIterator[dict[str, Runtime]]:
    """Nodes in this process, once each knows all."""
    folders = make_data_dirs(directory, names)
    async with AsyncExitStack() as stack:
        nodes = {
            name: await stack.enter_async_context(running_node(folder, node=name, **given))
            for name, folder in folders.items()
        }
        for node in nodes.values():
            async with client_of(node) as client:
                await assigned(client, names)
        yield nodes


@dataclass
class NodeProcess:
    """A node in a process of its own."""

    process: subprocess.Popen[bytes]
    http_url: str
    owner_token: str

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def end(self) -> None:
        """Kill it, unless it has ended."""
        if self.process.poll() is None:
            self.process.kill()
        await asyncio.to_thread(self.process.wait)


async def start_process(
    folder: Path, name: str, nats: str, user: str | None = None, password: str | None = None, *options: str
) -> NodeProcess:
    """Start ``up --node`` on a data directory."""
    command = [str(COMMAND), "up", "--data-dir", str(folder), "--http", "127.0.0.1:0", *options]
    settings = {"EMBEDDER": "none", "SEAL_S": "0"}
    if user is not None and password is not None:
        settings |= {"NATS_USER": user, "NATS_PASSWORD": password}
    environment = os.environ | {f"CREW_JOURNAL_{key}": value for key, value in settings.items()}
    with (folder.parent / f"{name}.log").open("ab") as log:
        process = Stack.popen(
            [*command, "--nats", nats, "--node", name, "--json"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), START_S)
    facts = json.loads(line)
    return NodeProcess(process, facts["http"], (folder / "admin.token").read_text().strip())
