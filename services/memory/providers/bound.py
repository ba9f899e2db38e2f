"""A document store as a memory provider: the port of ``schemas.provider``, bound to one scope.

Invariants: a request that names another scope does nothing; every other check of an address is that of ``addressing``.
What leaves is an error that the port names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from ....schemas.errors import (
    BackendFailed,
    CascadeUnsupported,
    CrewJournalError,
    DocumentError,
    InvalidTier,
    NotAllowed,
    NotFound,
    ScopeMismatch,
    SelectorConflict,
    Unavailable,
    UpstreamTimeout,
    ViewsBehind,
)
from ....schemas.events.documents import DocumentAction
from ....schemas.ids import is_id, is_workspace
from ....schemas.operations.document_search import DocumentSearchRequest
from ....schemas.principal import Principal, Role
from ....schemas.provider import (
    HEALTH_DEADLINE_S,
    HEALTH_TIMEOUT_MESSAGE,
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
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
    SnippetsRequest,
)
from ....schemas.rules.tiers import Scope, owner_of, tier_of_label
from ...desk import Caller
from ..documents.addressing import DocumentAddress, address_of, rule_of, writable_address_of
from ..documents.drafts import Draft, drafted
from ..documents.ports import DocumentStore

TOKEN_ID: Final = "memory-provider"
"""Who decides, in the journal, where no token of a caller is at hand."""
CASCADE: Final = "forget each document of the person by its id; docs/providers.md says what a store can erase"
_SOURCE: Final = "provider"
_Asked = RetainRequest | SnippetsRequest | ForgetRequest | ReadRequest | LabelsRequest


class ProviderBase:
    """The requests that a provider of one scope may answer, checked, as addresses and drafts.

    Args:
        scope: The scope.

    Raises:
        ScopeMismatch: If workspace, agent or crew are not ids.
    """

    def __init__(self, scope: ProviderScope) -> None:
        if not is_workspace(scope.workspace_id):
            raise ScopeMismatch("workspace_id is not a workspace", hint="use its id", field="workspace_id")
        for name in ("agent_id", "crew_id"):
            if (given := getattr(scope, name)) is not None and not is_id(given):
                raise ScopeMismatch(f"{name} is not an id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field=name)
        self.scope = scope
        self.caller = Caller.of(
            Principal(
                token_id=TOKEN_ID,
                role=Role(scope.role),
                workspace_id=scope.workspace_id,
                crew_id=scope.crew_id,
                agent_id=scope.agent_id,
            )
        )

    def check(self, query: _Asked) -> None:
        """Refuse a request that names another workspace, agent or crew than the provider is bound to.

        Raises:
            ScopeMismatch: Naming both.
        """
        for what in ("workspace", "agent", "crew"):
            named, own = getattr(query, f"{what}_id"), getattr(self.scope, f"{what}_id")
            if named is not None and named != own:
                raise ScopeMismatch(
                    f"the request names {what} {named[:64]!r}, the provider is bound to {own or 'none'}",
                    hint=f"use a provider of that {what}, or leave {what}_id out",
                    field=f"{what}_id",
                )

    def to_write(self, request: RetainRequest) -> Draft:
        """The write of a request.

        Raises:
            DocumentError: The first thing that is wrong: scope, tier, key, mode, content.
            NotAllowed: If the role may not write there.
        """
        self.check(request)
        address = writable_address_of(self.caller, request, request.tier, request.key, None)
        if request.write_id is not None and not is_id(request.write_id):
            raise DocumentError("write_id is not an id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="write_id")
        return drafted(
            address, request.mode, request.content, _SOURCE, request.write_id, expected_sha256=request.expected_sha256
        )

    def to_read(self, request: ReadRequest) -> DocumentAddress:
        """The document that is read.

        Raises:
            DocumentError: The first thing that is wrong: scope, tier, key.
        """
        self.check(request)
        return address_of(self.caller, request, request.tier, request.key, None)

    def to_forget(self, request: ForgetRequest, *, cascade: str = CASCADE) -> DocumentAddress:
        """The document that is forgotten.

        Args:
            request: The request.
            cascade: What can forget a person, as the hint of the refusal.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If it is the data subject.
            DocumentError: If the scope is another or the id is not a label.
            NotAllowed: If the role may not write there.
        """
        self.check(request)
        if bool(request.id) == bool(request.data_subject_id):
            given = "both are" if request.id else "neither is"
            raise SelectorConflict(
                f"exactly one of id and data_subject_id is needed, {given} given", hint="give one of them", field="id"
            )
        if not request.id:
            raise CascadeUnsupported(
                "cascade not implemented: this provider does not forget a person",
                hint=cascade,
                field="data_subject_id",
            )
        known = tier_of_label(request.id)
        if known is None:
            raise InvalidTier(
                f"id {request.id[:128]!r} is not the label of a document",
                hint="send the id that retain returned, such as AGENT.md or daily/2026-05-21.md",
                field="id",
            )
        return writable_address_of(self.caller, request, *known, None)

    def to_search(self, request: SnippetsRequest) -> DocumentSearchRequest:
        """The search of a request.

        Raises:
            DocumentError: If scope, tier or query are not valid.
        """
        self.check(request)
        if request.tier is not None:
            rule_of(request.tier)
        limit = max(1, min(request.limit, RECALL_LIMIT_MAX))
        given = {"query": request.query, "limit": limit, "scope": request.scope, "tier": request.tier}
        try:
            return DocumentSearchRequest.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise DocumentError(first["msg"], field=str(first["loc"][0])) from None


class StoreProvider(ProviderBase):
    """Memory documents of a store.

    Args:
        store: The store.
        scope: Whose documents.
        clock: The time, UTC.
    """

    def __init__(
        self,
        store: DocumentStore,
        scope: ProviderScope,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(scope)
        self._store = store
        self._clock = clock

    async def retain(self, request: RetainRequest) -> RetainResult:
        """Write a document; returns once it is durable.

        Raises:
            DocumentError: What is wrong with the request, or with the text that the document would have.
            NotAllowed: If the role may not write there.
            BackendFailed, UpstreamTimeout: If the store fails; sending the id of the write again is safe.
        """
        async with _named_errors():
            wrote = await self._store.write(self.caller, self.to_write(request))
        return RetainResult(id=wrote.id, bytes=wrote.bytes)

    async def recall(self, request: SnippetsRequest) -> RecallResult:
        """Search; a score is the share of the best hit's.

        Raises:
            DocumentError: What is wrong with the request.
            NotAllowed: If the agent's memory is off.
            BackendFailed, UpstreamTimeout: If the store fails.
        """
        async with _named_errors():
            found = await self._store.search(self.caller, self.to_search(request))
        best = max((abs(hit.score) for hit in found.results), default=0.0)
        hits = [
            RecallSnippet(
                source=hit.file,
                snippet=hit.snippet[:SNIPPET_CHARS],
                line=hit.line,
                score=abs(hit.score) / best if best else 1.0,
                scope=hit.source,
            )
            for hit in found.results
        ]
        return RecallResult(hits=tuple(hits), quarantined=found.quarantined)

    async def forget(self, request: ForgetRequest) -> ForgetResult:
        """Forget a document. A call that is cancelled before anything begins forgets nothing.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If it is the data subject.
            NotAllowed: If the role may not write there.
            BackendFailed, UpstreamTimeout: If the store fails.
        """
        async with _named_errors():
            draft = Draft(
                address=self.to_forget(request),
                action=DocumentAction.RETRACT,
                source=_SOURCE,
                reason="forgotten through the memory provider",
            )
            await asyncio.sleep(0)  # a cancellation is heard before anything begins
            try:
                gone = await self._store.retract(self.caller, draft)
            except NotFound:
                return ForgetResult(removed=0)
        return ForgetResult(removed=int(not gone.duplicate))

    async def read(self, request: ReadRequest) -> ReadResult:
        """Read a document whole; raises as ``recall``."""
        async with _named_errors():
            found = await self._store.read(self.caller, self.to_read(request))
        bad = found.quarantined
        finding = None if bad is None else f"{bad.category}/{bad.pattern}"
        content = "" if finding else found.content
        return ReadResult(id=found.id, content=content, finding=finding, sha256=found.sha256, bytes=found.bytes)

    async def labels(self, request: LabelsRequest) -> LabelsResult:
        """The documents of a scope that have a text.

        Raises:
            ScopeMismatch: If the request names another scope, or the provider is bound to none of that kind.
        """
        self.check(request)
        owners = {"agent": self.scope.agent_id, "crew": self.scope.crew_id, "workspace": ""}
        if (name := owners.get(request.scope)) is None:
            hint = "use agent, crew or workspace, and a provider that is bound to it"
            raise ScopeMismatch(f"the provider is bound to no {request.scope[:32]!r}", hint=hint, field="scope")
        async with _named_errors():
            return LabelsResult(ids=await self._store.labels(self.caller, owner_of(Scope(request.scope), name)))

    async def health(self) -> HealthStatus:
        """Whether the store works; within ``HEALTH_DEADLINE_S``."""
        return await health_of(lambda: self._store.trouble(self.caller), self._clock)


def owner_of_workspace(workspace_id: str) -> Caller:
    """The caller by whom the service itself reads a store: an OWNER of the workspace."""
    return ProviderBase(ProviderScope(workspace_id=workspace_id, role=Role.OWNER.value)).caller


async def health_of(probe: Callable[[], Awaitable[str | None]], clock: Callable[[], datetime]) -> HealthStatus:
    """The health that ``probe`` finds: it returns what is wrong, None if nothing is. Ends within the deadline.

    The probe is cancelled but not awaited, so that one that does not end cannot hold the answer up.
    """
    task = asyncio.ensure_future(probe())
    task.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # retrieved, so asyncio does not log it
    try:
        done, _ = await asyncio.wait({task}, timeout=HEALTH_DEADLINE_S)
    finally:
        task.cancel()
    if not done:
        message: str | None = HEALTH_TIMEOUT_MESSAGE
    elif task.cancelled() or (error := task.exception()) is not None:
        message = "cancelled" if task.cancelled() else type(error).__name__
    else:
        message = task.result()
    return HealthStatus(ok=message is None, message=message, checked_at=clock())


@asynccontextmanager
async def _named_errors() -> AsyncIterator[None]:
    """Let the errors of the port pass, and name the others."""
    try:
        yield
    except (DocumentError, NotAllowed, NotFound, UpstreamTimeout, BackendFailed):
        raise
    except ViewsBehind as error:
        raise UpstreamTimeout(error.message, hint=error.hint) from None
    except Unavailable as error:
        raise BackendFailed(error.message, hint=error.hint) from error
    except CrewJournalError as error:
        raise DocumentError(error.message, hint=error.hint, field=error.field) from error
