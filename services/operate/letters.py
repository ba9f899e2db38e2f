"""Dead letters: events that a projection could not fold, kept with the reason until an operator decides.

Invariants: parking is idempotent (the ids of the dead letter and of its record are derived from projection and
sequence), so that a second run completes a parking after a crash; every parking, retry and discard is recorded as an
entry in the journal. The letter stays in DEADLETTER until it is retried or discarded.

``retry`` publishes the body again as a **new** event at the end of the stream; no event is folded out of order. An
entry keeps its id if the views have no entry with that id. Otherwise it would be skipped as a repeat or parked again,
whether the id belongs to a different entry or to this entry, which other projections have folded; it then gets a new
id, derived from the letter, and ``refs.retried_from`` names the old id. Messages of all other families keep their body
and get a new message id. A body that is not a valid event is refused, because it would be parked again. If only one
projection failed to fold an entry, it is better to fix that projection (a new version is rebuilt), because it then
folds the original event in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from ...schemas.core import headers as h
from ...schemas.core.entry import ActorType, Severity
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import BrokerUnavailable, EntryConflict, FoldError, InvalidQuery, NotFound, RefusedByOneView
from ...schemas.core.ids import SYSTEM_WORKSPACE, derived_id, is_workspace, message_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import IdentityReader
from ...schemas.core.subjects import DEADLETTER_STREAM, Family, deadletter_subject
from ...schemas.decode import decode
from ...schemas.entries.tables import BEFORE_VIEWS
from ...schemas.operate import operations as ops
from ...schemas.operate.events import DeadLetterDiscarded, DeadLetterRetried, EventParked
from ..desk import Caller
from ..journal.intake.append import Journal
from ..journal.publishing import Writer
from ..node import Answers, Node
from .status import LETTERS

MAX_REASON: Final = 1_000
"""Maximum characters of a stored reason (``EventParked``)."""
PURPOSE: Final = "deadletter"
"""Name from which this module's ids are derived."""


class StoredMessage(Protocol):
    """A message of JOURNAL, such as ``consumers.feed.messages.RawMessage``."""

    seq: int
    subject: str
    headers: Mapping[str, str] | None
    data: bytes
    published_ms: int


@dataclass(frozen=True, slots=True)
class ParkedLetter:
    """One parked event.

    Attributes:
        letter_seq: Its sequence in DEADLETTER.
        projection: The projection that could not fold it.
        seq: Its sequence in JOURNAL.
        subject: Its subject there.
        workspace_id: Its workspace, ``_system`` if unknown.
        headers: Its headers, and headers with the reason and time of its parking.
        body: Its body.
    """

    letter_seq: int
    projection: str
    seq: int
    subject: str
    workspace_id: str
    headers: Mapping[str, str]
    body: bytes


class DeadLetters:
    """Parks events and settles them.

    Args:
        writer: An open writer; its ``publish`` takes DEADLETTER's subjects too.
        journal: Records parkings and decisions.
        identities: The ids that the views know.
    """

    def __init__(self, writer: Writer, journal: Journal, identities: IdentityReader) -> None:
        self._writer = writer
        self._journal = journal
        self._identities = identities
        self._client = writer.client
        self._js = writer.client.jetstream()

    async def park(self, projection: str, version: int, message: StoredMessage, reason: str) -> None:
        """Store a message that ``projection`` cannot fold, and record that; the reason quotes none of its text.

        Raises:
            BrokerUnavailable: If the message could not be stored; the projection must then not pass it.
        """
        workspace = workspace_of(message.subject)
        why = reason[:MAX_REASON]
        headers = {
            **{k: _header_text(v) for k, v in (message.headers or {}).items() if k.startswith("Crew-")},
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

    async def kept(self) -> AsyncIterator[ParkedLetter]:
        """The unsettled letters, in the order of their parking."""
        at = 0
        while (letter := await self._next(at + 1)) is not None:
            yield letter
            at = letter.letter_seq

    async def find(self, projection: str, seq: int) -> ParkedLetter:
        """The letter of the event at ``seq`` that ``projection`` could not fold.

        Raises:
            NotFound: If there is no such letter, or it is settled.
        """
        async for letter in self.kept():
            if (letter.projection, letter.seq) == (projection, seq):
                return letter
        raise NotFound(f"the event at {seq} is no longer kept in DEADLETTER", hint="it was settled or erased meanwhile")

    async def retry(self, letter: ParkedLetter, *, actor_id: str | None = None) -> int:
        """Publish a letter's event again as a new one, record that, and remove the letter.

        Returns:
            The new event's sequence in JOURNAL.

        Raises:
            InvalidQuery: If the event itself is not valid, so that it would be parked again.
        """
        body, headers = self._again(letter)
        published = await self._writer.publish(letter.subject, body, headers)
        await self._settle(
            letter,
            DeadLetterRetried(projection=letter.projection, seq=letter.seq, new_seq=published.seq),
            f"The event at {letter.seq}, parked by {letter.projection}, is published again at {published.seq}",
            f"retried/{letter.letter_seq}/{letter.seq}/{published.seq}",
            actor_id,
        )
        return published.seq

    async def discard(self, letter: ParkedLetter, *, reason: str = "", actor_id: str | None = None) -> None:
        """Remove a letter without publishing its event, and record that."""
        await self._settle(
            letter,
            DeadLetterDiscarded(projection=letter.projection, seq=letter.seq, reason=reason),
            f"The event at {letter.seq}, parked by {letter.projection}, needs nothing more",
            f"discarded/{letter.letter_seq}/{letter.seq}",
            actor_id,
        )

    async def _settle(
        self, letter: ParkedLetter, decision: ControlPayload, summary: str, cause: str, actor_id: str | None
    ) -> None:
        await self._record(
            letter.workspace_id,
            decision,
            summary=summary,
            entry_id=derived_id(PURPOSE, 1, cause),
            actor_type=ActorType.SYSTEM if actor_id is None else ActorType.USER,
            actor_id=actor_id,
        )
        await delete_message(self._js, DEADLETTER_STREAM, letter.letter_seq)

    async def erase(self, sequences: frozenset[int]) -> int:
        """Delete the letters of erased events; returns how many there were."""
        erased = [letter.letter_seq async for letter in self.kept() if letter.seq in sequences]
        for letter_seq in erased:
            await delete_message(self._js, DEADLETTER_STREAM, letter_seq)
        return len(erased)

    def _again(self, letter: ParkedLetter) -> tuple[bytes, dict[str, str]]:
        body, headers = letter.body, letter.headers
        original = {name: value for name, value in headers.items() if not name.startswith("Crew-Dead-")}
        try:
            event = decode(letter.seq, letter.subject, original, body, int(headers.get(h.DEAD_TS, "0")))
        except FoldError as error:
            raise InvalidQuery(
                f"the event would be parked again: {error.message}",
                hint="discard it, and send a corrected event",
            ) from None
        derived = derived_id(PURPOSE, 1, f"retry/{letter.letter_seq}/{letter.seq}")
        fresh = "r_" + derived.removeprefix(
            "d_"
        )  # it is an agent's entry, so it needs an id outside of the service's form
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
        """Record a decision once; if the derived id is already used, under a random id, so that folding never stops.

        The fold identifies a parking by projection and sequence, so that a second record changes nothing.
        """
        try:
            await self._journal.record(workspace_id, payload, entry_id=entry_id, **fields)
        except EntryConflict:
            await self._journal.record(workspace_id, payload, **fields)

    async def _next(self, at: int) -> ParkedLetter | None:
        """The first letter from ``at`` on."""
        try:
            stored = await self._js.get_msg(DEADLETTER_STREAM, seq=at, next=True, subject="deadletter.>")
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise BrokerUnavailable(f"the dead letters cannot be read: {error}") from None
        headers = stored.headers or {}
        subject = headers.get(h.DEAD_SUBJECT, "")
        return ParkedLetter(
            letter_seq=int(stored.seq or at),
            projection=headers.get(h.DEAD_CONSUMER, ""),
            seq=int(headers.get(h.DEAD_SEQ, "0")),
            subject=subject,
            workspace_id=workspace_of(subject),
            headers=headers,
            body=stored.data or b"",
        )


_NO_MESSAGE: Final = (10_037, 10_043)
"""JetStream's err_codes of a delete that finds no message; newer servers answer with a general one and these words."""


async def delete_message(messages: JetStreamContext, stream: str, seq: int) -> None:
    """Delete a message; the broker overwrites its bytes. Does nothing if it is gone.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    try:
        await messages.delete_msg(stream, seq)
    except APIError as error:
        gone = error.err_code in _NO_MESSAGE or "no message found" in (error.description or "")
        if not gone:
            raise BrokerUnavailable(f"the message at {seq} could not be deleted: {error.description}") from None
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(f"the message at {seq} could not be deleted: {error}") from None


def workspace_of(subject: str) -> str:
    """The workspace a subject names; ``_system`` if it names none."""
    tokens = subject.split(".")
    known = len(tokens) > 1 and tokens[0] in {family.value for family in Family} and is_workspace(tokens[1])
    return tokens[1] if known else SYSTEM_WORKSPACE


def _header_text(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode()


# The use-cases of dead letters, for operators.


_BODY_CHARS = 2_000
_MOST = 1_000
_COLUMNS = tuple(name for name in ops.DeadLetter.model_fields if name != "body")
_DEAD_LETTERS = f"""
SELECT {", ".join(_COLUMNS)} FROM {LETTERS}
WHERE ($1 IS NULL OR workspace_id = $1) AND ($2 IS NULL OR state = $2)
ORDER BY seq DESC, projection LIMIT {_MOST}
"""


class Letters:
    """Lists dead letters from the views, and settles the letters in DEADLETTER."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._kept = node.use(DeadLetters)

    async def show(self, caller: Caller, request: ops.DeadLettersRequest) -> ops.DeadLettersAnswer:
        """Parked events, newest first, at most 1,000, with the beginnings of their bodies."""
        letters = await self._letters(caller, request.state)
        bodies = await self._bodies() if any(letter.state == "parked" for letter in letters) else {}
        shown = (letter.model_copy(update={"body": bodies.get((letter.projection, letter.seq))}) for letter in letters)
        return ops.DeadLettersAnswer(dead_letters=tuple(shown))

    async def _bodies(self) -> dict[tuple[str, int], str]:
        """Projection and sequence → beginning of the body of letters in DEADLETTER; empty if the broker is unavailable."""
        bodies: dict[tuple[str, int], str] = {}
        with contextlib.suppress(BrokerUnavailable):
            async for letter in self._kept.kept():
                text = letter.body[: 4 * _BODY_CHARS].decode("utf-8", "backslashreplace")[:_BODY_CHARS]
                bodies[letter.projection, letter.seq] = text
                if len(bodies) == _MOST:
                    break
        return bodies

    async def retry(self, caller: Caller, request: ops.RetryRequest) -> ops.DeadLetterAnswer:
        """Publish a parked event again as a new one.

        Raises:
            NotFound: If no event is parked at ``seq``.
            RefusedByOneView: If all other views have folded the event, unless ``force`` is set.
        """
        letter = (await self._parked(caller, request.seq))[0]
        if letter.projection not in BEFORE_VIEWS and not request.force:
            raise RefusedByOneView(
                f"only {letter.projection} failed to fold the event at {request.seq}; all other views would apply it twice",
                hint=f"fix {letter.projection} and raise its version: it then folds the event in its place, which settles "
                "this; or discard it; or publish it again with --force",
            )
        new_seq = await self._kept.retry(await self._kept.find(letter.projection, letter.seq), actor_id=caller.actor)
        return ops.DeadLetterAnswer(seq=request.seq, state="retried", new_seq=new_seq)

    async def discard(self, caller: Caller, request: ops.DiscardRequest) -> ops.DeadLetterAnswer:
        """Discard a parked event.

        Raises:
            NotFound: If no event is parked at ``seq``.
        """
        for letter in await self._parked(caller, request.seq):
            await self._kept.discard(
                await self._kept.find(letter.projection, letter.seq), reason=request.reason, actor_id=caller.actor
            )
        return ops.DeadLetterAnswer(seq=request.seq, state="discarded")

    async def _letters(self, caller: Caller, state: str | None) -> list[ops.DeadLetter]:
        rows = await asyncio.to_thread(self._views.rows, _DEAD_LETTERS, [caller.workspace_or_all, state])
        return [ops.DeadLetter.model_validate(dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    async def _parked(self, caller: Caller, seq: int) -> list[ops.DeadLetter]:
        letters = [letter for letter in await self._letters(caller, "parked") if letter.seq == seq]
        if not letters:
            raise NotFound(f"no parked event at sequence {seq}", hint="crew-journal dlq list shows them")
        return letters


ANSWERS: Final[Answers] = (
    (ops.DEAD_LETTERS, Letters.show),
    (ops.RETRY_DEAD_LETTER, Letters.retry),
    (ops.DISCARD_DEAD_LETTER, Letters.discard),
)
