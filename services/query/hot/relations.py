"""How a hot index learns of relations and of agents' settings: loaded with the rest, extended with each commit.

Invariant: both ways give the same edges and settings; an event that the load has seen already changes nothing, so commits
may be applied again. What the folds refuse (``consumers/views/relations``, ``agents``) does not count here either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import numpy as np
from pydantic import ValidationError

from ....schemas.events.envelope import EntryRecorded, LinkDerived
from ....schemas.events.payload import ControlPayload
from ....schemas.events.relations import RelationAsserted, RelationRetracted
from ....schemas.events.workspaces import AgentRegistered
from ....schemas.ports import ViewReader
from ....schemas.rules.relations import (
    SIMILAR,
    Authority,
    RelationState,
    authority_of,
    found_state,
    is_possible,
)
from ....schemas.views import AGENTS, RELATIONS
from .documents import ABSENT
from .edges import state_code
from .index import HotIndex

_SIMILAR: Final = f"""SELECT src_seq::BIGINT AS src, dst_seq::BIGINT AS dst, weight, state, authority, seq::BIGINT AS seq
    FROM {RELATIONS} WHERE workspace_id = ? AND relation = '{SIMILAR}' AND dst_seq IS NOT NULL"""
_AGENTS: Final = f"SELECT agent_id, memory_walk_depth, seq FROM {AGENTS} WHERE workspace_id = ?"

P = TypeVar("P", bound=ControlPayload)


def load_relations(views: ViewReader, index: HotIndex) -> None:
    """Fill a new index whose documents are there; edges of entries it does not hold yet come with their commits."""
    table = views.columns(_SIMILAR, [index.workspace_id])
    src, dst, seq, authority = (table.column(name).to_numpy() for name in ("src", "dst", "seq", "authority"))
    ends = np.stack([index.documents.local(src), index.documents.local(dst)], axis=1)
    known = (ends != ABSENT).all(axis=1)
    states = table.column("state").combine_chunks().dictionary_encode()
    codes = np.array([state_code(name) for name in states.dictionary.to_pylist()], np.uint8)
    of_row = states.indices.to_numpy(zero_copy_only=False).astype(np.int64)[known]
    weight = table.column("weight").to_numpy()[known]
    state = codes[of_row] if len(codes) else np.zeros(0, np.uint8)
    index.edges.load(ends[known], weight, state, authority[known], seq[known])
    for agent_id, depth, at in views.rows(_AGENTS, [index.workspace_id]):
        index.walk_depths[agent_id] = (int(depth), int(at))


def extend_relations(index: HotIndex, links: Iterable[LinkDerived], entries: Iterable[EntryRecorded]) -> None:
    """Follow a commit's facts and decisions in stream order; its documents are in the index already."""
    facts: list[LinkDerived | EntryRecorded] = [fact for fact in links if fact.relation == SIMILAR]
    for event in sorted((*facts, *(entry for entry in entries if entry.control)), key=lambda event: event.seq):
        if isinstance(event, LinkDerived):
            _apply(index, event, event.weight, found_state(event.relation), Authority.REACTOR, event.seq)
            continue
        entry_type, authority = event.entry.entry_type, authority_of(event.entry.actor_type)
        if entry_type == RelationAsserted.ENTRY_TYPE:
            asserted = _payload(event, RelationAsserted)
            if asserted is not None and _counts(asserted, event.seq):
                _apply(index, asserted, asserted.weight, RelationState.ASSERTED, authority, event.seq)
        elif entry_type == RelationRetracted.ENTRY_TYPE:
            retracted = _payload(event, RelationRetracted)
            if retracted is not None and _counts(retracted, event.seq):
                _apply(index, retracted, 0.0, RelationState.RETRACTED, authority, event.seq)
        elif entry_type == AgentRegistered.ENTRY_TYPE:
            registered = _payload(event, AgentRegistered)
            if registered is not None and event.seq > index.walk_depths.get(registered.agent_id, (0, 0))[1]:
                index.walk_depths[registered.agent_id] = (registered.memory_walk_depth, event.seq)


def _payload(event: EntryRecorded, model: type[P]) -> P | None:
    """The payload, None where the fold parks it."""
    try:
        return model.model_validate(event.entry.payload)
    except ValidationError:
        return None


def _counts(said: RelationAsserted | RelationRetracted, seq: int) -> bool:
    possible = is_possible(said.src_entry_id, said.src_seq, said.dst_entry_id, said.dst_seq, seq)
    return possible and said.relation == SIMILAR


def _apply(
    index: HotIndex,
    said: LinkDerived | RelationAsserted | RelationRetracted,
    weight: float,
    state: RelationState,
    authority: Authority,
    seq: int,
) -> None:
    one, other = index.documents.local(np.array([said.src_seq, said.dst_seq], np.int64)).tolist()
    if ABSENT not in (one, other):
        index.edges.apply(one, other, weight, state, authority, seq)
