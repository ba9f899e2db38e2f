"""The notes that an agent's memory block holds anyway: what was remembered on purpose and still counts.

Invariant: a block holds notes of its own agent, notes that a person or operator addressed to its crew, and, where the
caller may recall the crew's entries, notes of the crew's leads. No other agent's note reaches a prompt unasked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Final

from ...schemas.events.workspaces import REMEMBERED_TOKENS
from ...schemas.operations.retractions import State
from ...schemas.ports import ViewReader
from ...schemas.rules.embed_policy import REMEMBERED
from ...schemas.rules.remembered import TOKENS_DEFAULT, Note
from ...schemas.views import IMPORTANCE, WORKSPACE_SETTINGS
from ..kept import Kept, in_thread
from ..query.entries.marks import add_marks
from ..query.entries.rows import JOURNAL_SOURCE, SELECT_LIST, StoredEntry
from .learned import NOW

READ_MOST: Final = 1_000
"""Notes that are considered, the newest first; some thirty times what the default budget holds."""
_DATE_CHARS: Final = len("2026-11-21")
_SETTINGS: Final = f"SELECT settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"
_SELECT: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE} WHERE workspace_id = $workspace
        AND entry_type = '{REMEMBERED}' AND seq <= $seq
        AND (agent_id = $agent OR crew_id = $crew AND (agent_id IS NULL OR list_contains($leads::VARCHAR[], agent_id)))
    ORDER BY seq DESC LIMIT {READ_MOST}"""
_USES: Final = f"""SELECT entry_id, reference_count FROM {IMPORTANCE}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""


class RememberedNotes:
    """Reads notes.

    Args:
        views: The views; the settings are followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._tokens = Kept(views, (WORKSPACE_SETTINGS,), in_thread(self._budget))
        self.close = self._tokens.close

    async def tokens(self, workspace_id: str) -> int:
        """The workspace's budget of tokens; 0 leaves the notes out."""
        return await self._tokens.of(workspace_id)

    async def of(
        self, workspace_id: str, agent_id: str | None, crew_id: str | None, leads: Collection[str], seq: int | None
    ) -> list[Note]:
        """The notes that count, right after ``seq`` or now; how often each was used is known for now only."""
        return await asyncio.to_thread(self._read, workspace_id, agent_id, crew_id, leads, seq)

    def _budget(self, workspace_id: str) -> int:
        rows = self._views.rows(_SETTINGS, [workspace_id])
        tokens = json.loads(rows[0][0]).get(REMEMBERED_TOKENS) if rows else None
        return TOKENS_DEFAULT if tokens is None else int(tokens)

    def _read(
        self, workspace_id: str, agent_id: str | None, crew_id: str | None, leads: Collection[str], seq: int | None
    ) -> list[Note]:
        params = {"workspace": workspace_id, "agent": agent_id, "crew": crew_id, "leads": sorted(leads)}
        rows = self._views.rows(_SELECT, {**params, "seq": NOW if seq is None else seq})
        entries = [StoredEntry.of_row(row) for row in rows]
        add_marks(self._views, entries, seq=seq)
        uses: dict[str, int] = {}
        if seq is None and entries:
            uses = dict(self._views.rows(_USES, [workspace_id, [entry.id for entry in entries]]))
        return [_note(entry, uses.get(entry.id, 0)) for entry in entries if _counts(entry)]


def _counts(entry: StoredEntry) -> bool:
    standing = entry.record["standing"]
    return standing is None or standing["state"] == State.DISPUTED


def _note(entry: StoredEntry, uses: int) -> Note:
    record = entry.record
    day = record["ts"][:_DATE_CHARS]
    return Note(entry.seq, day, record["summary"], record["agent_id"], record["actor_type"], record["actor_id"], uses)
