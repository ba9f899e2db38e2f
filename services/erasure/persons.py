"""Which messages are about a person, under all names of that person.

Invariant: the names are not stored; a person is known by keyed hashes (``schemas/operators/rules.subject_hash``). A
withdrawn consent outlives the erasure of the person, so that nothing is learned about the person again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...schemas.access.events import AccountInvited, AccountPasswordSet, AccountRemoved, ConsentChanged
from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import DocumentWritten, EntryRecorded, Event
from ...schemas.core.errors import Unavailable
from ...schemas.core.grants import is_person
from ...schemas.core.ports import ViewReader
from ...schemas.erasure.criteria import subjects_of
from ...schemas.operators.events import OperatorNamed
from ...schemas.operators.rules import KEY_CHANGED, KEY_CHANGED_FIX, key_id, slug_of, subject_hash
from ...schemas.operators.tables import OPERATOR_NAMES
from ..documents.learned import Profiles

_NAMES: Final = f"SELECT slug FROM {OPERATOR_NAMES} WHERE workspace_id = ? AND person_slug = ?"
_HASHES: Final = ("subject_hash", "person_hash")
"""Fields of payloads that name a person."""
_OF_ACCOUNTS: Final = frozenset((AccountInvited.ENTRY_TYPE, AccountPasswordSet.ENTRY_TYPE, AccountRemoved.ENTRY_TYPE))
_PEERS: Final = "peers"
"""Tier of the notes about people; a note's key is the slug of the person, or a name."""


@dataclass(frozen=True, slots=True)
class DataSubject:
    """A person in a workspace.

    Attributes:
        person_hash: Keyed hash of the person.
        slugs: ``slug_of`` the hashes of all names of the person.
        opted_out: Whether the person withdrew consent.
    """

    workspace_id: str
    person_hash: str
    slugs: frozenset[str]
    opted_out: bool
    _key: bytes = field(repr=False)
    _slugs_by_name: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def is_concerned(self, event: Event) -> bool:
        """Whether a message bears the person's data.

        It does if the person is its data subject, its author or the person who asked, if it is a note about the person,
        or a decision about the person's model, consent, names or account.
        """
        if any(map(self.is_named, subjects_of(event))):
            return True
        if isinstance(event, DocumentWritten):
            return event.tier == _PEERS and (event.key in self.slugs or self.is_named(event.key))
        if not isinstance(event, EntryRecorded):
            return False
        entry = event.entry
        if event.control:
            if entry.entry_type in _OF_ACCOUNTS:
                return self.is_named(str(entry.payload.get("person")))
            hashes = (entry.payload.get(name) for name in _HASHES)
            return any(isinstance(named, str) and slug_of(named) in self.slugs for named in hashes)
        return entry.actor_type is ActorType.USER and self.is_named(entry.actor_id)

    def is_kept(self, event: Event) -> bool:
        """Whether an erasure of the person leaves a message: the withdrawn consent, and the names for which it counts."""
        if not self.opted_out or not isinstance(event, EntryRecorded) or not event.control:
            return False
        entry = event.entry
        is_withdrawal = entry.entry_type == ConsentChanged.ENTRY_TYPE and not entry.payload.get("granted", True)
        return (is_withdrawal or entry.entry_type == OperatorNamed.ENTRY_TYPE) and self.is_concerned(event)

    def is_named(self, name: str | None) -> bool:
        """Whether this is a name of the person."""
        if name is None or not is_person(name):
            return False
        slug = self._slugs_by_name.get(name)
        if slug is None:
            slug = self._slugs_by_name[name] = slug_of(subject_hash(self._key, self.workspace_id, name))
        return slug in self.slugs


def data_subject(views: ViewReader, key: bytes, workspace_id: str, hashed: str) -> DataSubject:
    """The person one of whose names has the keyed hash ``hashed``; blocking.

    Raises:
        Unavailable: If the journal names people by another key than ``key``: their messages could not be recognised.
    """
    profiles = Profiles(views)
    if profiles.key_in_use() not in (None, key_id(key)):
        raise Unavailable(KEY_CHANGED, hint=KEY_CHANGED_FIX)
    person = profiles.person_hash(workspace_id, hashed)
    names = (slug for (slug,) in views.rows(_NAMES, [workspace_id, slug_of(person)]))
    opted_out = profiles.opted_out(workspace_id, slug_of(person))
    return DataSubject(workspace_id, person, frozenset({slug_of(person), slug_of(hashed), *names}), opted_out, key)
