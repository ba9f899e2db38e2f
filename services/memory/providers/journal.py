"""The provider over the journal: documents are folds of their writes, and forgetting is a retraction that can be undone.

Invariant: what it writes can be read and is in its search when ``retain`` returns; nothing is done but through the use-cases
that HTTP and the command line use, as a caller with the role of the scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from ....schemas.errors import (
    BackendFailed,
    CrewJournalError,
    DocumentError,
    NotAllowed,
    NotFound,
    Unavailable,
    UpstreamTimeout,
    ViewsBehind,
)
from ....schemas.operations.documents import (
    DocumentsRequest,
    ReadDocumentRequest,
    RetractDocumentRequest,
    WriteDocumentRequest,
)
from ....schemas.ports import ViewReader
from ....schemas.principal import Principal, Role
from ....schemas.provider import (
    RECALL_LIMIT_MAX,
    SNIPPET_CHARS,
    ForgetRequest,
    ForgetResult,
    HealthStatus,
    LabelsRequest,
    LabelsResult,
    ProviderScope,
    ReadRequest,
    ReadResult,
    RecallRequest,
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
)
from ....schemas.rules.tiers import owner_of, scope_of
from ....schemas.views import DOCUMENTS
from ...desk import Caller
from ...query.chunks.documents import DocumentSearch
from ...query.chunks.scope import SearchedOwners
from ..documents.use_cases import Documents
from .checks import (
    Place,
    health_of,
    owner_to_list,
    owners_to_search,
    place_to_forget,
    place_to_read,
    place_to_write,
)

CASCADE: Final = (
    "`crew-journal forget` will erase a person from the whole journal and from what was made of it; this version does not "
    "have it yet, so forget each document by its id"
)
TOKEN_ID: Final = "memory-provider"
"""Who decides, in the journal, where no token of a caller is at hand."""
_SOURCE: Final = "provider"
_ELLIPSIS: Final = 3
"""Characters that the search adds to a snippet that it cut."""
_PROBE: Final = f"SELECT count(*) FROM {DOCUMENTS} WHERE key = 0"


class JournalProvider:
    """Memory documents in the journal.

    Args:
        documents: Reads and writes documents.
        search: Searches them.
        views: The views of documents.
        trouble: Why the broker cannot take a write; None if it can.
        scope: Whose documents.
        clock: The time, UTC.
    """

    def __init__(
        self,
        documents: Documents,
        search: DocumentSearch,
        views: ViewReader,
        trouble: Callable[[], str | None],
        scope: ProviderScope,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._documents = documents
        self._search = search
        self._views = views
        self._trouble = trouble
        self._scope = scope
        self._clock = clock

    async def retain(self, asked: RetainRequest) -> RetainResult:
        """Write a document; returns once the broker has it and it can be read.

        Raises:
            DocumentError: What is wrong with the request, or with the text that the document would have.
            NotAllowed: If the role may not write there.
            BackendFailed: If the broker or the views fail.
        """
        place = place_to_write(self._scope, asked)
        request = WriteDocumentRequest(
            **self._named(place), mode=asked.mode, content=asked.content, write_id=asked.write_id
        )
        async with _named_errors():
            wrote = await self._documents.writing.write(self._caller(), request, _SOURCE)
        return RetainResult(id=wrote.id, bytes=wrote.bytes)

    async def recall(self, asked: RecallRequest) -> RecallResult:
        """Search by words, and by meaning if the workspace has a model; a score is the share of the best hit's.

        Raises:
            DocumentError: What is wrong with the request.
            NotAllowed: If the agent's memory is off.
            BackendFailed: If the views fail.
        """
        owners = tuple(owner_of(scope, name) for scope, name in owners_to_search(self._scope, asked))
        searched = SearchedOwners(owners, self._scope.agent_id, self._scope.crew_id)
        limit = max(1, min(asked.limit, RECALL_LIMIT_MAX))
        async with _named_errors():
            if await self._search.is_off(self._caller()):
                raise NotAllowed(
                    f"the memory of agent {self._scope.agent_id} is off",
                    hint="an OWNER or ADMIN turns it on: crew-journal agent update",
                )
            found = await self._search.find(
                self._scope.workspace_id,
                searched,
                asked.query,
                limit,
                tier=asked.tier,
                snippet_chars=SNIPPET_CHARS - _ELLIPSIS,
            )
        best = max((hit.score for hit in found.hits), default=0.0)
        hits = [
            RecallSnippet(
                source=hit.owner.document_of(hit.slot).label,
                snippet=snippet,
                line=hit.owner.text_of(hit.slot).first_line,
                score=min(1.0, max(0.0, hit.score / best)) if best > 0 else 0.0,
                scope=scope_of(hit.owner.owner)[0].value,
            )
            for hit, snippet in zip(found.hits, found.snippets, strict=True)
        ]
        return RecallResult(hits=tuple(hits), quarantined=found.quarantined)

    async def forget(self, asked: ForgetRequest) -> ForgetResult:
        """Retract a document; ``memory restore`` undoes it. What was derived from it stays (``cascades`` is false).

        A call that is cancelled before it is published retracts nothing.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If it is the data subject.
            NotAllowed: If the role may not write there.
            BackendFailed: If the broker or the views fail.
        """
        place = place_to_forget(self._scope, asked, cascade=CASCADE)
        await asyncio.sleep(0)  # a cancellation is heard before anything is published
        request = RetractDocumentRequest(**self._named(place), reason="forgotten through the memory provider")
        async with _named_errors():
            try:
                gone = await self._documents.writing.retract(self._caller(), request, _SOURCE)
            except NotFound:
                return ForgetResult(removed=0)
        return ForgetResult(removed=int(not gone.duplicate))

    async def read(self, asked: ReadRequest) -> ReadResult:
        """Read a document; raises as ``recall``."""
        place = place_to_read(self._scope, asked)
        async with _named_errors():
            found = await self._documents.reading.read(self._caller(), ReadDocumentRequest(**self._named(place)))
        bad = found.quarantined
        finding = None if bad is None else f"{bad.category}/{bad.pattern}"
        content = "" if finding else found.content
        return ReadResult(id=found.id, content=content, finding=finding, sha256=found.sha256, bytes=found.bytes)

    async def labels(self, asked: LabelsRequest) -> LabelsResult:
        """Name the documents of a scope; raises as ``recall``."""
        owner = owner_of(*owner_to_list(self._scope, asked))
        request = DocumentsRequest.model_validate({"scope": asked.scope})
        async with _named_errors():
            found = await self._documents.reading.list(self._caller(), request)
        return LabelsResult(ids=tuple(sorted(one.id for one in found.documents if one.owner == owner and one.bytes)))

    async def health(self) -> HealthStatus:
        """Whether the broker takes writes and the views answer."""
        return await health_of(self._probe, self._clock)

    async def _probe(self) -> str | None:
        if (wrong := self._trouble()) is not None:
            return wrong
        await asyncio.to_thread(self._views.rows, _PROBE)
        return None

    def _caller(self) -> Caller:
        scope = self._scope
        return Caller.of(
            Principal(
                token_id=TOKEN_ID,
                role=Role(scope.role),
                workspace_id=scope.workspace_id,
                crew_id=scope.crew_id,
                agent_id=scope.agent_id,
            )
        )

    def _named(self, place: Place) -> dict[str, Any]:
        return {
            "tier": place.tier,
            "key": place.key,
            "scope": place.scope.value,
            "agent_id": self._scope.agent_id,
            "crew_id": self._scope.crew_id,
        }


@asynccontextmanager
async def _named_errors() -> AsyncIterator[None]:
    """Let named errors pass, and name the others."""
    try:
        yield
    except (DocumentError, NotAllowed, NotFound):
        raise
    except ViewsBehind as error:
        raise UpstreamTimeout(error.message, hint=error.hint) from None
    except Unavailable as error:
        raise BackendFailed(error.message, hint=error.hint) from error
    except CrewJournalError as error:
        raise DocumentError(error.message, hint=error.hint, field=error.field) from error
