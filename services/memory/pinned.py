"""Reads the entries of a crew that operators pinned, now or as of a sequence; blocking.

Invariant: the live priority counts, and a retracted entry is left out.
"""

from __future__ import annotations

from typing import Final

from ...schemas.ports import ViewReader
from ...schemas.rules.pins import MAX_PINS, PinnedEntry
from ...schemas.views import ENTRIES, LIVE_PRIORITIES, RETRACTIONS
from ...schemas.views.table import as_of

_PINNED: Final = ("pin", "permanent")


def pinned_entries(views: ViewReader, workspace_id: str, crew_id: str, seq: int) -> list[PinnedEntry]:
    """The newest ``MAX_PINS`` pinned entries of a crew right after ``seq``, the oldest first."""
    sql = f"""SELECT e.id, e.ts_ms, e.summary FROM {ENTRIES} e LEFT JOIN
            (SELECT * FROM {LIVE_PRIORITIES} WHERE {as_of(seq)}) p ON p.workspace_id = e.workspace_id AND p.entry_id = e.id
        WHERE e.workspace_id = $workspace AND e.crew_id = $crew AND e.seq <= $seq
        AND coalesce(p.priority, e.priority) IN {_PINNED}
        AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} r WHERE r.workspace_id = e.workspace_id AND r.kind = 'entry'
            AND r.target_id = e.id AND {as_of(seq)})
        ORDER BY e.ts_ms DESC, e.seq DESC LIMIT {MAX_PINS}"""
    rows = views.rows(sql, {"workspace": workspace_id, "crew": crew_id, "seq": seq})
    return [PinnedEntry(*row) for row in rows[::-1]]
