"""Layered memory of a node: the use-cases that write it, read it, and assemble contexts of it."""

from __future__ import annotations

from typing import Final

from ...schemas.operations import layered as ops
from ...schemas.views import FACTS_PROJECTION
from ..desk import Caller
from ..node import Answers, Node
from .facts import LayeredFacts
from .procedures import Procedures
from .runs import Runs, since_of
from .state import LayeredState


class LayeredMemory:
    """The use-cases that are for several kinds of memory."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._facts = node.use(LayeredFacts)
        self._procedures = node.use(Procedures)
        self._runs = node.use(Runs)
        self._state = node.use(LayeredState)

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a fact or a procedure."""
        return await (self._facts if request.kind == "fact" else self._procedures).write(caller, request)

    async def read(self, caller: Caller, request: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """Read a fact, a procedure, or the working memory of a run."""
        if request.kind == "procedure":
            return await self._procedures.read(caller, request)
        if request.kind == "working":
            return await self._runs.working(caller, request.name)
        fact = await self._facts.read(caller, request.name)
        return ops.LayeredReadAnswer(kind="fact", fact=fact, view_seq=self._views.view_seq(FACTS_PROJECTION))

    async def query(self, caller: Caller, request: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Query episodes, facts or procedures."""
        if request.kind == "procedure":
            return await self._procedures.query(caller, request)
        if request.kind == "fact":
            return await self._facts.query(caller, request)
        choices = await self._state.choices.of(caller.workspace_id)
        return await self._runs.episodes(
            caller, request, since_of(choices.episodic_ttl_hours, self._state.moments.ms(request.now))
        )


ANSWERS: Final[Answers] = (
    (ops.LAYERED_WRITE, LayeredMemory.write),
    (ops.LAYERED_READ, LayeredMemory.read),
    (ops.LAYERED_QUERY, LayeredMemory.query),
)
