"""``memory_relations``: how entries relate, from facts of reactors, assertions of people and consolidated rules.

Invariant: one row per (workspace, pair, relation), symmetric relations from the newer entry to the older; which source
counts more is decided in ``schemas/relations/rules``. Ids are taken from the events: the fold reads no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from ...schemas.core.envelope import EntryRecorded, LinkDerived
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import is_id, name_key
from ...schemas.core.table import Tables
from ...schemas.entries.events import MemoryCompacted
from ...schemas.learning.events import MemoryConsolidated, RuleLearned
from ...schemas.relations import rules
from ...schemas.relations.events import RelationAsserted, RelationRetracted
from ...schemas.relations.rules import (
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
from ...schemas.relations.tables import RELATIONS, RELATIONS_PROJECTION, RelationRow
from ..folds.payloads import compactions, payload_of
from ..projection import Batch, FoldTransaction, in_order

_OF_EVIDENCE: Final = (MemoryConsolidated, RuleLearned)
"""Payloads of entries that name their evidence in ``refs.evidence``."""
_FORGET: Final = f"""DELETE FROM {RELATIONS} WHERE workspace_id = $workspace
    AND (src_seq IN (SELECT unnest($seqs::UBIGINT[])) OR dst_seq IN (SELECT unnest($seqs::UBIGINT[])))"""
"""Edges of entries of these types are in no hot index."""

Name = tuple[str, str, str, str]
"""Workspace, relation, and the two ids: in order of the alphabet for a symmetric relation, else source first."""


class RelationsProjection:
    """Folds link facts, assertions, retractions and consolidated rules."""

    name: ClassVar = RELATIONS_PROJECTION
    version: ClassVar = 100 + rules.VERSION
    tables: ClassVar[Tables] = (RELATIONS,)
    folds: ClassVar = (LinkDerived, RelationAsserted, RelationRetracted, *_OF_EVIDENCE, MemoryCompacted)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's edges; delete those of entries that are archived."""
        said = [_named(edge) for edge in _edges(batch)]
        for one in compactions(batch):
            self._upsert([edge for edge in said if edge.seq < one.event.seq], tx)
            said = [edge for edge in said if edge.seq > one.event.seq]
            tx.execute(_FORGET, {"workspace": one.event.workspace_id, "seqs": one.sequences})
        self._upsert(said, tx)

    def _upsert(self, said: Sequence[RelationRow], tx: FoldTransaction) -> None:
        if not said:
            return
        former = tx.find(RELATIONS, list({edge.key for edge in said}))
        known = {_name(edge): edge for edge in former}  # one whose hash is that of another edge is written back
        for edge in said:
            before = known.get(name := _name(edge))
            known[name] = edge if before is None else _merged(before, edge)
        tx.replace(RELATIONS, list(known.values()), former)


def _name(edge: RelationRow) -> Name:
    pair = (edge.src_entry_id, edge.dst_entry_id)
    first, second = sorted(pair) if edge.relation in SYMMETRIC else pair
    return edge.workspace_id, edge.relation, first, second


def _named(edge: RelationRow) -> RelationRow:
    """With its key, and from the newer entry to the older if the relation is symmetric."""
    edge = edge._replace(key=name_key(_name(edge)))
    if edge.dst_seq is None or not is_turned(edge.relation, edge.src_seq, edge.dst_seq):
        return edge
    return edge._replace(
        src_entry_id=edge.dst_entry_id,
        src_seq=edge.dst_seq,
        dst_entry_id=edge.src_entry_id,
        dst_seq=edge.src_seq,
    )


def _merged(before: RelationRow, new: RelationRow) -> RelationRow:
    """What is known of an edge after another event about it."""
    if not outweighs(Authority(new.authority), Authority(before.authority)):
        return before
    if new.state == RelationState.RETRACTED:
        return before._replace(state=new.state, reason=new.reason, seq=new.seq, authority=new.authority)
    return new._replace(created_at=before.created_at, crew_id=new.crew_id or before.crew_id)


def _edges(batch: Batch) -> Iterator[RelationRow]:
    """What the batch's events say of edges, in stream order."""
    for event in in_order(batch.links, batch.control(RelationAsserted, RelationRetracted, *_OF_EVIDENCE)):
        if isinstance(event, LinkDerived):
            yield _found(event)
            continue
        entry_type = event.entry.entry_type
        if entry_type == RelationAsserted.ENTRY_TYPE:
            asserted = payload_of(event, RelationAsserted)
            yield _spoken(event, asserted, RelationState.ASSERTED, asserted.weight)
        elif entry_type == RelationRetracted.ENTRY_TYPE:
            yield _spoken(event, payload_of(event, RelationRetracted), RelationState.RETRACTED, 0.0)
        else:
            yield from _evidence(event)


def _found(fact: LinkDerived) -> RelationRow:
    edge = _edge(fact, fact, fact.weight, found_state(fact.relation), fact.crew_id, Authority.REACTOR)
    return edge._replace(since_ms=fact.since_ms)


def _spoken(
    event: EntryRecorded, said: RelationAsserted | RelationRetracted, state: RelationState, weight: float
) -> RelationRow:
    if not is_possible(said.src_entry_id, said.src_seq, said.dst_entry_id, said.dst_seq, event.seq):
        raise FoldError(f"the relation at {event.seq} is not of two entries before it")
    return _edge(event, said, weight, state, event.entry.crew_id, authority_of(event.entry.actor_type))


def _edge(
    event: LinkDerived | EntryRecorded,
    said: LinkDerived | RelationAsserted | RelationRetracted,
    weight: float,
    state: RelationState,
    crew_id: str | None,
    authority: Authority,
) -> RelationRow:
    return RelationRow(
        event.workspace_id,
        said.src_entry_id,
        said.dst_entry_id,
        said.relation,
        weight,
        state,
        said.src_seq,
        said.dst_seq,
        crew_id,
        said.reason,
        event.published_ms,
        event.seq,
        authority,
    )


def _evidence(event: EntryRecorded) -> Iterator[RelationRow]:
    """``supports`` from a consolidated rule to each entry it names as evidence; where those stand, the rule does not say."""
    named = event.entry.refs.get(EVIDENCE_REF)
    if not isinstance(named, list):
        return
    rule = event.entry
    for evidence_id in dict.fromkeys(one for one in named if isinstance(one, str)):
        if is_id(evidence_id) and evidence_id != rule.id:
            yield RelationRow(
                event.workspace_id,
                rule.id,
                evidence_id,
                SUPPORTS,
                EVIDENCE_WEIGHT,
                RelationState.DERIVED,
                src_seq=event.seq,
                dst_seq=None,
                crew_id=rule.crew_id,
                reason="",
                created_at=event.published_ms,
                seq=event.seq,
                authority=Authority.REACTOR,
            )


PROJECTION = RelationsProjection
