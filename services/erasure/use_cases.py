"""Erases messages and everything that was made of them, with a receipt.

The steps: the request is recorded, and its ids cannot be used again; the stream is read once to find what was made of
them (``schemas/erasure/lineage``); the scope is announced, so that the gaps are explained; the messages are deleted with
their bytes; all views are folded again from the stream into a new file, which replaces the old one; then the receipt. So the
views are what they would be if the messages had never been there, without a line about erasure in any other fold.

Invariant: an erasure that was requested is completed: after a crash the node resumes it at its next start, and every step
may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from ...schemas import tables
from ...schemas.catalogue import control_payloads
from ...schemas.core import headers as h
from ...schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    Event,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from ...schemas.core.errors import (
    BrokerError,
    CrewJournalError,
    EmbedderUnavailable,
    FoldError,
    InvalidQuery,
    NotFound,
    Unavailable,
)
from ...schemas.core.ids import SYSTEM_WORKSPACE, hash64, is_id, name_key, uuid7_hex
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.sequence_set import MAX_IDS, in_parts, ranges_of
from ...schemas.core.timestamps import format_ms
from ...schemas.decode import decode
from ...schemas.documents.rules import TIERS, KeyKind
from ...schemas.documents.tables import CHUNK_VECTORS
from ...schemas.entries.events import ERASURE_TYPES, ErasureCompleted, ErasureRequested, ErasureScoped
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.erasure.criteria import CRITERIA
from ...schemas.erasure.events import PersonExported
from ...schemas.erasure.lineage import named_drawer, names_of, sources_of
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
from ...schemas.erasure.tables import ERASED_IDS, ERASURE_ROWS, ERASURES_PROJECTION, LATE_MESSAGES, ErasureRow, LateRow
from ...schemas.learning.events import MemoryConsolidated, RuleLearned, RuleProposed
from ...schemas.lineage.events import MemoryGiven
from ...schemas.operate.events import ToolCalled
from ...schemas.operators.events import OperatorDeleted, OperatorProfileUpdated
from ...schemas.operators.rules import subject_hash
from ...schemas.operators.tables import OPERATORS_PROJECTION
from ...schemas.palace.events import CentroidComputed, DrawerFiled, DrawerMerged, DrawerPruned
from ...schemas.recall.events import MemoryReferenced, MemorySearched
from ...schemas.sweeps.events import SweepTicked
from ...schemas.texts import TEXT_KINDS
from ..access.accounts import Accounts
from ..data_dir import small_file, write_private
from ..desk import Caller
from ..node import Answers, Node
from ..operate.letters import workspace_of
from ..ownership import ALONE
from ..parts import Part
from .persons import DataSubject, data_subject
from .proof import traces

NOT_PROVEN: Final = (
    "backups made before the erasure, wherever they are kept",
    "prompts and answers that were given to agents, and what the providers of models keep of them",
    "mirrors, exports, bundles and copies of the stream outside this node",
    "keys of documents in the broker's index of subjects, which it writes again within minutes and when it stops",
    "ids that a client, or a version before the first of December 2026, made of a text: they confirm a guess of the text",
    "freed blocks of the disk, which the file system may not have overwritten yet",
)
"""What an erasure cannot reach."""
DERIVED_ANEW: Final = {
    RuleLearned.ENTRY_TYPE: "the next consolidation",
    RuleProposed.ENTRY_TYPE: "the next consolidation",
    MemoryConsolidated.ENTRY_TYPE: "the next consolidation",
    OperatorProfileUpdated.ENTRY_TYPE: "the next sweep of people's models",
    DrawerMerged.ENTRY_TYPE: "the next maintenance of the palace",
    DrawerPruned.ENTRY_TYPE: "the next maintenance of the palace",
    CentroidComputed.ENTRY_TYPE: "the next maintenance of the palace",
}
"""Types that are made of several sources, and by what they are made again from the sources that remain."""
DELETED_AT_ONCE: Final = 32
"""Deletions that wait for the broker's answer at the same time."""
EXAMPLES: Final = 20
EXAMPLES_OF_TYPE: Final = 3
NAMED_IN_ERRORS: Final = 3
ROUNDS: Final = 5
"""Most repetitions for messages that were derived while an erasure was under way."""
RETRY_S: Final = 5.0
"""Seconds until an erasure goes on after the broker was away or another long operation was running."""
READ_AT_ONCE: Final = 100
"""Messages of the stream that are examined without a pause, 2 to 3 ms."""
PAUSE_S: Final = 0.000_5
"""Seconds of a pause, in which requests get Python's lock; without it each of their steps waits 5 ms for it."""
BATCH_PAUSE_S: Final = 0.005
"""Seconds between two batches of the stream, which the event loop parses."""
LEAST_QUOTED: Final = 12
"""Fewest characters of a search that is erased because an erased message has the same words: "ok" is everybody's."""
_DERIVED_KINDS: Final = {
    VectorDerived: "vector of an entry",
    TokenBitsDerived: "word vectors of an entry",
    ChunkVectorDerived: "vector of a text",
    LinkDerived: "link",
}
_TEXT_FIELDS: Final = ("text", "content", "prompt", "query")
"""Fields of payloads that hold the words of an entry, beside its summary: a search for the same words is erased with it."""
_RECEIPTS: Final = frozenset((MemorySearched.ENTRY_TYPE, MemoryGiven.ENTRY_TYPE, MemoryReferenced.ENTRY_TYPE))
"""Types that say who was given what."""
_SCOPED: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = ? AND control AND entry_type = ?
    AND json_extract_string(payload, '$.erasure_id') = ? ORDER BY seq"""
_TEXTS: Final = " UNION ALL ".join(
    f"""SELECT text_hash FROM {kind.table} WHERE workspace_id = $workspace
    AND NOT list_contains($sequences, since_seq) AND NOT list_contains($ids, source_id)"""
    for kind in TEXT_KINDS
)
_WITHOUT_TEXT: Final = f"""SELECT seq FROM {CHUNK_VECTORS}
    WHERE workspace_id = $workspace AND seq <= $until AND text_hash NOT IN ({_TEXTS}) ORDER BY seq"""
"""Vectors of texts that are in no view, or only in rows of erased messages: former pieces of documents, for example."""
_TEXT_VIEWS: Final = tuple(sorted({kind.table.view for kind in TEXT_KINDS}))
_OPEN: Final = f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE state <> 'completed' ORDER BY seq"
_LISTED: Final = f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE workspace_id = ? ORDER BY seq DESC"
_ONE: Final = f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE workspace_id = ? AND erasure_id = ?"
_COMPLETED: Final = (
    f"SELECT {ERASURE_ROWS.names} FROM {ERASURE_ROWS} WHERE state = 'completed' AND seq > ? ORDER BY seq"
)
_OPEN_TASK: Final = "open erasures"
"""Name of the task that resumes erasures of another node."""
_ELSEWHERE: Final = "erasures of other nodes"
"""Name of the task that follows the receipts of other nodes."""
NODE: Final = "node "
"""A receipt counts the nodes that have dropped what was erased, by name."""
NODE_NOT_PROVEN: Final = (
    "views and files of the node {name}, which did not confirm; it drops them when it reads this receipt"
)
DROPPED_FILE: Final = "erased"
"""Holds the sequence of the last receipt that this node has followed."""
_LATE: Final = "late messages"
"""Name of the task that deletes messages which came after they were erased."""
_LATE_OF_COMPLETED: Final = f"""SELECT {LATE_MESSAGES.names} FROM {LATE_MESSAGES}
    WHERE erasure_id IN (SELECT erasure_id FROM {ERASURE_ROWS} WHERE state = 'completed') ORDER BY seq"""
"""An erasure that is under way finds late messages itself."""
_SEQUENCES: Final = "seq", "since_seq", "doc"
"""Columns with the sequence of the message that a row was made of."""
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

    async def letters(self, sequences: Collection[int], *, delete: bool) -> int:
        """The number of dead letters of these messages; with ``delete`` they are deleted."""
        ...

    async def files(self, workspace_id: str, *, delete: bool) -> Mapping[str, int]:
        """Store → number of files that may hold texts of the workspace; with ``delete`` they are deleted."""
        ...

    async def rebuild(self) -> None:
        """Fold all views into a new file and replace the old one."""
        ...


@dataclass(slots=True)
class ErasureScope:
    """What an erasure covers, as far as the stream was read.

    Attributes:
        names: Of the messages in scope: what was made of these goes, too.
        hashes: Criterion → keyed hash of its value: the messages with that value go.
        person: The person of the criterion ``subject``.
        sequences: Of the messages in scope.
        ids: Ids of entries and document writes among them.
        seeds: Ids of those that were named.
        asked: The names in the request.
        found: Those of them that messages bear.
        by_type: Number of messages by type.
        by_family: Number of messages by family.
        recomputed: Number of messages by type that go although other sources of them remain, and are made again of these.
        examples: The first messages of each type.
        texts: Hashes of the words of the messages in scope.
        searches: Hash of the words of a search → sequences and ids of its receipts.
        documents: Document whose key is a name or path, or drawer → whether a write of it stays.
        mentions: Such a document or drawer → sequences, ids and types of the receipts that name it.
        centroids: Sequences and ids of the means of drawers' vectors.
        ticks: Names of sweeps' ticks, which are causes of what the sweeps derive, not sources of its text.
        read_to: Last sequence that was read.
    """

    names: set[str]
    hashes: Mapping[str, str] = field(default_factory=dict)
    person: DataSubject | None = None
    sequences: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    seeds: list[str] = field(default_factory=list)
    asked: frozenset[str] = frozenset()
    found: set[str] = field(default_factory=set)
    by_type: Counter[str] = field(default_factory=Counter)
    by_family: Counter[str] = field(default_factory=Counter)
    recomputed: Counter[str] = field(default_factory=Counter)
    examples: list[ErasureExample] = field(default_factory=list)
    texts: set[int] = field(default_factory=set)
    searches: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    documents: dict[str, bool] = field(default_factory=dict)
    mentions: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    centroids: list[tuple[int, str]] = field(default_factory=list)
    ticks: set[str] = field(default_factory=set)
    read_to: int = 0

    def add(
        self, seq: int, entry_id: str | None, kind: str, family: str, *, named: bool = False, remaining: int = 0
    ) -> None:
        """Take in a message, unless it was announced before a crash.

        Args:
            seq: Its sequence.
            entry_id: Its id; None if it has none.
            kind: Its type.
            family: Its family.
            named: Whether the request itself names it.
            remaining: Number of its sources that are not erased.
        """
        if seq in self.sequences:
            return
        self.sequences.add(seq)
        self.by_type[kind] += 1
        self.by_family[family] += 1
        if remaining and kind in DERIVED_ANEW:
            self.recomputed[kind] += 1
        if entry_id is not None:
            self.ids.add(entry_id)
            if named:
                self.seeds.append(entry_id)
        if self.by_type[kind] <= EXAMPLES_OF_TYPE and len(self.examples) < EXAMPLES:
            self.examples.append(ErasureExample(seq=seq, id=entry_id, what=kind, remaining_sources=remaining))

    def take_searches(self) -> None:
        """Take in the receipts of searches for the very words of a message in scope."""
        for text in self.texts & self.searches.keys():
            for seq, entry_id in self.searches.pop(text):
                self.names.add(entry_id)
                self.add(seq, entry_id, MemorySearched.ENTRY_TYPE, "recall")

    def take_centroids(self) -> None:
        """Take in the means of vectors if a drawer goes: with all other members, a mean confirms a guess of the last."""
        if any(name.startswith(named_drawer("")) for name in self.names):
            for seq, entry_id in self.centroids:
                self.add(seq, entry_id, CentroidComputed.ENTRY_TYPE, "palace", remaining=1)
            self.centroids.clear()

    def take_mentions(self) -> None:
        """Take in the receipts that name a document of which no write stays, because its key is somebody's text.

        Those of earlier versions also name drawers by ids that follow from their texts.
        """
        for name in [name for name, stays in self.documents.items() if not stays and name in self.mentions]:
            for seq, entry_id, kind in self.mentions.pop(name):
                self.names.add(entry_id)
                self.add(seq, entry_id, kind, "recall")


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._late_due = False
        self._folded = asyncio.Event()

    # as a part of the node

    async def start(self) -> None:
        """Bar the erased ids, and resume erasures that are not completed."""
        views = self._node.views
        self._unsubscribe = views.subscribe(self._follow)
        keys = await asyncio.to_thread(views.rows, f"SELECT key FROM {ERASED_IDS}")
        self._node.journal.erased.update(int(key) for (key,) in keys)
        self._loop = asyncio.get_running_loop()
        await self._resume_open()
        self._begin_late()
        if self._node.ownership is not ALONE:
            self._begin(_ELSEWHERE, self._drop_elsewhere())

    def take_over(self) -> None:
        """Resume the erasures of a node that was lost, if this node erases from now on."""
        if _OPEN_TASK not in self._tasks:
            self._begin(_OPEN_TASK, self._resume_open())
        self._begin_late()

    async def _resume_open(self) -> None:
        for values in await asyncio.to_thread(self._node.views.rows, _OPEN):
            row = ErasureRow(*values)
            if row.erasure_id not in self._tasks:
                self._begin(row.erasure_id, self._resume(row))

    async def stop(self) -> None:
        """Stop the work; the next start resumes it."""
        self._unsubscribe()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def figures(self) -> Mapping[str, Any]:
        """How many erasures are under way."""
        return {"under_way": len(self._tasks.keys() - {_ELSEWHERE}), "erased_ids": len(self._node.journal.erased)}

    def _follow(self, batch: CommittedBatch) -> None:
        changes = batch.changes.get(ERASED_IDS.name)
        for written in changes.written if changes is not None else ():
            self._node.journal.erased.update(int(key) for key in written["key"])
        if {LATE_MESSAGES.name, ERASURE_ROWS.name} & batch.changes.keys() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_late)
            self._folded.set()

    # the operations

    async def forget(self, caller: Caller, request: ForgetMessagesRequest) -> ForgetMessagesAnswer:
        """Find the scope, record the request, and begin.

        Of a person who has no messages, zero messages are erased: the request and its receipt are recorded.

        Raises:
            InvalidQuery: If not exactly one of ids, person, author and source is given.
            NotFound: If an id names no message, or nothing has the author or source.
            Unavailable: If the journal names people by another key.
        """
        given = {name: value for name in CRITERIA if (value := getattr(request, name)) is not None}
        if bool(request.ids) + len(given) != 1:
            problem = "nothing is named to erase" if not (request.ids or given) else "an erasure has one criterion"
            hint = f"send exactly one of ids, {', '.join(CRITERIA)}"
            raise InvalidQuery(problem, hint=hint, field="ids")
        return await self.erase(
            caller.workspace_id, request.reason, request.ids, given, caller=caller, dry_run=request.dry_run
        )

    async def erase(
        self,
        workspace_id: str,
        reason: str,
        ids: Collection[str] = (),
        criteria: Mapping[str, str] | None = None,
        *,
        caller: Caller | None = None,
        dry_run: bool = False,
    ) -> ForgetMessagesAnswer:
        """Erase messages and everything that was made of them; returns when the request is recorded.

        Args:
            workspace_id: The workspace.
            reason: The reason; it is recorded.
            ids: Names of messages, of any number.
            criteria: Criterion (``schemas/erasure/criteria``) → its value.
            caller: Who asks; None for the service itself.
            dry_run: Whether only to find the scope.

        Raises:
            NotFound: If an id names no message, or nothing has the author or source.
            Unavailable: If the journal names people by another key.
        """
        values = dict(criteria or {})
        hashes = {name: subject_hash(self._node.subject_key, workspace_id, value) for name, value in values.items()}
        person = await self._person(workspace_id, hashes["subject"]) if "subject" in hashes else None
        if person is not None:
            hashes["subject"] = person.person_hash
        scope = ErasureScope(set(ids), hashes, person, asked=frozenset(ids))
        await self._read(workspace_id, scope)
        self._check_found(workspace_id, values, scope)
        if dry_run:
            return await self._planned(workspace_id, scope)
        if person is not None:
            await self._node.use(Accounts).remove_person(caller, workspace_id, person.is_named)
            await self._read(workspace_id, scope)
        erasure_id = f"x_{uuid7_hex()}"
        seeds = list(dict.fromkeys(scope.seeds))
        parts = [seeds[first : first + MAX_IDS] for first in range(0, len(seeds), MAX_IDS)] or [[]]
        for number, part in enumerate(parts):
            decided = await self._node.decide(
                caller,
                ErasureRequested(
                    erasure_id=erasure_id,
                    entry_ids=tuple(part),
                    reason=reason,
                    **{f"{name}_hash": value for name, value in hashes.items()},
                ),
                f"erasure of {len(scope.sequences):,} messages requested",
                *((ERASURES_PROJECTION,) if number == len(parts) - 1 else ()),
                workspace_id=workspace_id,
                entry_id=f"{erasure_id}_{number}" if number else erasure_id,
            )
        self._node.journal.bar(workspace_id, scope.ids)
        failed: dict[str, str] = {}
        if not scope.sequences:
            await self._resume_failed()
            await self._complete(workspace_id, erasure_id, {"stream": 0})
        else:
            if person is not None:
                failed = await self._delete_model(caller, person)
            self._begin(erasure_id, self._run(workspace_id, erasure_id, scope, sorted(scope.sequences)))
        return _answer(scope, erasure_id, decided.seq).model_copy(update={"failed": failed})

    async def person(self, workspace_id: str, name: str) -> DataSubject:
        """The person of this name.

        Raises:
            Unavailable: If the journal names people by another key.
        """
        return await self._person(workspace_id, subject_hash(self._node.subject_key, workspace_id, name))

    async def _person(self, workspace_id: str, hashed: str) -> DataSubject:
        return await asyncio.to_thread(data_subject, self._node.views, self._node.subject_key, workspace_id, hashed)

    async def _delete_model(self, caller: Caller | None, person: DataSubject) -> dict[str, str]:
        """Remove model, cards and consent from the views at once; store → why it failed, to be done with the messages."""
        payload, summary = OperatorDeleted(subject_hash=person.person_hash), "a person is erased"
        try:
            await self._node.decide(caller, payload, summary, OPERATORS_PROJECTION, workspace_id=person.workspace_id)
        except CrewJournalError as error:
            return {"operators": error.message}
        return {}

    async def _resume_failed(self) -> None:
        """Begin the erasures again that failed."""
        for values in await asyncio.to_thread(self._node.views.rows, _OPEN):
            row = ErasureRow(*values)
            if row.erasure_id not in self._tasks and row.erasure_id in self._failed:
                self._begin(row.erasure_id, self._resume(row))

    def _check_found(self, workspace_id: str, criteria: Mapping[str, str], scope: ErasureScope) -> None:
        """Refuse a request that names what is not there: who mistypes an id must not believe that it was erased."""
        missing = sorted(scope.asked - scope.found)
        if missing:
            erased = [name for name in missing if name_key((workspace_id, name)) in self._node.journal.erased]
            message = f"no message of workspace {workspace_id} is called {', '.join(missing[:NAMED_IN_ERRORS])}"
            hint = "name entries and writes of documents by their ids, a drawer as drawer:ID, a fact as fact:ID"
            if erased:
                hint = f"{', '.join(erased[:NAMED_IN_ERRORS])}: erased already, `crew-journal erasures` shows when"
            raise NotFound(message, hint=hint, field="ids")
        for name, value in criteria.items() if not scope.sequences and scope.person is None else ():
            raise NotFound(
                f"no message of workspace {workspace_id} has the {name} {value}", hint=_HINTS[name], field=name
            )

    async def _planned(self, workspace_id: str, scope: ErasureScope) -> ForgetMessagesAnswer:
        """What an erasure would remove."""
        await self._without_text(workspace_id, scope)
        stores = await asyncio.to_thread(_rows_of, self._node.views, scope.sequences)
        stores["dead letters"] = await self._stream.letters(scope.sequences, delete=False)
        stores |= await self._stream.files(workspace_id, delete=False)
        return _answer(scope, None, None, {"stream": len(scope.sequences), **stores})

    async def one(self, caller: Caller, request: ErasureRequest) -> Erasure:
        """An erasure; raises ``NotFound``."""
        params = [caller.workspace_id, request.erasure_id]
        for values in await asyncio.to_thread(self._node.views.rows, _ONE, params):
            return _shown(ErasureRow(*values), self._failed)
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
        vectors: dict[str, bytes] = {}
        for model in await asyncio.to_thread(node.embedders.wanted):
            if (embedder := node.embedders.running(model)) is not None:
                with contextlib.suppress(EmbedderUnavailable):  # the answer names the models that were asked
                    [vectors[model]] = await embedder.embed_documents([request.canary])
        found = await asyncio.to_thread(
            traces, node.settings.data_dir, node.views, request.canary, node.analyzer, vectors
        )
        return ProveAnswer(
            files=dict(found["files"]), views=dict(found["views"]), models=tuple(sorted(vectors)), view_seq=seq
        )

    # the scope

    @property
    def stream(self) -> ErasableStream:
        """The stream and the views."""
        return self._stream

    async def scope_of(self, workspace_id: str, person: DataSubject) -> ErasureScope:
        """What an erasure of the person would cover now."""
        scope = ErasureScope(set(), {"subject": person.person_hash}, person)
        await self._read(workspace_id, scope)
        return scope

    async def _read(self, workspace_id: str, scope: ErasureScope) -> list[int]:
        """Read the stream from where the scope ends to its end; returns the sequences that belong to it and are new."""
        last_seq, known = await self._stream.last_seq(), set(scope.sequences)
        hashes: dict[str, str] = {}
        async for messages in self._stream.read(scope.read_to + 1, last_seq):
            await asyncio.to_thread(self._take_all, workspace_id, scope, messages, hashes)
            await asyncio.sleep(BATCH_PAUSE_S)
        scope.take_searches()
        scope.take_mentions()
        scope.take_centroids()
        scope.read_to = last_seq
        return sorted(scope.sequences - known)

    def _take_all(
        self, workspace_id: str, scope: ErasureScope, messages: Sequence[ErasableMessage], hashes: dict[str, str]
    ) -> None:
        for number, message in enumerate(messages, 1):
            if number % READ_AT_ONCE == 0:
                time.sleep(PAUSE_S)
            event = _event(message)
            if event is None:
                _take_unreadable(scope, message, workspace_id)
            elif event.workspace_id == workspace_id:
                self._take(scope, event, hashes)

    def _take(self, scope: ErasureScope, event: Event, hashes: dict[str, str]) -> None:
        kind = kind_of(event)
        if kind in RECORDS or (scope.person is not None and scope.person.is_kept(event)):
            return
        own, sources = names_of(event), frozenset(sources_of(event))
        if (
            scope.names.isdisjoint(own)
            and scope.names.isdisjoint(sources)
            and not self._fulfils(scope, event, hashes)
            and not (kind == ToolCalled.ENTRY_TYPE and _payload(event).get("seq") in scope.sequences)
        ):
            if kind == MemorySearched.ENTRY_TYPE and isinstance(event, EntryRecorded):
                for words in _hashes_of([str(event.entry.payload.get("query"))]):
                    scope.searches.setdefault(words, []).append((event.seq, event.entry.id))
            elif kind == SweepTicked.ENTRY_TYPE:
                scope.ticks.update(own)
            elif kind == CentroidComputed.ENTRY_TYPE:
                scope.centroids.append((event.seq, own[0]))
            if (document := _named_document(event)) is not None:
                scope.documents[document] = True
            elif kind in _RECEIPTS and isinstance(event, EntryRecorded):
                for document in _documents_of(event.entry.payload):
                    scope.mentions.setdefault(document, []).append((event.seq, event.entry.id, kind))
            return
        if (document := _named_document(event)) is not None:
            scope.documents.setdefault(document, False)
        asked = scope.asked.intersection(own)
        scope.found |= asked
        remaining = len(sources - scope.names - scope.ticks) if scope.names.isdisjoint(own) else 0
        scope.names.update(own)
        scope.texts.update(_hashes_of(_texts(event)))
        scope.add(event.seq, own[0] if own else None, kind, family_of(event), named=bool(asked), remaining=remaining)

    def _fulfils(self, scope: ErasureScope, event: Event, hashes: dict[str, str]) -> bool:
        """Whether a message fulfils a criterion of the erasure; ``hashes`` keeps the hashes of values."""
        for name, wanted in scope.hashes.items():
            if name == "subject":
                if scope.person is not None and scope.person.is_concerned(event):
                    return True
                continue
            for value in CRITERIA[name](event):
                if value not in hashes:
                    hashes[value] = subject_hash(self._node.subject_key, event.workspace_id, value)
                if hashes[value] == wanted:
                    return True
        return False

    # the work

    def _begin(self, erasure_id: str, work: Awaitable[None]) -> None:
        async def run() -> None:
            if erasure_id != _ELSEWHERE and not self._node.ownership.hold(SYSTEM_WORKSPACE):
                if asyncio.iscoroutine(work):
                    work.close()
                return  # another node erases
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
                    scope.hashes = asked.hashes
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
        counts: Counter[str] = Counter()
        removed: dict[str, int] = {}
        folded = False
        async with self._alone:
            for _ in range(ROUNDS):
                self._store = "stream"
                fresh += await self._patiently(lambda: self._read(workspace_id, scope))
                fresh += await self._without_text(workspace_id, scope)
                if not fresh and folded:
                    break
                rows = await asyncio.to_thread(_rows_of, self._node.views, scope.sequences)
                removed = {name: max(rows.get(name, 0), removed.get(name, 0)) for name in {*rows, *removed}}
                if fresh:
                    await self._patiently(partial(self._announce, workspace_id, erasure_id, scope, sorted(set(fresh))))
                fresh = []
                await self._patiently(lambda: self._delete(scope.sequences))
                self._store = "dead letters"
                counts["dead letters"] += await self._patiently(
                    lambda: self._stream.letters(scope.sequences, delete=True)
                )
                self._store = "views"
                await self._patiently(self._stream.rebuild)
                self._store = "files"
                counts.update(await self._patiently(lambda: self._stream.files(workspace_id, delete=True)))
                folded = True
            self._store = "other nodes"
            others = await self._node.ownership.refold_others(workspace_id)
            counts.update({NODE + name: 1 for name, done in others.items() if done})
            missing = tuple(NODE_NOT_PROVEN.format(name=name) for name, done in others.items() if not done)
            self._store = "receipt"
            if (here := self._node.settings.node) is not None:
                counts[NODE + here] = 1
            counted = {"stream": len(scope.sequences), **removed, **counts}
            await self._patiently(lambda: self._complete(workspace_id, erasure_id, counted, missing))
        _log.info("erasure_completed", erasure_id=erasure_id, messages=len(scope.sequences))

    async def refold(self, *workspace_ids: str) -> None:
        """Drop what was erased of workspaces from the views and files of this node."""
        async with self._alone:
            await self._patiently(self._stream.rebuild)
            for workspace_id in workspace_ids:
                await self._patiently(partial(self._stream.files, workspace_id, delete=True))

    async def _drop_elsewhere(self) -> None:
        """Drop what was erased by other nodes while this one was away: the receipts do not name this node."""
        mark = self._node.settings.data_dir / DROPPED_FILE
        here = NODE + str(self._node.settings.node)
        while True:
            self._folded.clear()
            stored = await asyncio.to_thread(small_file, mark)
            known = int(stored) if stored else 0
            rows = [
                ErasureRow(*values) for values in await asyncio.to_thread(self._node.views.rows, _COMPLETED, [known])
            ]
            left = [row for row in rows if here not in json.loads(row.counts) and row.messages]
            if left:
                await self.refold(*dict.fromkeys(row.workspace_id for row in left))
            if rows:
                await asyncio.to_thread(write_private, mark, f"{rows[-1].seq}\n")
            await self._folded.wait()

    async def _complete(
        self, workspace_id: str, erasure_id: str, counts: Mapping[str, int], missing: tuple[str, ...] = ()
    ) -> None:
        """Record the receipt."""
        not_proven = (*NOT_PROVEN, *missing)
        receipt = ErasureCompleted(erasure_id=erasure_id, counts=dict(counts), not_proven=not_proven)
        summary = f"erasure of {counts['stream']:,} messages completed"
        await self._node.decide(None, receipt, summary, workspace_id=workspace_id, entry_id=f"{erasure_id}_done")

    async def _without_text(self, workspace_id: str, scope: ErasureScope) -> list[int]:
        """Take in the vectors of texts that no other message holds; returns the sequences of those that are new.

        A piece of a document is made of several writes, but its vector names only one of them.
        """
        views = self._node.views
        params = {
            "workspace": workspace_id,
            "until": views.view_seq(*_TEXT_VIEWS),
            "sequences": sorted(scope.sequences),
            "ids": sorted(scope.ids),
        }
        found = [int(seq) for (seq,) in await asyncio.to_thread(views.rows, _WITHOUT_TEXT, params)]
        fresh = [seq for seq in found if seq not in scope.sequences]
        for seq in fresh:
            scope.add(seq, None, "vector of a text that is gone", "vectors")
        return fresh

    def _begin_late(self) -> None:
        self._late_due = True
        if _LATE not in self._tasks:
            self._begin(_LATE, self._delete_late())

    async def _delete_late(self) -> None:
        """Delete messages that came after they were erased, with a further receipt; no view has folded them."""
        while self._late_due:
            self._late_due = False
            async with self._alone:
                await self._delete_all_late()

    async def _delete_all_late(self) -> None:
        while late := await asyncio.to_thread(self._node.views.rows, _LATE_OF_COMPLETED):
            rows = [LateRow(*values) for values in late]
            workspace_id, erasure_id = rows[0].workspace_id, rows[0].erasure_id
            sequences = [row.seq for row in rows if row.erasure_id == erasure_id]
            scope = ErasureScope(set(), sequences=set(sequences))
            await self._patiently(partial(self._announce, workspace_id, erasure_id, scope, sequences))
            await self._patiently(partial(self._delete, sequences))
            receipt = ErasureCompleted(
                erasure_id=erasure_id, counts={"late messages": len(sequences)}, not_proven=NOT_PROVEN
            )
            summary = f"{len(sequences):,} messages that came after their erasure are deleted"
            decided = await self._patiently(
                partial(
                    self._node.decide,
                    None,
                    receipt,
                    summary,
                    workspace_id=workspace_id,
                    entry_id=f"{erasure_id}_{max(sequences)}",
                )
            )
            await self._shown(erasure_id, decided.seq)

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
        await self._shown(erasure_id, seq)

    async def _shown(self, erasure_id: str, seq: int) -> None:
        while not await self._node.shows(seq, ENTRIES_PROJECTION, ERASURES_PROJECTION):
            _log.warning("erasure_waits_for_views", erasure_id=erasure_id, seq=seq)

    async def _delete(self, sequences: Iterable[int]) -> None:
        """Delete messages, several at once."""
        room = asyncio.Semaphore(DELETED_AT_ONCE)

        async def delete(seq: int) -> None:
            async with room:
                await self._stream.delete(seq)

        await asyncio.gather(*map(delete, sequences))

    @staticmethod
    async def _patiently(work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it, again and again while the broker is away or another long operation runs."""
        while True:
            try:
                return await work()
            except (BrokerError, Unavailable) as error:
                _log.warning("erasure_waits", error=type(error).__name__, reason=error.message)
                await asyncio.sleep(RETRY_S)


RECORDS: Final = ERASURE_TYPES | {PersonExported.ENTRY_TYPE}
"""What explains gaps, or says who asked for a person's data, is not erased; it holds ids and hashes alone."""


def _event(message: ErasableMessage) -> Event | None:
    try:
        return decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
    except FoldError:  # it is in no view
        return None


def _take_unreadable(scope: ErasureScope, message: ErasableMessage, workspace_id: str) -> None:
    """A message that cannot be folded belongs to the scope if its header names an erased id."""
    entry_id = (message.headers or {}).get(h.ENTRY_ID)
    if entry_id is not None and entry_id in scope.names and workspace_of(message.subject) == workspace_id:
        asked = entry_id in scope.asked
        if asked:
            scope.found.add(entry_id)
        scope.add(message.seq, entry_id, "unreadable message", "unreadable", named=asked)


def kind_of(event: Event) -> str:
    """The type of a message."""
    if isinstance(event, EntryRecorded):
        return event.entry.entry_type
    if isinstance(event, DocumentWritten):
        return f"document {event.tier}"
    return _DERIVED_KINDS.get(type(event), "derived fact of an unknown kind")


def family_of(event: Event) -> str:
    """The folder of ``schemas`` that declares the message."""
    if isinstance(event, EntryRecorded):
        made = control_payloads().get(event.entry.entry_type) if event.control else None
        return "entries" if made is None else made.__module__.split(".")[-2]
    if isinstance(event, DocumentWritten):
        return "documents"
    return "relations" if isinstance(event, LinkDerived) else "vectors"


def _payload(event: Event) -> Mapping[str, Any]:
    return event.entry.payload if isinstance(event, EntryRecorded) and event.control else {}


def _texts(event: Event) -> list[str]:
    """What was said, in words by which it may have been searched for."""
    if isinstance(event, DocumentWritten):
        return [event.content]
    if not isinstance(event, EntryRecorded):
        return []
    given = (event.entry.payload.get(name) for name in _TEXT_FIELDS)
    return [event.entry.summary, *(text for text in given if isinstance(text, str))]


def _named_document(event: Event) -> str | None:
    """A filed drawer, or ``<owner>/<label>`` of a written document whose key is a name or a path.

    None for documents without a key, and for those of days.
    """
    if isinstance(event, EntryRecorded) and event.control and event.entry.entry_type == DrawerFiled.ENTRY_TYPE:
        return named_drawer(event.entry.payload.get("drawer_id"))
    if not isinstance(event, DocumentWritten) or event.key is None or event.tier not in TIERS:
        return None
    rule = TIERS[event.tier]
    return None if rule.key is KeyKind.DATE else f"{event.owner}/{rule.label_of(event.key)}"


def _documents_of(payload: Mapping[str, Any]) -> set[str]:
    """The documents that a receipt names, without their lines, and its drawers."""
    texts = payload.get("texts")
    named = [text.get("id") for text in texts if isinstance(text, Mapping)] if isinstance(texts, list) else []
    named += [named_drawer(name) for name in named]
    chunks = payload.get("chunks")
    named += chunks if isinstance(chunks, list) else []
    names = {name for name in named if isinstance(name, str)}
    return names | {name.rpartition(":")[0] for name in names}


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _hashes_of(texts: Iterable[str]) -> Iterator[int]:
    return (hash64(words) for words in map(_words, texts) if len(words) >= LEAST_QUOTED)


def _rows_of(views: ViewReader, sequences: Collection[int]) -> dict[str, int]:
    """``views: FAMILY`` → number of rows that were made of these messages; blocking."""
    counts: Counter[str] = Counter()
    for table in tables.TABLES:
        column = next((column.name for column in table.columns if column.name in _SEQUENCES), None)
        if column is not None and sequences:
            sql = f"SELECT count(*) FROM {table} WHERE {column} IN (SELECT unnest($sequences))"
            [(rows,)] = views.rows(sql, {"sequences": sorted(sequences)})
            counts[f"views: {table.view}"] += int(rows)
    return {name: rows for name, rows in sorted(counts.items()) if rows}


def _answer(
    scope: ErasureScope, erasure_id: str | None, seq: int | None, stores: Mapping[str, int] | None = None
) -> ForgetMessagesAnswer:
    return ForgetMessagesAnswer(
        erasure_id=erasure_id,
        dry_run=erasure_id is None,
        messages=len(scope.sequences),
        by_type=dict(scope.by_type.most_common()),
        by_family=dict(scope.by_family.most_common()),
        stores=dict(stores or {}),
        recomputed={kind: DERIVED_ANEW[kind] for kind in scope.recomputed},
        examples=tuple(scope.examples),
        not_proven=NOT_PROVEN,
        seq=seq,
    )


def _shown(row: ErasureRow, failed: Mapping[str, Mapping[str, str]]) -> Erasure:
    return Erasure(
        erasure_id=row.erasure_id,
        state=row.state,
        reason=row.reason,
        requested_at=format_ms(row.requested_ms),
        completed_at=None if row.completed_ms is None else format_ms(row.completed_ms),
        messages=row.messages,
        counts=json.loads(row.counts),
        not_proven=tuple(json.loads(row.not_proven)),
        failed=dict(failed.get(row.erasure_id, {})),
    )


_HINTS: Final = {
    "author": "the name must be exactly the `actor_id` of the messages, or the `agent_id` of an agent's",
    "source": "the name must be exactly `refs.imported_from`, a drawer's `imported_from`, or a document's `source`",
}
ANSWERS: Final[Answers] = (
    (FORGET, Erasures.forget),
    (PROVE_ERASED, Erasures.prove),
    (ERASURE, Erasures.one),
    (ERASURES, Erasures.all),
)
