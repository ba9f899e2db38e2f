"""A new workspace with two crews and a client for each role, for tests of memory documents over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from support.stack import DEADLINE_S, Stack

from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.intake.append import Journal

_NUMBERS = count(1)


@dataclass
class World:
    """One workspace with two crews, and a client for each role."""

    stack: Stack
    workspace: str
    owner: AsyncCrewJournal
    lead: AsyncCrewJournal
    agent: AsyncCrewJournal
    other_agent: AsyncCrewJournal
    far_lead: AsyncCrewJournal
    loner: AsyncCrewJournal
    agent_token: str

    async def record(self, payload: ControlPayload) -> None:
        journal = self.stack.services.journal
        assert isinstance(journal, Journal)
        recorded = await journal.record(self.workspace, payload, summary="decided")
        await self.stack.store.wait_for(recorded.seq, DEADLINE_S)

    async def rejections(self, entry_type: str = "memory.write_rejected") -> list[dict[str, Any]]:
        head = await stream_head(self.stack.client_of_broker)
        listed = await self.owner.list(types=[entry_type], min_seq=head)
        return [dict(entry.payload) for entry in reversed(listed.entries)]


@asynccontextmanager
async def document_world(stack: Stack) -> AsyncIterator[World]:
    workspace = f"acme{next(_NUMBERS)}"

    async def client(role: Role, agent: str | None = None, crew: str | None = None) -> AsyncCrewJournal:
        return stack.client((await stack.token(role, workspace, agent=agent, crew=crew)).plaintext)

    ada = (await stack.token(Role.AGENT, workspace, agent="ada", crew="core")).plaintext
    bound = {
        "owner": await client(Role.OWNER),
        "lead": await client(Role.LEAD, "lena", "core"),
        "agent": stack.client(ada),
        "other_agent": await client(Role.AGENT, "bruno", "core"),
        "far_lead": await client(Role.LEAD, "cleo", "edge"),
        "loner": await client(Role.AGENT, "core"),
    }
    try:
        yield World(stack, workspace, **bound, agent_token=ada)
    finally:
        for value in bound.values():
            await value.close()
