"""``kg_entities`` and ``kg_facts``: the knowledge graph, and what it was at any sequence; its texts, as they are now.

Invariant: the first assertion of a fact id counts, and so does its first end. An assertion makes a known entity more
specific and never less: only ``kg.entity_named`` replaces a name or a type that is not the general one. What a reactor
asserted from a drawer ends when the drawer is superseded or deleted, and holds again once the drawer is restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import hash64, name_key
from ...schemas.core.table import PRESENT, Tables
from ...schemas.core.texts import WORKSPACE_OWNER, TextRow
from ...schemas.facts.events import (
    EntityNamed,
    FactAsserted,
    FactEnded,
    FactEntity,
    FactVerified,
    VerificationRequested,
)
from ...schemas.facts.names import GENERAL_TYPE, SECOND_MS, second_of, span_of
from ...schemas.facts.tables import (
    DESCRIBED,
    ENTITY_TEXTS,
    FACT_TEXTS,
    FACTS,
    FACTS_PROJECTION,
    KG_ENTITIES,
    EntityRow,
    FactRow,
)
from ...schemas.palace.events import DrawerDeleted, DrawerRestored, DrawerSuperseded
from ...schemas.standing.events import StatementCorrected
from ...schemas.text import analyzer as text
from ..folds.payloads import Current, decisions
from ..folds.words import fact_terms, text_analyzer
from ..projection import Batch, FoldTransaction

K = TypeVar("K", str, int)
Row = TypeVar("Row", EntityRow, FactRow)
_OfDrawer = DrawerSuperseded | DrawerDeleted | DrawerRestored
_Said = FactAsserted | FactEnded | FactVerified | VerificationRequested | EntityNamed | _OfDrawer | StatementCorrected
SUPERSEDED: Final = "its drawer was superseded"
DELETED: Final = "its drawer was deleted"
"""Reasons of ends that a restored drawer undoes."""
CORRECTED: Final = "what it was taken from was corrected"
_FROM_DRAWERS: Final = f"""SELECT DISTINCT key FROM {FACTS}
    WHERE {PRESENT} AND source_drawer_id IN (SELECT unnest(?))"""

_NAMING: Final = f"""WITH same AS (SELECT entity_id FROM {KG_ENTITIES} WHERE workspace_id = $1 AND {PRESENT}
        AND (entity_id IN (SELECT unnest($2)) OR alias_of IN (SELECT unnest($2))))
    SELECT key, subject_id, object_id FROM {FACTS} WHERE workspace_id = $1 AND {PRESENT}
    AND (subject_id IN (FROM same) OR object_id IN (FROM same)) ORDER BY key"""
"""The facts of a workspace that name these entities, or an alias of one."""
_LASTING: Final = f"""SELECT subject_id, predicate, object_id FROM {FACTS}
    WHERE workspace_id = $1 AND {PRESENT} AND valid_to IS NULL
    AND (list_contains($2, subject_id) OR list_contains($2, object_id)) ORDER BY asserted_seq DESC"""
"""The facts that name these entities and have no end, the first last; joins of few ids cost four times as much."""
_ALIASES: Final = f"""SELECT entity_id, alias_of, name FROM {KG_ENTITIES}
    WHERE workspace_id = $1 AND {PRESENT} AND alias_of IN (SELECT unnest($2)) ORDER BY name"""


class _Stated(NamedTuple):
    """What a fact says, by the ids of its entities."""

    subject_id: str
    predicate: str
    object_id: str


class FactsProjection:
    """Folds assertions and ends of facts, and names of entities."""

    name: ClassVar = FACTS_PROJECTION
    version: ClassVar = 107 + text.VERSION
    tables: ClassVar[Tables] = (KG_ENTITIES, FACTS, FACT_TEXTS, ENTITY_TEXTS)
    folds: ClassVar[tuple[type[_Said], ...]] = (
        FactAsserted,
        FactEnded,
        FactVerified,
        VerificationRequested,
        EntityNamed,
        DrawerSuperseded,
        DrawerDeleted,
        DrawerRestored,
        StatementCorrected,
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
            elif isinstance(said, StatementCorrected):
                facts.correct(event, said)
            elif isinstance(said, DrawerRestored):
                facts.restore_drawer(event, said.drawer_id)
            elif facts.add(event, said):
                entities.mention(event, said.subject)
                entities.mention(event, said.object)
        entities.rows.write()
        facts.rows.write()
        for workspace_id in sorted({event.workspace_id for event, _ in events}):
            _Texts(workspace_id, entities, facts, tx).renew()


class _Entities:
    """The entities that a batch names."""

    def __init__(self, events: Sequence[tuple[EntryRecorded, _Said]], tx: FoldTransaction) -> None:
        self.rows = Current(
            tx, KG_ENTITIES, (_key(event, one.entity_id) for event, said in events for one in _named_in(said))
        )
        self.events = {event.seq: event for event, _ in events}

    def of(self, workspace_id: str, ids: Iterable[str]) -> dict[str, EntityRow]:
        """The entities with these ids."""
        keys = {_key_of(workspace_id, one): one for one in ids}
        self.rows.read(keys)
        return {one: self.rows.present[key] for key, one in keys.items() if key in self.rows.present}

    def mention(self, event: EntryRecorded, entity: FactEntity) -> None:
        """An entity that a fact names: new, or known and perhaps of a general type until now."""
        known = self.rows.present.get(_key(event, entity.entity_id))
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
        self.rows.put(
            EntityRow(
                key, event.workspace_id, entity.entity_id, entity.name, entity.type, alias_of, since_seq=event.seq
            )
        )


class _Facts:
    """The facts that a batch asserts or ends."""

    def __init__(self, events: Sequence[tuple[EntryRecorded, _Said]], tx: FoldTransaction) -> None:
        keys = {_key(event, fact_id) for event, said in events for fact_id in _fact_ids(said)}
        drawers = sorted({said.drawer_id for _, said in events if isinstance(said, _OfDrawer)})
        if drawers:
            keys.update(int(key) for (key,) in tx.rows(_FROM_DRAWERS, [drawers]))
        self.rows = Current(tx, FACTS, keys)
        self.hashes: dict[int, int] = {}  # new fact → hash of the words in which it was asserted

    def of(self, keys: Iterable[int]) -> list[FactRow]:
        """The facts with these keys."""
        wanted = sorted(keys)
        self.rows.read(wanted)
        return [self.rows.present[key] for key in wanted]

    def add(self, event: EntryRecorded, said: FactAsserted) -> bool:
        """Add a fact; False if its id is known."""
        key = _key(event, said.fact_id)
        if key in self.rows.present:
            return False
        by = event.entry
        self.hashes[key] = hash64(said.text or f"{said.subject.name} {said.predicate} {said.object.name}")
        row = FactRow(
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
            fact_type=said.fact_type.value,
            half_life_hours=said.half_life_hours,
            single_valued=said.single_valued,
            verified_ms=None,
            verify_asked_ms=None,
            since_seq=event.seq,
        )
        self.rows.put(row)
        return True

    def verify(self, event: EntryRecorded, said: FactVerified) -> None:
        """Note that a fact that is known was found to hold."""
        if (known := self.rows.present.get(_key(event, said.fact_id))) is not None:
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
            known = self.rows.present.get(_key(event, fact_id))
            if known is not None and known.verify_asked_ms is None:
                self._put(event, known, verify_asked_ms=event.published_ms)

    def end(self, event: EntryRecorded, said: FactEnded) -> None:
        """End those of the facts that are known and have no end."""
        by = event.entry
        for fact_id in said.fact_ids:
            known = self.rows.present.get(_key(event, fact_id))
            if known is None or known.valid_to is not None:
                continue
            self._put(
                event,
                known,
                valid_to=said.ended,
                to_ms=_last_ms(said.ended, event.published_ms, known.from_ms),
                ended_by_type=by.actor_type.value,
                ended_by=by.actor_id,
                end_reason=said.reason,
            )

    def correct(self, event: EntryRecorded, said: StatementCorrected) -> None:
        """End the facts that a correction retired, the second before it."""
        for fact_id, by in said.ids("fact").items():
            known = self.rows.present.get(_key(event, fact_id))
            if known is not None and known.valid_to is None:
                self._end_before(event, known, event.published_ms, f"replaced: corrected by {by}" if by else CORRECTED)

    def end_drawer(self, event: EntryRecorded, drawer_id: str, until_ms: int, reason: str) -> None:
        """End what a reactor asserted from a drawer and what has no end, the second before the drawer ended."""
        for known in self._of_drawer(event, drawer_id):
            if known.valid_to is None:
                self._end_before(event, known, until_ms, reason)

    def _end_before(self, event: EntryRecorded, known: FactRow, until_ms: int, reason: str) -> None:
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
            for row in self.rows.present.values()
            if (row.workspace_id, row.source_drawer_id, row.asserted_by_type) == named
        ]

    def _put(self, event: EntryRecorded, known: FactRow, **changes: Any) -> None:
        """What counts of a fact from an event on."""
        self.rows.put(known._replace(**changes, since_seq=event.seq))


class _Texts:
    """The texts of a workspace whose facts or entities a batch changed."""

    def __init__(self, workspace_id: str, entities: _Entities, facts: _Facts, tx: FoldTransaction) -> None:
        self._workspace_id = workspace_id
        self._entities = entities
        self._facts = facts
        self._tx = tx

    def renew(self) -> None:
        """Write the texts of what the batch changed, and of what names an entity that it renamed."""
        renamed: set[str] = set()
        changed: set[str] = set()  # entities whose first fact may be another one than before
        mentioned: set[str] = set()  # entities about which there may be a first fact now
        for before, after in _changes(self._entities.rows, self._workspace_id):
            if before is None and after.alias_of is None:
                mentioned.add(after.entity_id)
                continue
            changed.update(filter(None, (after.entity_id, after.alias_of, before and before.alias_of)))
            if before is not None and (before.name, before.alias_of) != (after.name, after.alias_of):
                renamed.add(after.entity_id)
        added: list[FactRow] = []
        ended: dict[int, FactRow] = {}
        for former, fact in _changes(self._facts.rows, self._workspace_id):
            if former is None:
                added.append(fact)
            elif former.valid_to != fact.valid_to:
                ended[fact.key] = fact
        naming = self._tx.rows(_NAMING, [self._workspace_id, sorted(renamed)]) if renamed else []
        self._facts_in_words([*added, *self._facts.of(int(key) for key, _, _ in naming)], ended)
        ends = {end for _, *both in naming for end in both}
        ends |= {end for fact in ended.values() if fact.valid_to is None for end in (fact.subject_id, fact.object_id)}
        changed |= {entity.entity_id for entity in self._roots(ends).values()}
        self._entities_in_words(
            changed, mentioned, added, [fact for fact in ended.values() if fact.valid_to is not None]
        )

    def _roots(self, ids: Iterable[str]) -> dict[str, EntityRow]:
        """Id → its entity, that of an alias the one that it names."""
        known = self._entities.of(self._workspace_id, ids)
        meant = self._entities.of(self._workspace_id, {row.alias_of for row in known.values() if row.alias_of})
        return {one: meant.get(row.alias_of or "", row) for one, row in known.items()}

    def _facts_in_words(self, facts: Sequence[FactRow], ended: dict[int, FactRow]) -> None:
        """Write the texts of facts that are new or name a renamed entity, and the spans of those that ended."""
        ends = {end for fact in facts for end in (fact.subject_id, fact.object_id)}
        names, roots = self._entities.of(self._workspace_id, ends), self._roots(ends)
        known = {row.key: row for row in self._tx.find(FACT_TEXTS, sorted({*ended, *(fact.key for fact in facts)}))}
        rows = {key: known[key]._replace(from_ms=fact.from_ms, to_ms=fact.to_ms) for key, fact in ended.items()}
        for fact in facts:
            subject, object_ = roots[fact.subject_id].name, roots[fact.object_id].name
            words = f"{names[fact.subject_id].name} {fact.predicate} {names[fact.object_id].name}"
            terms = fact_terms(text_analyzer(), f"{subject} {fact.predicate} {object_} {fact.text or ''}")
            text_hash = known[fact.key].text_hash if fact.key in known else self._facts.hashes[fact.key]
            rows[fact.key] = _fact_text(fact, fact.text or words, text_hash, *terms)
        former = [known[key] for key in rows if key in known]
        self._tx.replace(FACT_TEXTS, list(rows.values()), former)

    def _entities_in_words(
        self, changed: set[str], mentioned: set[str], added: Sequence[FactRow], ended: Sequence[FactRow]
    ) -> None:
        """Write the texts of entities; a fact that ended changes those that end with it."""
        roots = self._roots({end for fact in (*added, *ended) for end in (fact.subject_id, fact.object_id)})
        last = self._words({fact.key: fact for fact in ended})
        ends = {(roots[end].entity_id, last[fact.key]) for fact in ended for end in (fact.subject_id, fact.object_id)}
        first: dict[str, FactRow | _Stated] = {}
        for fact in sorted(added, key=lambda fact: fact.asserted_seq):
            for end in (fact.subject_id, fact.object_id) if fact.valid_to is None else ():
                first.setdefault(roots[end].entity_id, fact)
        keys = {one: _key_of(self._workspace_id, one) for one in sorted({*changed, *mentioned, *first, *dict(ends)})}
        former = {row.item: row for row in self._tx.find(ENTITY_TEXTS, sorted(keys.values()))} if keys else {}
        changed |= {one for one in first if one in former and not former[one].flags & DESCRIBED}
        changed |= {one for one, words in ends if one in former and former[one].text.endswith(words)}
        aliases: dict[str, list[str]] = {}
        if changed:
            meant = {one: one for one in changed}
            for entity_id, alias_of, name in self._tx.rows(_ALIASES, [self._workspace_id, sorted(changed)]):
                meant[entity_id] = alias_of
                aliases.setdefault(alias_of, []).append(name)
            for lasting in map(_Stated._make, self._tx.rows(_LASTING, [self._workspace_id, sorted(meant)])):
                for end in (lasting.subject_id, lasting.object_id):
                    if end in meant:
                        first[meant[end]] = lasting
        written = sorted(changed | (keys.keys() - former.keys()))
        words = self._words({one: first[one] for one in written if one in first})
        rows = []
        for one, entity in self._entities.of(self._workspace_id, written).items():
            known = former.get(one)
            if entity.alias_of is None:
                row = self._entity_text(entity, aliases.get(one, []), words.get(one, ""), known)
                if row != known:
                    rows.append(row)
            elif known is not None:
                self._tx.delete(ENTITY_TEXTS, key=known.key)
        self._tx.replace(ENTITY_TEXTS, rows, [former[row.item] for row in rows if row.item in former])

    def _words(self, facts: Mapping[K, FactRow | _Stated]) -> dict[K, str]:
        """Subject, predicate and object of facts."""
        roots = self._roots({end for fact in facts.values() for end in (fact.subject_id, fact.object_id)})
        return {
            key: f"{roots[fact.subject_id].name} {fact.predicate} {roots[fact.object_id].name}"
            for key, fact in facts.items()
        }

    def _entity_text(self, entity: EntityRow, aliases: list[str], fact: str, known: TextRow | None) -> TextRow:
        typed = entity.name if entity.type == GENERAL_TYPE else f"{entity.name} ({entity.type})"
        words = ". ".join(part for part in (", ".join((typed, *aliases)), fact) if part)
        event = self._entities.events.get(entity.since_seq)
        if event is not None:
            source_id, ts_ms = event.entry.id, event.published_ms
        else:
            assert known is not None  # an entity has a text since it was named
            source_id, ts_ms = known.source_id, known.ts_ms
        terms, counts = fact_terms(text_analyzer(), words)
        return TextRow(
            entity.key,
            entity.workspace_id,
            WORKSPACE_OWNER,
            entity.entity_id,
            words,
            hash64(words),
            terms,
            counts,
            source_id,
            ts_ms,
            entity.since_seq,
            flags=DESCRIBED if fact else 0,
        )


def _fact_text(fact: FactRow, words: str, text_hash: int, terms: bytes, counts: bytes) -> TextRow:
    return TextRow(
        fact.key,
        fact.workspace_id,
        WORKSPACE_OWNER,
        fact.fact_id,
        words,
        text_hash,
        terms,
        counts,
        fact.entry_id,
        fact.asserted_ms,
        fact.asserted_seq,
        place=fact.namespace,
        last_line=words.count("\n") + 1,
        from_ms=fact.from_ms,
        to_ms=fact.to_ms,
    )


def _last_ms(ended: str, published_ms: int, from_ms: int | None) -> int:
    """The last second of a fact that ended on a date or at a time: what ends today ended when that was said."""
    span = span_of(ended)
    if span.first_ms <= published_ms <= span.last_ms:
        return max(span_of(second_of(published_ms - SECOND_MS)).last_ms, from_ms or 0)
    return span.last_ms


def _named_in(said: _Said) -> Iterable[FactEntity]:
    if isinstance(said, FactAsserted):
        return (said.subject, said.object)
    return (said.entity, *said.aliases, *said.dropped_aliases) if isinstance(said, EntityNamed) else ()


def _fact_ids(said: _Said) -> Iterable[str]:
    if isinstance(said, (FactAsserted, FactVerified)):
        return (said.fact_id,)
    if isinstance(said, StatementCorrected):
        return said.ids("fact")
    return said.fact_ids if isinstance(said, (FactEnded, VerificationRequested)) else ()


def _changes(rows: Current[Row], workspace_id: str) -> Iterable[tuple[Row | None, Row]]:
    """The rows that were written: what counted before the batch, and what counts now."""
    for key in sorted(rows.changed):
        if (row := rows.present[key]).workspace_id == workspace_id:
            yield rows.before.get(key), row


@lru_cache(maxsize=65_536)
def _key_of(workspace_id: str, name: str) -> int:
    return name_key((workspace_id, name))


def _key(event: EntryRecorded, name: str) -> int:
    return _key_of(event.workspace_id, name)


PROJECTION = FactsProjection
