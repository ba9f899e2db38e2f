"""``memory_relations``: how entries relate, from reactors' facts, people's word and consolidated rules.

Invariant: one row per (workspace, pair, relation), symmetric relations from the newer entry to the older; who outweighs whom
is ``rules/relations``. Ids are believed as the events name them: a fold looks no entry up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, ClassVar, Final

import numpy as np

from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded, LinkDerived
from ...schemas.events.relations import RelationAsserted, RelationRetracted
from ...schemas.ids import is_id, name_key
from ...schemas.rules import relations as rules
from ...schemas.rules.relations import (
    EVIDENCE_REF,
    EVIDENCE_WEIGHT,
    SUPPORTS,
    SYMMETRIC,
    Authority,
    RelationState,
    authority_of,
    found_state,
    is_possible,
    is_turned,
    outweighs,
)
from ...schemas.views import RELATIONS, RELATIONS_PROJECTION
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction, in_order

CONSOLIDATED: Final = "memory.consolidated"

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {RELATIONS} (
    workspace_id VARCHAR NOT NULL, src_entry_id VARCHAR NOT NULL, dst_entry_id VARCHAR NOT NULL,
    relation VARCHAR NOT NULL, weight DOUBLE NOT NULL, state VARCHAR NOT NULL, src_seq UBIGINT NOT NULL,
    dst_seq UBIGINT, crew_id VARCHAR, reason VARCHAR NOT NULL, created_at BIGINT NOT NULL, seq UBIGINT NOT NULL,
    authority UTINYINT NOT NULL, key UBIGINT NOT NULL)"""
"""``key`` is a 64-bit hash of the edge's name: known rows are found by one scan of integers."""

Name = tuple[str, str, str, str]
"""Workspace, relation, and the two ids: in order of the alphabet for a symmetric relation, else source first."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """One row."""

    workspace_id: str
    src_entry_id: str
    dst_entry_id: str
    relation: str
    weight: float
    state: RelationState
    src_seq: int
    dst_seq: int | None
    crew_id: str | None
    reason: str
    created_at: int
    seq: int
    authority: Authority

    @property
    def name(self) -> Name:
        pair = (self.src_entry_id, self.dst_entry_id)
        first, second = sorted(pair) if self.relation in SYMMETRIC else pair
        return self.workspace_id, self.relation, first, second

    def turned(self) -> _Edge:
        """From the newer entry to the older, if the relation is symmetric."""
        if self.dst_seq is None or not is_turned(self.relation, self.src_seq, self.dst_seq):
            return self
        return replace(
            self,
            src_entry_id=self.dst_entry_id,
            src_seq=self.dst_seq,
            dst_entry_id=self.src_entry_id,
            dst_seq=self.src_seq,
        )


_COLUMNS: Final = tuple(field.name for field in fields(_Edge))
_TYPES: Final = {
    "weight": np.float64,
    "src_seq": np.uint64,
    "created_at": np.int64,
    "seq": np.uint64,
    "authority": np.uint8,
}


class RelationsProjection:
    """Folds link facts, assertions, retractions and consolidated rules."""

    name: ClassVar[str] = RELATIONS_PROJECTION
    version: ClassVar[int] = 100 + rules.VERSION
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (RELATIONS,)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's edges."""
        said = [edge.turned() for edge in _edges(batch)]
        if not said:
            return
        keys = {edge.name: name_key(edge.name) for edge in said}
        stored = tx.find(RELATIONS, _COLUMNS, list(keys.values()))
        known = {edge.name: edge for edge in map(_stored, stored)}
        for name in known:  # one whose hash is that of another edge is written back with the rest
            keys.setdefault(name, name_key(name))
        if known:
            tx.execute(f"DELETE FROM {RELATIONS} WHERE key IN (SELECT unnest(?))", [list(keys.values())])
        for edge in said:
            before = known.get(edge.name)
            known[edge.name] = edge if before is None else _merged(before, edge)
        rows = list(known.values())
        columns: dict[str, Any] = {name: list(map(attrgetter(name), rows)) for name in _COLUMNS}
        for column, dtype in _TYPES.items():
            columns[column] = np.array(columns[column], dtype)
        columns["state"] = [edge.state.value for edge in rows]
        columns["key"] = np.array([keys[edge.name] for edge in rows], np.uint64)
        tx.insert(RELATIONS, columns)


def _stored(row: tuple[Any, ...]) -> _Edge:
    named = dict(zip(_COLUMNS, row, strict=True))
    return _Edge(**{**named, "state": RelationState(named["state"]), "authority": Authority(named["authority"])})


def _merged(before: _Edge, new: _Edge) -> _Edge:
    """What is known of an edge after another event about it."""
    if not outweighs(new.authority, before.authority):
        return before
    if new.state is RelationState.RETRACTED:
        return replace(before, state=new.state, reason=new.reason, seq=new.seq, authority=new.authority)
    return replace(new, created_at=before.created_at, crew_id=new.crew_id or before.crew_id)


def _edges(batch: Batch) -> Iterator[_Edge]:
    """What the batch's events say of edges, in stream order."""
    for event in in_order(batch.links, batch.controls):
        if isinstance(event, LinkDerived):
            yield _found(event)
            continue
        entry_type = event.entry.entry_type
        if entry_type == RelationAsserted.ENTRY_TYPE:
            asserted = payload_of(event, RelationAsserted)
            yield _spoken(event, asserted, RelationState.ASSERTED, asserted.weight)
        elif entry_type == RelationRetracted.ENTRY_TYPE:
            yield _spoken(event, payload_of(event, RelationRetracted), RelationState.RETRACTED, 0.0)
        elif entry_type == CONSOLIDATED:
            yield from _evidence(event)


def _found(fact: LinkDerived) -> _Edge:
    return _Edge(
        fact.workspace_id,
        fact.src_entry_id,
        fact.dst_entry_id,
        fact.relation,
        fact.weight,
        found_state(fact.relation),
        fact.src_seq,
        fact.dst_seq,
        fact.crew_id,
        fact.reason,
        fact.published_ms,
        fact.seq,
        Authority.REACTOR,
    )


def _spoken(
    event: EntryRecorded, said: RelationAsserted | RelationRetracted, state: RelationState, weight: float
) -> _Edge:
    if not is_possible(said.src_entry_id, said.src_seq, said.dst_entry_id, said.dst_seq, event.seq):
        raise FoldError(f"the relation at {event.seq} is not of two entries before it")
    return _Edge(
        event.workspace_id,
        said.src_entry_id,
        said.dst_entry_id,
        said.relation,
        weight,
        state,
        said.src_seq,
        said.dst_seq,
        event.entry.crew_id,
        said.reason,
        event.published_ms,
        event.seq,
        authority_of(event.entry.actor_type),
    )


def _evidence(event: EntryRecorded) -> Iterator[_Edge]:
    """``supports`` from a consolidated rule to each entry it names as evidence; where those stand, the rule does not say."""
    named = event.entry.refs.get(EVIDENCE_REF)
    if not isinstance(named, list):
        return
    rule = event.entry
    for evidence_id in dict.fromkeys(one for one in named if isinstance(one, str)):
        if is_id(evidence_id) and evidence_id != rule.id:
            yield _Edge(
                event.workspace_id,
                rule.id,
                evidence_id,
                SUPPORTS,
                EVIDENCE_WEIGHT,
                RelationState.DERIVED,
                event.seq,
                None,
                rule.crew_id,
                "",
                event.published_ms,
                event.seq,
                Authority.REACTOR,
            )


PROJECTION = RelationsProjection
