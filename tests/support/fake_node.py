"""Parts, administration and embedding models of a node that record their requests, for ``stack.running_stack``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crew_journal.schemas.core.errors import NotFound, RefusedByOneView
from crew_journal.schemas.models.operations import (
    ActivateModelRequest,
    AddModelRequest,
    DropModelRequest,
    ModelActivated,
    ModelChange,
    ModelsAnswer,
    ModelsRequest,
)
from crew_journal.schemas.operate.operations import (
    DeadLetter,
    DeadLetterAnswer,
    DeadLettersAnswer,
    DeadLettersRequest,
    DiscardRequest,
    RetryRequest,
)
from crew_journal.services.desk import Caller
from crew_journal.services.operate.status import Progress
from crew_journal.services.parts import Parts


@dataclass
class FakeNode:
    """Parts and administration that record their requests in ``asked``."""

    reasons: dict[str, str] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    failing: bool | Exception = False

    async def last_seq(self) -> int:
        """A stream without a message, for erasures."""
        return 0

    async def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[Any]]:
        """See ``last_seq``."""
        for _ in range(first_seq, last_seq + 1):
            yield []

    def loss(self) -> str | None:
        """See ``last_seq``."""
        return None

    async def rebuild(
        self, projections: Sequence[str] | None, accept_loss: bool, _actor: str | None, progress: Progress
    ) -> Mapping[str, Any]:
        self.asked.append(("rebuild", (projections, accept_loss) if accept_loss else projections))
        progress(1, 2)
        if isinstance(self.failing, Exception):
            raise self.failing
        if self.failing:
            raise NotFound("no projection of that name", hint="see status")
        return {"entries": 2}

    async def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"entry": {"id": "e1", "summary": "lost"}}
        yield {"decision": {"id": "d1"}}
        yield {"result": {"entries": 1, "decisions": 1}}

    async def backup(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"result": {"version": "1", "made_at": "2026-11-21T04:00:00+00:00"}}

    async def verify(self, progress: Progress) -> Mapping[str, Any]:
        progress(2, 2)
        return {"same": True}

    async def show(self, caller: Caller, asked: DeadLettersRequest) -> DeadLettersAnswer:
        return DeadLettersAnswer(
            dead_letters=tuple(
                letter
                for letter in self.letters
                if caller.workspace_or_all in (None, letter.workspace_id) and asked.state in (None, letter.state)
            )
        )

    async def _letter(self, caller: Caller, seq: int) -> DeadLetter:
        for letter in (await self.show(caller, DeadLettersRequest())).dead_letters:
            if letter.seq == seq:
                return letter
        raise NotFound(f"no dead letter {seq}")

    async def retry(self, caller: Caller, asked: RetryRequest) -> DeadLetterAnswer:
        letter = await self._letter(caller, asked.seq)
        if letter.projection != "decode" and not asked.force:
            raise RefusedByOneView(f"only {letter.projection} could not fold {asked.seq}", hint="give it a new version")
        return DeadLetterAnswer(seq=letter.seq, state="retried", new_seq=letter.seq + 1)

    async def discard(self, caller: Caller, asked: DiscardRequest) -> DeadLetterAnswer:
        letter = await self._letter(caller, asked.seq)
        self.asked.append(("discard", asked.reason))
        return DeadLetterAnswer(seq=letter.seq, state="discarded")

    def parts(self, ends: contextlib.AsyncExitStack) -> Parts:
        """The parts of a status, none of them running; a part reports trouble if ``reasons`` has its name."""
        parts = Parts(ends)
        sections: dict[str, dict[str, Any]] = {
            "stream": {"head": 7},
            "embedder": {"mode": "sparse-only", "model": None},
        }
        for name in ("stream", "broker", "disk", "embedder", "journal_damage", "ingest"):
            parts.show(name, partial(sections.get, name, {}), partial(self.reasons.get, name))
        return parts


@dataclass
class FakeModels:
    """Administration of embedding models that records its requests in ``asked``."""

    asked: list[tuple[str, Any]]

    async def show(self, caller: Caller, _asked: ModelsRequest) -> ModelsAnswer:
        return ModelsAnswer(workspace_id=caller.workspace_or_all, models=())

    async def add(self, _caller: Caller, asked: AddModelRequest) -> ModelChange:
        self.asked.append(("add", asked.model))
        return ModelChange(model=asked.model, changed=True)

    async def activate(self, caller: Caller, asked: ActivateModelRequest) -> ModelActivated:
        where = caller.workspace_or_all
        self.asked.append(("activate", (where, asked.model, asked.reason, asked.force)))
        return ModelActivated(model=asked.model, changed=True, workspace_id=where)

    async def compare(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        self.asked.append(("compare", (workspace_id, models, queries, k, recipe)))
        return _compared()

    async def drop(self, _caller: Caller, asked: DropModelRequest) -> ModelChange:
        self.asked.append(("drop", (asked.model, asked.reason)))
        return ModelChange(model=asked.model, changed=True)


async def _compared() -> AsyncIterator[Mapping[str, Any]]:
    yield {"result": {"same": True}}
