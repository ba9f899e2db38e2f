"""Folds ``operator_profiles`` and related tables: models of operators, peer cards, consent, names, and own words.

Invariants: a profile is stored only for a person who has opted in, whatever a sweep publishes; a fact from a turn
before the consent, or before its key was last forgotten, is not added. Only a vouched turn counts as a person's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ...schemas.access.events import ConsentChanged
from ...schemas.core import grants as persons
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.grants import is_person, person_of
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.payload import ControlPayload
from ...schemas.core.table import Tables
from ...schemas.entries.rules import USER_MESSAGE
from ...schemas.operators.events import (
    OperatorDeleted,
    OperatorForgotten,
    OperatorKeyReplaced,
    OperatorNamed,
    OperatorProfileUpdated,
)
from ...schemas.operators.rules import ALL_KEYS, facts_json, facts_of, remembered, slug_of
from ...schemas.operators.tables import (
    OPERATOR_CONSENTS,
    OPERATOR_FORGOTTEN,
    OPERATOR_KEY,
    OPERATOR_NAMES,
    OPERATOR_PROFILES,
    OPERATOR_TURNS,
    OPERATORS_PROJECTION,
    OperatorConsentRow,
    OperatorForgottenRow,
    OperatorKeyRow,
    OperatorNameRow,
    OperatorProfileRow,
    OperatorTurnRow,
)
from ..folds.payloads import decisions, succeed
from ..projection import Batch, Folds, FoldTransaction

_OF_KEY: Final[Tables] = (OPERATOR_PROFILES, OPERATOR_CONSENTS, OPERATOR_FORGOTTEN, OPERATOR_NAMES)
"""Tables that identify people by the keyed hash."""


class _Person(NamedTuple):
    """Columns that are common to all tables of people."""

    workspace_id: str
    slug: str


def _is_own_turn(event: EntryRecorded) -> bool:
    return event.vouched and event.entry.entry_type == USER_MESSAGE and is_person(event.entry.actor_id or "")


def _turn(event: EntryRecorded) -> OperatorTurnRow:
    entry = event.entry
    return OperatorTurnRow(
        entry.workspace_id, event.seq, person_of(entry.actor_id or ""), entry.agent_id, entry.trace_id
    )


def _update(event: EntryRecorded, said: OperatorProfileUpdated, tx: FoldTransaction) -> None:
    person = _person(event, said.subject_hash, tx)
    consent = tx.get(OPERATOR_CONSENTS, **person._asdict())
    forgotten = {row.key: row.seq for row in tx.get(OPERATOR_FORGOTTEN, **person._asdict())}
    facts = remembered(said.facts, forgotten)
    if not facts or not consent or not consent[0].granted:
        return
    row = OperatorProfileRow(
        person.workspace_id,
        person.slug,
        said.agent_id,
        said.crew_id,
        facts_json(facts),
        event.ts_ms,
        since_seq=event.seq,
    )
    succeed(tx, OPERATOR_PROFILES, [row])


def _consent(event: EntryRecorded, said: ConsentChanged, tx: FoldTransaction) -> None:
    _use_key(event, said.key_id, tx)
    person = _person(event, said.subject_hash, tx)
    _record_consent(event, tx, person, granted=said.granted)
    _forget_all(event, tx, person)


def _forget(event: EntryRecorded, said: OperatorForgotten, tx: FoldTransaction) -> None:
    person = _person(event, said.subject_hash, tx)
    if said.key is None:
        _forget_all(event, tx, person)
        return
    tx.replace(OPERATOR_FORGOTTEN, [OperatorForgottenRow(person.workspace_id, person.slug, said.key, event.seq)])
    known = tx.get(OPERATOR_PROFILES, **person._asdict())
    kept = [(row, [fact for fact in facts_of(row.facts) if fact.key != said.key]) for row in known]
    tx.delete(OPERATOR_PROFILES, **person._asdict())
    tx.add(OPERATOR_PROFILES, [row._replace(facts=facts_json(facts)) for row, facts in kept if facts])


def _delete(event: EntryRecorded, said: OperatorDeleted, tx: FoldTransaction) -> None:
    person = _person(event, said.subject_hash, tx)
    tx.delete(OPERATOR_CONSENTS, **person._asdict())
    _forget_all(event, tx, person)


def _name(event: EntryRecorded, said: OperatorNamed, tx: FoldTransaction) -> None:
    _use_key(event, said.key_id, tx)
    name = _Person(event.workspace_id, slug_of(said.subject_hash))
    if not said.declared:
        for row in tx.get(OPERATOR_NAMES, **name._asdict()):
            _forget_all(event, tx, _Person(row.workspace_id, row.person_slug))
        tx.delete(OPERATOR_NAMES, **name._asdict())
        _forget_all(event, tx, name)
        return
    known = tx.get(OPERATOR_NAMES, workspace_id=event.workspace_id, slug=slug_of(said.person_hash))
    person_hash = known[0].person_hash if known else said.person_hash
    person = _Person(event.workspace_id, slug_of(person_hash))
    if person == name:
        return
    rows = [
        row._replace(person_hash=person_hash, person_slug=person.slug)
        for row in tx.get(OPERATOR_NAMES, workspace_id=event.workspace_id, person_slug=name.slug)
    ]
    rows.append(OperatorNameRow(*name, person_hash, person.slug, event.seq))
    tx.replace(OPERATOR_NAMES, rows)
    if any(not row.granted for row in tx.get(OPERATOR_CONSENTS, **name._asdict())):
        _record_consent(event, tx, person, granted=False)
    tx.delete(OPERATOR_CONSENTS, **name._asdict())
    _forget_all(event, tx, name)
    _forget_all(event, tx, person)


def _replace_key(event: EntryRecorded, said: OperatorKeyReplaced, tx: FoldTransaction) -> None:
    if event.workspace_id != SYSTEM_WORKSPACE:
        raise FoldError(f"the key of people is replaced at {event.seq} by another workspace than that of the system")
    for known in tuple(tx.whole(OPERATOR_KEY)):
        tx.delete(OPERATOR_KEY, key_id=known.key_id)
    for table in _OF_KEY:
        tx.execute(f"DELETE FROM {table}")
    tx.add(OPERATOR_KEY, [OperatorKeyRow(said.key_id, event.seq)])


def _use_key(event: EntryRecorded, key_id: str | None, tx: FoldTransaction) -> None:
    """Note the key with which an event hashes a person's name.

    Raises:
        FoldError: If it is not the key of earlier events.
    """
    if key_id is None:
        return
    known = tx.whole(OPERATOR_KEY)
    if not known:
        tx.add(OPERATOR_KEY, [OperatorKeyRow(key_id, event.seq)])
    elif known[0].key_id != key_id:
        raise FoldError(f"the event at {event.seq} names a person by another key than the journal uses")


def _record_consent(event: EntryRecorded, tx: FoldTransaction, person: _Person, *, granted: bool) -> None:
    tx.replace(OPERATOR_CONSENTS, [OperatorConsentRow(*person, granted, event.published_ms, seq=event.seq)])


def _forget_all(event: EntryRecorded, tx: FoldTransaction, person: _Person) -> None:
    tx.delete(OPERATOR_PROFILES, **person._asdict())
    tx.delete(OPERATOR_FORGOTTEN, **person._asdict())
    tx.add(OPERATOR_FORGOTTEN, [OperatorForgottenRow(person.workspace_id, person.slug, ALL_KEYS, event.seq)])


def _person(event: EntryRecorded, hashed: str, tx: FoldTransaction) -> _Person:
    """The person whom an event names, even by a further name."""
    named = _Person(event.workspace_id, slug_of(hashed))
    known = tx.get(OPERATOR_NAMES, **named._asdict())
    return named._replace(slug=known[0].person_slug) if known else named


_FOLDS: Final[Mapping[type[ControlPayload], Callable[[EntryRecorded, Any, FoldTransaction], None]]] = {
    OperatorProfileUpdated: _update,
    ConsentChanged: _consent,
    OperatorForgotten: _forget,
    OperatorDeleted: _delete,
    OperatorNamed: _name,
    OperatorKeyReplaced: _replace_key,
}


class OperatorsProjection:
    """Folds profiles, consent, names, what was forgotten, and which turns are a person's own words."""

    name: ClassVar = OPERATORS_PROJECTION
    version: ClassVar = 10 + persons.VERSION  # consent is opt-in, own words, names
    tables: ClassVar[Tables] = (*_OF_KEY, OPERATOR_KEY, OPERATOR_TURNS)
    folds: ClassVar[Folds] = (EntryRecorded, *_FOLDS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Fold the batch's events in stream order; there are few decisions."""
        if turns := [_turn(event) for event in batch.entries if _is_own_turn(event)]:
            tx.add(OPERATOR_TURNS, turns)
        for event, payload in decisions(batch, *_FOLDS):
            _FOLDS[type(payload)](event, payload, tx)


PROJECTION = OperatorsProjection
