"""The document store in the journal: every write is an event, and a document is the fold of its writes.

Invariants: a write is checked in the order secrets, injection, pinned facts, caps, and published only if it passes all;
success means that the write is acked by the broker and readable in the views. Appends run concurrently and expect no
version; a write of the whole text runs alone and expects the version against which it was checked. A write id belongs
to one content for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from ...schemas.core.errors import BrokerUnavailable, DocumentConflict, NotFound, Unavailable, ViewsBehind
from ...schemas.core.ports import Published, ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.documents.tables import DOCUMENTS, DOCUMENTS_PROJECTION, DocumentRow
from ...schemas.settings import MIN_SEQ_WAIT_S
from ..desk import Caller, Handler
from ..journal.intake.append import ScrubbingRecorder
from ..journal.publishing import WrongLastSequence
from .addressing import DocumentAddress
from .answers import StoredWrite, stored_answer, warned
from .checks import REFUSALS, Checks, Grouped, PresentDocuments, Quarantine, Refusals, WrittenDocument
from .drafts import DocumentPublisher, Draft, Enabled, check_enabled, enable_writer
from .reading import DocumentReading

ATTEMPTS: Final = 3
"""Number of attempts to check and publish a text without an expected version while other nodes write the document."""
WRITES_AT_ONCE: Final = 256
"""Maximum number of write ids in one query."""
_PROBE: Final = f"SELECT count(*) FROM {DOCUMENTS} WHERE key = 0"


class JournalStore:
    """The store; ``drafts.DocumentStore``.

    Args:
        views: The views of documents.
        writer: Publishes writes.
        journal: Finds credentials, and records refused writes.
        enabled: Knows which agents have a memory.
        data_dir: Directory in which the texts of injections are kept.
        clock: The time now, UTC.
        wait_s: Seconds to wait until a write can be read.
    """

    def __init__(
        self,
        views: ViewReader,
        writer: DocumentPublisher,
        journal: ScrubbingRecorder,
        enabled: Enabled,
        data_dir: Path,
        *,
        clock: Callable[[], datetime],
        wait_s: float = MIN_SEQ_WAIT_S,
    ) -> None:
        self._views = views
        self._writer = writer
        self._journal = journal
        self._wait_s = wait_s
        self.enabled = enabled
        self.checks = Checks(views, journal)
        self.refusals = Refusals(journal, Quarantine(data_dir, clock))
        self.reading = DocumentReading(views, enabled, clock=clock)
        self._written = Grouped(self.reading.history.written, WRITES_AT_ONCE, lambda _: 1)
        self._present = PresentDocuments(views)
        self._in_hand: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._search: Handler[DocumentSearchRequest, DocumentSearchAnswer] | None = None
        self._trouble: Callable[[], str | None] = lambda: None

    def serve(
        self, search: Handler[DocumentSearchRequest, DocumentSearchAnswer], trouble: Callable[[], str | None]
    ) -> None:
        """Enable ``search`` and ``trouble``; the search index starts later than the writers of documents.

        Args:
            search: Searches the documents of the journal.
            trouble: Returns why the broker cannot accept a write; None if it can.
        """
        self._search, self._trouble = search, trouble

    def close(self) -> None:
        """Stop following the views."""
        self._present.close()
        self.checks.close()

    async def present(self, address: DocumentAddress) -> DocumentRow | None:
        """The current document, blocked or not; None if it was never written."""
        return await asyncio.to_thread(self.reading.history.present, address)

    async def read(self, caller: Caller, address: DocumentAddress, version: int | None = None) -> DocumentAnswer:
        """The current text, or the text of a version.

        Raises:
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
        """
        return await self.reading.read(caller, address, version)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Check a draft, publish it, and return once it can be read; raises as ``Documents.write``."""
        await check_enabled(self.enabled, caller)
        if draft.given_id:
            self._journal.refuse_erased(caller.workspace_id, draft.write_id, "write_id")
        held = self._holding(draft.identity) if draft.given_id else nullcontext()
        async with held, self._present.writing(draft.address) as document:
            try:
                if len(draft.content) > draft.address.rule.cap_of(draft.source):  # too large in any case, so no scan
                    document.check_size(caller, draft)
                draft, warning = await self.checks.scrub(draft)
                known = draft.same(await self._written(draft.identity)) if draft.given_id else None
                if known is not None:
                    stored, warning = StoredWrite(known.seq, duplicate=True), None
                else:
                    async with document.turns.together() if draft.appends else document.turns.alone():
                        draft, stored = await self._publish(caller, draft, document)
            except REFUSALS as error:
                await self.refusals.record(caller, draft, error)
                raise
            return warned(stored_answer(caller, draft, stored, document.row), warning)

    retract = write  # the draft's action is retract; a retraction is another event on the document's subject

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """The best chunks, found by words and by meaning; raises as ``DocumentSearch.search``."""
        if self._search is None:
            raise Unavailable("the search index has not started", hint="try again")
        return await self._search(caller, request)

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text, sorted."""
        return await asyncio.to_thread(self.reading.labels, caller.workspace_id, owner)

    async def trouble(self, _caller: Caller) -> str | None:
        """Why the broker accepts no writes; raises an error if the views do not answer."""
        if (wrong := self._trouble()) is not None:
            return wrong
        await asyncio.to_thread(self._views.rows, _PROBE)
        return None

    async def _publish(self, caller: Caller, draft: Draft, document: WrittenDocument) -> tuple[Draft, StoredWrite]:
        """Check the text and publish it, expecting the version against which it was checked; returns the stored write."""
        expected, retracts = draft.expected_seq, draft.action is DocumentAction.RETRACT
        if not retracts:
            await self.checks.check_text(caller, draft, document)
        if expected is not None and expected > document.seq:
            with suppress(ViewsBehind):  # otherwise it is not a version of this document
                await self._views.wait_for(expected, self._wait_s, DOCUMENTS_PROJECTION)
        last_seq = document.seq
        for attempt in range(ATTEMPTS + 1):
            document.check_version(draft, gives_up=attempt == ATTEMPTS)
            if retracts and document.row is None:
                hint = "nothing is to be retracted"
                raise NotFound(f"{draft.address.label} was never written", hint=hint, field="tier")
            if retracts and document.row is not None and document.row.retracted:
                last = await asyncio.to_thread(self.reading.history.at, draft.address, document.seq)
                return replace(draft, write_id=last.write_id), StoredWrite(last.seq, duplicate=True)
            if document.row is not None and not (draft.appends or retracts):
                whole = draft.action is DocumentAction.RESTORE or document.row.retracted
                since = 0 if whole else document.row.base_seq
                carried = self.reading.history.carried
                causes = await asyncio.to_thread(carried, draft.address, draft.content, draft.derived_from, since)
                draft = replace(draft, derived_from=causes)
            published: Published | None = None
            with document.counting(caller, draft) as pending:
                try:
                    await enable_writer(self.enabled, caller)
                    if draft.appends:
                        published = await self._writer.post(draft.message(caller))
                    else:
                        published = await self._writer.post_expecting(draft.message(caller), last_seq)
                except (
                    WrongLastSequence
                ) as error:  # sequence of the subject's last message, which the fold may have ignored
                    last_seq = document.seq if error.last_seq is None else error.last_seq
                except BrokerUnavailable as error:
                    error.hint = f"try again with write_id={draft.write_id}, so that it counts once; {error.hint}"
                    raise
                if published is not None:
                    pending.seq, pending.late = published.seq, True  # size limits include it until it can be read
                    readable = await self._is_readable(published.seq)
                    pending.late = not readable and not published.duplicate
            if published is not None and not published.duplicate:
                return draft, StoredWrite(published.seq, readable=readable)
            if published is None:
                await self._views.wait_for(last_seq, self._wait_s, DOCUMENTS_PROJECTION)
            known = draft.same(await self._written(draft.identity))
            if known is not None:  # already stored, possibly by this request if only the ack was lost
                return draft, StoredWrite(known.seq, duplicate=published is not None and draft.given_id)
            if published is not None:
                raise Unavailable(
                    f"the broker knows the write id {draft.write_id}, but the views do not",
                    hint="send the write with another write_id",
                    field="write_id",
                )
        raise AssertionError  # the last iteration of the loop gives up

    async def _is_readable(self, seq: int) -> bool:
        """Whether a stored write can be read in time; if not, that is not an error."""
        with suppress(ViewsBehind):
            await self._views.wait_for(seq, self._wait_s, DOCUMENTS_PROJECTION)
            return True
        return False

    @asynccontextmanager
    async def _holding(self, identity: tuple[str, str]) -> AsyncIterator[None]:
        """Serialise writes with the same id."""
        while (busy := self._in_hand.get(identity)) is not None:
            await asyncio.shield(busy)
        mine = self._in_hand[identity] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._in_hand[identity]
            mine.set_result(None)


# Moves the text of a document to another document, and creates an agent's first documents.
#
# Invariant: a moved copy names the writes from which its text was made and the data subject, so that an erasure also
# finds the copy; writes that arrive during the move are moved, too.


_ATTEMPTS: Final = 3
"""Maximum number of attempts to move a text that is written at the same time."""


async def move(store: JournalStore, caller: Caller, source: DocumentAddress, target: DocumentAddress) -> int:
    """Write the text of ``source`` to ``target`` and retract ``source``; returns the sequence of the last write.

    Raises:
        DocumentConflict: If ``target`` was written meanwhile, or ``source`` at every attempt.
        CrewJournalError: As ``JournalStore.write``.
    """
    there = await store.present(target)
    seq = there.seq if there else 0
    for attempt in range(1, _ATTEMPTS + 1):
        row = await store.present(source)
        if row is None or row.retracted:
            return seq
        causes, person = await asyncio.to_thread(store.reading.history.causes, source, row.base_seq, row.seq)
        copy = Draft(
            address=target,
            content=row.content,
            expected_seq=seq,
            data_subject_id=person,
            derived_from=causes,
            reason=f"renamed from {source.label}",
        )
        seq = (await store.write(caller, copy)).seq
        reason = f"renamed to {target.label}"
        gone = Draft(address=source, action=DocumentAction.RETRACT, expected_seq=row.seq, reason=reason)
        try:
            return (await store.retract(caller, gone)).seq
        except DocumentConflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


# The first documents of an agent whose memory is turned on: AGENT.md, and CREW.md of its crew, empty.


SOURCE: Final = "registration"


class Provision:
    """Creates an agent's first documents.

    Args:
        views: Used to wait until the documents can be read.
        writer: Publishes them.
    """

    def __init__(self, views: ViewReader, writer: DocumentPublisher) -> None:
        self._views = views
        self._writer = writer

    async def provide(self, caller: Caller, agent_id: str, crew_id: str | None) -> None:
        """Write the documents that were never written; returns once they can be read.

        Raises:
            BrokerUnavailable: If no ack came in time; repeating the call is safe.
        """
        wanted = [("AGENT", Scope.AGENT, agent_id)]
        if crew_id is not None:
            wanted.append(("CREW", Scope.CREW, crew_id))
        for tier, scope, name in wanted:
            draft = Draft(
                address=DocumentAddress(caller.workspace_id, scope, owner_of(scope, name), tier, None),
                source=SOURCE,
            )
            with contextlib.suppress(
                WrongLastSequence, ViewsBehind
            ):  # the document exists, or it is stored and can be read later
                published = await self._writer.post_expecting(draft.message(caller), 0)
                await self._views.wait_for(published.seq, MIN_SEQ_WAIT_S, DOCUMENTS_PROJECTION)
