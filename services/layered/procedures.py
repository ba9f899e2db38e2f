"""Procedures: documents of the tier ``procedures``, by name.

Invariant: whose procedures a token reads and writes is what the tier says; a blocked text reaches no AGENT and no LEAD.
"""

from __future__ import annotations

from typing import Final

from ...schemas.errors import NotFound
from ...schemas.operations import layered as ops
from ...schemas.operations.documents import (
    DocumentAnswer,
    DocumentsRequest,
    ReadDocumentRequest,
    WriteDocumentRequest,
)
from ...schemas.rules.tiers import Scope, scope_of
from ..desk import Caller
from ..memory.documents.use_cases import JournalDocuments
from ..node import Node

TIER: Final = "procedures"


class Procedures:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._documents = node.use(JournalDocuments)

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a version; raises as ``JournalDocuments.write``."""
        given = WriteDocumentRequest(
            tier=TIER,
            key=request.name,
            mode="replace",
            content=request.content or "",
            scope=request.scope,
            agent_id=request.agent_id,
            crew_id=request.crew_id,
        )
        written = await self._documents.write(caller, given)
        return ops.LayeredWriteAnswer(kind="procedure", id=written.id, added=True, seq=written.seq)

    async def read(self, caller: Caller, request: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """A procedure by its name.

        Raises:
            NotFound: If there is none of that name.
        """
        given = ReadDocumentRequest(
            tier=TIER,
            key=request.name,
            version=request.version,
            scope=request.scope,
            agent_id=request.agent_id,
            crew_id=request.crew_id,
        )
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


def _shown(answer: DocumentAnswer) -> ops.Procedure:
    return ops.Procedure(
        name=answer.key or "", owner=answer.owner, content=answer.content, seq=answer.seq, updated_at=answer.updated_at
    )
