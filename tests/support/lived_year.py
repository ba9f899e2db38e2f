"""A year of a crew on a whole node: notes, corrections, retractions, pins, facts, documents, merged names, erasures.

Every step is drawn by the seed. Twice, the embedding model is switched; twice, an entry is erased.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from support.ollama_server import OllamaServer
from support.stack import DEADLINE_S, POLL_S
from support.two_models import RED, Journal, running

from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.core.timestamps import format_ts
from crew_journal.services.client import AsyncCrewJournal

WORDS = [
    "pump",
    "valve",
    "boiler",
    "ledger",
    "harbour",
    "crane",
    "permit",
    "orchard",
    "kiln",
    "winch",
    "lantern",
    "quarry",
]
MINILM = "minilm"
FULL_NAMES = {RED: RED, MINILM: MODEL_ID}
AGENTS = (("ada", "red"), ("eve", "red"), ("bob", "blue"))


@dataclass
class Year:
    """The crew, and what it has lived through so far.

    Attributes:
        seqs: The head of the views after each step.
        receipts: Of recalls on the way.
        erased: Ids that were erased.
        notes: Entry id → agent, of notes that count.
    """

    journal: Journal
    owner: AsyncCrewJournal
    ada: AsyncCrewJournal
    draw: random.Random
    seqs: list[int] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    facts: list[tuple[str, str, str]] = field(default_factory=list)
    drawers: list[str] = field(default_factory=list)
    steps: int = 0
    model: str = RED

    async def head(self) -> int:
        """The sequence that the views have reached, all that was acknowledged included."""
        added = await self.owner.append({"entry_type": "run.completed", "summary": "now", "workspace_id": "else"})
        return (await self.owner.count(min_seq=added.seq)).view_seq

    def words(self, count: int = 3) -> list[str]:
        return self.draw.sample(WORDS, count)

    async def live(self, steps: int, *, of: int | None = None) -> None:
        """Live through some steps of a year that has ``of``."""
        acts: tuple[tuple[int, Callable[[], Awaitable[object]]], ...] = (
            (8, self.note),
            (2, self.supersede),
            (1, self.correct),
            (1, self.retract),
            (1, self.pin),
            (2, self.write),
            (1, self.retract_document),
            (2, self.state),
            (1, self.end),
            (1, self.merge),
            (2, self.file),
            (1, self.refile),
            (1, self.learn),
            (3, self.ask),
        )
        total = of or steps
        for _ in range(steps):
            self.steps += 1
            if total >= 8 and self.steps % (total // 4) == total // 8:
                await (self.switch() if self.steps % (total // 2) == total // 8 else self.erase())
            else:
                await self.draw.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
            self.seqs.append(await self.head())

    async def note(self, **more: Any) -> str:
        agent, crew = self.draw.choice(AGENTS)
        ts = datetime.now(UTC) - timedelta(days=365) + timedelta(days=self.steps % 365)
        some = self.words()
        added = await self.owner.append(
            {
                "entry_type": "memory.remembered",
                "summary": f"{agent} saw the {some[0]} near the {some[1]} and the {some[2]}, visit {self.steps}",
                "agent_id": agent,
                "crew_id": crew,
                "ts": format_ts(ts),
                **more,
            }
        )
        self.notes[added.id] = str(more.get("agent_id", agent))
        return added.id

    def _one(self) -> str | None:
        return self.draw.choice(sorted(self.notes)) if self.notes else None

    async def supersede(self) -> None:
        if (old := self._one()) is not None:
            agent = self.notes.pop(old)
            await self.note(supersedes=[old], agent_id=agent, crew_id=dict(AGENTS)[agent])

    async def correct(self) -> None:
        if (old := self._one()) is not None:
            del self.notes[old]
            await self.owner.correct(old, f"The {self.words()[0]} was never there, visit {self.steps}")

    async def retract(self) -> None:
        if (old := self._one()) is not None:
            del self.notes[old]
            await self.owner.retract(old, "it was wrong")

    async def pin(self) -> None:
        if (old := self._one()) is not None:
            await self.owner.set_priority(old, self.draw.choice(("pin", "high", "normal")), "it matters")

    async def write(self) -> None:
        line = f"- The {self.words()[0]} is checked on day {self.steps}\n"
        mode = self.draw.choice(("append", "append", "replace"))
        if self.draw.random() < 0.5:
            await self.owner.document_write("AGENT", mode, line, agent_id="ada")
        else:
            await self.owner.document_write("CREW", mode, line, crew_id="red")

    async def retract_document(self) -> None:
        await self.owner.document_write("topics", "replace", f"The {self.words()[0]}\n", key="yard", crew_id="red")
        await self.owner.document_retract("topics", key="yard", crew_id="red", reason="it was wrong")

    async def state(self) -> None:
        subject, object_, _ = self.words()
        await self.owner.kg_add(subject, "stands_near", object_, confidence=self.draw.choice((0.5, 1.0)))
        self.facts.append((subject, "stands_near", object_))

    async def end(self) -> None:
        if self.facts:
            fact = self.facts.pop(self.draw.randrange(len(self.facts)))
            await self.owner.kg_invalidate(*fact, ended="2026-01-05", reason="it was moved")
            self.facts = [other for other in self.facts if other != fact]

    async def merge(self) -> None:
        await self.owner.kg_entity(self.words()[0], aliases=[f"number {self.steps}"])

    async def file(self) -> None:
        word = self.words()[0]
        made = await self.owner.add_drawer("yard", word, f"The papers of the {word} as of day {self.steps}")
        self.drawers.append(made.drawer_id)

    async def refile(self) -> None:
        if self.drawers:
            await self.owner.delete_drawer(self.drawers.pop(self.draw.randrange(len(self.drawers))))

    async def learn(self) -> None:
        await self.owner.add_lesson(f"Look at the {self.words()[0]} first, case {self.steps}", crew_id="red")

    async def ask(self) -> None:
        who = self.draw.choice((self.owner, self.ada))
        found = await who.recall(f"where is the {' and the '.join(self.words(2))}?", k=8, min_seq=await self.head())
        assert found.receipt is not None
        self.receipts.append(found.receipt)

    async def switch(self) -> None:
        self.model = MINILM if self.model == RED else RED
        await self.activate(self.model)

    async def activate(self, model: str) -> None:
        """Activate a model; returns once recalls use it."""
        await self.owner.activate_model(model, force=True, reason="to compare")
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self.owner.recall("which model?", recipe="dense")
                if found.model == FULL_NAMES[model]:
                    return
                await asyncio.sleep(POLL_S)

    async def erase(self) -> None:
        if (old := self._one()) is not None:
            del self.notes[old]
            await self.erase_id(old)

    async def erase_id(self, entry_id: str) -> None:
        self.erased.add(entry_id)
        begun = await self.owner.forget("asked", ids=[entry_id])
        assert begun.erasure_id is not None
        erasure = await self.owner.erasure(begun.erasure_id)
        while erasure.state != "completed":
            erasure = await self.owner.erasure(begun.erasure_id)


@asynccontextmanager
async def lived_year(data_dir: Path, steps: int, seed: int = 32) -> AsyncIterator[Year]:
    """A node with a year behind it."""
    with OllamaServer(models=(RED,), dim=32) as server:
        async with running(data_dir, server) as journal:
            owner = AsyncCrewJournal(journal.runtime.http_url, journal.runtime.owner_token)
            for agent, crew in AGENTS:
                await owner.register_agent(agent, crew_id=crew, memory_enabled=True)
            made = await owner.create_token(role="AGENT", workspace_id="default", agent_id="ada", crew_id="red")
            async with owner, AsyncCrewJournal(journal.runtime.http_url, made.token) as ada:
                year = Year(journal, owner, ada, random.Random(seed))
                await owner.add_model(MINILM)
                await year.live(steps)
                yield year
