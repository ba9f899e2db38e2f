"""The only way to append to the journal: validate, publish, return after the ack.

Invariants: an id belongs to one content for ever. Appending the same content again returns the first sequence; other
content is a conflict. Concurrent appends with the same id are serialised, so that two contents are never both acked. A
batch is validated completely before anything is published. If the broker reports a duplicate, the stored message is
read and compared, because a client with NATS rights may have used the message id for something else; in that case the
entry is published again under a random message id.

The broker imposes one limit: if a batch contains an id that another process published within the dedupe window and that
is not in the views yet, its entries are published one by one. A conflict is then reported although the other entries of
the batch are stored. Sending the batch again is safe.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypedDict, Unpack

import orjson
import structlog
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from ....schemas.core.entry import ActorType, JournalEntry, Priority, Severity, problems_of
from ....schemas.core.envelope import EntryRecorded
from ....schemas.core.errors import (
    ERASED_HINT,
    BrokerUnavailable,
    EntryConflict,
    EntryTooLarge,
    FieldProblem,
    FoldError,
    InvalidEntry,
    InvalidQuery,
    NotAllowed,
)
from ....schemas.core.ids import message_id, mint_entry_id, name_key, unforeseen
from ....schemas.core.limits import MAX_BATCH
from ....schemas.core.payload import ControlPayload
from ....schemas.core.ports import IdentityReader, Published
from ....schemas.core.principal import Principal
from ....schemas.core.sequence_set import Range, normalised
from ....schemas.core.subjects import JOURNAL_STREAM
from ....schemas.core.timestamps import to_ms
from ....schemas.decode import decode
from ..publishing import EncodedMessage, Writer
from .secrets import Scrubbed, Scrubs, SecretGuard
from .submission import Accepted, accept, accept_in_place, content_hash, encode_entry, entry_head

# Builds journal entries from decisions of the service.
#
# A decision (a priority, a token, a parked event) is recorded in the journal and read like any entry. Invariant: these
# entries have a control type; clients' entries are never built here.


class DecisionFields(TypedDict, total=False):
    """Optional fields of a decision; ``None`` means absent.

    Attributes:
        entry_id: A deterministic id, so that a repeated decision is recorded once; random if absent.
        actor_type: Type of the actor that decided; the system if absent.
        actor_id: Id of the actor.
        severity: Info if absent.
        crew_id: The crew it concerns.
        agent_id: The agent it concerns.
        trace_id: The run it concerns.
        priority: Its priority; normal if absent.
        refs: Ids of other entries.
    """

    entry_id: str | None
    actor_type: ActorType
    actor_id: str | None
    severity: Severity
    crew_id: str | None
    agent_id: str | None
    trace_id: str | None
    priority: Priority | None
    refs: dict[str, list[str]] | None


def decision_entry(
    workspace_id: str, payload: ControlPayload, summary: str, now: datetime, **fields: Unpack[DecisionFields]
) -> Accepted:
    """The entry that records a decision; its id is random unless given.

    Args:
        workspace_id: The workspace, or ``_system``.
        payload: The decision.
        summary: One line for the reader of the journal.
        now: The server's time, UTC; not part of the content hash, so that the same decision has the same content later.
        **fields: The optional fields.
    """
    record: dict[str, Any] = {
        "workspace_id": workspace_id,
        "entry_type": payload.ENTRY_TYPE,
        "schema_version": payload.VERSION,
        "summary": summary,
        "payload": payload.model_dump(mode="json"),
        "actor_type": ActorType.SYSTEM,
        "severity": Severity.INFO,
    }
    record |= {"id" if name == "entry_id" else name: value for name, value in fields.items() if value is not None}
    content = content_hash(record)
    entry = JournalEntry.model_validate({"id": mint_entry_id(to_ms(now)), **record, "ts": now})
    return encode_entry(entry, content, control=True, given_id="id" in record, publisher=None)


# Reads the stored message when the broker reports a duplicate.


_OTHER: Final = ""
"""Stands for the content of an entry with our id and a different subject, which therefore has different content."""


async def stored_content(messages: JetStreamContext, accepted: Accepted, seq: int) -> str | None:
    """The content hash of the message at ``seq``; None if the message is not an entry with this id.

    Raises:
        EntryConflict: If the message no longer exists, because the id was erased.
        BrokerUnavailable: If the broker does not answer.
    """
    try:
        stored = await messages.get_msg(
            JOURNAL_STREAM, seq=seq
        )  # not by direct get, in which a header Status would mislead nats-py
    except NotFoundError:
        raise EntryConflict(
            f"an entry with id {accepted.entry_id} was erased from the journal at {seq}",
            hint=ERASED_HINT,
            field="id",
            seq=seq,
        ) from None
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"cannot compare with the entry stored at {seq}: {error}", hint="try again with the same id"
        ) from None
    headers = {name: str(value) for name, value in (stored.headers or {}).items()}
    try:
        event = decode(seq, stored.subject or "", headers, stored.data or b"", 0)
    except FoldError:
        return None
    if not isinstance(event, EntryRecorded):
        return None
    if event.workspace_id != accepted.workspace_id or event.entry.id != accepted.entry_id:
        return None
    return event.content.hex() if stored.subject == accepted.subject else _OTHER  # otherwise the hash was forged


RECENT_IDS: Final = 20_000
"""Maximum number of client-given ids that are remembered until the views have them, about 6 MB; the views are at most a
second behind.
"""
YIELD_EVERY: Final = 100
"""Number of submissions that are validated before the event loop runs other tasks: about 1.5 ms."""
YIELD_BYTES: Final = 65_536
"""Bytes of submissions that are validated before the event loop runs other tasks; the search for credentials takes up
to 0.3 µs per byte.
"""
_SHOWN_IDS: Final = 10
"""Maximum number of ids in an error message."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)  # not frozen, because every append creates one
class Appended:
    """An entry that is in the journal.

    Attributes:
        id: Its id.
        seq: Its stream sequence.
        duplicate: Whether the journal already held the id with the same content; ``seq`` is then the first entry's.
        warnings: Requested effects of the entry that do not take place.
    """

    id: str
    seq: int
    duplicate: bool
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)  # not frozen: one is made for every append
class _KnownEntry:
    seq: int
    content: str


Check = Callable[[Sequence[int]], Awaitable[Mapping[int, str]]]
"""Takes sequences of new entries with ``supersedes``, returns sequence → warning."""


async def unchecked(_seqs: Sequence[int]) -> Mapping[int, str]:
    """The default: no warnings."""
    return {}


class Journal:
    """Appends entries.

    Args:
        writer: An open writer on JOURNAL.
        identities: The ids that the views know.
        clock: The server's time, UTC.
        superseding: Finds the new entries that do not supersede the entries they name.
        secrets: Keeps credentials out of the journal; if absent, credentials are redacted in every workspace.
    """

    def __init__(
        self,
        writer: Writer,
        identities: IdentityReader,
        *,
        clock: Callable[[], datetime],
        superseding: Check = unchecked,
        secrets: SecretGuard | None = None,
    ) -> None:
        self._secrets = secrets or SecretGuard(None)
        self._superseding = superseding
        self._writer = writer
        self.identities = identities
        self._clock = clock
        self._recent: OrderedDict[str, _KnownEntry] = OrderedDict()  # a dict's first key is slow to find after deletes
        self._in_hand: dict[str, asyncio.Future[None] | None] = {}  # a future once another append waits for the id
        self._messages = writer.client.jetstream()
        self._lost: list[Range] = []
        self.erased: set[int] = set()
        """``ids.name_key`` of the workspaces and ids that were erased; kept up by ``services/erasure``."""

    async def append(self, principal: Principal, submission: Mapping[str, Any]) -> Appended:
        """Append one entry and return after the broker's ack.

        Args:
            principal: The caller.
            submission: The raw fields.

        Raises:
            InvalidEntry, NotAllowed, EntryTooLarge: The submission is refused; nothing was published.
            EntryConflict: The id belongs to other content.
            BrokerUnavailable: No ack came in time; repeating the call with the same id is safe.
        """
        accepted, warning = accept(principal, submission, self._clock()), None
        if self._secrets.suspects(accepted):
            accepted, warning = await self._secrets.entry(accepted)
        if accepted.given_id:
            appended = await self._append_given(accepted)
        else:
            published = await self._writer.post(accepted)
            appended = Appended(accepted.entry_id, published.seq, False)
        if submission.get("supersedes"):
            await self._warn([appended])
        if warning is not None:
            appended.warnings = (*appended.warnings, warning)
        return appended

    async def append_in_place(self, principal: Principal, record: Mapping[str, Any]) -> Appended:
        """Append an entry under an id that the service derived (``accept_in_place``); raises as ``append``."""
        accepted = accept_in_place(principal, record, self._clock())
        if self._secrets.suspects(accepted):
            accepted, _warning = await self._secrets.entry(accepted)
        return await self._append_given(accepted)

    async def append_batch(self, principal: Principal, submissions: Sequence[Mapping[str, Any]]) -> list[Appended]:
        """Append up to 1,000 entries, all or nothing; the answers are in the order given.

        Raises:
            InvalidEntry: Names every invalid field of every entry (``entries[3].ts``).
            NotAllowed, EntryTooLarge, EntryConflict: As in ``append``; nothing was published.
            BrokerUnavailable: As in ``append``.
        """
        if len(submissions) > MAX_BATCH:
            raise EntryTooLarge(
                f"the batch has {len(submissions):,} entries, more than {MAX_BATCH:,}", hint="send several batches"
            )
        batch, secret_warnings = await self._accept_all(principal, submissions)
        first_of = _first_of_each_id(batch)
        firsts = [batch[index] for index in first_of.values()]
        given = [accepted for accepted in firsts if accepted.given_id]
        for accepted in given if self.erased else ():
            self.refuse_erased(accepted.workspace_id, accepted.entry_id)
        async with self._holding([accepted.identity for accepted in given]):
            with_known = zip(given, self._known_all(given), strict=True)
            settled = {accepted.identity: (known, True) for accepted, known in with_known if known is not None}
            different = {
                a.entry_id: settled[a.identity][0].seq
                for a in given
                if a.identity in settled and settled[a.identity][0].content != a.content
            }
            if different:
                raise _conflict(different)
            fresh = [accepted for accepted in firsts if accepted.identity not in settled]
            if fresh:
                acks = await self._writer.post_atomic(fresh)
                settled |= zip((accepted.identity for accepted in fresh), await self._settle(fresh, acks), strict=True)
        answers = []
        for index, accepted in enumerate(batch):
            known, repeated = settled[accepted.identity]
            answers.append(Appended(accepted.entry_id, known.seq, repeated or first_of[accepted.identity] != index))
        named = [answers[index] for index, submission in enumerate(submissions) if submission.get("supersedes")]
        if named:
            await self._warn(named)
        for index, warning in secret_warnings.items():
            answers[index].warnings = (*answers[index].warnings, warning)
        return answers

    async def _warn(self, appended: Sequence[Appended]) -> None:
        warnings = await self._superseding([appended.seq for appended in appended])
        for receipt in appended:
            if receipt.seq in warnings:
                receipt.warnings = (warnings[receipt.seq],)

    def forget_lost(self, sequences: Sequence[Range]) -> None:
        """Allow lost entries to be appended again, although the broker still remembers their ids."""
        self._recent.clear()
        self._lost = normalised([*self._lost, *sequences])

    async def record(
        self, workspace_id: str, payload: ControlPayload, *, summary: str, **fields: Unpack[DecisionFields]
    ) -> Appended:
        """Record a decision of the service, never of a client, as a control entry (see ``decision_entry``).

        Raises:
            EntryConflict: If ``entry_id`` belongs to another decision.
            InvalidEntry: If a text of the decision has credentials that the workspace refuses, or is too long after
                their replacement.
            BrokerUnavailable: If no ack came in time.
        """
        decided = accepted = decision_entry(workspace_id, payload, summary, self._clock(), **fields)
        if payload.SCANNED and self._secrets.suspects(decided):
            accepted, _warning = await self._secrets.entry(decided)
        if accepted is not decided:
            _check_decision(payload, accepted)
        return await self._append_given(accepted)

    async def scrubbed(self, workspace_id: str, text: str) -> Scrubbed:
        """Treat the credentials in a text of a document or drawer; in mode ``block`` the caller must refuse the text."""
        return await self._secrets.text(workspace_id, text)

    def refuse_erased(self, workspace_id: str, name: str, field: str = "id") -> None:
        """Refuse the id of an entry or document write that was erased.

        Raises:
            EntryConflict: If it was.
        """
        if self.erased and name_key((workspace_id, name)) in self.erased:
            raise EntryConflict(f"the id {name} was erased", hint=ERASED_HINT, field=field, erased=True)

    def bar(self, workspace_id: str, ids: Iterable[str]) -> None:
        """Refuse entries with these ids from now on."""
        for entry_id in ids:
            self.erased.add(name_key((workspace_id, entry_id)))
            self._recent.pop(message_id(workspace_id, entry_id), None)

    async def _append_given(self, accepted: Accepted) -> Appended:
        self.refuse_erased(accepted.workspace_id, accepted.entry_id)
        identity, in_hand = accepted.identity, self._in_hand
        while identity in in_hand:  # as ``_holding``, which costs 3 µs
            await self._freed(identity)
        in_hand[identity] = None
        try:
            earlier = self._known(accepted)
            if earlier is not None:
                if earlier.content != accepted.content:
                    raise _conflict({accepted.entry_id: earlier.seq})
                return Appended(accepted.entry_id, earlier.seq, True)
            ack = await self._writer.post(accepted)
            if not ack.duplicate:  # like ``_settle``, which costs 1 µs
                self._remember(identity, _KnownEntry(ack.seq, accepted.content))
                return Appended(accepted.entry_id, ack.seq, False)
            [(known, repeated)] = await self._settle([accepted], [ack])
            return Appended(accepted.entry_id, known.seq, repeated)
        finally:
            if (awaited := in_hand.pop(identity)) is not None:
                awaited.set_result(None)

    async def _freed(self, identity: str) -> None:
        """Wait until an id in hand is free; it may be taken again by then."""
        if (awaited := self._in_hand[identity]) is None:
            awaited = self._in_hand[identity] = asyncio.get_running_loop().create_future()
        await asyncio.shield(awaited)

    async def _accept_all(
        self, principal: Principal, submissions: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Accepted], dict[int, str]]:
        """The entries of a batch, and warnings about credentials by the entries' indices."""
        now = self._clock()
        batch: list[Accepted] = []
        warnings: dict[int, str] = {}
        problems: list[FieldProblem] = []
        too_large: list[EntryTooLarge] = []
        forbidden: NotAllowed | None = None
        size = 0
        for index, submission in enumerate(submissions):
            if index % YIELD_EVERY == YIELD_EVERY - 1 or size >= YIELD_BYTES:
                await asyncio.sleep(0)
                size = 0
            prefix = f"entries[{index}]."
            try:
                accepted = accept(principal, submission, now, prefix)
                if self._secrets.suspects(accepted):
                    accepted, warning = await self._secrets.entry(accepted, prefix)
                    if warning is not None:
                        warnings[index] = warning
                batch.append(accepted)
                size += len(accepted.body)
            except InvalidEntry as error:
                problems += error.problems
            except EntryTooLarge as error:
                too_large.append(error)
            except NotAllowed as error:
                forbidden = forbidden or error
        if forbidden is not None:
            raise forbidden
        if problems:
            problems += [FieldProblem(error.field or "entries", error.message, error.hint) for error in too_large]
            raise InvalidEntry(tuple(problems))
        if too_large:
            raise too_large[0]
        return batch, warnings

    def _known(self, accepted: Accepted) -> _KnownEntry | None:
        recent = self._recent.get(accepted.identity)
        if recent is not None:
            return recent
        identity = self.identities.find(accepted.workspace_id, accepted.entry_id)
        return None if identity is None else _KnownEntry(identity.seq, identity.content.hex())

    def _known_all(self, batch: Sequence[Accepted]) -> list[_KnownEntry | None]:
        """``_known`` of each entry; the views are queried once, for ids that are not recent."""
        known = [self._recent.get(accepted.identity) for accepted in batch]
        unknown = [at for at, recent in enumerate(known) if recent is None]
        identities = self.identities.find_all([(batch[at].workspace_id, batch[at].entry_id) for at in unknown])
        for at, identity in zip(unknown, identities, strict=True):
            if identity is not None:
                known[at] = _KnownEntry(identity.seq, identity.content.hex())
        return known

    async def _settle(self, batch: Sequence[Accepted], acks: Sequence[Published]) -> list[tuple[_KnownEntry, bool]]:
        """Compare reported duplicates with the stored messages, and remember the other entries.

        Returns:
            For each entry its sequence and content, and whether it was already stored.
        """
        settled: list[tuple[_KnownEntry, bool]] = []
        conflicts: dict[str, int] = {}
        for accepted, ack in zip(batch, acks, strict=True):
            outcome = _KnownEntry(ack.seq, accepted.content), False
            if accepted.given_id:
                if ack.duplicate:
                    outcome = await self._duplicate(accepted, ack.seq)
                    if outcome[0].content != accepted.content:
                        conflicts[accepted.entry_id] = outcome[0].seq
                self._remember(accepted.identity, outcome[0])
            settled.append(outcome)
        if conflicts:
            raise _conflict(conflicts)
        return settled

    async def _duplicate(self, accepted: Accepted, seq: int) -> tuple[_KnownEntry, bool]:
        """Sequence and content of an entry whose message id is stored at ``seq``; whether the entry was already stored."""
        lost = any(first <= seq <= last for first, last in self._lost)
        content = None if lost else await stored_content(self._messages, accepted, seq)
        if content is not None:
            return _KnownEntry(seq, content), True
        _log.warning("journal.foreign_message_id", workspace=accepted.workspace_id, entry_id=accepted.entry_id, seq=seq)
        identity = unforeseen(accepted.identity)
        head = entry_head(identity, accepted.entry_id, accepted.content, accepted.publisher, vouched=accepted.vouched)
        published = await self._writer.post(EncodedMessage(accepted.subject, head, accepted.body))
        return _KnownEntry(published.seq, accepted.content), False

    def _remember(self, identity: str, known: _KnownEntry) -> None:
        self._recent[identity] = known
        if len(self._recent) > RECENT_IDS:
            self._recent.popitem(last=False)

    @asynccontextmanager
    async def _holding(self, identities: Sequence[str]) -> AsyncIterator[None]:
        """Lock ids while they are published; other appends of them wait.

        All ids are locked at once, which avoids deadlocks.
        """
        in_hand = self._in_hand
        while busy := next((identity for identity in identities if identity in in_hand), None):
            await self._freed(busy)
        in_hand.update(dict.fromkeys(identities))
        try:
            yield
        finally:
            for identity in set(identities):
                if (awaited := in_hand.pop(identity)) is not None:
                    awaited.set_result(None)


def _check_decision(payload: ControlPayload, accepted: Accepted) -> None:
    """Refuse a decision that is not valid after its credentials were replaced by notices, which may be longer.

    Raises:
        InvalidEntry: Names every invalid field.
    """
    try:
        type(payload).model_validate(orjson.loads(accepted.body)["payload"])
    except ValidationError as error:
        raise InvalidEntry(problems_of(error, "payload.")) from None


def _first_of_each_id(batch: Sequence[Accepted]) -> dict[str, int]:
    """Identity → index of its first entry; repeats must have the same content.

    Raises:
        InvalidEntry: Names every repeat with other content.
    """
    first_of: dict[str, int] = {}
    problems = []
    for index, accepted in enumerate(batch):
        first = first_of.setdefault(accepted.identity, index)
        if batch[first].content != accepted.content:
            problem = f"the id of entries[{first}] again, with other content"
            problems.append(FieldProblem(f"entries[{index}].id", problem, "give each entry an id of its own"))
    if problems:
        raise InvalidEntry(tuple(problems))
    return first_of


def _conflict(taken: Mapping[str, int]) -> EntryConflict:
    """The error for ids that are already used; ``taken`` has the sequence of each."""
    ids = list(taken)
    shown = ", ".join(ids[:_SHOWN_IDS]) + (f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else "")
    return EntryConflict(
        f"in the journal already with other content: {shown}",
        hint="entries never change; append a new one, with refs.parent_entry_id naming the one it corrects",
        field="id",
        seq=taken[ids[0]],
    )


# The port through which most use-cases record decisions in the journal.
#
# Invariant: these use-cases publish only control entries and only through this port, so that each can be tested
# without a broker.


class Recorder(Protocol):
    """The part of ``append.Journal`` that records decisions."""

    async def record(
        self, workspace_id: str, payload: ControlPayload, *, summary: str, **fields: Unpack[DecisionFields]
    ) -> Appended:
        """Record a decision as a control entry; returns after the ack.

        Raises:
            EntryConflict: If ``entry_id`` belongs to another decision.
            BrokerUnavailable: If no ack came within the bound.
        """
        ...


class ScrubbingRecorder(Recorder, Scrubs, Protocol):
    """A recorder that also removes credentials from texts that are stored elsewhere or from which an id is made."""

    def refuse_erased(self, workspace_id: str, name: str, field: str = "id") -> None:
        """Raise ``EntryConflict`` for an id that was erased."""
        ...


# Handles an append request from HTTP or NATS: takes one entry or a list and returns the receipts.
#
# Invariant: HTTP and NATS accept the same requests and give the same answers.


class Appender(Protocol):
    """The part of ``services.journal.intake.append.Journal`` that agents use."""

    async def append(self, principal: Principal, submission: Mapping[str, Any]) -> Appended:
        """Append one entry; returns after the ack."""
        ...

    async def append_batch(self, principal: Principal, submissions: Sequence[Mapping[str, Any]]) -> list[Appended]:
        """Append entries, all or nothing; returns after the acks."""
        ...


async def append_submitted(journal: Appender, principal: Principal, submitted: Any) -> list[dict[str, object]]:
    """Append one entry or a list of up to 1,000, all or nothing.

    Args:
        journal: Appends.
        principal: Who submits.
        submitted: The parsed body, from ``parse_json``.

    Returns:
        ``{"id", "seq"}`` of each entry, with ``"duplicate": true`` if the journal already held it, and ``"warnings"``
        if any.

    Raises:
        InvalidQuery: If the list is empty.
        EntryTooLarge: If it is too long.
        CrewJournalError: As in ``Journal.append`` and ``append_batch``.
    """
    if not isinstance(submitted, list):
        return [_receipt(await journal.append(principal, submitted))]
    if not submitted:
        raise InvalidQuery("the batch is empty", hint="send at least one entry", field="entries")
    if len(submitted) > MAX_BATCH:
        raise EntryTooLarge(
            f"the batch has {len(submitted)} entries, at most {MAX_BATCH} are allowed",
            hint="send it in parts",
            field="entries",
        )
    return [_receipt(appended) for appended in await journal.append_batch(principal, submitted)]


def _receipt(appended: Appended) -> dict[str, object]:
    receipt: dict[str, object] = {"id": appended.id, "seq": appended.seq}
    if appended.duplicate:
        receipt["duplicate"] = True
    if appended.warnings:
        receipt["warnings"] = appended.warnings
    return receipt
