"""Operators set the live priority of an entry; entries themselves never change (contract §1).

Invariants: only OWNER and ADMIN, never an agent for its own output; each change names the priority it found, and no two
changes found the same one: its id follows from the change before it, so of two made at once, on one node or on two, the
journal takes one, and the other waits for that one and reads the priority again. If an agent gave the id to an entry, the
next id follows from that entry.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.entry import Priority
from ...schemas.errors import EntryConflict, NotFound, Unavailable
from ...schemas.events.memory import PriorityChanged
from ...schemas.ids import derived_id, is_id
from ...schemas.operations.priorities import SET_PRIORITY, PriorityAnswer, PriorityRequest
from ...schemas.views import ARCHIVED, ENTRIES, ENTRIES_PROJECTION, LIVE_PRIORITIES, STANDINGS_PROJECTION
from ...schemas.views.table import PRESENT
from ..desk import Caller
from ..node import Answers, Decided, Node

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
    """Sets live priorities."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._one_at_a_time = asyncio.Lock()

    async def set(self, caller: Caller, request: PriorityRequest) -> PriorityAnswer:
        """Give an entry another live priority; it counts in its importance from the next decay on.

        Raises:
            NotFound: If the workspace has no such entry.
            BrokerUnavailable, ViewsBehind: If the change could not be recorded; asking again is safe.
        """
        workspace_id, entry_id, priority = caller.workspace_id, request.entry_id, request.priority
        async with self._one_at_a_time:
            taken_at = 0
            for _ in range(ATTEMPTS):
                said_at, previous = await self._live(workspace_id, entry_id)
                if previous is priority:
                    return _answer(request, previous, None)
                change = PriorityChanged(
                    target_entry_id=entry_id, previous_priority=previous, new_priority=priority, reason=request.reason
                )
                cause = f"{workspace_id}/{entry_id}/{max(said_at, taken_at)}"
                try:
                    decided = await self._node.decide(
                        caller,
                        change,
                        f"Priority of {entry_id} changed from {previous.value} to {priority.value}",
                        *_READ,
                        entry_id=derived_id(_ID_NAME, _ID_VERSION, cause),
                    )
                except EntryConflict as conflict:  # by another change, or by an entry that an agent gave this id
                    taken_at = conflict.seq
                    await self._views.wait_for(taken_at, self._node.wait_s, *_READ)
                    continue
                return _answer(request, previous, decided)
        raise Unavailable(
            f"the priority of {entry_id} is being changed elsewhere", hint="check its present priority and try again"
        )

    async def _live(self, workspace_id: str, entry_id: str) -> tuple[int, Priority]:
        rows = await asyncio.to_thread(self._views.rows, _LIVE, [workspace_id, entry_id]) if is_id(entry_id) else []
        if not rows:
            hint = "check the id and the token's workspace; pass min_seq for an entry that was just written"
            raise NotFound(f"no entry {entry_id[:64]}", hint=hint)
        return int(rows[0][0]), Priority(rows[0][1])


def _answer(request: PriorityRequest, previous: Priority, decided: Decided | None) -> PriorityAnswer:
    return PriorityAnswer(
        entry_id=request.entry_id,
        priority=request.priority,
        previous_priority=previous,
        changed=decided is not None,
        seq=None if decided is None else decided.seq,
        visible=decided is None or decided.visible,
    )


ANSWERS: Final[Answers] = ((SET_PRIORITY, Priorities.set),)
