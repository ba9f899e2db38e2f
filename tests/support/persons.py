"""A node in this process with a client of its owner, for tests of people's data, erasures and retention."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.running import running_node

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.ids import derived_id
from crew_journal.schemas.decode import decode
from crew_journal.schemas.operators.events import OperatorProfileUpdated, StatedFact
from crew_journal.services.erasure.use_cases import Erasures
from crew_journal.services.node import Node
from crew_journal.services.runtime.node import Runtime

DEADLINE_S = 30.0
POLL_S = 0.1


@dataclass
class World:
    """A node, a client with the owner's token, and the part that erases."""

    runtime: Runtime
    http: httpx.AsyncClient
    erasures: Erasures

    @property
    def node(self) -> Node:
        return self.erasures._node

    async def post(self, path: str, status: int | None = None, **fields: Any) -> dict[str, Any]:
        answer = await self.http.post(path, json=fields)
        assert answer.status_code == status if status else answer.is_success, (answer.status_code, answer.text)
        return dict(answer.json())

    async def entry(self, **fields: Any) -> str:
        given = {"workspace_id": "default", "entry_type": "memory.remembered", "agent_id": "a1", "crew_id": "c1"}
        [entry] = (await self.post("/v1/journal", **{**given, **fields}))["entries"]
        return str(entry["id"])

    async def consent(self, person: str, decision: str) -> str:
        return str((await self.post("/v1/operator/consent", user=person, decision=decision))["slug"])

    async def profile(self, person: str, text: str, entry_id: str) -> None:
        """A model as a sweep publishes it."""
        hashed = (await self.erasures.person("default", person)).person_hash
        fact = StatedFact(key="prefers", value=text, quote=f"I prefer {text}", entry_id=entry_id, seq=2**40)
        await self.node.decide(
            None,
            OperatorProfileUpdated(subject_hash=hashed, facts=(fact,)),
            f"model: {text}",
            "operators",
            workspace_id="default",
            entry_id=derived_id("profile", 1, f"{person}/{text}", 0),
        )

    async def stored(self) -> dict[int, tuple[str, bytes]]:
        """Sequence → type and body, of every message of the stream."""
        found = {}
        async for messages in self.erasures.stream.read(1, await self.erasures.stream.last_seq()):
            for message in messages:
                event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
                kind = event.entry.entry_type if isinstance(event, EntryRecorded) else type(event).__name__
                found[message.seq] = kind, message.data
        return found

    async def holding(self, text: str) -> set[int]:
        """Sequences of the messages that hold a text."""
        return {seq for seq, (_, body) in (await self.stored()).items() if text.encode() in body}

    async def audit(self, entry_type: str) -> list[dict[str, Any]]:
        stored = await self.stored()
        return [json.loads(body)["payload"] for kind, body in stored.values() if kind == entry_type]

    async def completed(self, erasure_id: str) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.http.get(f"/v1/admin/erasures/{erasure_id}")
                if answer.is_success and (answer.json()["state"] == "completed" or answer.json()["failed"]):
                    return {**answer.json(), "status": answer.status_code}
                await asyncio.sleep(POLL_S)

    async def erased(self, person: str) -> dict[str, Any]:
        begun = await self.post("/v1/admin/forget", 202, subject=person, reason="asked by the person")
        return await self.completed(begun["erasure_id"])


@asynccontextmanager
async def world_in(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    started: list[Erasures] = []

    async def start(part: Erasures, begin: Any = Erasures.start) -> None:
        started.append(part)
        await begin(part)

    with monkeypatch.context() as patch:
        patch.setattr(Erasures, "start", start)
        async with running_node(data_dir) as runtime:
            headers = {"authorization": f"Bearer {runtime.owner_token}"}
            async with httpx.AsyncClient(base_url=runtime.http_url, headers=headers, timeout=DEADLINE_S) as http:
                yield World(runtime, http, started[0])
