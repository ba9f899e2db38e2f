"""How a hot index keeps up: what one commit adds to it.

Invariant: after ``extend`` the index is what a load at the commit's ``last_seq`` would give; where a commit cannot say
that (a view was left out of it), it is not ``complete`` and the index is loaded anew. Another model becoming active
changes the vectors alone, a moment later (``switch``); a decay the importances alone (``importances``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np

from ....schemas.catalogue import info_of
from ....schemas.entry import ActorType, Priority
from ....schemas.events.embeddings import EmbeddingsDropped, ReindexRequested
from ....schemas.events.envelope import EntryRecorded, LinkDerived, VectorDerived
from ....schemas.events.memory import PriorityChanged
from ....schemas.events.sweeps import SweepTicked
from ....schemas.ids import SYSTEM_WORKSPACE, hash64
from ....schemas.ports import CommittedBatch
from ....schemas.rules.embed_policy import is_embedded
from ....schemas.rules.importance import base_importance
from ....schemas.rules.text import strings_in, tokens_of
from ....schemas.rules.turns import is_users
from ....schemas.views import (
    AGENTS_PROJECTION,
    RELATIONS_PROJECTION,
    TOKEN_BITS_PROJECTION,
    VECTORS_PROJECTION,
)
from .documents import (
    ABSENT,
    CONVERSATION,
    EMBEDDABLE,
    HIGH_PRIORITY,
    SPOKEN_BY_USER,
    USERS,
    Documents,
    NewDocuments,
    Texts,
)
from .index import HotIndex, PostingColumns
from .load import INDEXED_PROJECTIONS, priority_of
from .records import record_of
from .relations import extend_relations
from .turns import TurnRows, turns_of_commit
from .vectors import ModelFact, put_facts

NEEDED: Final = frozenset(
    (*INDEXED_PROJECTIONS, VECTORS_PROJECTION, TOKEN_BITS_PROJECTION, RELATIONS_PROJECTION, AGENTS_PROJECTION)
)
"""Projections that must have taken part in a commit for the index to follow it."""
_POSTING_COLUMNS: Final = ("term", "doc", "tf", "dl")
MOVES_IMPORTANCE: Final = "decay"
"""Sweep whose fold changes the importance of every entry: the column is then read anew, beside the queries."""


@dataclass(frozen=True, slots=True)
class WorkspaceCommit:
    """What one commit holds of one workspace.

    Attributes:
        entries: Its entries, in order of ``seq``.
        vectors: Its vector facts and those about tokens in context, in order of ``seq``.
        postings: Columns ``term``, ``doc``, ``tf``, ``dl`` of its postings; None if the commit has none.
        last_seq: Last stream sequence the commit covers.
        links: Its link facts.
        dropped: Models whose vectors were taken away; what was filled anew since is to be read.
        turns: What the view of turns says of its entries; None if the commit has no turn.
    """

    entries: Sequence[EntryRecorded]
    vectors: Sequence[ModelFact]
    postings: Mapping[str, Any] | None
    last_seq: int
    links: Sequence[LinkDerived] = ()
    dropped: frozenset[str] = frozenset()
    turns: TurnRows | None = None


class SplitCommit:
    """One commit by workspace; made once, however many indexes follow it.

    Args:
        batch: The commit.

    Attributes:
        complete: Whether it says all that changed in an index: no view was left out.
        dropped: Models whose vectors were taken away.
    """

    def __init__(self, batch: CommittedBatch) -> None:
        self._batch = batch
        self._entries: dict[str, list[EntryRecorded]] = {}
        for event in batch.entries:
            self._entries.setdefault(event.entry.workspace_id, []).append(event)
        self._vectors: dict[str, list[ModelFact]] = {}
        facts: Sequence[ModelFact] = batch.vectors
        if batch.token_bits:
            facts = sorted([*batch.vectors, *batch.token_bits], key=attrgetter("seq"))
        for fact in facts:
            self._vectors.setdefault(fact.workspace_id, []).append(fact)
        self._links: dict[str, list[LinkDerived]] = {}
        for link in batch.links:
            self._links.setdefault(link.workspace_id, []).append(link)
        self.complete = batch.projections >= NEEDED and (batch.postings is not None or not batch.entries)
        self.complete = self.complete and not any(map(_changes_policy, batch.entries))
        self.dropped = frozenset(
            str(event.entry.payload.get("model"))
            for event in self._entries.get(SYSTEM_WORKSPACE, ())
            if event.control and event.entry.entry_type == EmbeddingsDropped.ENTRY_TYPE
        )

    @property
    def last_seq(self) -> int:
        """Last stream sequence the commit covers."""
        return self._batch.last_seq

    def of(self, workspace_id: str) -> WorkspaceCommit:
        """The workspace's part."""
        entries = self._entries.get(workspace_id, [])
        postings = self._batch.postings if entries else None
        if postings is not None and len(self._entries) > 1:
            own = np.asarray(postings["ws"]) == np.uint64(hash64(workspace_id))
            postings = {name: np.asarray(postings[name])[own] for name in _POSTING_COLUMNS}
        vectors, links = self.vectors_of(workspace_id), self._links.get(workspace_id, [])
        columns = self._batch.turns if entries else None
        turns = None if columns is None else turns_of_commit(columns, workspace_id)
        return WorkspaceCommit(entries, vectors, postings, self._batch.last_seq, links, self.dropped, turns)

    def vectors_of(self, workspace_id: str) -> Sequence[ModelFact]:
        """The workspace's facts about vectors and tokens."""
        return self._vectors.get(workspace_id, ())


def _changes_policy(event: EntryRecorded) -> bool:
    """Whether an entry may have had earlier ones judged anew."""
    return event.control and event.entry.entry_type == ReindexRequested.ENTRY_TYPE


def extend(index: HotIndex, commit: WorkspaceCommit) -> None:
    """Add what a commit holds of the index's workspace; entries the index has already are passed over."""
    fresh = [event for event in commit.entries if event.seq > index.seq]
    kept = [event for event in fresh if not info_of(event.entry.entry_type).noise]
    postings = commit.postings
    if kept and postings is not None:
        index.append(
            new_documents(index.documents, kept, index.policy),
            PostingColumns(
                postings["term"], np.asarray(postings["doc"]).astype(np.int64), postings["tf"], postings["dl"]
            ),
            turns=commit.turns,
        )
        if index.records.cap_bytes:
            index.records.append_all([record_of(event) for event in kept])
        if index.priorities:
            ids = [event.entry.id for event in kept if event.entry.id in index.priorities]
            if ids:
                index.set_priorities({entry_id: index.priorities[entry_id] for entry_id in ids})
    vectors = [fact for fact in commit.vectors if isinstance(fact, VectorDerived)]
    _weigh(index, [event for event in fresh if event.control], vectors)
    if commit.vectors:
        for matrix in index.matrices():
            put_facts(matrix, index.documents, commit.vectors)
    for model in commit.dropped:
        index.forget_model(model)
    extend_relations(index, commit.links, commit.entries)
    index.seq = max(index.seq, commit.last_seq)


def _weigh(index: HotIndex, decisions: Sequence[EntryRecorded], facts: Sequence[VectorDerived]) -> None:
    """Priorities and importances: an entry's first vector counts with the priority of its moment."""
    done = 0
    changes: dict[str, str] = {}
    for event in decisions:
        if event.entry.entry_type == PriorityChanged.ENTRY_TYPE:
            before = sum(fact.seq < event.seq for fact in facts)
            _begin(index, facts[done:before])
            done = before
            if (changed := priority_of(event.entry.payload)) is not None:
                entry_id, priority = changed
                changes[entry_id] = index.priorities[entry_id] = priority
        elif event.entry.entry_type == SweepTicked.ENTRY_TYPE and event.entry.payload.get("sweep") == MOVES_IMPORTANCE:
            index.importances.needed_seq = max(index.importances.needed_seq, event.seq)
    _begin(index, facts[done:])
    if changes:
        index.set_priorities(changes)


def _begin(index: HotIndex, facts: Sequence[VectorDerived]) -> None:
    """The first vector of an entry, of whatever model, gives it an importance."""
    if not facts:
        return
    docs = index.documents.local(np.array([fact.entry_seq for fact in facts], np.int64))
    for doc, fact in zip(docs.tolist(), facts, strict=True):
        if doc != ABSENT and fact.dim:
            priority = index.priorities.get(fact.entry_id, fact.priority)
            index.importances.begin(doc, base_importance(fact.entry_type, fact.severity, priority))


def new_documents(documents: Documents, events: Sequence[EntryRecorded], policy: int) -> NewDocuments:
    """Columns of entries that are no noise, in order of ``seq``; judged by a version of the embed policy."""
    entries = [event.entry for event in events]
    n = len(entries)
    return NewDocuments(
        seq=np.fromiter((event.seq for event in events), np.int64, n),
        ts_ms=np.fromiter((event.ts_ms for event in events), np.int64, n),
        agent=documents.agents.learn_all([entry.agent_id for entry in entries]),
        crew=documents.crews.learn_all([entry.crew_id for entry in entries]),
        session=documents.sessions.learn_all([entry.trace_id for entry in entries]),
        actor=documents.actors.learn_all([entry.actor_id for entry in entries]),
        words=np.fromiter((_words(event) for event in events), np.int64, n),
        flags=np.fromiter((_flags(event, policy) for event in events), np.uint8, n),
        ids=Texts.of([entry.id for entry in entries]),
    )


_ASCII_BLANKED: Final = bytes(code if chr(code).isascii() and chr(code).isalnum() else ord(" ") for code in range(256))
"""Letters and digits as they are, all else a blank: cutting at blanks is then cutting into tokens, and five times faster
than the regular expression (a commit's words are counted on the event loop)."""


def _words(event: EntryRecorded) -> int:
    entry = event.entry
    text = " ".join((entry.summary, *strings_in(entry.payload))) if entry.payload else entry.summary
    if text.isascii():
        return len(text.encode().translate(_ASCII_BLANKED).split())
    return len(tokens_of(text))


def _flags(event: EntryRecorded, policy: int) -> int:
    entry = event.entry
    return (
        (EMBEDDABLE if is_embedded(entry.entry_type, entry.severity, entry.payload, entry.refs, policy) else 0)
        | (HIGH_PRIORITY if entry.priority is not Priority.NORMAL else 0)
        | (SPOKEN_BY_USER if entry.actor_type is ActorType.USER else 0)
        | (CONVERSATION if info_of(entry.entry_type).conversation else 0)
        | (USERS if is_users(entry.entry_type, entry.actor_type, entry.actor_id) else 0)
    )
