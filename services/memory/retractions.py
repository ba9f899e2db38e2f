"""Retracting and restoring entries.

Invariant: a caller retracts what it may read: AGENT its own entries, LEAD also those of its crew, OWNER and ADMIN all.
Only an operator restores an entry that an operator retracted. A retracted entry is not retracted again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.catalogue import info_of
from ...schemas.entry import ActorType
from ...schemas.errors import InvalidQuery, NotAllowed
from ...schemas.events.learning import LessonRecorded, RuleLearned
from ...schemas.events.payload import SERVICE_ALONE, PublisherKind
from ...schemas.events.relations import RelationRetracted
from ...schemas.events.retractions import RetractionMade, RetractionRestored, TargetKind
from ...schemas.operations.retractions import RESTORE, RETRACT, RestoreRequest, RetractionAnswer, RetractRequest
from ...schemas.principal import Role
from ...schemas.rules.relations import CONTRADICTS, SUPERSEDES, RelationState
from ...schemas.sequence_set import SequenceSet
from ...schemas.views import RELATIONS, RELATIONS_PROJECTION, RETRACTIONS, STANDINGS_PROJECTION, RetractionRow
from ...schemas.views.table import PRESENT
from ..authorship import Author, may_change
from ..desk import Caller
from ..node import Answers, Node
from ..query.entries.rows import StoredEntry

_PRESENT = (
    f"SELECT {RETRACTIONS.names} FROM {RETRACTIONS} WHERE workspace_id = ? AND kind = ? AND target_id = ? AND {PRESENT}"
)

_PROPOSED = f"""SELECT relation, src_entry_id, src_seq, dst_entry_id, dst_seq FROM {RELATIONS}
    WHERE workspace_id = ? AND relation IN ('{SUPERSEDES}', '{CONTRADICTS}') AND state = '{RelationState.PROPOSED}'
    AND dst_entry_id = ?"""
"""By which relations an entry is outdated that only a reactor found."""


class Retractions:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._queries = node.queries

    async def retract(self, caller: Caller, request: RetractRequest) -> RetractionAnswer:
        """Record that an entry does not count any more.

        Raises:
            NotFound: If there is no such entry, or none that the token may read; likewise for ``superseded_by``.
            InvalidQuery: If the entry is a decision of the service, or is to supersede itself.
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
        """Record that a retracted entry counts again, or one that a reactor found outdated.

        Raises:
            NotFound: If there is no such entry, or none that the token may read.
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
        """Retract every relation by which a reactor found the entry outdated; the last sequence, None without any."""
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


ANSWERS: Final[Answers] = ((RETRACT, Retractions.retract), (RESTORE, Retractions.restore))
