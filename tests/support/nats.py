"""A real nats-server for tests: found or installed once per run, never skipped.

``CREW_JOURNAL_NATS_SERVER`` chooses another binary, so the same tests run against an older server.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from nats.aio.client import Client

from crew_journal.schemas.core.errors import BrokerError
from crew_journal.services.access.tokens import bcrypt_hash, mint_token
from crew_journal.services.journal.broker.broker import ManagedBroker, NatsBinary, find_nats_server
from crew_journal.services.journal.broker.config import AgentUser, Durability

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache" / "nats"
INSTALLER = PROJECT / "deploy" / "install-nats"


@cache
def nats_binary() -> NatsBinary:
    """The nats-server of this run; installed into the project's cache if there is none.

    Raises:
        AssertionError: If none can be had; says how to install one.
    """
    chosen = os.environ.get("CREW_JOURNAL_NATS_SERVER")
    if chosen:
        return find_nats_server([], override=Path(chosen))
    try:
        return find_nats_server([CACHE])
    except BrokerError:
        done = subprocess.run([str(INSTALLER), str(CACHE)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"these tests need a nats-server; deploy/install-nats said:\n{done.stderr}")
    return find_nats_server([CACHE, Path(done.stdout.strip()).parent])


@asynccontextmanager
async def running_broker(data_dir: Path, durability: Durability = "interval") -> AsyncIterator[ManagedBroker]:
    """A started broker below ``data_dir``, ended when the block is left."""
    broker = ManagedBroker(data_dir, nats_binary(), durability)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def nats_agent(name: str, *, workspace_id: str, agent_id: str, crew_id: str | None = None) -> tuple[AgentUser, str]:
    """A NATS user for ``ManagedBroker.set_agent_users``, and its password."""
    password = mint_token()
    hashed = bcrypt_hash(password)
    user = AgentUser(name=name, bcrypt=hashed, workspace_id=workspace_id, agent_id=agent_id, crew_id=crew_id)
    return user, password


@asynccontextmanager
async def connected(broker: ManagedBroker) -> AsyncIterator[Client]:
    """A connection as the service; reconnects at once and for ever."""
    client = Client()
    await client.connect(
        broker.url,
        user=broker.user,
        password=broker.password,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.05,  # type: ignore[arg-type]  # a float will do
    )
    try:
        yield client
    finally:
        await client.close()
