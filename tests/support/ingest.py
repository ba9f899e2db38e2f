"""An agent on NATS for tests: plain nats-py with an agent's credentials, and the service it asks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats.aio.client import Client
from support.journal import DEADLINE_S, Rig, journal_rig
from support.nats import nats_agent

from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.intake.ingest import Ingest

SCOUT, PASSWORD = nats_agent("scout-nats", workspace_id="w1", agent_id="scout", crew_id="red")
OTHER, OTHER_PASSWORD = nats_agent("other-nats", workspace_id="w2", agent_id="spy")
PASSWORDS = {SCOUT.name: PASSWORD, OTHER.name: OTHER_PASSWORD}


class AgentClient(Client):
    """A client that remembers what the server complained of."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    async def remember(self, error: Exception) -> None:
        self.complaints.append(str(error).lower())

    async def refused(self, subject: str) -> None:
        """Wait until the server has complained about ``subject``."""
        deadline = time.monotonic() + DEADLINE_S
        while not any("permissions violation" in said and subject.lower() in said for said in self.complaints):
            assert time.monotonic() < deadline, f"{subject} was not refused: {self.complaints}"
            await asyncio.sleep(0.01)

    async def ask(self, subject: str, submitted: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The answer to a request to append."""
        body = submitted if isinstance(submitted, bytes) else json.dumps(submitted).encode()
        answer = await self.request(subject, body, timeout=DEADLINE_S, headers=headers)
        read: dict[str, Any] = json.loads(answer.data)
        return read


@asynccontextmanager
async def agent_client(address: str, user: str, password: str) -> AsyncIterator[AgentClient]:
    """A connection as ``user``; does not come back once it is cut."""
    client = AgentClient()
    await client.connect(
        address,
        user=user,
        password=password,
        allow_reconnect=False,
        connect_timeout=DEADLINE_S,  # type: ignore[arg-type]  # nats-py takes fractions
        error_cb=client.remember,
    )
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def service_of(broker: ManagedBroker, **given: Any) -> AsyncIterator[tuple[Rig, Ingest]]:
    """The journal and its requests over NATS."""
    async with journal_rig(broker, **given) as rig:
        client = await connect(broker.url, broker.user, broker.password, "ingest")
        ingest = Ingest(client, rig.journal)
        await ingest.start()
        try:
            yield rig, ingest
        finally:
            await ingest.stop()
            await client.close()
