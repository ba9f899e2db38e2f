"""Recall over real views that a test folds itself, with an embedder whose vectors it chooses."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime

from support.events import EPOCH_MS, at, control
from support.recall import ANALYZER, ChosenEmbedder
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.services.recall.recall import RecallService

OWNER = Principal(token_id="t", role=Role.OWNER, workspace_id=None)
AGENT = Principal(token_id="t", role=Role.AGENT, workspace_id="w1", agent_id="a1", crew_id="c1")
LEAD = Principal(token_id="t", role=Role.LEAD, workspace_id="w1", agent_id="a1", crew_id="c1")
MINI = control(EmbeddingsActivated(model="mini", embedder="minilm", dim=4), "activation")
NOW = datetime.fromtimestamp(EPOCH_MS / 1000 + 60, UTC)


class Fixture:
    """A node with recall on it."""

    def __init__(self, store, host, service, embedder):
        self.store, self.host, self.service, self.embedder = store, host, service, embedder
        self.seq = 0

    async def fold(self, *messages):
        raw = [at(self.seq + i, message) for i, message in enumerate(messages, 1)]
        self.seq = raw[-1].seq
        await self.host.fold(raw)
        return self.seq

    async def recall(self, principal=OWNER, query="parser", **fields):
        if principal is OWNER:
            fields.setdefault("workspace_id", "w1")
        return await self.service.recall(principal, RecallRequest(query=query, **fields))

    async def ids(self, principal=OWNER, query="parser", **fields):
        return [hit.entry_id for hit in (await self.recall(principal, query, **fields)).hits]


@asynccontextmanager
async def recalling(path, budget_bytes=64 << 20, **settings_):
    async with node(path / "views.duckdb", discover_projections()) as made:
        embedder = ChosenEmbedder({}, model="mini")
        embedder.vectors = dict.fromkeys(["parser", "zebra"], (1.0, 0.0, 0.0, 0.0))
        service = RecallService(
            made.store,
            lambda model: embedder if embedder.model_id == model else None,
            analyzer=ANALYZER,
            budget_bytes=budget_bytes,
            clock=lambda: NOW,
            **settings_,
        )
        try:
            yield Fixture(made.store, made.host, service, embedder)
        finally:
            service.close()
