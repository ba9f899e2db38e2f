"""Erases messages and everything that was made of them, with a receipt.

The steps: the request is recorded, and its ids can not be used again; the stream is read once to find what was made of
them (``schemas/erasure/lineage``); the scope is announced, so that the gaps are explained; the messages are deleted with
their bytes; all views are folded again from the stream into a new file, which replaces the old one; then the receipt. So the
views are what they would be if the messages had never been there, without a line about erasure in any other fold.

Invariant: an erasure that was requested is completed: after a crash the node resumes it at its next start, and every step
may be repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from ...schemas.core import headers as h
from ...schemas.core.envelope import DocumentWritten, EntryRecorded, Event
from ...schemas.core.errors import BrokerError, CrewJournalError, FoldError, InvalidQuery, NotFound, Unavailable
from ...schemas.core.ids import is_id, name_key, uuid7_hex
from ...schemas.core.ports import CommittedBatch
from ...schemas.core.sequence_set import in_parts, ranges_of
from ...schemas.core.timestamps import format_ms
from ...schemas.decode import decode
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.entries.events import EXPLANATIONS, ErasureCompleted, ErasureRequested, ErasureScoped
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.erasure.events import PersonExported
from ...schemas.erasure.lineage import names_of, sources_of
from ...schemas.erasure.operations import (
    ERASURE,
    ERASURES,
    FORGET,
    PROVE_ERASED,
    Erasure,
    ErasureExample,
    ErasureRequest,
    ErasuresAnswer,
    ErasuresRequest,
    ForgetMessagesAnswer,
    ForgetMessagesRequest,
    ProveAnswer,
    ProveRequest,
)
from ...schemas.erasure.tables import ERASED_IDS, ERASURE_ROWS, ERASURES_PROJECTION, ErasureRow
from ...schemas.operators.events import OperatorDeleted
from ...schemas.operators.rules import subject_hash
from ...schemas.operators.tables import OPERATORS_PROJECTION
from ...schemas.texts import TEXT_KINDS
from ..desk import Caller
from ..node import Answers, Node
from ..operate.letters import workspace_of
from ..parts import Part
from .persons import DataSubject, data_subject
from .proof import traces

NOT_PROVEN: Final = (
    "backups made before the erasure, wherever they are kept",
    "prompts and answers that were given to agents, and what the providers of models keep of them",
    "mirrors, exports, bundles and copies of the stream outside this node",
    "freed blocks of the disk, which the file system may not have overwritten yet",
)
"""What an erasure can not reach."""
DELETED_AT_ONCE: Final = 32
"""Deletions that wait for the broker's answer at the same time."""
EXAMPLES: Final = 20
NAMED_IN_ERRORS: Final = 3
ROUNDS: Final = 5
"""Most repetitions for messages that were derived while an erasure was under way."""
RETRY_S: Final = 5.0
"""Seconds until an erasure goes on after the broker was away or another long operation was running."""
_SCOPED: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = ? AND control AND entry_type = ?
    AND json_extract_string(payload, '$.erasure_id') = ? ORDER BY seq"""
_TEXTS: Final = " UNION ALL ".join(
    f"SELECT text_hash FROM {kind.table} WHERE workspace_id = $workspace" for kind in TEXT_KINDS
)
_WITHOUT_TEXT: Final = f"""SELECT seq FROM {CHUNK_VECTORS}
    WHERE workspace_id = $workspace AND seq <= $until AND text_hash NOT IN ({_TEXTS}) ORDER BY seq"""
"""Vectors of texts that are in no view: former pieces of documents, and pieces that held an erased line."""
_TEXT_VIEWS: Final = tuple(sorted({kind.table.view for kind in TEXT_KINDS}))
_OPEN: Final = f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE state <> 'completed' ORDER BY seq"
_LISTED: Final = f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE workspace_id = ? ORDER BY seq DESC"
_log = structlog.get_logger(__name__)


class ErasableMessage(Protocol):
    """A message of the stream."""

    seq: int
    subject: str
    headers: Mapping[str, str] | None
    data: bytes
    published_ms: int


class ErasableStream(Protocol):
    """The stream and the views of the node, as an erasure needs them."""

    def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[ErasableMessage]]:
        """The messages of JOURNAL in order."""
        ...

    async def last_seq(self) -> int:
        """The last sequence of JOURNAL."""
        ...

    def loss(self) -> str | None:
        """A sentence about messages that the stream has lost, None if it has all."""
        ...

    async def delete(self, seq: int) -> None:
        """Delete a message with its bytes, unless it is gone."""
        ...

    async def delete_letters(self, sequences: frozenset[int]) -> int:
        """Delete the dead letters of these messages; returns how many there were."""
        ...

    async def rebuild(self) -> None:
        """Fold all views into a new file and replace the old one; other files with views are deleted."""
        ...


@dataclass(slots=True)
class ErasureScope:
    """What an erasure covers, as far as the stream was read.

    Attributes:
        names: Of the messages in scope: what was made of these goes, too.
        person: The person whose messages go; None for none.
        sequences: Of the messages in scope.
        ids: Ids of entries and document writes among them.
        seeds: Ids of those that were named.
        asked: The names in the request.
        found: Those of them that messages bear.
        by_type: Number of messages by type.
        examples: The first of them.
    """

    names: set[str]
    person: DataSubject | None = None
    sequences: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    seeds: list[str] = field(default_factory=list)
    asked: frozenset[str] = frozenset()
    found: set[str] = field(default_factory=set)
    by_type: Counter[str] = field(default_factory=Counter)
    examples: list[ErasureExample] = field(default_factory=list)
    read_to: int = 0

    def add(self, seq: int, entry_id: str | None, kind: str, *, named: bool) -> None:
        """Take in a message, unless it was announced before a crash; ``named`` if the request itself names it."""
        if seq in self.sequences:
            return
        self.sequences.add(seq)
        self.by_type[kind] += 1
        if entry_id is not None:
            self.ids.add(entry_id)
            if named:
                self.seeds.append(entry_id)
        if len(self.examples) < EXAMPLES:
            self.examples.append(ErasureExample(seq=seq, id=entry_id, what=kind))


class Erasures(Part):
    """The use-cases, and the work in the background.

    Args:
        node: What use-cases share.
        stream: The stream and the views.
    """

    def __init__(self, node: Node, stream: ErasableStream) -> None:
        self._node = node
        self._stream = stream
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, dict[str, str]] = {}
        self._store = ""
        self._alone = asyncio.Lock()
        self._unsubscribe: Callable[[], None] = lambda: None

    # as a part of the node

    async def start(self) -> None:
        """Bar the erased ids, and resume erasures that are not completed."""
        views = self._node.views
        self._unsubscribe = views.subscribe(self._follow)
        keys = await asyncio.to_thread(views.rows, f"SELECT key FROM {ERASED_IDS}")
        self._node.journal.erased.update(int(key) for (key,) in keys)
        for values in await asyncio.to_thread(views.rows, _OPEN):
            row = ErasureRow(*values)
            self._begin(row.erasure_id, self._resume(row))

    async def stop(self) -> None:
        """Stop the work; the next start resumes it."""
        self._unsubscribe()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def figures(self) -> Mapping[str, Any]:
        """How many erasures are under way."""
        return {"under_way": len(self._tasks), "erased_ids": len(self._node.journal.erased)}

    def _follow(self, batch: CommittedBatch) -> None:
        changes = batch.changes.get(ERASED_IDS.name)
        for written in changes.written if changes is not None else ():
            self._node.journal.erased.update(int(key) for key in written["key"])

    # the operations

    async def forget(self, caller: Caller, request: ForgetMessagesRequest) -> ForgetMessagesAnswer:
        """Find the scope, record the request, and begin.

        Of a person who has no messages, zero messages are erased: the request and its receipt are recorded.

        Raises:
            InvalidQuery: If neither ids nor a person are named.
            NotFound: If an id names no message.
            Unavailable: If the journal names people by another key.
        """
        if not request.ids and request.subject is None:
            raise InvalidQuery("nothing is named to erase", hint="send ids, or a subject", field="ids")
        person = None
        if request.subject is not None:
            person = await self.person(caller.workspace_id, request.subject)
        scope = ErasureScope(set(request.ids), person, asked=frozenset(request.ids))
        await self._read(caller.workspace_id, scope)
        self._check_found(caller.workspace_id, request, scope)
        if request.dry_run:
            return self._answer(scope, None, None)
        erasure_id = f"x_{uuid7_hex()}"
        payload = ErasureRequested(
            erasure_id=erasure_id,
            entry_ids=tuple(dict.fromkeys(scope.seeds)),
            subject_hash=None if person is None else person.person_hash,
            reason=request.reason,
        )
        decided = await self._node.decide(
            caller,
            payload,
            f"erasure of {len(scope.sequences):,} messages requested",
            ERASURES_PROJECTION,
            entry_id=erasure_id,
        )
        self._node.journal.bar(caller.workspace_id, scope.ids)
        failed: dict[str, str] = {}
        if not scope.sequences:
            await self._resume_failed()
            await self._complete(caller.workspace_id, erasure_id, Counter(messages=0))
        else:
            if person is not None:
                failed = await self._delete_model(caller, person)
            self._begin(erasure_id, self._run(caller.workspace_id, erasure_id, scope, sorted(scope.sequences)))
        return self._answer(scope, erasure_id, decided.seq).model_copy(update={"failed": failed})

    async def person(self, workspace_id: str, name: str) -> DataSubject:
        """The person of this name.

        Raises:
            Unavailable: If the journal names people by another key.
        """
        return await self._person(workspace_id, subject_hash(self._node.subject_key, workspace_id, name))

    async def _person(self, workspace_id: str, hashed: str) -> DataSubject:
        return await asyncio.to_thread(data_subject, self._node.views, self._node.subject_key, workspace_id, hashed)

    async def _delete_model(self, caller: Caller, person: DataSubject) -> dict[str, str]:
        """Remove model, cards and consent from the views at once; store → why it failed, to be done with the messages."""
        payload = OperatorDeleted(subject_hash=person.person_hash)
        try:
            await self._node.decide(caller, payload, "a person is erased", OPERATORS_PROJECTION)
        except CrewJournalError as error:
            return {"operators": error.message}
        return {}

    async def _resume_failed(self) -> None:
        """Begin the erasures again that are neither completed nor under way."""
        for values in await asyncio.to_thread(self._node.views.rows, _OPEN):
            row = ErasureRow(*values)
            if row.erasure_id not in self._tasks and row.erasure_id in self._failed:
                self._begin(row.erasure_id, self._resume(row))

    def _check_found(self, workspace_id: str, request: ForgetMessagesRequest, scope: ErasureScope) -> None:
        """Refuse a request that names what is not there: who mistypes an id must not believe that it was erased."""
        missing = [name for name in request.ids if name not in scope.found]
        if missing:
            erased = [name for name in missing if name_key((workspace_id, name)) in self._node.journal.erased]
            message = f"no message of workspace {workspace_id} is called {', '.join(missing[:NAMED_IN_ERRORS])}"
            hint = "name entries and writes of documents by their ids, a drawer as drawer:ID, a fact as fact:ID"
            if erased:
                hint = f"{', '.join(erased[:NAMED_IN_ERRORS])}: erased already, `crew-journal erasures` shows when"
            raise NotFound(message, hint=hint, field="ids")

    @staticmethod
    def _answer(scope: ErasureScope, erasure_id: str | None, seq: int | None) -> ForgetMessagesAnswer:
        return ForgetMessagesAnswer(
            erasure_id=erasure_id,
            dry_run=erasure_id is None,
            messages=len(scope.sequences),
            by_type=dict(scope.by_type.most_common()),
            examples=tuple(scope.examples),
            not_proven=NOT_PROVEN,
            seq=seq,
        )

    async def one(self, caller: Caller, request: ErasureRequest) -> Erasure:
        """An erasure; raises ``NotFound``."""
        for values in await asyncio.to_thread(self._node.views.rows, _LISTED, [caller.workspace_id]):
            if (row := ErasureRow(*values)).erasure_id == request.erasure_id:
                return _shown(row, self._failed)
        raise NotFound(
            f"there is no erasure {request.erasure_id} in workspace {caller.workspace_id}", field="erasure_id"
        )

    async def all(self, caller: Caller, request: ErasuresRequest) -> ErasuresAnswer:
        """The erasures of a workspace."""
        rows = await asyncio.to_thread(self._node.views.rows, _LISTED, [caller.workspace_id])
        return ErasuresAnswer(
            erasures=tuple(_shown(ErasureRow(*values), self._failed) for values in rows),
            view_seq=self._node.views.view_seq(ERASURES_PROJECTION),
        )

    async def prove(self, _caller: Caller, request: ProveRequest) -> ProveAnswer:
        """Look for a text in everything the node keeps."""
        node = self._node
        seq = node.views.view_seq()
        found = await asyncio.to_thread(traces, node.settings.data_dir, node.views, request.canary, node.analyzer)
        return ProveAnswer(files=dict(found["files"]), views=dict(found["views"]), view_seq=seq)

    # the scope

    @property
    def stream(self) -> ErasableStream:
        """The stream and the views."""
        return self._stream

    async def scope_of(self, workspace_id: str, person: DataSubject) -> ErasureScope:
        """What an erasure of the person would cover now."""
        scope = ErasureScope(set(), person)
        await self._read(workspace_id, scope)
        return scope

    async def _read(self, workspace_id: str, scope: ErasureScope) -> list[int]:
        """Read the stream from where the scope ends to its end; returns the sequences that belong to it and are new."""
        last_seq, known = await self._stream.last_seq(), set(scope.sequences)
        async for messages in self._stream.read(scope.read_to + 1, last_seq):
            for message in messages:
                event = _event(message)
                if event is None:
                    _take_unreadable(scope, message, workspace_id)
                elif event.workspace_id == workspace_id:
                    self._take(scope, event)
            await asyncio.sleep(0)
        scope.read_to = last_seq
        return sorted(scope.sequences - known)

    @staticmethod
    def _take(scope: ErasureScope, event: Event) -> None:
        kind, person = _kind(event), scope.person
        if kind in RECORDS or (person is not None and person.is_kept(event)):
            return
        own = names_of(event)
        if (
            scope.names.isdisjoint(own)
            and not (person is not None and person.is_concerned(event))
            and scope.names.isdisjoint(sources_of(event))
        ):
            return
        asked = scope.asked.intersection(own)
        scope.found |= asked
        scope.names.update(own)
        scope.add(event.seq, own[0] if own else None, kind, named=bool(asked))

    # the work

    def _begin(self, erasure_id: str, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the next start resumes it; its answer says in which store it failed
                why = error.message if isinstance(error, CrewJournalError) else f"{type(error).__name__}, see the log"
                self._failed[erasure_id] = {self._store: why}
                _log.exception("erasure_failed", erasure_id=erasure_id, store=self._store)

        self._failed.pop(erasure_id, None)
        task = self._tasks[erasure_id] = asyncio.create_task(run(), name=f"erasure {erasure_id}")
        task.add_done_callback(lambda _: self._tasks.pop(erasure_id, None))

    async def _resume(self, row: ErasureRow) -> None:
        _log.info("erasure_resumed", erasure_id=row.erasure_id, state=row.state)
        views, workspace_id = self._node.views, row.workspace_id
        scope = ErasureScope(set())
        for entry_type in (ErasureRequested.ENTRY_TYPE, ErasureScoped.ENTRY_TYPE):
            params = [workspace_id, entry_type, row.erasure_id]
            for (payload,) in await asyncio.to_thread(views.rows, _SCOPED, params):
                if entry_type == ErasureRequested.ENTRY_TYPE:
                    asked = ErasureRequested.model_validate_json(payload)
                    scope.names.update(asked.entry_ids)
                    if asked.subject_hash is not None:
                        scope.person = await self._person(workspace_id, asked.subject_hash)
                else:
                    part = ErasureScoped.model_validate_json(payload).scope
                    scope.names.update(part.ids)
                    scope.ids.update(part.ids)
                    scope.sequences.update(seq for first, last in part.ranges for seq in range(first, last + 1))
        await self._run(workspace_id, row.erasure_id, scope, [])

    async def _run(self, workspace_id: str, erasure_id: str, scope: ErasureScope, fresh: list[int]) -> None:
        """Announce what is new in the scope, delete it, fold the views again, and record the receipt.

        What was derived meanwhile is found by reading on; usually that is nothing.
        """
        counts: Counter[str] = Counter(views=0)
        async with self._alone:
            for _ in range(ROUNDS):
                self._store = "stream"
                fresh += await self._patiently(lambda: self._read(workspace_id, scope))
                left = await self._without_text(workspace_id, scope)
                counts["vectors_of_no_text"] += len(left)
                fresh = sorted({*fresh, *left})
                if not fresh and counts["views"]:
                    break
                if fresh:
                    await self._patiently(partial(self._announce, workspace_id, erasure_id, scope, fresh))
                fresh = []
                await self._patiently(lambda: self._delete(scope.sequences))
                self._store = "dead_letters"
                counts["dead_letters"] += await self._patiently(
                    lambda: self._stream.delete_letters(frozenset(scope.sequences))
                )
                self._store = "views"
                await self._patiently(self._rebuilt)
                counts["views"] += 1
            counts["messages"] = len(scope.sequences)
            self._store = "receipt"
            await self._patiently(lambda: self._complete(workspace_id, erasure_id, counts))
        _log.info("erasure_completed", erasure_id=erasure_id, messages=counts["messages"])

    async def _complete(self, workspace_id: str, erasure_id: str, counts: Mapping[str, int]) -> None:
        """Record the receipt."""
        payload = ErasureCompleted(erasure_id=erasure_id, counts=dict(counts), not_proven=NOT_PROVEN)
        summary = f"erasure of {counts['messages']:,} messages completed"
        await self._node.decide(None, payload, summary, workspace_id=workspace_id, entry_id=f"{erasure_id}_done")

    async def _without_text(self, workspace_id: str, scope: ErasureScope) -> list[int]:
        """Take in the vectors of texts that no view holds; returns the sequences of those that are new.

        A piece of a document is made of several writes, but its vector names only one of them.
        """
        views = self._node.views
        params = {"workspace": workspace_id, "until": views.view_seq(*_TEXT_VIEWS)}
        found = [int(seq) for (seq,) in await asyncio.to_thread(views.rows, _WITHOUT_TEXT, params)]
        fresh = [seq for seq in found if seq not in scope.sequences]
        for seq in fresh:
            scope.add(seq, None, "chunkvector", named=False)
        return fresh

    async def _announce(self, workspace_id: str, erasure_id: str, scope: ErasureScope, fresh: Sequence[int]) -> None:
        """Record which messages are erased, and wait until the views know it: their gaps are then explained."""
        self._node.journal.bar(workspace_id, scope.ids)
        parts = in_parts(ranges_of(fresh), (entry_id for entry_id in scope.ids if is_id(entry_id)))
        seq = 0
        for number, part in enumerate(parts, 1):
            payload = ErasureScoped(erasure_id=erasure_id, scope=part, part=number, parts=len(parts))
            summary = f"erasure of {len(fresh):,} messages announced ({number} of {len(parts)})"
            decided = await self._node.decide(None, payload, summary, workspace_id=workspace_id)
            seq = decided.seq
        while not await self._node.shows(seq, ENTRIES_PROJECTION, ERASURES_PROJECTION):
            _log.warning("erasure_waits_for_views", erasure_id=erasure_id, seq=seq)

    async def _delete(self, sequences: Iterable[int]) -> None:
        """Delete messages, several at once."""
        room = asyncio.Semaphore(DELETED_AT_ONCE)

        async def delete(seq: int) -> None:
            async with room:
                await self._stream.delete(seq)

        await asyncio.gather(*map(delete, sequences))

    async def _rebuilt(self) -> None:
        await self._stream.rebuild()

    @staticmethod
    async def _patiently(work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it, again and again while the broker is away or another long operation runs."""
        while True:
            try:
                return await work()
            except (BrokerError, Unavailable) as error:
                _log.warning("erasure_waits", error=type(error).__name__, reason=error.message)
                await asyncio.sleep(RETRY_S)


RECORDS: Final = frozenset(
    (*EXPLANATIONS, ErasureRequested.ENTRY_TYPE, ErasureCompleted.ENTRY_TYPE, PersonExported.ENTRY_TYPE)
)
"""What explains gaps or who asked for a person's data is not erased; it holds ids and hashes alone."""


def _event(message: ErasableMessage) -> Event | None:
    try:
        return decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
    except FoldError:  # it is in no view
        return None


def _take_unreadable(scope: ErasureScope, message: ErasableMessage, workspace_id: str) -> None:
    """A message that can not be folded belongs to the scope if its header names an erased id."""
    entry_id = (message.headers or {}).get(h.ENTRY_ID)
    if entry_id is not None and entry_id in scope.names and workspace_of(message.subject) == workspace_id:
        asked = entry_id in scope.asked
        if asked:
            scope.found.add(entry_id)
        scope.add(message.seq, entry_id, "unreadable", named=asked)


def _kind(event: Event) -> str:
    if isinstance(event, EntryRecorded):
        return event.entry.entry_type
    if isinstance(event, DocumentWritten):
        return f"document {event.tier}"
    return type(event).__name__.removesuffix("Derived").lower()


def _shown(row: ErasureRow, failed: Mapping[str, Mapping[str, str]]) -> Erasure:
    return Erasure(
        erasure_id=row.erasure_id,
        state=row.state,
        reason=row.reason,
        requested_at=format_ms(row.requested_ms),
        completed_at=None if row.completed_ms is None else format_ms(row.completed_ms),
        messages=row.messages,
        counts=json.loads(row.counts),
        not_proven=tuple(json.loads(row.not_proven).get("", ())),
        failed=dict(failed.get(row.erasure_id, {})),
    )


ANSWERS: Final[Answers] = (
    (FORGET, Erasures.forget),
    (PROVE_ERASED, Erasures.prove),
    (ERASURE, Erasures.one),
    (ERASURES, Erasures.all),
)
