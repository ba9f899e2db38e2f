"""Exports everything that bears a person's data or was derived from it, whole or not at all (contract §19).

The scope is the one that an erasure of the person would have, and what such an erasure keeps.

Invariant: the request is recorded before anything is read; after that, either everything was read, or the answer is an
error and the record says so.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import structlog

from ...schemas.core.envelope import EntryRecorded, Event
from ...schemas.core.errors import CrewJournalError, FoldError, JournalDamaged, Unavailable
from ...schemas.core.ids import uuid7_hex
from ...schemas.core.timestamps import format_ms, format_ts
from ...schemas.decode import decode
from ...schemas.erasure.events import PersonExported
from ...schemas.erasure.lineage import names_of
from ...schemas.erasure.operations import (
    EXPORT_PERSON,
    ExportedMessage,
    ExportPersonRequest,
    GivenMemory,
    PersonExport,
)
from ...schemas.operators.operations import OperatorRequest
from ...schemas.operators.tables import OPERATORS_PROJECTION
from ...schemas.recall.events import MemorySearched
from ..desk import Caller
from ..node import Answers, Node
from ..operate.letters import workspace_of
from ..operators.use_cases import Operators
from .persons import DataSubject
from .use_cases import RECORDS, ErasableMessage, Erasures, ErasureScope, family_of, kind_of

NOT_INCLUDED: Final = (
    "texts that mention the person without naming the person as data subject, author or source",
    "prompts and answers that were given to agents, and what the providers of models keep of them",
    "records of exports and erasures, which name the person by a keyed hash alone",
    "backups, mirrors, bundles and copies outside this node",
)
"""What an export cannot hold."""
_log = structlog.get_logger(__name__)


class PersonExports:
    """The use-case.

    Args:
        node: What use-cases share.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._erasures = node.use(Erasures)

    async def export(self, caller: Caller, request: ExportPersonRequest) -> PersonExport:
        """All messages of the person, the present model and cards, and who was given what.

        Raises:
            JournalDamaged: If the journal has lost messages: they could be the person's.
            Unavailable: If something could not be read, or the journal names people by another key.
            BrokerUnavailable: If the request could not be recorded; then nothing was read.
        """
        person = await self._erasures.person(caller.workspace_id, request.subject)
        export_id = f"e_{uuid7_hex()}"
        asked = PersonExported(
            export_id=export_id, subject_hash=person.person_hash, reason=request.reason, state="requested"
        )
        await self._node.decide(caller, asked, "an export of a person's data was requested")
        try:
            exported = await self._read(caller, request, person, export_id)
        except Exception as error:
            why = error.message if isinstance(error, CrewJournalError) else type(error).__name__
            _log.exception("export_failed", export_id=export_id)
            failed = asked.model_copy(update={"state": "failed", "error": why[:500]})
            await self._node.decide(caller, failed, "an export of a person's data failed")
            if isinstance(error, CrewJournalError):
                raise
            raise Unavailable(f"the export failed as a whole: {why}", hint="the log of the node says where") from error
        completed = asked.model_copy(update={"state": "completed", "counts": exported.counts})
        summary = f"{len(exported.messages):,} messages of a person were exported"
        await self._node.decide(caller, completed, summary)
        return exported

    async def _read(
        self, caller: Caller, request: ExportPersonRequest, person: DataSubject, export_id: str
    ) -> PersonExport:
        if (loss := self._erasures.stream.loss()) is not None:
            raise JournalDamaged(f"the export would not be whole: {loss}", hint=JournalDamaged.HINT)
        scope = await self._erasures.scope_of(caller.workspace_id, person)
        reading = _Reading(caller.workspace_id, person, scope)
        async for messages in self._erasures.stream.read(1, scope.read_to):
            for message in messages:
                reading.take(message)
            await asyncio.sleep(0)
        if missing := len(scope.sequences) - len(scope.sequences & reading.sequences):
            raise Unavailable(
                f"{missing:,} messages of the person were deleted while they were read", hint="export again"
            )
        await self._node.views.wait_for(scope.read_to, self._node.wait_s, OPERATORS_PROJECTION)
        shown = await self._node.use(Operators).show(caller, OperatorRequest(user=request.subject))
        unreadable = reading.unreadable
        note = (f"{unreadable:,} messages that cannot be decoded, of whomever",) if unreadable else ()
        return PersonExport(
            export_id=export_id,
            workspace_id=caller.workspace_id,
            subject=request.subject,
            exported_at=format_ts(self._node.clock()),
            until_seq=scope.read_to,
            counts=dict(sorted(Counter(message.family for message in reading.messages).items())),
            consent=shown.consent,
            model=shown.model,
            cards=shown.cards,
            messages=tuple(reading.messages),
            given=tuple(reading.given),
            not_included=(*note, *NOT_INCLUDED),
        )


class _Reading:
    """Collects the messages of a scope, and the receipts that name them."""

    def __init__(self, workspace_id: str, person: DataSubject, scope: ErasureScope) -> None:
        self._workspace_id = workspace_id
        self._person = person
        self._scope = scope
        self.sequences: set[int] = set()
        self.messages: list[ExportedMessage] = []
        self.given: list[GivenMemory] = []
        self.unreadable = 0

    def take(self, message: ErasableMessage) -> None:
        """Take in a message if it belongs to the person."""
        is_derived = message.seq in self._scope.sequences
        try:
            event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
        except FoldError:
            if is_derived:
                self._add(message, None, bears=False)
            elif workspace_of(message.subject) == self._workspace_id:
                self.unreadable += 1
            return
        if event.workspace_id != self._workspace_id:
            return
        if isinstance(event, EntryRecorded) and event.entry.entry_type in RECORDS:
            return
        bears = self._person.is_concerned(event)
        if is_derived or bears:
            self._add(message, event, bears=bears)
        if isinstance(event, EntryRecorded) and event.control:
            self._take_receipt(event)

    def _add(self, message: ErasableMessage, event: Event | None, *, bears: bool) -> None:
        self.sequences.add(message.seq)
        family, what = ("unreadable", "unreadable") if event is None else (family_of(event), kind_of(event))
        names = () if event is None else names_of(event)
        content = {"body": _base64(message.data)} if event is None else _content(event)
        self.messages.append(
            ExportedMessage(
                seq=message.seq,
                id=names[0] if names else None,
                family=family,
                what=what,
                at=format_ms(message.published_ms),
                bears=bears,
                content=content,
            )
        )

    def _take_receipt(self, event: EntryRecorded) -> None:
        entry = event.entry
        if entry.entry_type != MemorySearched.ENTRY_TYPE:
            return
        searched = MemorySearched.model_validate(entry.payload)
        hits = (*searched.hit_ids, *(text.entry_id for text in searched.texts if text.entry_id is not None))
        if ids := tuple(entry_id for entry_id in hits if entry_id in self._scope.ids):
            self.given.append(
                GivenMemory(
                    seq=event.seq,
                    receipt=entry.id,
                    at=format_ts(entry.ts),
                    agent_id=entry.agent_id,
                    crew_id=entry.crew_id,
                    trace_id=entry.trace_id,
                    ids=ids,
                )
            )


def _content(event: Event) -> Mapping[str, Any]:
    if isinstance(event, EntryRecorded):
        return event.entry.to_record()
    return {
        name: _base64(value) if isinstance(value, bytes) else value
        for name, value in dataclasses.asdict(event).items()
        if value not in (None, ())
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


ANSWERS: Final[Answers] = ((EXPORT_PERSON, PersonExports.export),)
