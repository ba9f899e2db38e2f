"""Retracts and restores entries, and sets their live priority.

Invariant: a caller may retract entries that it may read: AGENT its own, LEAD also those of its crew, OWNER and ADMIN
all. Only an operator restores an entry that an operator retracted. A retracted entry is not retracted again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.catalogue import info_of
from ...schemas.core.entry import ActorType, Priority
from ...schemas.core.errors import EntryConflict, InvalidQuery, NotAllowed, NotFound, Unavailable
from ...schemas.core.ids import derived_id, is_id
from ...schemas.core.payload import SERVICE_ALONE, PublisherKind
from ...schemas.core.principal import Role
from ...schemas.core.sequence_set import SequenceSet
from ...schemas.core.table import PRESENT
from ...schemas.entries.tables import ARCHIVED, ENTRIES, ENTRIES_PROJECTION
from ...schemas.learning.events import LessonRecorded, RuleLearned
from ...schemas.recall.events import PriorityChanged
from ...schemas.relations.events import RelationRetracted
from ...schemas.relations.rules import CONTRADICTS, SUPERSEDES, RelationState
from ...schemas.relations.tables import RELATIONS, RELATIONS_PROJECTION
from ...schemas.standing.events import RetractionMade, RetractionRestored, TargetKind
from ...schemas.standing.operations import (
    RESTORE,
    RETRACT,
    SET_PRIORITY,
    PriorityAnswer,
    PriorityRequest,
    RestoreRequest,
    RetractionAnswer,
    RetractRequest,
)
from ...schemas.standing.tables import LIVE_PRIORITIES, RETRACTIONS, STANDINGS_PROJECTION, RetractionRow
from ..desk import Author, Caller, may_change
from ..entries.rows import StoredEntry
from ..node import Answers, Decided, Node

_PRESENT = (
    f"SELECT {RETRACTIONS.names} FROM {RETRACTIONS} WHERE workspace_id = ? AND kind = ? AND target_id = ? AND {PRESENT}"
)

_PROPOSED = f"""SELECT relation, src_entry_id, src_seq, dst_entry_id, dst_seq FROM {RELATIONS}
    WHERE workspace_id = ? AND relation IN ('{SUPERSEDES}', '{CONTRADICTS}') AND state = '{RelationState.PROPOSED}'
    AND dst_entry_id = ?"""
"""Query for relations, found only by a reactor, that make an entry outdated."""


class Retractions:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._queries = node.queries

    async def retract(self, caller: Caller, request: RetractRequest) -> RetractionAnswer:
        """Record that an entry no longer counts.

        Raises:
            NotFound: If there is no such entry, or the token may not read it; likewise for ``superseded_by``.
            InvalidQuery: If the entry is a decision of the service, or would supersede itself.
        """
        entry = await self._entry(caller, request.entry_id)
        if request.superseded_by is not None:
            if request.superseded_by == entry.id:
                raise InvalidQuery(
                    "an entry does not supersede itself", hint="name another entry", field="superseded_by"
                )
            await self._entry(caller, request.superseded_by)
        known = await self._present(caller, entry.id)
        if known is not None and (known.stale, known.superseded_by) == (request.stale, request.superseded_by):
            return RetractionAnswer(entry_id=entry.id, retracted=True, changed=False, seq=None)
        if known is not None:
            _check_authority(caller, known)
        retraction_made = RetractionMade(
            targets=_only(entry), stale=request.stale, superseded_by=request.superseded_by, reason=request.reason
        )
        return await self._record(caller, entry, retraction_made, "retracted")

    async def restore(self, caller: Caller, request: RestoreRequest) -> RetractionAnswer:
        """Restore an entry that was retracted or that a reactor found outdated.

        Raises:
            NotFound: If there is no such entry, or the token may not read it.
            NotAllowed: If the token may not revoke the decision of the person who retracted it.
        """
        entry = await self._entry(caller, request.entry_id)
        known = await self._present(caller, entry.id)
        if known is not None:
            _check_authority(caller, known)
        denied = await self._deny_updates(caller, entry, request.reason)
        if known is not None:
            restored = RetractionRestored(targets=_only(entry), reason=request.reason)
            return await self._record(caller, entry, restored, "restored")
        visible = denied is None or await self._node.shows(denied, RELATIONS_PROJECTION)
        return RetractionAnswer(
            entry_id=entry.id, retracted=False, changed=denied is not None, seq=denied, visible=visible
        )

    async def _deny_updates(self, caller: Caller, entry: StoredEntry, reason: str) -> int | None:
        """Retract all relations by which a reactor found the entry outdated; returns the last sequence or None."""
        proposed = await asyncio.to_thread(self._views.rows, _PROPOSED, [caller.workspace_id, entry.id])
        if proposed and caller.principal.role is Role.AGENT and entry.record["agent_id"] != caller.principal.agent_id:
            raise NotAllowed(
                f"{entry.id} is not an entry of this agent", hint="ask a LEAD of the crew, an OWNER or ADMIN"
            )
        seq: int | None = None
        for relation, src, src_seq, dst, dst_seq in proposed:
            denied = RelationRetracted(
                src_entry_id=src, src_seq=src_seq, dst_entry_id=dst, dst_seq=dst_seq, relation=relation, reason=reason
            )
            decided = await self._node.decide(
                caller,
                denied,
                f"{relation} is retracted: {src} and {dst}",
                crew_id=entry.record["crew_id"],
                agent_id=caller.principal.agent_id,
            )
            seq = decided.seq
        return seq

    async def _entry(self, caller: Caller, entry_id: str) -> StoredEntry:
        entry = (await self._queries.get(caller.principal, entry_id, workspace=caller.workspace_id)).entry
        publisher = info_of(entry.record["entry_type"]).publisher
        if entry.record["entry_type"] in (RuleLearned.ENTRY_TYPE, LessonRecorded.ENTRY_TYPE):
            if caller.principal.role is Role.AGENT:
                raise NotAllowed(f"{entry.id} belongs to the crew", hint="ask a LEAD of the crew, an OWNER or ADMIN")
            return entry
        if publisher in SERVICE_ALONE:
            raise InvalidQuery(
                f"{entry.id} records a decision, which cannot be retracted",
                hint="make the opposite decision",
                field="entry_id",
            )
        if publisher is not PublisherKind.AGENTS and not caller.administers:
            raise NotAllowed(
                f"{entry.id} is a decision about agents, which no agent retracts", hint="ask an OWNER or ADMIN"
            )
        return entry

    async def _present(self, caller: Caller, entry_id: str) -> RetractionRow | None:
        named = [caller.workspace_id, TargetKind.ENTRY.value, entry_id]
        rows = await asyncio.to_thread(self._views.rows, _PRESENT, named)
        return RetractionRow(*rows[0]) if rows else None

    async def _record(
        self, caller: Caller, entry: StoredEntry, decision: RetractionMade | RetractionRestored, what: str
    ) -> RetractionAnswer:
        decided = await self._node.decide(
            caller,
            decision,
            f"{entry.id} is {what}",
            STANDINGS_PROJECTION,
            crew_id=entry.record["crew_id"],
            agent_id=caller.principal.agent_id,
        )
        retracted = isinstance(decision, RetractionMade)
        return RetractionAnswer(
            entry_id=entry.id, retracted=retracted, changed=True, seq=decided.seq, visible=decided.visible
        )


def _only(entry: StoredEntry) -> SequenceSet:
    return SequenceSet(sequences=str(entry.seq), ids=(entry.id,))


def _check_authority(caller: Caller, known: RetractionRow) -> None:
    agent_id = known.actor_id if known.actor_type == ActorType.AGENT else None
    # an AGENT reads its own entries alone, and a LEAD those of its crew
    if not may_change(caller, Author(known.actor_type, known.actor_id, agent_id, caller.principal.crew_id)):
        raise NotAllowed(
            f"{known.target_id} was retracted by {known.actor_id}, whose decision this token may not change",
            hint="ask an OWNER, an ADMIN, or the agent or person that retracted it",
        )


# Operators set the live priority of an entry; entries themselves never change (contract §1).


ATTEMPTS: Final = 5
"""Maximum number of attempts if other nodes change the entry at the same time."""
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
        """Set an entry's live priority; it affects the entry's importance from the next decay on.

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
                except EntryConflict as conflict:  # with another change, or with an agent's entry that has this id
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


ANSWERS: Final[Answers] = (
    (RETRACT, Retractions.retract),
    (RESTORE, Retractions.restore),
    (SET_PRIORITY, Priorities.set),
)
