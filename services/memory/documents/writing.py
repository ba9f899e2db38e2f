"""The use-cases that write documents: replace, append, note, restore, retract (contract §14).

Invariant: a request is checked in the order tier, key, role, mode, content; the result is a draft, which ``storing`` checks
and publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from ....schemas.errors import EmptyContent, FieldProblem, InvalidMode, InvalidRequest
from ....schemas.events.documents import DocumentAction
from ....schemas.operations.documents import (
    AppendDailyRequest,
    DocumentWrittenAnswer,
    RestoreDocumentRequest,
    RetractDocumentRequest,
    WriteDocumentRequest,
)
from ....schemas.ports import ViewReader
from ....schemas.settings import MIN_SEQ_WAIT_S
from ...desk import Caller
from ...journal.intake.recorder import ScrubbingRecorder
from .addressing import Address, address_of, check_may_write
from .drafts import Draft, mint_write_id
from .history import History
from .ports import DocumentPublisher, Enabled
from .quarantine import Quarantine
from .storing import Storing

_MODES: Final = {"replace": DocumentAction.REPLACE, "append": DocumentAction.APPEND}
_API: Final = "api"


class Writing:
    """The use-cases.

    Args:
        views: The views of documents.
        writer: Publishes writes.
        journal: Records refusals.
        enabled: Which agents have a memory.
        quarantine: Keeps the text of injections.
        clock: The time now, UTC.
        wait_s: Seconds to wait until a write can be read.
    """

    def __init__(
        self,
        views: ViewReader,
        writer: DocumentPublisher,
        journal: ScrubbingRecorder,
        enabled: Enabled,
        quarantine: Quarantine,
        *,
        clock: Callable[[], datetime],
        wait_s: float = MIN_SEQ_WAIT_S,
    ) -> None:
        self._clock = clock
        self._history = History(views)
        self.storing = Storing(views, writer, journal, enabled, quarantine, self._history, wait_s=wait_s)

    def close(self) -> None:
        """Stop following the views."""
        self.storing.close()

    async def write(self, caller: Caller, asked: WriteDocumentRequest, source: str = _API) -> DocumentWrittenAnswer:
        """Replace a document's text, or append to it.

        Args:
            caller: Who writes.
            asked: What to write.
            source: Where it comes from (``events/documents``), unless the request says so.

        Raises:
            InvalidTier, MissingKey, InvalidMode, EmptyContent: If the request is not valid.
            NotAllowed: If the role may not write there, or the agent's memory is off.
            WriteRefused, Quarantined, CapExceeded: If the content is refused.
            DocumentConflict: If the document is not at ``expected_seq``.
            WriteIdTaken: If the write id belongs to another write.
            BrokerUnavailable: If no ack came within the bound.
        """
        address = self._address(caller, asked, asked.tier, asked.key)
        action = _MODES.get(asked.mode)
        if action is None:
            raise InvalidMode(f"{asked.mode[:32]!r} is not a mode", hint="use replace or append", field="mode")
        for name in ("expected_seq", "expected_sha256"):
            if action is DocumentAction.APPEND and getattr(asked, name) is not None:
                fix = "leave it out: an append never conflicts"
                raise InvalidRequest((FieldProblem(name, "goes with mode=replace", fix),))
        draft = Draft(
            address=address,
            action=action,
            content=_content(asked.content),
            source=asked.source or source,
            write_id=asked.write_id or mint_write_id(),
            given_id=asked.write_id is not None,
            expected_seq=asked.expected_seq,
            expected_sha256=asked.expected_sha256,
            data_subject_id=asked.data_subject_id,
            derived_from=asked.derived_from,
            reason=asked.reason,
        )
        return await self.storing.store(caller, draft)

    async def append_daily(
        self, caller: Caller, asked: AppendDailyRequest, source: str = _API
    ) -> DocumentWrittenAnswer:
        """Append ``- <time> — <entry>`` to today's daily log; raises as ``write``."""
        address = self._address(caller, asked, "daily", None)
        entry = " ".join(_content(asked.entry, "entry").split())
        stamp = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        draft = Draft(
            address=address,
            action=DocumentAction.APPEND,
            content=f"- {stamp} — {entry}\n",
            source=source,
            write_id=asked.write_id or mint_write_id(),
            given_id=asked.write_id is not None,
            said=f" — {entry}\n",
        )
        return await self.storing.store(caller, draft)

    async def restore(self, caller: Caller, asked: RestoreDocumentRequest) -> DocumentWrittenAnswer:
        """Write the text of a version as a new version.

        Raises:
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
            EmptyContent: If the version is empty.
            CrewJournalError: As ``write``.
        """
        address = self._address(caller, asked, asked.tier, asked.key)
        text = await asyncio.to_thread(self._version_text, address, asked.version)
        if not text:
            raise EmptyContent(
                f"version {asked.version} of {address.label} is empty", hint="name one with a text", field="version"
            )
        draft = Draft(
            address=address,
            action=DocumentAction.RESTORE,
            content=text,
            source="restore",
            write_id=mint_write_id(),
            reason=asked.reason,
        )
        return await self.storing.store(caller, draft)

    async def retract(self, caller: Caller, asked: RetractDocumentRequest, source: str = _API) -> DocumentWrittenAnswer:
        """Let a document read as empty; one that is retracted already is left as it is.

        Raises:
            NotFound: If it was never written.
            CrewJournalError: As ``write``.
        """
        address = self._address(caller, asked, asked.tier, asked.key)
        draft = Draft(
            address=address,
            action=DocumentAction.RETRACT,
            content="",
            source=source,
            write_id=mint_write_id(),
            reason=asked.reason,
        )
        return await self.storing.store(caller, draft)

    def _address(
        self,
        caller: Caller,
        asked: WriteDocumentRequest | AppendDailyRequest | RestoreDocumentRequest | RetractDocumentRequest,
        tier: str,
        key: str | None,
    ) -> Address:
        address = address_of(caller, asked, tier, key, self._clock().astimezone(UTC).date())
        check_may_write(caller, address)
        return address

    def _version_text(self, address: Address, seq: int | None) -> str:
        history = self._history
        version = history.last_with_text(address) if seq is None else history.at(address, seq)
        return history.text(address, version)


def _content(text: str, field: str = "content") -> str:
    """The text of a request.

    Raises:
        EmptyContent: If it is blank.
    """
    if not text.strip():
        raise EmptyContent(f"the {field} is empty", hint="to empty a document, retract it", field=field)
    return text
