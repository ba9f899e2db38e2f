"""The operations on memory documents, answered by the provider of the caller's workspace.

Invariant: a workspace whose provider is the journal is answered by the journal's use-cases, unchanged. Of another provider,
rights, secrets and caps are judged as ever; what only the journal can answer is refused, never answered from the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

from pydantic import BaseModel

from ....schemas.errors import CapExceeded, NotByProvider, Quarantined, WriteRefused
from ....schemas.operations.document_search import DocumentHit, DocumentSearchAnswer, DocumentSearchRequest
from ....schemas.operations.documents import (
    AppendDailyRequest,
    DocumentAnswer,
    DocumentWrittenAnswer,
    ReadDocumentRequest,
    RetractDocumentRequest,
    WriteDocumentRequest,
)
from ....schemas.operations.operation import Request
from ....schemas.ports import ViewReader
from ....schemas.provider import (
    RECALL_LIMIT_MAX,
    DocumentReader,
    ForgetRequest,
    MemoryProvider,
    ProviderScope,
    ReadRequest,
    ReadResult,
    RecallRequest,
    RetainRequest,
)
from ....schemas.rules.assembler import notice_of
from ....schemas.rules.documents import sha256_of
from ....schemas.rules.tiers import SOFT_CAP_PERCENT, Scope, scope_of
from ...desk import Caller, Handler
from ...journal.intake.recorder import ScrubbingRecorder
from ...query.chunks.documents import DocumentSearch
from ...query.chunks.scope import file_scope
from ..documents.addressing import Address, Addressed, address_of, check_may_write
from ..documents.answers import CONSOLIDATE, empty_answer, finding_of, usage
from ..documents.checks import Checks
from ..documents.configs import kept_configs
from ..documents.drafts import mint_write_id
from ..documents.ports import Enabled, check_enabled, enable_writer
from ..documents.quarantine import Quarantine
from ..documents.use_cases import Documents
from .calls import answered
from .choosing import Providers

_SOURCE: Final = "api"
_Q = TypeVar("_Q", bound=Request)
_A = TypeVar("_A", bound=BaseModel)


class ProvidedDocuments:
    """The use-cases.

    Args:
        documents: Those over the journal.
        search: Searches the journal's documents.
        providers: Which provider serves which workspace.
        views: Settings of workspaces; followed until ``close``.
        journal: Records refusals.
        enabled: Which agents have a memory.
        quarantine: Keeps the text of injections.
        clock: The time, UTC.
    """

    def __init__(
        self,
        documents: Documents,
        search: DocumentSearch,
        providers: Providers,
        views: ViewReader,
        journal: ScrubbingRecorder,
        enabled: Enabled,
        quarantine: Quarantine,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._documents = documents
        self._search = search
        self._providers = providers
        self._enabled = enabled
        self._clock = clock
        self._checks = Checks(views, journal, quarantine)
        self._configs = kept_configs(views)
        self.close = self._configs.close

    def by_journal(
        self, what: str, handler: Handler[_Q, _A], only_if: Callable[[_Q], bool] = lambda _: True
    ) -> Handler[_Q, _A]:
        """The handler of an operation that only the journal can answer, or only ``only_if`` a request asks for more.

        Args:
            what: Names it in the refusal.
            handler: Answers it for the journal.
            only_if: Whether a request needs the journal.

        Raises:
            NotByProvider: By the handler, if the workspace has another provider.
        """

        async def handle(caller: Caller, asked: _Q) -> _A:
            if only_if(asked) and not self._providers.is_journal(caller.workspace_id):
                raise self._not_by_provider(caller, what)
            return await handler(caller, asked)

        return handle

    async def read(self, caller: Caller, asked: ReadDocumentRequest) -> DocumentAnswer:
        """Read a document; of another provider than the journal the present text alone.

        Raises:
            NotByProvider: If the provider cannot.
            CrewJournalError: What journal or provider refuse.
        """
        if self._providers.is_journal(caller.workspace_id):
            return await self._documents.reading.read(caller, asked)
        if asked.version is not None or asked.as_of is not None:
            raise self._not_by_provider(caller, "a former version")
        address = self._address(caller, asked, asked.tier, asked.key)
        await check_enabled(self._enabled, caller)
        found = await self._read(caller, asked, address)
        content, size = _shown(address, found), len(found.content.encode()) if found.bytes is None else found.bytes
        cap = address.rule.cap_bytes
        return empty_answer(address, 0).model_copy(
            update={
                "content": content,
                "bytes": size,
                "usage": None if cap is None else usage(size, cap),
                "sha256": found.sha256 or sha256_of(found.content),
                "quarantined": finding_of(found.finding),
            }
        )

    async def write(self, caller: Caller, asked: WriteDocumentRequest) -> DocumentWrittenAnswer:
        """Write a document.

        Raises:
            NotByProvider: If the request says what only the journal records.
            CrewJournalError: What journal or provider refuse.
        """
        if self._providers.is_journal(caller.workspace_id):
            return await self._documents.writing.write(caller, asked)
        for name in ("expected_seq", "data_subject_id", "derived_from"):
            if getattr(asked, name) not in (None, ()):
                raise self._not_by_provider(caller, name)
        address = self._address(caller, asked, asked.tier, asked.key)
        return await self._write(
            caller, asked, address, asked.mode, asked.content, asked.write_id, asked.expected_sha256
        )

    async def append_daily(self, caller: Caller, asked: AppendDailyRequest) -> DocumentWrittenAnswer:
        """Append a line with the time to today's log; raises as ``write``."""
        if self._providers.is_journal(caller.workspace_id):
            return await self._documents.writing.append_daily(caller, asked)
        address = self._address(caller, asked, "daily", None)
        stamp = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entry = " ".join(asked.entry.split())
        content = f"- {stamp} — {entry}\n" if entry else ""
        return await self._write(caller, asked, address, "append", content, asked.write_id)

    async def retract(self, caller: Caller, asked: RetractDocumentRequest) -> DocumentWrittenAnswer:
        """Retract a document; another provider than the journal forgets it for good. Raises as ``write``."""
        if self._providers.is_journal(caller.workspace_id):
            return await self._documents.writing.retract(caller, asked)
        address = self._address(caller, asked, asked.tier, asked.key)
        check_may_write(caller, address)
        await check_enabled(self._enabled, caller)
        provider, scope = self._of(caller, asked, address)
        request = ForgetRequest(workspace_id=scope.workspace_id, id=address.label, scope=address.scope.value)
        forgot = await answered(provider.forget(request))
        return _written(address, mint_write_id(), 0, 0).model_copy(update={"duplicate": not forgot.removed})

    async def search(self, caller: Caller, asked: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search documents; another provider than the journal returns at most 20 hits.

        Raises:
            CrewJournalError: What search or provider refuse.
        """
        if self._providers.is_journal(caller.workspace_id):
            return await self._search.search(caller, asked)
        searched = file_scope(caller.principal, asked.scope, asked.agent_id, asked.crew_id)
        await check_enabled(self._enabled, caller)
        scope = ProviderScope(
            workspace_id=caller.workspace_id,
            agent_id=searched.agent_id,
            crew_id=searched.crew_id,
            role=caller.principal.role.value,
        )
        request = RecallRequest(
            workspace_id=caller.workspace_id,
            tier=asked.tier,
            query=asked.query,
            limit=min(asked.hits_wanted, RECALL_LIMIT_MAX),
            scope=asked.scope,
        )
        found = await answered(self._providers.of(scope).recall(request))
        hits = [
            DocumentHit(
                file=hit.source,
                snippet=hit.snippet,
                score=-hit.score,
                source=Scope(hit.scope).value,
                line=hit.line or 1,
                heading="",
            )
            for hit in found.hits
        ]
        quarantined = found.quarantined if caller.administers else ()
        return DocumentSearchAnswer(results=tuple(hits), count=len(hits), quarantined=quarantined, view_seq=0)

    async def _write(
        self,
        caller: Caller,
        asked: Addressed,
        address: Address,
        mode: str,
        content: str,
        write_id: str | None,
        expected_sha256: str | None = None,
    ) -> DocumentWrittenAnswer:
        check_may_write(caller, address)
        await check_enabled(self._enabled, caller)
        content, warning = await self._checks.scrub(caller, address, content, _SOURCE)
        provider, scope = self._of(caller, asked, address)
        request = RetainRequest(
            workspace_id=scope.workspace_id,
            tier=address.tier,
            key=address.key,
            content=content,
            mode=mode,
            write_id=write_id or mint_write_id(),
            scope=address.scope.value,
            expected_sha256=expected_sha256,
        )
        await enable_writer(self._enabled, caller)
        try:
            wrote = await answered(provider.retain(request))
        except (CapExceeded, Quarantined, WriteRefused) as error:
            await self._checks.refused_by_provider(caller, address, content, error, _SOURCE)
            raise
        answer = _written(address, request.write_id or "", len(content.encode()), wrote.bytes)
        if answer.cap_pct < SOFT_CAP_PERCENT:
            return answer.model_copy(update={"warning": warning})
        full = usage(wrote.bytes, answer.cap_bytes)
        present: str | None = None
        with suppress(NotByProvider):
            present = _shown(address, await self._read(caller, asked, address))
        full_warning = f"{address.label} is nearly full ({full}): {CONSOLIDATE}"
        warnings = "; ".join(one for one in (warning, full_warning) if one)
        return answer.model_copy(update={"usage": full, "current_entries": present, "warning": warnings})

    async def _read(self, caller: Caller, asked: Addressed, address: Address) -> ReadResult:
        provider, scope = self._of(caller, asked, address)
        if not isinstance(provider, DocumentReader):
            raise self._not_by_provider(caller, "reading a whole document")
        request = ReadRequest(
            workspace_id=scope.workspace_id, tier=address.tier, key=address.key, scope=address.scope.value
        )
        return await answered(provider.read(request))

    def _address(self, caller: Caller, asked: Addressed, tier: str, key: str | None) -> Address:
        return address_of(caller, asked, tier, key, self._clock().astimezone(UTC).date())

    def _of(self, caller: Caller, asked: Addressed, address: Address) -> tuple[MemoryProvider, ProviderScope]:
        """The provider that is bound to the owner of the document, and the scope for it."""
        kind, name = scope_of(address.owner)
        principal = caller.principal
        scope = ProviderScope(
            workspace_id=caller.workspace_id,
            agent_id=name if kind is Scope.AGENT else asked.agent_id or principal.agent_id,
            crew_id=name if kind is Scope.CREW else asked.crew_id or principal.crew_id,
            role=principal.role.value,
        )
        return self._providers.of(scope), scope

    def _not_by_provider(self, caller: Caller, what: str) -> NotByProvider:
        return self._providers.refusal(caller.workspace_id, what)


def _shown(address: Address, found: ReadResult) -> str:
    """The text of a document; a notice if it is blocked, because a provider gives no blocked text."""
    return found.content if found.finding is None else notice_of(address.label, found.finding)


def _written(address: Address, write_id: str, added: int, size: int) -> DocumentWrittenAnswer:
    cap = address.rule.cap_bytes or 0
    return DocumentWrittenAnswer(
        id=address.label,
        tier=address.tier,
        key=address.key,
        owner=address.owner,
        write_id=write_id,
        seq=0,
        bytes_written=added,
        bytes=size,
        cap_bytes=cap,
        cap_pct=size * 100 // cap if cap else 0,
        search_index_updated=False,
    )
