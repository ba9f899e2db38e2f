"""Loads a hot index from the views: one read of each table, as columns.

Invariant: the index is that of exactly one sequence, and no Python object is made per row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....schemas.active_models import active_in, read_active_models
from ....schemas.ports import ViewReader
from ....schemas.views import (
    ENTRIES,
    ENTRIES_PROJECTION,
    FULLTEXT_PROJECTION,
    STANDINGS_PROJECTION,
    TURNS_PROJECTION,
)
from .arrow import array, sequences
from .index import HotIndex
from .records import RECORD_COLUMNS, append_records
from .rows import StoredRows
from .take import take
from .vector_matrix import VectorMatrix
from .vocabulary import ABSENT

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
