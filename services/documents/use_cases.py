"""The use-cases of memory documents: read, write, append, restore, retract, search (contract §14).

Invariant: a request is checked in the order tier, key, role, mode, content, for every store; the result is an address
or a draft for the workspace's store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final

from ...schemas.core.errors import EmptyContent, FieldProblem, InvalidRequest
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.operations import (
    APPEND_DAILY,
    DOCUMENT_READ,
    DOCUMENT_RESTORE,
    DOCUMENT_RETRACT,
    DOCUMENT_SEARCH,
    DOCUMENT_WRITE,
    AppendDailyRequest,
    DocumentAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
    ReadDocumentRequest,
    RestoreDocumentRequest,
    RetractDocumentRequest,
    WriteDocumentRequest,
)
from ..desk import Caller
from .addressing import Addressed, DocumentAddress, address_of, writable_address_of
from .drafts import Draft, drafted, text_of
from .journal_store import JournalStore
from .ports import DocumentStore, check_enabled

_API: Final = "api"


class Documents:
    """The use-cases.

    Args:
        store_of: The store of a workspace.
        journal: The store in the journal, which has the versions to restore.
        clock: The time now, UTC.
    """

    def __init__(
        self,
        store_of: Callable[[str], DocumentStore],
        journal: JournalStore,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self.reading = journal.reading
        self._store_of = store_of
        self._enabled = journal.enabled
        self._clock = clock

    async def read(self, caller: Caller, request: ReadDocumentRequest) -> DocumentAnswer:
        """The current text, the text of a version, or the text as of a sequence.

        Raises:
            NotAllowed: If the document belongs to another agent or crew, or the agent's memory is off.
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
            NotByProvider: If the store does not support the request.
        """
        if request.version is not None and request.as_of is not None:
            raise InvalidRequest((FieldProblem("as_of", "stands beside version", "give one of the two"),))
        address = address_of(caller, request, request.tier, request.key, self._today())
        await check_enabled(self._enabled, caller)
        return await self._store_of(caller.workspace_id).read(caller, address, request.version, request.as_of)

    async def write(self, caller: Caller, request: WriteDocumentRequest, source: str = _API) -> DocumentWrittenAnswer:
        """Replace a document's text, or append to it.

        Args:
            caller: Who writes.
            request: What to write.
            source: Where it comes from (``schemas/documents/events``), unless the request says so.

        Raises:
            InvalidTier, MissingKey, InvalidMode, EmptyContent: If the request is not valid.
            NotAllowed: If the role may not write there, or the agent's memory is off.
            WriteRefused, Quarantined, CapExceeded: If the content is refused.
            DocumentConflict: If the document is not at ``expected_seq``.
            WriteIdTaken: If the write id belongs to another write.
            BrokerUnavailable: If no ack came within the bound.
            NotByProvider: If the request names what only the journal records.
        """
        draft = drafted(
            self._writable(caller, request, request.tier, request.key),
            request.mode,
            request.content,
            request.source or source,
            request.write_id,
            expected_seq=request.expected_seq,
            expected_sha256=request.expected_sha256,
            data_subject_id=request.data_subject_id,
            derived_from=request.derived_from,
            reason=request.reason,
        )
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def append_daily(self, caller: Caller, request: AppendDailyRequest) -> DocumentWrittenAnswer:
        """Append ``- <time> — <entry>`` to today's daily log; raises as ``write``."""
        address = self._writable(caller, request, "daily", None)
        entry = " ".join(text_of(request.entry, "entry").split())
        stamp = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"- {stamp} — {entry}\n"
        draft = drafted(address, "append", line, _API, request.write_id, compared_end=f" — {entry}\n")
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def restore(self, caller: Caller, request: RestoreDocumentRequest) -> DocumentWrittenAnswer:
        """Write the text of a version as a new version.

        Raises:
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
            EmptyContent: If the version is empty.
            CrewJournalError: As ``write``.
        """
        address = self._writable(caller, request, request.tier, request.key)
        text = await asyncio.to_thread(self._version_text, address, request.version)
        if not text:
            raise EmptyContent(
                f"version {request.version} of {address.label} is empty", hint="name one with a text", field="version"
            )
        draft = Draft(
            address=address, action=DocumentAction.RESTORE, content=text, source="restore", reason=request.reason
        )
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def retract(self, caller: Caller, request: RetractDocumentRequest) -> DocumentWrittenAnswer:
        """Retract a document, which then reads as empty; a second retraction has no effect.

        A store other than the journal deletes the document permanently.

        Raises:
            NotFound: If it was never written.
            CrewJournalError: As ``write``.
        """
        address = self._writable(caller, request, request.tier, request.key)
        gone = Draft(address=address, action=DocumentAction.RETRACT, reason=request.reason)
        return await self._store_of(caller.workspace_id).retract(caller, gone)

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search documents; another store than the journal returns at most 20 hits. Raises as ``DocumentStore.search``."""
        return await self._store_of(caller.workspace_id).search(caller, request)

    def _today(self) -> date:
        return self._clock().astimezone(UTC).date()

    def _writable(self, caller: Caller, address: Addressed, tier: str, key: str | None) -> DocumentAddress:
        return writable_address_of(caller, address, tier, key, self._today())

    def _version_text(self, address: DocumentAddress, seq: int | None) -> str:
        history = self.reading.history
        version = history.last_with_text(address) if seq is None else history.at(address, seq)
        return history.text(address, version)


class JournalDocuments(Documents):
    """The same use-cases over the journal for every workspace: for procedures, bundles, and notes about people.

    Args:
        journal: The store in the journal.
        clock: The time now, UTC.
    """

    def __init__(self, journal: JournalStore, *, clock: Callable[[], datetime]) -> None:
        super().__init__(lambda _: journal, journal, clock=clock)


ANSWERS: Final = (
    (DOCUMENT_READ, Documents.read),
    (DOCUMENT_WRITE, Documents.write),
    (APPEND_DAILY, Documents.append_daily),
    (DOCUMENT_RESTORE, Documents.restore),
    (DOCUMENT_RETRACT, Documents.retract),
    (DOCUMENT_SEARCH, Documents.search),
)
