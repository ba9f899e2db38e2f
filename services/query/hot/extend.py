"""Extends a hot index by one commit.

Invariant: after ``extend`` the index is what a load at the commit's ``last_seq`` would give; where a commit cannot say
that (a view was left out of it, or entries were judged again), ``can_follow`` is False and the index is loaded again.
Another model becoming active changes the vectors alone, a moment later (``switch``); a decay the importances alone: the
columns of a table that was rewritten are stale until they are read again.
"""

from __future__ import annotations

from typing import Final

from ....schemas.views import (
    AGENTS_PROJECTION,
    ENTRIES,
    RELATIONS_PROJECTION,
    TOKEN_BITS_PROJECTION,
    VECTORS_PROJECTION,
)
from .index import HotIndex
from .load import INDEXED_PROJECTIONS
from .records import RECORD_COLUMNS, append_records
from .rows import Commit
from .take import take
from .vectors import dropped_by

NEEDED: Final = frozenset(
    (*INDEXED_PROJECTIONS, VECTORS_PROJECTION, TOKEN_BITS_PROJECTION, RELATIONS_PROJECTION, AGENTS_PROJECTION)
)
"""Projections that must have taken part in a commit for the index to follow it; others only have columns in it."""


def can_follow(index: HotIndex, commit: Commit) -> bool:
    """Whether a commit holds every change of an index."""
    return commit.projections >= NEEDED and not commit.rewrote(ENTRIES, index.workspace_id)


def extend(index: HotIndex, commit: Commit) -> None:
    """Add a commit's rows of the index's workspace."""
    for model in dropped_by(commit):
        index.forget_model(model)
    rows = commit.rows(index.workspace_id)
    known = len(index)
    take(index, rows)
    if len(index) > known and index.records.cap_bytes:
        append_records(index.records, index.documents, rows.of(ENTRIES, *RECORD_COLUMNS))
    for held in index.tables.values():
        if held.table.view not in commit.projections or commit.rewrote(held.table, index.workspace_id):
            held.needed_seq = commit.last_seq
    index.seq = max(index.seq, commit.last_seq)
