"""A node with two models whose vectors show any mixing.

Under either model alone another entry comes first than where query and entries are of different ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from support.events import EPOCH_MS, at, control, entry, vector
from support.recall import ANALYZER, ChosenEmbedder
from support.views import Node, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.operations import RecallAnswer, RecallRequest
from crew_journal.services.recall.recall import RecallService

OWNER = Principal(token_id="t", role=Role.OWNER, workspace_id=None)
X, Y, Z, W = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)
QUERY: Mapping[str, Sequence[float]] = {"red": X, "blue": Y}
ENTRIES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "red": {"of_red": X, "of_blue": Z, "of_a_mixture": Y},
    "blue": {"of_red": W, "of_blue": Y, "of_a_mixture": X},
}
FIRST = {"red": "of_red", "blue": "of_blue"}


class Switching:
    """A node with two models."""

    def __init__(self, made: Node, service: RecallService, embedders: Mapping[str, ChosenEmbedder]) -> None:
        self.store, self.host, self.service, self.embedders = made.store, made.host, service, embedders
        self.seq = 0

    async def fold(self, *messages: OutgoingMessage) -> int:
        raw: list[RawMessage] = [at(self.seq + i, message) for i, message in enumerate(messages, 1)]
        self.seq = raw[-1].seq
        await self.host.fold(raw)
        return self.seq

    async def decide(self, payload: ControlPayload, workspace: str = "_system") -> None:
        await self.fold(control(payload, f"n{self.seq + 1}", workspace=workspace))

    async def activate(self, model: str, workspace: str = "_system") -> None:
        await self.decide(EmbeddingsActivated(model=model, embedder="ollama", dim=4), workspace)

    async def remember(self, entry_id: str, vectors: Mapping[str, Sequence[float]]) -> None:
        seq = await self.fold(entry(entry_id, summary=f"about a colour, {entry_id}", entry_type="peer.escalation"))
        await self.fold(*(vector(entry_id, entry_seq=seq, model=m, values=v) for m, v in vectors.items()))

    async def recall(self, query: str = "which colour", recipe: str = "dense", k: int = 3) -> RecallAnswer:
        return await self.service.recall(OWNER, RecallRequest(query=query, recipe=recipe, k=k, workspace_id="w1"))


@asynccontextmanager
async def switching(path: Path, background: int = 0) -> AsyncIterator[Switching]:
    async with node(path / "views.duckdb", discover_projections()) as made:
        embedders = {model: ChosenEmbedder({}, model=model) for model in QUERY}
        for model, embedder in embedders.items():
            embedder.default = QUERY[model]
        service = RecallService(
            made.store,
            embedders.get,
            analyzer=ANALYZER,
            budget_bytes=256 << 20,
            clock=lambda: datetime.fromtimestamp(EPOCH_MS / 1000 + 60, UTC),
        )
        at_work = Switching(made, service, embedders)
        try:
            await at_work.activate("red")
            for entry_id in FIRST.values():
                await at_work.remember(entry_id, {model: ENTRIES[model][entry_id] for model in QUERY})
            await at_work.remember("of_a_mixture", {model: ENTRIES[model]["of_a_mixture"] for model in QUERY})
            for n in range(background):
                await at_work.remember(f"far_{n}", {"red": W, "blue": Z})
            yield at_work
        finally:
            service.close()


def check(answer: RecallAnswer) -> str:
    """The model of an answer, once it is certain that query and vectors were of it."""
    assert answer.model is not None
    assert answer.degraded is None
    assert answer.hits[0].entry_id == FIRST[answer.model], f"{answer.model} met other vectors"
    return answer.model
