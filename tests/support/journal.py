"""A journal on a real broker for tests: declared streams, a writer, identities that a test controls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg

from crew_journal.schemas.core.ports import Identity
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import BrokerConnection, connect
from crew_journal.services.journal.broker.streams import declare_streams
from crew_journal.services.journal.intake.append import Journal
from crew_journal.services.journal.publishing import Writer

DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
AGENT = Principal(token_id="t_agent", role=Role.AGENT, workspace_id="acme", crew_id="red", agent_id="scout")
LEAD = Principal(token_id="t_lead", role=Role.LEAD, workspace_id="acme", crew_id="red", agent_id="boss")
ADMIN = Principal(token_id="t_admin", role=Role.ADMIN, workspace_id="acme")
OWNER = Principal(token_id="t_owner", role=Role.OWNER, workspace_id=None)


def note(text: str = "Looked at the logs", **fields: object) -> dict[str, object]:
    """A small valid submission."""
    return {"entry_type": "run.completed", "summary": text, **fields}


@dataclass
class KnownIds:
    """An identity reader that knows what a test tells it."""

    known: dict[tuple[str, str], Identity] = field(default_factory=dict)

    def find(self, workspace_id: str, entry_id: str) -> Identity | None:
        return self.known.get((workspace_id, entry_id))

    def find_all(self, wanted: Sequence[tuple[str, str]]) -> list[Identity | None]:
        return [self.find(*one) for one in wanted]


@dataclass
class Rig:
    """Everything a test of the journal needs."""

    broker: ManagedBroker
    client: BrokerConnection
    writer: Writer
    journal: Journal
    ids: KnownIds

    async def stored(self) -> list[Msg]:
        """Every message of JOURNAL, in order."""
        sub = await self.client.jetstream().subscribe(">", stream=JOURNAL_STREAM, ordered_consumer=True)
        info = await self.client.jetstream().stream_info(JOURNAL_STREAM)
        messages = [await sub.next_msg(timeout=DEADLINE_S) for _ in range(info.state.messages)]
        await sub.unsubscribe()
        return messages

    async def count(self) -> int:
        """Messages in JOURNAL."""
        return int((await self.client.jetstream().stream_info(JOURNAL_STREAM)).state.messages)


@asynccontextmanager
async def journal_rig(
    broker: ManagedBroker, *, atomic: bool | None = None, group_commit: bool = False, **writer_options: Any
) -> AsyncIterator[Rig]:
    """A rig on ``broker``; ``atomic=False`` is the way of servers before 2.12."""
    client = await connect(broker.url, broker.user, broker.password, "test")
    declared = await declare_streams(client, atomic=atomic)
    writer = Writer(client, atomic=declared.atomic, group_commit=group_commit, **writer_options)
    await writer.open()
    ids = KnownIds()
    try:
        yield Rig(broker, client, writer, Journal(writer, ids, clock=lambda: NOW), ids)
    finally:
        await writer.close()
        await client.close()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition`` holds; fails after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.01)
