"""Documents outside of the journal: what the service adds to a store on disk, behind another service, or of another package.

Invariants: rights, secrets and refusals are treated as in the journal; a call is bounded in time and fails with named errors
alone; what only the journal can answer is refused, never answered from the journal.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from ....schemas.errors import BackendFailed, CrewJournalError, NotByProvider, UpstreamTimeout
from ....schemas.operations.document_search import DocumentHit, DocumentSearchAnswer, DocumentSearchRequest
from ....schemas.operations.documents import DocumentAnswer, DocumentWrittenAnswer
from ....schemas.provider import (
    RECALL_LIMIT_MAX,
    DocumentReader,
    ForgetRequest,
    LabelsRequest,
    MemoryProvider,
    ProviderFactory,
    ProviderScope,
    ReadRequest,
    RetainRequest,
    SnippetsRequest,
)
from ....schemas.rules.assembler import notice_of
from ....schemas.rules.documents import sha256_of
from ....schemas.rules.tiers import Scope, scope_of
from ...desk import Caller
from ...query.chunks.scope import file_scope
from ..documents.addressing import DocumentAddress
from ..documents.answers import (
    document_answer,
    is_nearly_full,
    warned,
    with_text,
    written_answer,
)
from ..documents.drafts import Draft
from ..documents.journal_store import JournalStore
from ..documents.ports import DocumentStore, check_enabled, enable_writer
from ..documents.quarantine import REFUSALS

CALL_S: Final = 30.0
"""Seconds for one call; the client of the HTTP store gives up after 10."""
_R = TypeVar("_R")
_log = structlog.get_logger(__name__)


def text_answer(
    address: DocumentAddress, content: str, finding: str | None, sha256: str | None = None, size: int | None = None
) -> DocumentAnswer:
    """A document outside of the journal, with a notice in place of a text that the scanners block.

    ``sha256`` and ``size`` are those of its text; those of ``content`` if None.
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
        UpstreamTimeout: If it takes too long.
        BackendFailed: If it fails with an error that is not named.
        CrewJournalError: As the store.
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
    """A store outside of the journal, with the checks that the journal makes itself; ``ports.DocumentStore``.

    Args:
        store: The store.
        refusal: The refusal of what only the journal can do; takes the workspace and what it is.
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

    async def read(
        self, caller: Caller, address: DocumentAddress, version: int | None = None, as_of: int | None = None
    ) -> DocumentAnswer:
        """The present text alone.

        Raises:
            NotByProvider: If another one is asked for, or the store reads no whole documents.
        """
        if version is not None or as_of is not None:
            raise self._refusal(address.workspace_id, "a former version")
        return await answered(self._store.read(caller, address))

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document, without credentials.

        Raises:
            NotByProvider: If the request names what only the journal records.
            CrewJournalError: What the store refuses.
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
        """Search; labels of blocked documents are for operators."""
        await check_enabled(self._enabled, caller)
        found = await answered(self._store.search(caller, request))
        return found if caller.administers else found.model_copy(update={"quarantined": ()})

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text."""
        return await answered(self._store.labels(caller, owner))

    async def trouble(self, caller: Caller) -> str | None:
        """What the store says; its caller bounds it in time."""
        return await self._store.trouble(caller)


class ProvidedStore:
    """A memory provider of another package as a store; ``ports.DocumentStore``.

    Args:
        factory: Binds the provider to a scope.
        refusal: As for ``OutsideStore``.
    """

    def __init__(self, factory: ProviderFactory, refusal: Callable[[str, str], NotByProvider]) -> None:
        self._factory = factory
        self._refusal = refusal

    async def read(
        self, caller: Caller, address: DocumentAddress, _version: int | None = None, _as_of: int | None = None
    ) -> DocumentAnswer:
        """The present text.

        Raises:
            NotByProvider: If the provider reads no whole documents.
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
            NotByProvider: If the provider reads no whole documents.
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
