"""Layered memory of a node: the use-cases that write it, read it, and assemble contexts of it."""

from __future__ import annotations

from typing import Any, Final

from ...schemas.context import operations as ops
from ...schemas.core.errors import NotFound
from ...schemas.documents.operations import DocumentAnswer, DocumentsRequest, ReadDocumentRequest, WriteDocumentRequest
from ...schemas.documents.rules import Scope, scope_of
from ...schemas.facts.tables import FACTS_PROJECTION
from ..desk import Caller
from ..documents.use_cases import JournalDocuments
from ..node import Answers, Node
from .layered_facts import LayeredFacts
from .memories import Runs, since_of
from .state import LayeredState

# Procedures: documents of the tier ``procedures``, by name.


TIER: Final = "procedures"


class Procedures:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._documents = node.use(JournalDocuments)

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a version; raises as ``JournalDocuments.write``."""
        given = WriteDocumentRequest(key=request.name, mode="replace", content=request.content or "", **_of(request))
        written = await self._documents.write(caller, given)
        return ops.LayeredWriteAnswer(kind="procedure", id=written.id, added=True, seq=written.seq)

    async def read(self, caller: Caller, request: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """A procedure by its name.

        Raises:
            NotFound: If there is none of that name.
        """
        given = ReadDocumentRequest(key=request.name, version=request.version, **_of(request))
        document = await self._documents.read(caller, given)
        if not document.content:
            hint = "list them with `layered query procedure`; scope says whose it is"
            raise NotFound(f"no procedure {request.name[:64]!r}", hint=hint)
        return ops.LayeredReadAnswer(kind="procedure", procedure=_shown(document), view_seq=document.view_seq)

    async def query(self, caller: Caller, query: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Procedures whose name contains the text, by owner and name."""
        wanted = DocumentsRequest(tier=TIER, agent_id=query.agent_id, crew_id=query.crew_id)
        listed = await self._documents.reading.list(caller, wanted)
        part = (query.text or "").casefold()
        named = [
            document for document in listed.documents if document.bytes and part in (document.key or "").casefold()
        ]
        shown = []
        for document in named[: query.limit]:
            scope, owner = scope_of(document.owner)
            request = ReadDocumentRequest(
                tier=TIER,
                key=document.key,
                scope=scope.value,
                agent_id=owner if scope is Scope.AGENT else None,
                crew_id=owner if scope is Scope.CREW else None,
            )
            shown.append(_shown(await self._documents.read(caller, request)))
        more = len(named) > query.limit
        return ops.LayeredQueryAnswer(
            kind="procedure", procedures=tuple(shown), truncated=more, view_seq=listed.view_seq
        )


def _of(request: ops.LayeredWriteRequest | ops.LayeredReadRequest) -> dict[str, Any]:
    """The tier, and whose document it is."""
    return {"tier": TIER, "scope": request.scope, "agent_id": request.agent_id, "crew_id": request.crew_id}


def _shown(answer: DocumentAnswer) -> ops.Procedure:
    return ops.Procedure(
        name=answer.key or "", owner=answer.owner, content=answer.content, seq=answer.seq, updated_at=answer.updated_at
    )


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
