"""The notes that an agent's memory block holds anyway: what was remembered on purpose and still counts.

Invariant: a block holds notes of its own agent, notes that a person or operator addressed to its crew, and, where the
caller may recall the crew's entries, notes of the crew's leads. No other agent's note reaches a prompt unasked, and no note
of a mission: adapters keep the memories of one user or store under a mission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ...schemas.operations.retractions import State
from ...schemas.ports import CommittedBatch, TableChanges, ViewReader
from ...schemas.rules.embed_policy import REMEMBERED
from ...schemas.rules.memory_block import REMEMBERED_FRAME_TOKENS
from ...schemas.rules.relations import SIMILAR
from ...schemas.rules.remembered import TOKENS_DEFAULT, Note, NoteLines, notes_text
from ...schemas.views import ENTRIES, IMPORTANCE, RELATIONS, RETRACTIONS, SUPERSESSIONS, WORKSPACE_SETTINGS
from ...schemas.views.workspaces import read_workspace_settings
from ..kept import KeptValues, in_thread
from ..query.entries.marks import add_marks
from ..query.entries.rows import JOURNAL_SOURCE, SELECT_LIST, StoredEntry
from .learned import NOW

READ_MOST: Final = 1_000
"""Notes that are considered, the newest first; some thirty times what the default budget holds."""
KEPT_MOST: Final = 1_000
"""Agents whose notes are kept, some 10 KB each."""
_STANDINGS: Final = frozenset({RETRACTIONS.name, SUPERSESSIONS.name})
_DATE_CHARS: Final = len("2026-11-21")
_SETTINGS: Final = f"SELECT settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"
_SELECT: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE} WHERE workspace_id = $workspace
        AND entry_type = '{REMEMBERED}' AND mission_id IS NULL AND seq <= $seq
        AND (agent_id = $agent OR crew_id = $crew AND (agent_id IS NULL OR list_contains($leads::VARCHAR[], agent_id)))
    ORDER BY seq DESC LIMIT {READ_MOST}"""
_USES: Final = f"""SELECT entry_id, reference_count FROM {IMPORTANCE}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""


class _Key(NamedTuple):
    workspace_id: str
    agent_id: str | None
    crew_id: str | None
    leads: frozenset[str]


class RememberedNotes:
    """Reads notes, and keeps them until a commit brings one or changes whether one counts.

    Args:
        views: The views; followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._tokens = KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(self._budget))
        self._notes: dict[_Key, list[Note]] = {}
        self._generation = views.generation
        self._unsubscribe = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()
        self._tokens.close()

    async def text(
        self,
        workspace_id: str,
        agent_id: str | None,
        crew_id: str | None,
        leads: frozenset[str],
        tokens: int | None,
        seq: int | None,
    ) -> NoteLines:
        """The notes for a block, right after ``seq`` or now. How often one was used is known for now only.

        Args:
            workspace_id: The workspace.
            agent_id: The agent whose block it is.
            crew_id: Its crew.
            leads: The agents of the crew whose notes it gets, too.
            tokens: Budget with the frame; that of the workspace if None.
            seq: A sequence, or None.
        """
        budget = await self._tokens.of(workspace_id) if tokens is None else tokens
        budget -= REMEMBERED_FRAME_TOKENS
        if budget <= 0:
            return NoteLines("")
        key = _Key(workspace_id, agent_id, crew_id, leads)
        notes = await (self._present(key) if seq is None else asyncio.to_thread(self._read, key, seq))
        if not notes:
            return NoteLines("")
        note_lines = await asyncio.to_thread(notes_text, notes, agent_id, budget)
        if note_lines.omitted and seq is None:
            notes = await asyncio.to_thread(self._with_uses, workspace_id, notes)
            note_lines = await asyncio.to_thread(notes_text, notes, agent_id, budget)
        return note_lines

    async def _present(self, key: _Key) -> list[Note]:
        if self._generation != self._views.generation or len(self._notes) > KEPT_MOST:
            self._generation, self._notes = self._views.generation, {}
        kept = self._notes
        if key not in kept:
            kept[key] = await asyncio.to_thread(self._read, key, None)  # a commit meanwhile has replaced ``_notes``
        return kept[key]

    def _follow(self, batch: CommittedBatch) -> None:
        entries, relations = batch.changes.get(ENTRIES.name), batch.changes.get(RELATIONS.name)
        if (
            any(event.entry.entry_type == REMEMBERED for event in batch.entries)
            or not _STANDINGS.isdisjoint(batch.changes)
            or (entries is not None and (entries.removed or entries.rewritten))
            or (relations is not None and _bears_on_standings(relations))
        ):
            self._notes = {}

    def _budget(self, workspace_id: str) -> int:
        tokens = read_workspace_settings(self._views, workspace_id).remembered_tokens
        return TOKENS_DEFAULT if tokens is None else tokens

    def _read(self, key: _Key, seq: int | None) -> list[Note]:
        params: dict[str, Any] = {"workspace": key.workspace_id, "agent": key.agent_id, "crew": key.crew_id}
        params |= {"leads": sorted(key.leads), "seq": NOW if seq is None else seq}
        entries = [StoredEntry.of_row(row) for row in self._views.rows(_SELECT, params)]
        add_marks(self._views, entries, seq)
        return [_note(entry) for entry in entries if _counts(entry)]

    def _with_uses(self, workspace_id: str, notes: Sequence[Note]) -> list[Note]:
        uses = dict(self._views.rows(_USES, [workspace_id, [note.entry_id for note in notes]]))
        return [replace(note, uses=uses.get(note.entry_id, 0)) for note in notes]


def _bears_on_standings(relations: TableChanges) -> bool:
    """Whether relations changed that may decide which entries count; similarity decides nothing."""
    if relations.removed or relations.rewritten:
        return True
    return any(relation != SIMILAR for columns in relations.written for relation in columns["relation"])


def _counts(entry: StoredEntry) -> bool:
    standing = entry.record["standing"]
    return standing is None or standing["state"] == State.DISPUTED


def _note(entry: StoredEntry) -> Note:
    record = entry.record
    return Note(
        seq=entry.seq,
        entry_id=entry.id,
        day=record["ts"][:_DATE_CHARS],
        text=record["summary"],
        agent_id=record["agent_id"],
        actor_type=record["actor_type"],
        actor_id=record["actor_id"],
    )
