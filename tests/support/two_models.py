"""A whole node with two embedding models of one server, and what tests ask of both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.embedding import until
from support.minilm import minilm_cache
from support.ollama_server import OllamaServer
from support.running import running_node

from crew_journal.schemas.core.subjects import JOURNAL_STREAM, control_subject
from crew_journal.schemas.recall.events import MemorySearched
from crew_journal.schemas.settings import EmbedderKind
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.runtime.node import Runtime

RED, BLUE = "red-embed", "blue-embed"


class Journal:
    """A running node, its client, and what tests ask of both."""

    def __init__(self, runtime: Runtime, client: AsyncCrewJournal) -> None:
        self.runtime, self.client = runtime, client

    async def escalate(self, first: int, count: int) -> None:
        words = ("valve", "pump", "gauge", "pipe", "boiler")
        """Append entries that always get a vector; returns once the views show them."""
        appended = await self.client.append_batch(
            [
                {
                    "id": f"esc-{n}",
                    "entry_type": "peer.escalation",
                    "severity": "warn",
                    "summary": f"number {n}: the {words[n % len(words)]} of room {n} is stuck",
                }
                for n in range(first, first + count)
            ]
        )
        await self.client.count(min_seq=appended[-1].seq)

    async def model(self, name: str) -> Mapping[str, Any]:
        found = (await self.client.embedding_models()).model_dump(mode="json")["models"]
        return next((one for one in found if one["model"] == name), {})

    async def until_model(self, name: str, holds: Callable[[Mapping[str, Any]], bool], what: str) -> Mapping[str, Any]:
        last: list[Mapping[str, Any]] = []

        async def check() -> bool:
            last.append(await self.model(name))
            return holds(last[-1])

        await until(check, f"{name}: {what}")
        return last[-1]

    async def until_vectors(self, name: str, count: int) -> None:
        await self.until_model(name, lambda one: one.get("vectors") == count, f"{count} vectors")

    async def top(self, query: str = "the valve is stuck") -> tuple[str | None, str | None]:
        """The model of the answer and what is wrong with it."""
        answer = await self.client.recall(query, k=3, recipe="robust")
        assert answer.hits
        return answer.model, answer.degraded

    async def log_query(self, query: str, number: int) -> int:
        """A recall as the search log records it."""
        broker = await self.client.broker()
        connection = await connect(broker.url, broker.user, broker.password, "test")
        try:
            body = {
                "id": f"search-{number}",
                "ts": "2026-11-21T09:30:00.000Z",
                "summary": "recalled",
                "payload": {"query": query, "scope": "workspace", "recipe": "robust"},
            }
            subject = control_subject("default", MemorySearched.ENTRY_TYPE)
            return (await connection.jetstream().publish(subject, json.dumps(body).encode())).seq
        finally:
            await connection.close()

    async def durables(self) -> set[str]:
        broker = await self.client.broker()
        connection = await connect(broker.url, broker.user, broker.password, "test")
        try:
            found = await connection.jetstream().consumers_info(JOURNAL_STREAM)
            return {one.name for one in found if one.name.startswith("embed-v")}
        finally:
            await connection.close()

    async def verified(self) -> bool:
        async for record in self.client.verify():
            if "result" in record:
                return bool(record["result"]["equal"])
        return False


@asynccontextmanager
async def running(
    data_dir: Path, server: OllamaServer, embedder: EmbedderKind = "ollama", **settings: Any
) -> AsyncIterator[Journal]:
    given = {"ollama_host": server.url, "ollama_model": RED, "cache_dir": minilm_cache().parent, **settings}
    node = running_node(data_dir, embedder=embedder, **given)
    async with node as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client:
        yield Journal(runtime, client)
