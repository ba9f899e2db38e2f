"""``operator_profiles`` and the tables beside it: models of operators, peer cards, consent, names, and own words.

Invariants: a profile is kept only of a person who has opted in, whatever a sweep publishes; a fact whose turn is older than
the last forgetting of its key, or than the consent, is not added again. Only what a token vouched for is a person's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ...schemas import persons
from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.operators import (
    OperatorDeleted,
    OperatorForgotten,
    OperatorKeyReplaced,
    OperatorNamed,
    OperatorProfileUpdated,
)
from ...schemas.events.workspaces import ConsentChanged
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.persons import is_person, person_of
from ...schemas.rules.actors import USER_MESSAGE
from ...schemas.rules.operators import ALL_KEYS, facts_json, facts_of, remembered, slug_of
from ...schemas.views.operators import (
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
from ...schemas.views.table import Tables
from ..folds.history import succeed
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_OF_KEY: Final[Tables] = (OPERATOR_PROFILES, OPERATOR_CONSENTS, OPERATOR_FORGOTTEN, OPERATOR_NAMES)
"""Tables that name people by the keyed hash."""


class _Person(NamedTuple):
    """Columns that every table of people has."""

    workspace_id: str
    slug: str


class OperatorsProjection:
    """Folds profiles, consent, names, what was forgotten, and which turns are a person's own words."""

    name: ClassVar = OPERATORS_PROJECTION
    version: ClassVar = 10 + persons.VERSION  # consent is opt-in, own words, names
    tables: ClassVar[Tables] = (*_OF_KEY, OPERATOR_KEY, OPERATOR_TURNS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Take in the batch's events in stream order; decisions are few."""
        if turns := [_turn(event) for event in batch.entries if _is_own_turn(event)]:
            tx.add(OPERATOR_TURNS, turns)
        for event in batch.control(*_FOLDS):
            _FOLDS[event.entry.entry_type](event, tx)


def _is_own_turn(event: EntryRecorded) -> bool:
    return event.vouched and event.entry.entry_type == USER_MESSAGE and is_person(event.entry.actor_id or "")


def _turn(event: EntryRecorded) -> OperatorTurnRow:
    entry = event.entry
    return OperatorTurnRow(
        entry.workspace_id, event.seq, person_of(entry.actor_id or ""), entry.agent_id, entry.trace_id
    )


def _updated(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, OperatorProfileUpdated)
    person = _person(event, payload.subject_hash, tx)
    consent = tx.get(OPERATOR_CONSENTS, **person._asdict())
    forgotten = {row.key: row.seq for row in tx.get(OPERATOR_FORGOTTEN, **person._asdict())}
    facts = remembered(payload.facts, forgotten)
    if not facts or not consent or not consent[0].granted:
        return
    row = OperatorProfileRow(
        person.workspace_id,
        person.slug,
        payload.agent_id,
        payload.crew_id,
        facts_json(facts),
        event.ts_ms,
        since_seq=event.seq,
    )
    succeed(tx, OPERATOR_PROFILES, [row])


def _consented(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, ConsentChanged)
    _use_key(event, payload.key_id, tx)
    person = _person(event, payload.subject_hash, tx)
    _record_consent(event, tx, person, granted=payload.granted)
    _forget_all(event, tx, person)


def _forgotten(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, OperatorForgotten)
    person = _person(event, payload.subject_hash, tx)
    if payload.key is None:
        _forget_all(event, tx, person)
        return
    tx.replace(OPERATOR_FORGOTTEN, [OperatorForgottenRow(person.workspace_id, person.slug, payload.key, event.seq)])
    known = tx.get(OPERATOR_PROFILES, **person._asdict())
    kept = [(row, [fact for fact in facts_of(row.facts) if fact.key != payload.key]) for row in known]
    tx.delete(OPERATOR_PROFILES, **person._asdict())
    tx.add(OPERATOR_PROFILES, [row._replace(facts=facts_json(facts)) for row, facts in kept if facts])


def _deleted(event: EntryRecorded, tx: FoldTransaction) -> None:
    person = _person(event, payload_of(event, OperatorDeleted).subject_hash, tx)
    tx.delete(OPERATOR_CONSENTS, **person._asdict())
    _forget_all(event, tx, person)


def _name_declared(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, OperatorNamed)
    _use_key(event, payload.key_id, tx)
    name = _Person(event.workspace_id, slug_of(payload.subject_hash))
    if not payload.declared:
        for row in tx.get(OPERATOR_NAMES, **name._asdict()):
            _forget_all(event, tx, _Person(row.workspace_id, row.person_slug))
        tx.delete(OPERATOR_NAMES, **name._asdict())
        _forget_all(event, tx, name)
        return
    known = tx.get(OPERATOR_NAMES, workspace_id=event.workspace_id, slug=slug_of(payload.person_hash))
    person_hash = known[0].person_hash if known else payload.person_hash
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


def _key_replaced(event: EntryRecorded, tx: FoldTransaction) -> None:
    payload = payload_of(event, OperatorKeyReplaced)
    if event.workspace_id != SYSTEM_WORKSPACE:
        raise FoldError(f"the key of people is replaced at {event.seq} by another workspace than that of the system")
    for known in tuple(tx.whole(OPERATOR_KEY)):
        tx.delete(OPERATOR_KEY, key_id=known.key_id)
    for table in _OF_KEY:
        tx.execute(f"DELETE FROM {table}")
    tx.add(OPERATOR_KEY, [OperatorKeyRow(payload.key_id, event.seq)])


def _use_key(event: EntryRecorded, key_id: str | None, tx: FoldTransaction) -> None:
    """Note the key by which an event names a person.

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
    """The person whom an event names, by the first or a further name."""
    person = _Person(event.workspace_id, slug_of(hashed))
    known = tx.get(OPERATOR_NAMES, **person._asdict())
    return person._replace(slug=known[0].person_slug) if known else person


_FOLDS: Final[Mapping[str, Callable[[EntryRecorded, FoldTransaction], Any]]] = {
    OperatorProfileUpdated.ENTRY_TYPE: _updated,
    ConsentChanged.ENTRY_TYPE: _consented,
    OperatorForgotten.ENTRY_TYPE: _forgotten,
    OperatorDeleted.ENTRY_TYPE: _deleted,
    OperatorNamed.ENTRY_TYPE: _name_declared,
    OperatorKeyReplaced.ENTRY_TYPE: _key_replaced,
}
PROJECTION = OperatorsProjection
