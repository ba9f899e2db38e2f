"""``kg_entities`` and ``kg_facts``: the knowledge graph, and what it was at any sequence.

Invariant: the first assertion of a fact id counts, and so does its first end. An assertion makes a known entity more
specific and never less: only ``kg.entity_named`` replaces a name or a type that is not the general one. What a reactor
asserted from a drawer ends when the drawer is superseded or deleted, and holds again once the drawer is restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import hash64, name_key
from ...schemas.core.table import Tables
from ...schemas.facts.events import (
    EntityNamed,
    FactAsserted,
    FactEnded,
    FactEntity,
    FactVerified,
    VerificationRequested,
)
from ...schemas.facts.names import GENERAL_TYPE, SECOND_MS, second_of, span_of
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES, EntityRow, FactRow
from ...schemas.palace.events import DrawerDeleted, DrawerRestored, DrawerSuperseded
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction

_OfDrawer = DrawerSuperseded | DrawerDeleted | DrawerRestored
_Said = FactAsserted | FactEnded | FactVerified | VerificationRequested | EntityNamed | _OfDrawer
SUPERSEDED: Final = "its drawer was superseded"
DELETED: Final = "its drawer was deleted"
"""Reasons of ends that a restored drawer undoes."""
_FROM_DRAWERS: Final = f"""SELECT DISTINCT key FROM {FACTS}
    WHERE until_seq IS NULL AND source_drawer_id IN (SELECT unnest(?))"""


class FactsProjection:
    """Folds assertions and ends of facts, and names of entities."""

    name: ClassVar = FACTS_PROJECTION
    version: ClassVar = 4
    tables: ClassVar[Tables] = (KG_ENTITIES, FACTS)
    folds: ClassVar[tuple[type[_Said], ...]] = (
        FactAsserted,
        FactEnded,
        FactVerified,
        VerificationRequested,
        EntityNamed,
        DrawerSuperseded,
        DrawerDeleted,
        DrawerRestored,
    )

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Take in the batch's events in stream order."""
        events: list[tuple[EntryRecorded, _Said]] = list(decisions(batch, *self.folds))
        if not events:
            return
        entities, facts = _Entities(events, tx), _Facts(events, tx)
        for event, said in events:
            if isinstance(said, FactEnded):
                facts.end(event, said)
            elif isinstance(said, FactVerified):
                facts.verify(event, said)
            elif isinstance(said, VerificationRequested):
                facts.request_verification(event, said)
            elif isinstance(said, EntityNamed):
                entities.name(event, said)
            elif isinstance(said, DrawerSuperseded):
                until_ms = event.published_ms if said.until_ms is None else said.until_ms
                facts.end_drawer(event, said.drawer_id, until_ms, SUPERSEDED)
            elif isinstance(said, DrawerDeleted):
                facts.end_drawer(event, said.drawer_id, event.published_ms, DELETED)
            elif isinstance(said, DrawerRestored):
                facts.restore_drawer(event, said.drawer_id)
            elif facts.add(event, said):
                entities.mention(event, said.subject)
                entities.mention(event, said.object)
        tx.replace(KG_ENTITIES, list(entities.written.values()), entities.former)
        tx.replace(FACTS, list(facts.written.values()), facts.former)


class _Entities:
    """The entities that a batch names: what counts of them now, and the rows to write."""

    def __init__(self, events: Iterable[tuple[EntryRecorded, _Said]], tx: FoldTransaction) -> None:
        keys = {_key(event, one.entity_id) for event, said in events for one in _named_in(said)}
        self.former = tx.find(KG_ENTITIES, sorted(keys))
        self.written: dict[tuple[int, int], EntityRow] = {}
        self._open = {row.key: row for row in self.former if row.until_seq is None}

    def mention(self, event: EntryRecorded, entity: FactEntity) -> None:
        """An entity that a fact names: new, or known and perhaps of a general type until now."""
        known = self._open.get(_key(event, entity.entity_id))
        if known is None:
            self._put(event, entity, None)
        elif known.type == GENERAL_TYPE and entity.type != GENERAL_TYPE:
            self._put(event, FactEntity(entity_id=known.entity_id, name=known.name, type=entity.type), known.alias_of)

    def name(self, event: EntryRecorded, said: EntityNamed) -> None:
        """Set what an entity is called."""
        self._put(event, said.entity, None)
        for one in said.dropped_aliases:
            self._put(event, one, None)
        for one in said.aliases:
            self._put(event, one, said.entity.entity_id)

    def _put(self, event: EntryRecorded, entity: FactEntity, alias_of: str | None) -> None:
        key = _key(event, entity.entity_id)
        row = EntityRow(
            key, event.workspace_id, entity.entity_id, entity.name, entity.type, alias_of, since_seq=event.seq
        )
        known = self._open.get(key)
        if known is not None and known.since_seq < event.seq:
            self.written[known.key, known.since_seq] = known._replace(until_seq=event.seq)
        self._open[key] = self.written[key, event.seq] = row


class _Facts:
    """The facts that a batch asserts or ends: what counts of them now, and the rows to write."""

    def __init__(self, events: Iterable[tuple[EntryRecorded, _Said]], tx: FoldTransaction) -> None:
        events = list(events)
        keys = {_key(event, fact_id) for event, said in events for fact_id in _fact_ids(said)}
        drawers = sorted({said.drawer_id for _, said in events if isinstance(said, _OfDrawer)})
        if drawers:
            keys.update(int(key) for (key,) in tx.rows(_FROM_DRAWERS, [drawers]))
        self.former = tx.find(FACTS, sorted(keys))
        self.written: dict[tuple[int, int], FactRow] = {}
        self._open = {row.key: row for row in self.former if row.until_seq is None}

    def add(self, event: EntryRecorded, said: FactAsserted) -> bool:
        """Add a fact; False if its id is known."""
        key = _key(event, said.fact_id)
        if key in self._open:
            return False
        by = event.entry
        self._open[key] = self.written[key, event.seq] = FactRow(
            key,
            event.workspace_id,
            said.fact_id,
            said.subject.entity_id,
            said.predicate,
            said.object.entity_id,
            said.valid_from,
            said.valid_to,
            None if said.valid_from is None else span_of(said.valid_from).first_ms,
            None if said.valid_to is None else span_of(said.valid_to).last_ms,
            said.confidence,
            said.source_drawer_id,
            said.source_entry_id,
            asserted_seq=event.seq,
            asserted_ms=event.published_ms,
            asserted_by_type=by.actor_type.value,
            asserted_by=by.actor_id,
            ended_by_type=None,
            ended_by=None,
            end_reason="",
            entry_id=by.id,
            namespace=said.namespace,
            text=said.text,
            text_hash=hash64(said.text or f"{said.subject.name} {said.predicate} {said.object.name}"),
            fact_type=said.fact_type.value,
            half_life_hours=said.half_life_hours,
            single_valued=said.single_valued,
            verified_ms=None,
            verify_asked_ms=None,
            since_seq=event.seq,
        )
        return True

    def verify(self, event: EntryRecorded, said: FactVerified) -> None:
        """Note that a fact that is known was found to hold."""
        if (known := self._open.get(_key(event, said.fact_id))) is not None:
            confidence = known.confidence if said.confidence is None else said.confidence
            source = said.source_drawer_id or known.source_drawer_id
            self._put(
                event,
                known,
                verified_ms=event.published_ms,
                verify_asked_ms=None,
                confidence=confidence,
                source_drawer_id=source,
            )

    def request_verification(self, event: EntryRecorded, said: VerificationRequested) -> None:
        """Note since when a verification of those that are known is wanted; the first request counts."""
        for fact_id in dict.fromkeys(said.fact_ids):
            known = self._open.get(_key(event, fact_id))
            if known is not None and known.verify_asked_ms is None:
                self._put(event, known, verify_asked_ms=event.published_ms)

    def end(self, event: EntryRecorded, said: FactEnded) -> None:
        """End those of the facts that are known and have no end."""
        by = event.entry
        for fact_id in said.fact_ids:
            known = self._open.get(_key(event, fact_id))
            if known is None or known.valid_to is not None:
                continue
            self._put(
                event,
                known,
                valid_to=said.ended,
                to_ms=span_of(said.ended).last_ms,
                ended_by_type=by.actor_type.value,
                ended_by=by.actor_id,
                end_reason=said.reason,
            )

    def end_drawer(self, event: EntryRecorded, drawer_id: str, until_ms: int, reason: str) -> None:
        """End what a reactor asserted from a drawer and what has no end, the second before the drawer ended."""
        for known in self._of_drawer(event, drawer_id):
            if known.valid_to is None:
                last_ms = max(until_ms - SECOND_MS, known.from_ms or 0)
                self._put(
                    event,
                    known,
                    valid_to=second_of(last_ms),
                    to_ms=span_of(second_of(last_ms)).last_ms,
                    ended_by_type=event.entry.actor_type.value,
                    ended_by=event.entry.actor_id,
                    end_reason=reason,
                )

    def restore_drawer(self, event: EntryRecorded, drawer_id: str) -> None:
        """Let the facts hold again that ended with a drawer."""
        for known in self._of_drawer(event, drawer_id):
            if known.valid_to is not None and known.end_reason in (SUPERSEDED, DELETED):
                again: dict[str, Any] = dict.fromkeys(("valid_to", "to_ms", "ended_by_type", "ended_by"))
                self._put(event, known, **again, end_reason="")

    def _of_drawer(self, event: EntryRecorded, drawer_id: str) -> list[FactRow]:
        named = (event.workspace_id, drawer_id, ActorType.SYSTEM.value)
        return [
            row
            for row in self._open.values()
            if (row.workspace_id, row.source_drawer_id, row.asserted_by_type) == named
        ]

    def _put(self, event: EntryRecorded, known: FactRow, **changes: Any) -> None:
        """What counts of a fact from an event on."""
        self.written[known.key, known.since_seq] = known._replace(until_seq=event.seq)
        self._open[known.key] = self.written[known.key, event.seq] = known._replace(**changes, since_seq=event.seq)


def _named_in(said: _Said) -> Iterable[FactEntity]:
    if isinstance(said, FactAsserted):
        return (said.subject, said.object)
    return (said.entity, *said.aliases, *said.dropped_aliases) if isinstance(said, EntityNamed) else ()


def _fact_ids(said: _Said) -> Iterable[str]:
    if isinstance(said, (FactAsserted, FactVerified)):
        return (said.fact_id,)
    return said.fact_ids if isinstance(said, (FactEnded, VerificationRequested)) else ()


def _key(event: EntryRecorded, name: str) -> int:
    return name_key((event.workspace_id, name))


PROJECTION = FactsProjection
