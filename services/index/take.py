"""Takes rows of a workspace into its hot index: the same function loads it and follows every commit.

Invariant: after ``take`` of the rows that the views hold, and after ``take`` of what each commit wrote, the index is the
same: the folds alone decide what a row says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.access.tables import AGENTS
from ...schemas.catalogue import info_of
from ...schemas.core.entry import ActorType
from ...schemas.core.ports import ViewReader
from ...schemas.entries.tables import (
    ENTRIES,
    ENTRIES_PROJECTION,
    FULLTEXT_PROJECTION,
    POSTINGS,
    POSTINGS_TAIL,
    TURNS_PROJECTION,
)
from ...schemas.learning.consolidation import is_unshared_rule
from ...schemas.learning.events import LessonRecorded, RuleLearned
from ...schemas.models.rules import REMEMBERED, is_speech
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.recall.turns import is_users
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.tables import LIVE_PRIORITIES, RETRACTIONS, STANDINGS_PROJECTION, SUPERSESSIONS
from .arrays import ABSENT
from .arrow import Found, Written, array, dictionary, kept, sequences, texts, values_of
from .documents import CONVERSATION, EMBEDDABLE, HIGH_PRIORITY, LEARNED, REMEMBERED_TEXT, SPEECH, SPOKEN_BY_USER, USERS
from .entry_index import HIGH, HotIndex, PostingColumns
from .records import RECORD_COLUMNS, append_records
from .rows import Rows, StoredRows
from .vectors import VectorMatrix, fill

_FLAGGED: Final = ("entry_type", "priority", "actor_type", "actor_id", "embeddable")
_RELATED: Final = (RELATIONS, RETRACTIONS, SUPERSESSIONS)
NOISE: Final = 256
"""Flag of an entry that is not a document."""


def take(index: HotIndex, rows: Rows) -> None:
    """Take in rows of the index's workspace; entries that the index has already are skipped."""
    _take_documents(index, rows)
    seqs = index.documents.seq
    for table in index.tables.values():
        table.take(rows, seqs)
    index.turns.take(rows, seqs)
    _take_priorities(index, rows)
    for matrix in index.matrices():
        fill(matrix, rows, seqs)
    if any(rows.may_have(table) for table in _RELATED):
        index.edges.take(rows, seqs)
        index.set_current(index.standings.take(rows, seqs))
    _take_agents(index, rows)


def _take_documents(index: HotIndex, rows: Rows) -> None:
    """The documents that are not noise, with their postings."""
    table = rows.of(ENTRIES, "seq", "id", *_FLAGGED, order="seq")
    if table is None:
        return
    flags = _flags(table)
    seqs = sequences(table, "seq")
    new = (flags & NOISE) == 0
    if len(index):
        new &= seqs > index.documents.seq[-1]
    if not new.any():
        return
    table = kept(table, new)
    index.append(seqs[new], flags[new], texts(table.column("id")), *_postings(rows))
    if index.priorities:
        names = values_of(table, "id")
        index.set_priorities({name: index.priorities[name] for name in names if name in index.priorities})


def _flags(hit: Found) -> npt.NDArray[np.uint16]:
    """(m,) uint16 flags of entries, each distinct combination looked at once."""
    columns = [hit.column(name) for name in _FLAGGED]
    if isinstance(hit, Written):
        return np.array([flags_of(*row) for row in zip(*columns, strict=True)], np.uint16)
    names, codes = zip(*map(dictionary, columns), strict=True)
    mixed = np.zeros(hit.num_rows, np.int64)
    for some, code in zip(names, codes, strict=True):
        mixed = mixed * (len(some) + 1) + code
    _, first, of_row = np.unique(mixed, return_index=True, return_inverse=True)
    rows = zip(
        *([[*some, None][at] for at in code[first]] for some, code in zip(names, codes, strict=True)), strict=True
    )
    return np.array([flags_of(*row) for row in rows], np.uint16)[of_row]


@lru_cache(maxsize=4_096)
def flags_of(entry_type: str, priority: str, actor_type: ActorType, actor_id: str | None, embeddable: bool) -> int:
    """The flags of an entry, ``NOISE`` among them."""
    info = info_of(entry_type)
    return (
        (EMBEDDABLE if embeddable else 0)
        | (HIGH_PRIORITY if priority in HIGH else 0)
        | (SPOKEN_BY_USER if actor_type == ActorType.USER else 0)
        | (CONVERSATION if info.conversation else 0)
        | (USERS if is_users(entry_type, actor_type, actor_id) else 0)
        | (SPEECH if is_speech(entry_type) else 0)
        | (LEARNED if entry_type in (RuleLearned.ENTRY_TYPE, LessonRecorded.ENTRY_TYPE) else 0)
        | (REMEMBERED_TEXT if entry_type == REMEMBERED else 0)
        | (NOISE if info.noise or is_unshared_rule(entry_type, actor_type, actor_id) else 0)
    )


def _postings(rows: Rows) -> list[PostingColumns]:
    """Sealed runs and tail apart, so that the sorted ones need no sort; together if their entries overlap."""
    tables = (rows.of(table, "term", "doc", "tf", "dl") for table in (POSTINGS, POSTINGS_TAIL))
    parts = [
        PostingColumns(array(table, "term"), sequences(table, "doc"), array(table, "tf"), array(table, "dl"))
        for table in tables
        if table is not None
    ]
    if len(parts) > 1 and int(parts[0].seq.max()) >= int(parts[1].seq.min()):
        return [parts[0].joined(parts[1])]
    return parts


def _take_priorities(index: HotIndex, rows: Rows) -> None:
    """Live priorities that operators gave, in stream order."""
    table = rows.of(LIVE_PRIORITIES, "entry_id", "priority", "since_seq", order="since_seq")
    if table is not None:
        index.set_priorities(dict(zip(values_of(table, "entry_id"), values_of(table, "priority"), strict=True)))


def _take_agents(index: HotIndex, rows: Rows) -> None:
    table = rows.of(AGENTS, "agent_id", "memory_walk_depth", "since_seq", order="since_seq")
    if table is not None:
        names, depths, seqs = (values_of(table, name) for name in ("agent_id", "memory_walk_depth", "since_seq"))
        index.walk_depths.update(zip(names, zip(depths, seqs, strict=True), strict=True))


# Loads a hot index from the views: one read of each table, as columns.


INDEXED_PROJECTIONS: Final = (ENTRIES_PROJECTION, FULLTEXT_PROJECTION, TURNS_PROJECTION, STANDINGS_PROJECTION)
"""What ``min_seq`` of a recall waits for; vectors follow (DESIGN §7)."""
_RECORDS: Final = f"""SELECT {", ".join(RECORD_COLUMNS)} FROM {ENTRIES}
    WHERE workspace_id = ? AND seq BETWEEN ? AND ? ORDER BY seq"""


def load(views: ViewReader, workspace_id: str, record_bytes: int = 0) -> HotIndex:
    """Read one workspace's index; blocking, for a worker thread.

    Commits that happen meanwhile are not in it: the caller keeps them and applies those after ``seq``. What is about the
    index's entries is read as it is, later rows included; taking one in twice changes nothing.

    Args:
        views: The views.
        workspace_id: The workspace.
        record_bytes: Most bytes of entries' texts to keep for hits: the newest ones.
    """
    seq = views.view_seq(*INDEXED_PROJECTIONS)
    model = active_in(read_active_models(views), workspace_id)
    index = HotIndex(workspace_id, VectorMatrix(model) if model is not None else None, record_bytes)
    for table in index.tables.values():
        table.needed_seq, table.read_seq = seq, views.view_seq(table.table.view)
    rows = StoredRows(views, workspace_id, seq)
    take(index, rows)
    index.sort()
    index.seq = seq
    if record_bytes and len(index):
        _records(index, rows)
    return index


def _records(index: HotIndex, rows: StoredRows) -> None:
    """The records of the newest entries: as many as fit, by the size of their messages."""
    stored = rows.of(ENTRIES, "seq", "size", order="seq")
    if stored is None:
        return
    sizes = array(stored, "size")[index.documents.local(sequences(stored, "seq")) != ABSENT]
    fitting = int(np.cumsum(sizes[::-1], dtype=np.int64).searchsorted(index.records.cap_bytes, side="right"))
    first = len(index) - fitting
    index.records.start_at(first)
    if fitting:
        table = rows.views.columns(_RECORDS, [index.workspace_id, int(index.documents.seq[first]), index.seq])
        append_records(index.records, index.documents, table)
