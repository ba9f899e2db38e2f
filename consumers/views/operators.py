"""``operator_profiles``, ``operator_consents``, ``operator_forgotten``: models of operators, peer cards, and consent.

Invariants: nothing of a person who opted out is kept, whatever a sweep publishes later; a fact whose turn is older than the
last forgetting of its key is not added again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.operators import OperatorDeleted, OperatorForgotten, OperatorProfileUpdated
from ...schemas.events.workspaces import ConsentChanged
from ...schemas.rules.operators import facts_json, facts_of, remembered, slug_of
from ...schemas.views.operators import (
    OPERATOR_CONSENTS,
    OPERATOR_FORGOTTEN,
    OPERATOR_PROFILES,
    OPERATORS_PROJECTION,
    OperatorConsentRow,
    OperatorForgottenRow,
    OperatorProfileRow,
)
from ...schemas.views.table import Tables
from ..folds.history import succeed
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

ALL_KEYS: Final = ""


class _Person(NamedTuple):
    """Columns that every table has."""

    workspace_id: str
    slug: str


class OperatorsProjection:
    """Folds profiles, consent, and what was forgotten."""

    name: ClassVar = OPERATORS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (OPERATOR_PROFILES, OPERATOR_CONSENTS, OPERATOR_FORGOTTEN)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Take in the batch's events in stream order; they are few."""
        for event in batch.control(*_FOLDS):
            _FOLDS[event.entry.entry_type](event, tx)


def _updated(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, OperatorProfileUpdated)
    person = _person(event, said.subject_hash)
    consent = tx.get(OPERATOR_CONSENTS, **person._asdict())
    forgotten = {row.key: row.seq for row in tx.get(OPERATOR_FORGOTTEN, **person._asdict())}
    facts = remembered(said.facts, forgotten)
    if not facts or (consent and not consent[0].granted):
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


def _consented(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, ConsentChanged)
    person = _person(event, said.subject_hash)
    tx.replace(
        OPERATOR_CONSENTS,
        [OperatorConsentRow(person.workspace_id, person.slug, said.granted, event.published_ms, seq=event.seq)],
    )
    _forget_all(event, tx, person)


def _forgotten(event: EntryRecorded, tx: FoldTransaction) -> None:
    said = payload_of(event, OperatorForgotten)
    person = _person(event, said.subject_hash)
    if said.key is None:
        _forget_all(event, tx, person)
        return
    tx.replace(OPERATOR_FORGOTTEN, [OperatorForgottenRow(person.workspace_id, person.slug, said.key, event.seq)])
    known = tx.get(OPERATOR_PROFILES, **person._asdict())
    kept = [(row, [fact for fact in facts_of(row.facts) if fact.key != said.key]) for row in known]
    tx.delete(OPERATOR_PROFILES, **person._asdict())
    tx.add(OPERATOR_PROFILES, [row._replace(facts=facts_json(facts)) for row, facts in kept if facts])


def _deleted(event: EntryRecorded, tx: FoldTransaction) -> None:
    person = _person(event, payload_of(event, OperatorDeleted).subject_hash)
    tx.delete(OPERATOR_CONSENTS, **person._asdict())
    _forget_all(event, tx, person)


def _forget_all(event: EntryRecorded, tx: FoldTransaction, person: _Person) -> None:
    tx.delete(OPERATOR_PROFILES, **person._asdict())
    tx.delete(OPERATOR_FORGOTTEN, **person._asdict())
    tx.add(OPERATOR_FORGOTTEN, [OperatorForgottenRow(person.workspace_id, person.slug, ALL_KEYS, event.seq)])


def _person(event: EntryRecorded, hashed: str) -> _Person:
    return _Person(event.workspace_id, slug_of(hashed))


_FOLDS: Final[Mapping[str, Callable[[EntryRecorded, FoldTransaction], Any]]] = {
    OperatorProfileUpdated.ENTRY_TYPE: _updated,
    ConsentChanged.ENTRY_TYPE: _consented,
    OperatorForgotten.ENTRY_TYPE: _forgotten,
    OperatorDeleted.ENTRY_TYPE: _deleted,
}
PROJECTION = OperatorsProjection
