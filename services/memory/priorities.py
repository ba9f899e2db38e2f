"""Operators set the live priority of an entry; entries themselves never change (contract §1).

Invariants: only OWNER and ADMIN, never an agent for its own output; each change names the priority it found, and no two
changes found the same one: its id follows from the change before it, so of two made at once, on one node or on two, the
journal takes one, and the other waits for that one and reads the priority again. If an agent gave the id to an entry, the
next id follows from that entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from ...schemas.entry import ActorType, Priority
from ...schemas.errors import EntryConflict, NotFound, Unavailable, ViewsBehind
from ...schemas.events.memory import PriorityChanged
from ...schemas.ids import derived_id, is_id
from ...schemas.operations.priorities import PriorityAnswer, PriorityRequest
from ...schemas.ports import ViewReader
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.views import ARCHIVED, ENTRIES, ENTRIES_PROJECTION, LIVE_PRIORITIES, STANDINGS_PROJECTION
from ...schemas.views.table import PRESENT
from ..desk import Caller
from ..journal.intake.recorder import Recorder

ATTEMPTS: Final = 5
"""Changes of one entry that another node may make between our look and our word before we give up."""
_READ: Final = (ENTRIES_PROJECTION, STANDINGS_PROJECTION)
_ID_NAME: Final = "priority"
_ID_VERSION: Final = 1
_LIVE: Final = f"""SELECT coalesce(live.since_seq, entry.seq), coalesce(live.priority, entry.priority)
    FROM (SELECT workspace_id, id, seq, priority FROM {ENTRIES}
        UNION ALL SELECT workspace_id, id, seq, priority FROM {ARCHIVED}) AS entry
    LEFT JOIN (SELECT * FROM {LIVE_PRIORITIES} WHERE {PRESENT}) AS live
        ON live.workspace_id = entry.workspace_id AND live.entry_id = entry.id
    WHERE entry.workspace_id = $1 AND entry.id = $2"""
"""The latest priority of an entry and the sequence that set it; no row if there is no such entry."""


class Priorities:
    """Sets live priorities.

    Args:
        journal: Records the changes.
        views: The entries and their priorities.
        wait_s: Seconds to wait until a change can be read back.
    """

    def __init__(self, journal: Recorder, views: ViewReader, *, wait_s: float = MIN_SEQ_WAIT_S) -> None:
        self._journal = journal
        self._views = views
        self._wait_s = wait_s
        self._one_at_a_time = asyncio.Lock()

    async def set(self, caller: Caller, asked: PriorityRequest) -> PriorityAnswer:
        """Give an entry another live priority; it counts in its importance from the next decay on.

        Raises:
            NotFound: If the workspace has no such entry.
            BrokerUnavailable, ViewsBehind: If the change could not be recorded; asking again is safe.
        """
        workspace_id, entry_id, priority = caller.workspace_id, asked.entry_id, asked.priority
        async with self._one_at_a_time:
            taken_at = 0
            for _ in range(ATTEMPTS):
                said_at, previous = await self._live(workspace_id, entry_id)
                if previous is priority:
                    return _answer(asked, previous, None)
                change = PriorityChanged(
                    target_entry_id=entry_id, previous_priority=previous, new_priority=priority, reason=asked.reason
                )
                cause = f"{workspace_id}/{entry_id}/{max(said_at, taken_at)}"
                try:
                    recorded = await self._journal.record(
                        workspace_id,
                        change,
                        summary=f"Priority of {entry_id} changed from {previous.value} to {priority.value}",
                        entry_id=derived_id(_ID_NAME, _ID_VERSION, cause),
                        actor_type=ActorType.USER,
                        actor_id=caller.actor,
                    )
                except EntryConflict as conflict:  # by another change, or by an entry that an agent gave this id
                    taken_at = conflict.seq
                    await self._views.wait_for(taken_at, self._wait_s, *_READ)
                    continue
                with contextlib.suppress(ViewsBehind):  # then the next change conflicts and looks again
                    await self._views.wait_for(recorded.seq, self._wait_s, *_READ)
                return _answer(asked, previous, recorded.seq)
        raise Unavailable(
            f"the priority of {entry_id} is being changed elsewhere", hint="check its present priority and try again"
        )

    async def _live(self, workspace_id: str, entry_id: str) -> tuple[int, Priority]:
        rows = await asyncio.to_thread(self._views.rows, _LIVE, [workspace_id, entry_id]) if is_id(entry_id) else []
        if not rows:
            hint = "check the id and the token's workspace; pass min_seq for an entry that was just written"
            raise NotFound(f"no entry {entry_id[:64]}", hint=hint)
        return int(rows[0][0]), Priority(rows[0][1])


def _answer(asked: PriorityRequest, previous: Priority, seq: int | None) -> PriorityAnswer:
    return PriorityAnswer(
        entry_id=asked.entry_id,
        priority=asked.priority,
        previous_priority=previous,
        changed=seq is not None,
        seq=seq,
    )
