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

    async def write(self, caller: Caller, asked: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a version; raises as ``JournalDocuments.write``."""
        given = WriteDocumentRequest(
            tier=TIER,
            key=asked.name,
            mode="replace",
            content=asked.content or "",
            scope=asked.scope,
            agent_id=asked.agent_id,
            crew_id=asked.crew_id,
        )
        written = await self._documents.write(caller, given)
        return ops.LayeredWriteAnswer(kind="procedure", id=written.id, added=True, seq=written.seq)

    async def read(self, caller: Caller, asked: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """A procedure by its name.

        Raises:
            NotFound: If there is none of that name.
        """
        given = ReadDocumentRequest(
            tier=TIER,
            key=asked.name,
            version=asked.version,
            scope=asked.scope,
            agent_id=asked.agent_id,
            crew_id=asked.crew_id,
        )
        found = await self._documents.read(caller, given)
        if not found.content:
            hint = "list them with `layered query procedure`; scope says whose it is"
            raise NotFound(f"no procedure {asked.name[:64]!r}", hint=hint)
        return ops.LayeredReadAnswer(kind="procedure", procedure=_shown(found), view_seq=found.view_seq)

    async def query(self, caller: Caller, asked: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Procedures whose name contains the text, by owner and name."""
        wanted = DocumentsRequest(tier=TIER, agent_id=asked.agent_id, crew_id=asked.crew_id)
        listed = await self._documents.reading.list(caller, wanted)
        part = (asked.text or "").casefold()
        named = [one for one in listed.documents if one.bytes and part in (one.key or "").casefold()]
        shown = []
        for one in named[: asked.limit]:
            scope, owner = scope_of(one.owner)
            request = ReadDocumentRequest(
                tier=TIER,
                key=one.key,
                scope=scope.value,
                agent_id=owner if scope is Scope.AGENT else None,
                crew_id=owner if scope is Scope.CREW else None,
            )
            shown.append(_shown(await self._documents.read(caller, request)))
        more = len(named) > asked.limit
        return ops.LayeredQueryAnswer(
            kind="procedure", procedures=tuple(shown), truncated=more, view_seq=listed.view_seq
        )


def _shown(found: DocumentAnswer) -> ops.Procedure:
    return ops.Procedure(
        name=found.key or "", owner=found.owner, content=found.content, seq=found.seq, updated_at=found.updated_at
    )
