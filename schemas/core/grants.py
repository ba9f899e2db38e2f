"""Grants of a token beyond its role (publishing vouched types, speaking for other actors); comparison of names.

Invariant: a grant never permits types that only operators or the service may publish.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Final

from pydantic import StringConstraints

from .subjects import MAX_ENTRY_TYPE

# Different spellings of a person's name.


VERSION: Final = 1

USER_NAMES: Final = frozenset({"user", "human"})
"""User names that do not identify a person."""

_INVISIBLE: Final = "Cf"
"""Unicode category of characters without a glyph, such as the zero-width space."""


def person_of(name: str) -> str:
    """The name with case, blanks, compatibility forms and invisible characters normalised; idempotent."""
    if name.isascii():
        return " ".join(name.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(char for char in folded if unicodedata.category(char) != _INVISIBLE).split())


def is_person(name: str) -> bool:
    """Whether the name identifies a person, so is not blank, "user" or "human"."""
    person = person_of(name)
    return person != "" and person not in USER_NAMES


MAX_GRANTS: Final = 32
"""Maximum number of patterns, and of actors, of one token."""
TYPE_PATTERN: Final = r"^[a-z0-9_]+(\.[a-z0-9_]+){0,2}(\.[a-z0-9_]+|\.\*)?$"
SPEAKER_PATTERN: Final = (
    r"^((agent|user|system|keeper|sidecar|orchestrator)(:[A-Za-z0-9_-]{1,64})?"
    r"|user:[^\x00-\x1f\x7f\u0085\u2028\u2029]{1,128})$"
)
"""A person is named like an actor (``entry.Name``), for example by an address."""
USER: Final = "user"

PERSON_PATTERN: Final = r"^[^/\x00-\x1f\x7f\u0085\u2028\u2029]{1,128}$"
"""Names of persons who sign in; without a slash, because paths of HTTP contain them."""

TypePattern = Annotated[str, StringConstraints(pattern=TYPE_PATTERN, max_length=MAX_ENTRY_TYPE)]
"""An entry type, or ``prefix.*`` for every type below it."""
Speaker = Annotated[str, StringConstraints(pattern=SPEAKER_PATTERN)]
"""An actor type or one actor: ``keeper``, ``keeper:gate``, ``user:maria``."""

PersonName = Annotated[str, StringConstraints(pattern=PERSON_PATTERN)]


def covers(patterns: tuple[str, ...], entry_type: str) -> bool:
    """Whether one of the patterns matches the type."""
    return any(
        entry_type.startswith(pattern[:-1]) if pattern.endswith(".*") else entry_type == pattern for pattern in patterns
    )


def actor_of(speaker: str) -> tuple[str, str | None]:
    """Type and id of an actor; the id is None if ``speaker`` means all actors of the type."""
    actor_type, _, actor_id = speaker.partition(":")
    return actor_type, actor_id or None


def speaks_for(speakers: tuple[str, ...], actor_type: object, actor_id: object) -> bool:
    """Whether a token may speak for an actor; names of persons are compared by ``person_of``."""
    return any(
        kind == actor_type and (name is None or name == actor_id or _is_same_person(kind, name, actor_id))
        for kind, name in (actor_of(speaker) for speaker in speakers)
    )


def persons_of(speakers: tuple[str, ...]) -> tuple[str, ...]:
    """The persons for whom a token may speak."""
    return tuple(name for kind, name in map(actor_of, speakers) if kind == USER and name is not None)


def _is_same_person(kind: str, name: str, actor_id: object) -> bool:
    return kind == USER and isinstance(actor_id, str) and person_of(name) == person_of(actor_id)
