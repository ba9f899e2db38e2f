"""Adapters for documents outside of the journal: on disk, in another service, or in a provider of another package.

Invariants: rights, secrets and refusals are treated as in the journal; a call has a time limit and raises only errors
of our own; requests that only the journal can answer are refused.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog
from pydantic import ValidationError

from ...schemas.core.errors import (
    BackendFailed,
    CascadeUnsupported,
    CrewJournalError,
    DocumentError,
    InvalidTier,
    NotAllowed,
    NotByProvider,
    NotFound,
    ScopeMismatch,
    SelectorConflict,
    Unavailable,
    UpstreamTimeout,
    ViewsBehind,
)
from ...schemas.core.ids import is_id, is_workspace
from ...schemas.core.principal import Principal, Role
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentHit,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ...schemas.documents.provider import (
    HEALTH_DEADLINE_S,
    HEALTH_TIMEOUT_MESSAGE,
    RECALL_LIMIT_MAX,
    SNIPPET_CHARS,
    DocumentReader,
    ForgetRequest,
    ForgetResult,
    HealthStatus,
    LabelsRequest,
    LabelsResult,
    MemoryProvider,
    ProviderFactory,
    ProviderScope,
    ReadRequest,
    ReadResult,
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
    SnippetsRequest,
)
from ...schemas.documents.rules import Scope, owner_of, scope_of, sha256_of, tier_of_label
from ...schemas.prompt.assembler import notice_of
from ..desk import Caller
from .addressing import DocumentAddress, address_of, file_scope, rule_of, writable_address_of
from .answers import document_answer, is_nearly_full, warned, with_text, written_answer
from .checks import REFUSALS
from .drafts import DocumentStore, Draft, check_enabled, drafted, enable_writer
from .journal_store import JournalStore

CALL_S: Final = 30.0
"""Seconds for one call; the client of the HTTP store gives up after 10."""
_R = TypeVar("_R")
_log = structlog.get_logger(__name__)


def text_answer(
    address: DocumentAddress, content: str, finding: str | None, sha256: str | None = None, size: int | None = None
) -> DocumentAnswer:
    """A document outside of the journal, with a notice in place of a text that the scanners block.

    ``sha256`` and ``size`` describe the stored text; if None, they are computed from ``content``.
    """
    return document_answer(
        address,
        0,
        content if finding is None else notice_of(address.label, finding),
        finding,
        size=len(content.encode()) if size is None else size,
        sha256=sha256 or sha256_of(content),
    )


async def answered(call: Awaitable[_R]) -> _R:
    """The answer to a call.

    Raises:
        UpstreamTimeout: If the call takes too long.
        BackendFailed: If the call raises an error that is not our own.
        CrewJournalError: Any other error of the store.
    """
    try:
        async with asyncio.timeout(CALL_S):
            return await call
    except TimeoutError:
        raise UpstreamTimeout(
            f"the memory provider did not answer within {CALL_S:.0f} s", hint="see memory_provider in `status`"
        ) from None
    except CrewJournalError:
        raise
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.error("provider.failed", error=type(error).__name__, frames=frames)  # the message may hold memory text
        raise BackendFailed(
            f"the memory provider failed: {type(error).__name__}", hint="the log says where: provider.failed"
        ) from None


class OutsideStore:
    """A store outside of the journal, with the checks that the journal makes itself; ``drafts.DocumentStore``.

    Args:
        store: The store.
        refusal: Builds the refusal of a request that only the journal can answer; takes the workspace and a description
            of the request.
        journal: Checks texts and records refusals, and knows which agents have a memory.
    """

    def __init__(
        self,
        store: DocumentStore,
        refusal: Callable[[str, str], NotByProvider],
        journal: JournalStore,
    ) -> None:
        self._store = store
        self._refusal = refusal
        self._checks = journal.checks
        self._refusals = journal.refusals
        self._enabled = journal.enabled

    async def read(self, caller: Caller, address: DocumentAddress, version: int | None = None) -> DocumentAnswer:
        """The current text only.

        Raises:
            NotByProvider: If the request names a version, or the store cannot read whole documents.
        """
        if version is not None:
            raise self._refusal(address.workspace_id, "a former version")
        return await answered(self._store.read(caller, address))

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document, without credentials.

        Raises:
            NotByProvider: If the request uses a field that only the journal supports.
            CrewJournalError: If the store refuses the request.
        """
        address = draft.address
        for name in ("expected_seq", "data_subject_id", "derived_from"):
            if getattr(draft, name) not in (None, ()):
                raise self._refusal(address.workspace_id, name)
        await check_enabled(self._enabled, caller)
        draft = replace(draft, source="api")  # the stores keep no sources, so that caps do not depend on them
        try:
            draft, warning = await self._checks.scrub(draft)
            await enable_writer(self._enabled, caller)
            answer = await self._stored(caller, draft)
        except REFUSALS as error:
            await self._refusals.record(caller, draft, error)
            raise
        if is_nearly_full(answer):
            try:
                text: str | None = (await answered(self._store.read(caller, address))).content
            except NotByProvider:
                text = None
            answer = with_text(answer, text)
        return warned(answer, warning)

    async def _stored(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        try:
            return await answered(self._store.write(caller, draft))
        except REFUSALS as error:
            error.finding = f"provider/{type(error).__name__}"
            raise

    async def retract(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Forget a document for good, unless the store keeps it."""
        await check_enabled(self._enabled, caller)
        return await answered(self._store.retract(caller, draft))

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search; labels of blocked documents are shown only to operators."""
        await check_enabled(self._enabled, caller)
        found = await answered(self._store.search(caller, request))
        return found if caller.administers else found.model_copy(update={"quarantined": ()})

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text."""
        return await answered(self._store.labels(caller, owner))

    async def trouble(self, caller: Caller) -> str | None:
        """The store's message; the caller sets a time limit."""
        return await self._store.trouble(caller)


class ProvidedStore:
    """A memory provider of another package as a store; ``drafts.DocumentStore``.

    Args:
        factory: Binds the provider to a scope.
        refusal: As in ``OutsideStore``.
    """

    def __init__(self, factory: ProviderFactory, refusal: Callable[[str, str], NotByProvider]) -> None:
        self._factory = factory
        self._refusal = refusal

    async def read(self, caller: Caller, address: DocumentAddress, _version: int | None = None) -> DocumentAnswer:
        """The present text.

        Raises:
            NotByProvider: If the provider cannot read whole documents.
        """
        provider = self._reader(caller, address.owner, "reading a whole document")
        request = ReadRequest(
            workspace_id=address.workspace_id, tier=address.tier, key=address.key, scope=address.scope.value
        )
        found = await provider.read(request)
        return text_answer(address, found.content, found.finding, found.sha256, found.bytes)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Retain."""
        address = draft.address
        request = RetainRequest(
            workspace_id=address.workspace_id,
            tier=address.tier,
            key=address.key,
            content=draft.content,
            mode="append" if draft.appends else "replace",
            write_id=draft.write_id,
            scope=address.scope.value,
            expected_sha256=draft.expected_sha256,
        )
        wrote = await self._of(caller, address.owner).retain(request)
        return written_answer(draft, 0, wrote.bytes, readable=False)

    async def retract(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Forget."""
        address = draft.address
        request = ForgetRequest(workspace_id=address.workspace_id, id=address.label, scope=address.scope.value)
        forgot = await self._of(caller, address.owner).forget(request)
        return written_answer(draft, 0, 0, duplicate=not forgot.removed, readable=False)

    async def search(self, caller: Caller, asked: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Recall."""
        searched = file_scope(caller.principal, asked.scope, asked.agent_id, asked.crew_id)
        scope = ProviderScope(
            workspace_id=caller.workspace_id,
            agent_id=searched.agent_id,
            crew_id=searched.crew_id,
            role=caller.principal.role.value,
        )
        request = SnippetsRequest(
            workspace_id=caller.workspace_id,
            tier=asked.tier,
            query=asked.query,
            limit=min(asked.hits_wanted, RECALL_LIMIT_MAX),
            scope=asked.scope,
        )
        found = await self._factory(scope).recall(request)
        hits = tuple(
            DocumentHit(
                file=hit.source,
                snippet=hit.snippet,
                score=-hit.score,
                source=Scope(hit.scope).value,
                line=hit.line or 1,
                heading="",
            )
            for hit in found.hits
        )
        return DocumentSearchAnswer(results=hits, count=len(hits), quarantined=found.quarantined, view_seq=0)

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of the documents with a text.

        Raises:
            NotByProvider: If the provider cannot read whole documents.
        """
        provider = self._reader(caller, owner, "a prompt block")
        return (
            await provider.labels(LabelsRequest(workspace_id=caller.workspace_id, scope=scope_of(owner)[0].value))
        ).ids

    async def trouble(self, caller: Caller) -> str | None:
        """The message of the provider's health."""
        scope = ProviderScope(workspace_id=caller.workspace_id, role=caller.principal.role.value)
        found = await self._factory(scope).health()
        return None if found.ok else found.message or "the provider does not say what is wrong"

    def _reader(self, caller: Caller, owner: str, what: str) -> DocumentReader:
        provider = self._of(caller, owner)
        if not isinstance(provider, DocumentReader):
            raise self._refusal(caller.workspace_id, what)
        return provider

    def _of(self, caller: Caller, owner: str) -> MemoryProvider:
        """The provider, bound to the owner of a document and, for the rest, to the caller."""
        kind, name = scope_of(owner)
        principal = caller.principal
        scope = ProviderScope(
            workspace_id=caller.workspace_id,
            agent_id=name if kind is Scope.AGENT else principal.agent_id,
            crew_id=name if kind is Scope.CREW else principal.crew_id,
            role=principal.role.value,
        )
        return self._factory(scope)


# A document store as a memory provider: the port of ``schemas.documents.provider``, bound to one scope.


TOKEN_ID: Final = "memory-provider"
"""The actor that the journal records for calls without a token."""
CASCADE: Final = "forget each document of the person by its id; docs/providers.md says what a store can erase"
_SOURCE: Final = "provider"
_Asked = RetainRequest | SnippetsRequest | ForgetRequest | ReadRequest | LabelsRequest


class ProviderBase:
    """Checks the requests to a provider of one scope, and converts them to addresses and drafts.

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
            ScopeMismatch: Names both.
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
            DocumentError: The first invalid part, in this order: scope, tier, key, mode, content.
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
            DocumentError: The first invalid part, in this order: scope, tier, key.
        """
        self.check(request)
        return address_of(self.caller, request, request.tier, request.key, None)

    def to_forget(self, request: ForgetRequest, *, cascade: str = CASCADE) -> DocumentAddress:
        """The document that is forgotten.

        Args:
            request: The request.
            cascade: Hint of the refusal: how a person can be forgotten.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If the data subject is given.
            DocumentError: If the request names another scope, or the id is not a label.
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
        scope: The owner of the documents.
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
            DocumentError: If the request or the resulting text is not valid.
            NotAllowed: If the role may not write there.
            BackendFailed, UpstreamTimeout: If the store fails; repeating the call with the same write id is safe.
        """
        async with _named_errors():
            wrote = await self._store.write(self.caller, self.to_write(request))
        return RetainResult(id=wrote.id, bytes=wrote.bytes)

    async def recall(self, request: SnippetsRequest) -> RecallResult:
        """Search; a score is relative to the best hit's score.

        Raises:
            DocumentError: If the request is not valid.
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
        """Forget a document. A call that is cancelled before the deletion starts forgets nothing.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If the data subject is given.
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
            await asyncio.sleep(0)  # a pending cancellation takes effect before the deletion starts
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
            ScopeMismatch: If the request names another scope, or the provider is not bound to a scope of that kind.
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
    """The caller with which the service itself reads a store: an OWNER of the workspace."""
    return ProviderBase(ProviderScope(workspace_id=workspace_id, role=Role.OWNER.value)).caller


async def health_of(probe: Callable[[], Awaitable[str | None]], clock: Callable[[], datetime]) -> HealthStatus:
    """The health by ``probe``, which returns a problem or None. Ends within the deadline.

    A late probe is cancelled but not awaited, so that it cannot delay the answer.
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
    """Re-raise errors of the port, and convert all other errors."""
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
