"""Dead letters: what no projection could fold, kept with the reason until somebody decides.

Invariants: parking is idempotent (the message id and the id of the recording follow from projection and sequence), so a
crash between the two leaves nothing behind that a second run does not mend; every parking, retry and discard is an
entry in the journal, so nothing vanishes. The letter stays in DEADLETTER until it is retried or discarded.

What ``retry`` means: the body is published again as a **new** event at the end of the stream; nothing is folded out of
order. An entry keeps its own id if the views know nobody by it. If they do, the same id would be left out as a repeat or
parked again: whether another entry holds it (a differing duplicate), or this very entry, which other projections have
folded. It then gets a new id, derived from the letter, and ``refs.retried_from`` names the old one. All other families
keep their body and get a new message id. A body that is no valid event is refused, because it would only be parked
again. Where one projection failed on an entry that the others have, fixing that projection (a new version, rebuilt) is
the better way: it folds the original in its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import orjson
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from ...schemas.decode import decode
from ...schemas.entry import ActorType, Severity
from ...schemas.errors import BrokerUnavailable, EntryConflict, FoldError, InvalidQuery, NotFound
from ...schemas.events import headers as h
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from ...schemas.events.payload import ControlPayload
from ...schemas.ids import SYSTEM_WORKSPACE, derived_id, is_workspace, message_id
from ...schemas.ports import IdentityReader
from ...schemas.subjects import DEADLETTER_STREAM, Family, deadletter_subject
from ...schemas.timestamps import from_ms
from ..journal.intake.append import Journal
from ..journal.publishing.writer import Writer

MAX_REASON: Final = 1_000
"""Characters of a reason as it is kept (``EventParked``)."""
LIST_LIMIT: Final = 100
PURPOSE: Final = "deadletter"
"""Names the derived ids of this module."""


class StoredMessage(Protocol):
    """A message of JOURNAL, as ``consumers.feed.messages.RawMessage`` is one."""

    @property
    def seq(self) -> int:
        """Its sequence."""
        ...

    @property
    def subject(self) -> str:
        """Its subject."""
        ...

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Its headers."""
        ...

    @property
    def data(self) -> bytes:
        """Its body."""
        ...

    @property
    def published_ms(self) -> int:
        """The broker's time of it, milliseconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One parked event.

    Attributes:
        letter_seq: Its sequence in DEADLETTER: what ``retry`` and ``discard`` take.
        projection: What could not fold it.
        seq: Its sequence in JOURNAL.
        subject: Its subject there.
        workspace_id: Its workspace, ``_system`` if unknown.
        entry_id: The entry's id, if its header told one.
        reason: Why.
        parked_at: UTC.
        size: Bytes of its body.
    """

    letter_seq: int
    projection: str
    seq: int
    subject: str
    workspace_id: str
    entry_id: str | None
    reason: str
    parked_at: datetime
    size: int


class DeadLetters:
    """Parks events and settles them.

    Args:
        writer: An open writer; its ``publish`` takes DEADLETTER's subjects too.
        journal: Records what happens.
        identities: The ids that the views know.
    """

    def __init__(self, writer: Writer, journal: Journal, identities: IdentityReader) -> None:
        self._writer = writer
        self._journal = journal
        self._identities = identities
        self._client = writer.client
        self._js = writer.client.jetstream()

    async def park(self, projection: str, version: int, message: StoredMessage, reason: str) -> None:
        """Keep a message that ``projection`` cannot fold, and record that.

        Args:
            projection: Its name.
            version: Its version.
            message: The message as it is in JOURNAL.
            reason: Why, without the text of the entry.

        Raises:
            BrokerUnavailable: If it could not be kept; the projection must not go past the message then.
        """
        workspace = workspace_of(message.subject)
        why = reason[:MAX_REASON]
        headers = {
            **_kept_headers(message.headers),
            h.MSG_ID: message_id(workspace, derived_id(PURPOSE, version, f"{projection}/{message.seq}")),
            h.FORMAT: h.FORMAT_VERSION,
            h.DEAD_CONSUMER: projection,
            h.DEAD_REASON: _header_text(why),
            h.DEAD_SUBJECT: _header_text(message.subject),
            h.DEAD_SEQ: str(message.seq),
            h.DEAD_TS: str(message.published_ms),
        }
        await self._writer.publish(deadletter_subject(projection, workspace), message.data, headers)
        await self._record(
            workspace,
            EventParked(projection=projection, version=version, seq=message.seq, subject=message.subject, reason=why),
            summary=f"{projection} could not fold the event at {message.seq}; it is parked",
            entry_id=derived_id(PURPOSE, version, f"parked/{projection}/{message.seq}"),
            severity=Severity.WARN,
        )

    async def count(self) -> int:
        """Letters that wait for a decision."""
        return int((await self._js.stream_info(DEADLETTER_STREAM)).state.messages)

    async def list(self, *, after: int = 0, limit: int = LIST_LIMIT) -> list[DeadLetter]:
        """Letters in the order they were parked.

        Args:
            after: ``letter_seq`` to continue after.
            limit: At most this many.
        """
        state = (await self._js.stream_info(DEADLETTER_STREAM)).state
        letters: list[DeadLetter] = []
        at = max(after + 1, state.first_seq)
        while len(letters) < limit and at <= state.last_seq:
            found = await self._next(at)
            if found is None:
                break
            letters.append(found[0])
            at = found[0].letter_seq + 1
        return letters

    async def get(self, letter_seq: int) -> tuple[DeadLetter, bytes, Mapping[str, str]]:
        """One letter, its body and its headers.

        Raises:
            NotFound: If there is none, or it is settled.
        """
        found = await self._next(letter_seq)
        if found is None or found[0].letter_seq != letter_seq:
            raise NotFound(f"there is no dead letter {letter_seq}", hint="see crew-journal dlq list")
        return found

    async def retry(self, letter_seq: int, *, actor_id: str | None = None) -> int:
        """Publish a letter's event again as a new one, record that, and remove the letter.

        Args:
            letter_seq: Which letter.
            actor_id: Who decided.

        Returns:
            The new event's sequence in JOURNAL.

        Raises:
            NotFound: If there is no such letter.
            InvalidQuery: If the event is not valid in itself, so that it would be parked again.
        """
        letter, body, headers = await self.get(letter_seq)
        body, new_headers = self._again(letter, body, headers)
        published = await self._writer.publish(letter.subject, body, new_headers)
        await self._record(
            letter.workspace_id,
            DeadLetterRetried(projection=letter.projection, seq=letter.seq, new_seq=published.seq),
            summary=f"The event at {letter.seq}, parked by {letter.projection}, is published again at {published.seq}",
            entry_id=derived_id(PURPOSE, 1, f"retried/{letter_seq}/{letter.seq}/{published.seq}"),
            actor_type=ActorType.SYSTEM if actor_id is None else ActorType.USER,
            actor_id=actor_id,
        )
        await self._remove(letter_seq)
        return published.seq

    async def discard(self, letter_seq: int, *, reason: str = "", actor_id: str | None = None) -> None:
        """Settle a letter without doing anything with its event, and record that.

        Raises:
            NotFound: If there is no such letter.
        """
        letter, _, _ = await self.get(letter_seq)
        await self._record(
            letter.workspace_id,
            DeadLetterDiscarded(projection=letter.projection, seq=letter.seq, reason=reason),
            summary=f"The event at {letter.seq}, parked by {letter.projection}, needs nothing more",
            entry_id=derived_id(PURPOSE, 1, f"discarded/{letter_seq}/{letter.seq}"),
            actor_type=ActorType.SYSTEM if actor_id is None else ActorType.USER,
            actor_id=actor_id,
        )
        await self._remove(letter_seq)

    def _again(self, letter: DeadLetter, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        original = {name: value for name, value in headers.items() if not name.startswith("Crew-Dead-")}
        try:
            event = decode(letter.seq, letter.subject, original, body, int(headers.get(h.DEAD_TS, "0")))
        except FoldError as error:
            raise InvalidQuery(
                f"the event would be parked again: {error.message}",
                hint="discard it, and have its publisher send it right",
            ) from None
        derived = derived_id(PURPOSE, 1, f"retry/{letter.letter_seq}/{letter.seq}")
        fresh = "r_" + derived.removeprefix("d_")  # it is an agent's entry, not one of the service
        new_headers = {**original, h.MSG_ID: message_id(letter.workspace_id, fresh)}
        if not isinstance(event, EntryRecorded):
            return body, new_headers
        record: dict[str, Any] = orjson.loads(body)
        record["id"] = event.entry.id
        record.setdefault("ts", event.entry.to_record()["ts"])
        if self._identities.find(letter.workspace_id, event.entry.id) is not None:
            record["id"] = fresh
            record["refs"] = {**event.entry.refs, "retried_from": event.entry.id}
            new_headers.pop(h.CONTENT_HASH, None)
        new_headers[h.ENTRY_ID] = record["id"]
        return orjson.dumps(record), new_headers

    async def _record(self, workspace_id: str, payload: ControlPayload, *, entry_id: str, **fields: Any) -> None:
        """Record a decision once; where somebody holds the id that follows from it, under another one.

        Anybody who may publish can foresee such an id and take it. Were that a failure, he would stop the folding of all
        workspaces. The fold knows a parking by projection and sequence, so recording it twice changes nothing.
        """
        try:
            await self._journal.record(workspace_id, payload, entry_id=entry_id, **fields)
        except EntryConflict:
            await self._journal.record(workspace_id, payload, **fields)

    async def _next(self, at: int) -> tuple[DeadLetter, bytes, Mapping[str, str]] | None:
        """The first letter from ``at`` on."""
        try:
            stored = await self._js.get_msg(DEADLETTER_STREAM, seq=at, next=True, subject="deadletter.>")
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise BrokerUnavailable(f"the dead letters cannot be read: {error}") from None
        headers = stored.headers or {}
        subject = headers.get(h.DEAD_SUBJECT, "")
        body = stored.data or b""
        moment = stored.time
        letter = DeadLetter(
            letter_seq=int(stored.seq or at),
            projection=headers.get(h.DEAD_CONSUMER, ""),
            seq=int(headers.get(h.DEAD_SEQ, "0")),
            subject=subject,
            workspace_id=workspace_of(subject),
            entry_id=headers.get(h.ENTRY_ID),
            reason=headers.get(h.DEAD_REASON, ""),
            parked_at=from_ms(0) if moment is None else moment,
            size=len(body),
        )
        return letter, body, headers

    async def _remove(self, letter_seq: int) -> None:
        with contextlib.suppress(NotFoundError):
            try:
                await self._js.delete_msg(DEADLETTER_STREAM, letter_seq)
            except APIError as error:
                if error.err_code != _NO_MESSAGE:
                    raise


_NO_MESSAGE: Final = 10_043
"""JetStream's err_code of a delete that finds no message."""


def workspace_of(subject: str) -> str:
    """The workspace a subject names; ``_system`` if it names none."""
    tokens = subject.split(".")
    known = len(tokens) > 1 and tokens[0] in {family.value for family in Family} and is_workspace(tokens[1])
    return tokens[1] if known else SYSTEM_WORKSPACE


def _kept_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name: _header_text(value) for name, value in (headers or {}).items() if name.startswith("Crew-")}


def _header_text(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode()
