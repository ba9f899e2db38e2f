"""Checks and publishes a draft, and answers once it can be read.

Invariants: a draft is checked in the order secrets, injection, pinned facts, caps, and published only if it passes all;
success means acked by the broker and readable in the views. Appends run together and expect no version; a write of the
whole text runs alone and expects the version that it was checked against. A write id is bound to one content for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from ....schemas.errors import (
    BrokerUnavailable,
    DocumentConflict,
    NotFound,
    Unavailable,
    ViewsBehind,
    WriteIdTaken,
)
from ....schemas.events.documents import DocumentAction
from ....schemas.operations.documents import DocumentWrittenAnswer
from ....schemas.ports import ViewReader
from ....schemas.rules.documents import finding_in, joint, sha256_of
from ....schemas.rules.tiers import SOFT_CAP_PERCENT
from ....schemas.views import DOCUMENTS_PROJECTION
from ....schemas.views.documents import MemoryConfigRow, VersionRow
from ...desk import Caller
from ...journal.intake.recorder import ScrubbingRecorder
from ...journal.publishing.acks import WrongLastSequence
from .addressing import Address
from .answers import CONSOLIDATE, shown, usage
from .checks import Checks
from .configs import kept_configs
from .drafts import Draft
from .grouped import Grouped
from .history import History
from .ports import DocumentPublisher, Enabled, check_enabled, enable_writer
from .present import Pending, PresentDocuments, WrittenDocument
from .quarantine import Quarantine

ATTEMPTS: Final = 3
"""How often a text is checked and published that names no version, while other nodes write the document."""
WRITES_AT_ONCE: Final = 256
"""Write ids of one query."""


class Storing:
    """Stores drafts.

    Args:
        views: The views of documents.
        writer: Publishes writes.
        journal: Records refusals.
        enabled: Which agents have a memory.
        quarantine: Keeps the text of injections.
        history: Finds the write of an id.
        wait_s: Seconds to wait until a write can be read.
    """

    def __init__(
        self,
        views: ViewReader,
        writer: DocumentPublisher,
        journal: ScrubbingRecorder,
        enabled: Enabled,
        quarantine: Quarantine,
        history: History,
        *,
        wait_s: float,
    ) -> None:
        self._views = views
        self._writer = writer
        self._enabled = enabled
        self._history = history
        self._written = Grouped(history.written, WRITES_AT_ONCE, lambda _: 1)
        self._wait_s = wait_s
        self._checks = Checks(views, journal, quarantine)
        self._present = PresentDocuments(views)
        self._configs = kept_configs(views)
        self._in_hand: dict[tuple[str, str], asyncio.Future[None]] = {}

    def close(self) -> None:
        """Stop following the views."""
        self._present.close()
        self._configs.close()

    async def store(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Check a draft, publish it, and answer once it can be read; raises as ``Writing.write``."""
        await check_enabled(self._enabled, caller)
        address = draft.address
        held = self._holding(address.workspace_id, draft.write_id) if draft.given_id else nullcontext()
        async with held, self._present.writing(address) as document:
            if len(draft.content) > address.rule.cap_of(draft.source):  # it cannot fit, so it is not worth a scan
                await self._cap(caller, draft, document)
            config = await self._configs.of(address.workspace_id)
            content, warning = await self._checks.scrub(caller, address, draft.content, draft.source)
            reason = await self._checks.without_secrets(address, draft.reason)
            draft = replace(draft, content=content, reason=reason, said=draft.said and content[-len(draft.said) :])
            if draft.given_id and (known := await self._known(draft)) is not None:
                return _answer(caller, draft, document, known.seq, duplicate=True)
            if draft.appends:
                async with document.turns.together():
                    answer = await self._append(caller, draft, document, config)
            else:
                async with document.turns.alone():
                    answer = await self._replace(caller, draft, document, config)
        warnings = [one for one in (warning, answer.warning) if one]
        return answer.model_copy(update={"warning": "; ".join(warnings) or None})

    async def _cap(self, caller: Caller, draft: Draft, document: WrittenDocument) -> None:
        added = joint(document.end, draft.content) if draft.appends else draft.content
        size = len(added.encode())
        await self._checks.cap(caller, document, draft.address, size, draft.source, whole=not draft.appends)

    async def _append(
        self, caller: Caller, draft: Draft, document: WrittenDocument, config: MemoryConfigRow
    ) -> DocumentWrittenAnswer:
        finding = await document.scanning((document.end, draft.content))
        await self._checks.quarantine(caller, draft.address, draft.content, finding, draft.source)
        await self._checks.verify(caller, draft.address, draft.content, config, draft.source)
        await self._cap(caller, draft, document)
        pending = document.reserve(draft.content, whole=False)  # nothing else ran since the caps were checked
        return await self._publish(caller, draft, document, pending, None)

    async def _replace(
        self, caller: Caller, draft: Draft, document: WrittenDocument, config: MemoryConfigRow
    ) -> DocumentWrittenAnswer:
        address, expected = draft.address, draft.expected_seq
        if draft.action is not DocumentAction.RETRACT:
            finding = await asyncio.to_thread(finding_in, draft.content)
            await self._checks.quarantine(caller, address, draft.content, finding, draft.source)
            await self._checks.verify(caller, address, draft.content, config, draft.source)
        if expected is not None and expected > document.seq:
            with suppress(ViewsBehind):  # then it is not a version of this document
                await self._views.wait_for(expected, self._wait_s, DOCUMENTS_PROJECTION)
        last_seq = document.seq
        for _ in range(ATTEMPTS):
            if expected is not None and expected != document.seq:
                raise _conflict(address, document)
            if draft.expected_sha256 not in (None, sha256_of(document.content)):
                raise _conflict(address, document, "expected_sha256")
            if draft.action is DocumentAction.RETRACT:
                if document.row is None:
                    raise NotFound(
                        f"{address.label} was never written", hint="nothing is to be retracted", field="tier"
                    )
                if document.row.retracted:
                    last = await asyncio.to_thread(self._history.at, address, document.seq)
                    same = replace(draft, write_id=last.write_id)
                    return _answer(caller, same, document, last.seq, duplicate=True)
            else:
                await self._cap(caller, draft, document)
            pending = document.reserve(draft.content, whole=True)
            try:
                return await self._publish(caller, draft, document, pending, last_seq)
            except WrongLastSequence as error:  # the broker's last message, which the fold may have ignored
                last_seq = document.seq if error.last_seq is None else error.last_seq
                await self._views.wait_for(last_seq, self._wait_s, DOCUMENTS_PROJECTION)
                if (known := await self._known(draft)) is not None:  # stored by this request, but the ack was lost
                    return _answer(caller, draft, document, known.seq)
        raise _conflict(address, document)

    async def _publish(
        self, caller: Caller, draft: Draft, document: WrittenDocument, pending: Pending, last_seq: int | None
    ) -> DocumentWrittenAnswer:
        message = draft.message(caller)
        try:
            await enable_writer(self._enabled, caller)
            published = await (
                self._writer.post(message) if last_seq is None else self._writer.post_expecting(message, last_seq)
            )
            pending.seq = published.seq
        except BaseException as error:
            document.release(pending)
            if isinstance(error, BrokerUnavailable):
                error.hint = f"try again with write_id={draft.write_id}, so that it counts once; {error.hint}"
            raise
        late = await self._until_readable(published.seq)
        if late is not None and not published.duplicate:  # what it holds is still pending, so that caps count it
            answer = _answer(caller, draft, document, published.seq)
            return answer.model_copy(update={"warning": late, "search_index_updated": False})
        document.release(pending)
        if not published.duplicate:
            return _answer(caller, draft, document, published.seq)
        known = await self._known(draft)
        if known is None:
            raise Unavailable(
                f"the broker knows the write id {draft.write_id}, but the views do not",
                hint="send the write with another write_id",
                field="write_id",
            )
        return _answer(caller, draft, document, known.seq, duplicate=draft.given_id)

    async def _until_readable(self, seq: int) -> str | None:
        """Wait until a write can be read; a warning if it cannot in time. It is stored, so that is not an error."""
        try:
            await self._views.wait_for(seq, self._wait_s, DOCUMENTS_PROJECTION)
        except ViewsBehind:
            return f"it is stored at {seq}, but cannot be read yet: do not write it again; read with min_seq={seq}"
        return None

    async def _known(self, draft: Draft) -> VersionRow | None:
        """The stored write with the draft's id.

        Raises:
            WriteIdTaken: If it is another write.
        """
        known = await self._written((draft.address.workspace_id, draft.write_id))
        if known is not None and not draft.is_same_as(known):
            raise WriteIdTaken(
                f"the write id {draft.write_id} belongs to another write, at {known.seq}",
                hint="give each write an id of its own, or leave write_id out",
                field="write_id",
            )
        return known

    @asynccontextmanager
    async def _holding(self, workspace_id: str, write_id: str) -> AsyncIterator[None]:
        """Serve writes of one id one after the other."""
        identity = (workspace_id, write_id)
        while (busy := self._in_hand.get(identity)) is not None:
            await asyncio.shield(busy)
        mine = self._in_hand[identity] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._in_hand[identity]
            mine.set_result(None)


def _answer(
    caller: Caller, draft: Draft, document: WrittenDocument, seq: int, *, duplicate: bool = False
) -> DocumentWrittenAnswer:
    address, row = draft.address, document.row
    size = 0 if row is None else row.bytes
    cap = address.rule.cap_of(draft.source)
    near = size * 100 >= cap * SOFT_CAP_PERCENT
    finding = None if row is None else row.finding
    return DocumentWrittenAnswer(
        id=address.label,
        tier=address.tier,
        key=address.key,
        owner=address.owner,
        write_id=draft.write_id,
        seq=seq,
        bytes_written=0 if duplicate else len(draft.content.encode()),
        bytes=size,
        cap_bytes=cap,
        cap_pct=size * 100 // cap,
        search_index_updated=True,
        duplicate=duplicate,
        usage=usage(size, cap) if near else None,
        current_entries=shown(caller, address.label, document.content, finding) if near else None,
        warning=f"{address.label} is nearly full ({usage(size, cap)}): {CONSOLIDATE}" if near else None,
    )


def _conflict(address: Address, document: WrittenDocument, field: str = "expected_seq") -> DocumentConflict:
    return DocumentConflict(
        f"{address.label} is at version {document.seq}",
        hint=f"read it, then write with expected_seq={document.seq}",
        field=field,
    )
