"""Takes rows of a workspace into its hot index: the same function loads it and follows every commit.

Invariant: after ``take`` of the rows that the views hold, and after ``take`` of what each commit wrote, the index is the
same: the folds alone decide what a row says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.catalogue import info_of
from ....schemas.entry import ActorType
from ....schemas.events.learning import RuleLearned
from ....schemas.rules.consolidation import is_unshared_rule
from ....schemas.rules.embed_policy import is_speech
from ....schemas.rules.turns import is_users
from ....schemas.views import (
    AGENTS,
    ENTRIES,
    LIVE_PRIORITIES,
    POSTINGS,
    POSTINGS_TAIL,
    RELATIONS,
    RETRACTIONS,
    SUPERSESSIONS,
)
from .arrow import Found, Written, array, dictionary, kept, sequences, texts, values_of
from .documents import CONVERSATION, EMBEDDABLE, HIGH_PRIORITY, LEARNED, SPEECH, SPOKEN_BY_USER, USERS
from .index import HIGH, HotIndex, PostingColumns
from .rows import Rows
from .vectors import fill

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
        | (LEARNED if entry_type == RuleLearned.ENTRY_TYPE else 0)
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
