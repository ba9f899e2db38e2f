"""Grants of a token beyond its role: publishing vouched types, and speaking for other actors.

Invariant: a grant never permits types that only operators or the service may publish.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import StringConstraints

from .catalogue import SERVICE_ALONE, PublisherKind, publishers_of
from .persons import person_of
from .subjects import MAX_ENTRY_TYPE

MAX_GRANTS: Final = 32
"""Maximum number of patterns, and of actors, of one token."""
TYPE_PATTERN: Final = r"^[a-z0-9_]+(\.[a-z0-9_]+){0,2}(\.[a-z0-9_]+|\.\*)?$"
SPEAKER_PATTERN: Final = (
    r"^((agent|user|system|keeper|sidecar|orchestrator)(:[A-Za-z0-9_-]{1,64})?"
    r"|user:[^\x00-\x1f\x7f\u0085\u2028\u2029]{1,128})$"
)
"""A person has the name of an actor (``entry.Name``), for example an address."""
USER: Final = "user"

TypePattern = Annotated[str, StringConstraints(pattern=TYPE_PATTERN, max_length=MAX_ENTRY_TYPE)]
"""An entry type, or ``prefix.*`` for every type below it."""
Speaker = Annotated[str, StringConstraints(pattern=SPEAKER_PATTERN)]
"""An actor type or one actor: ``keeper``, ``keeper:gate``, ``user:maria``."""


def covers(patterns: tuple[str, ...], entry_type: str) -> bool:
    """Whether one of the patterns matches the type."""
    return any(
        entry_type.startswith(pattern[:-1]) if pattern.endswith(".*") else entry_type == pattern for pattern in patterns
    )


def why_not_granted(pattern: str) -> str | None:
    """Why a pattern cannot be granted (an agent can publish none of its types); None if it can."""
    publishers = publishers_of(pattern)
    if publishers & {PublisherKind.AGENTS, PublisherKind.VOUCHED}:
        return None
    allowed = "the service" if publishers <= SERVICE_ALONE else "the service, OWNER and ADMIN"
    return f"{pattern}: only {allowed} can publish {'these types' if pattern.endswith('.*') else 'this type'}"


def actor_of(speaker: str) -> tuple[str, str | None]:
    """Type and id of an actor; the id is None for every actor of the type."""
    actor_type, _, actor_id = speaker.partition(":")
    return actor_type, actor_id or None


def speaks_for(speakers: tuple[str, ...], actor_type: object, actor_id: object) -> bool:
    """Whether a token may speak for an actor; a person may be spelled in any way that ``person_of`` makes equal."""
    return any(
        kind == actor_type and (name is None or name == actor_id or _is_same_person(kind, name, actor_id))
        for kind, name in (actor_of(speaker) for speaker in speakers)
    )


def persons_of(speakers: tuple[str, ...]) -> tuple[str, ...]:
    """The persons that a token names as those it speaks for."""
    return tuple(name for kind, name in map(actor_of, speakers) if kind == USER and name is not None)


def _is_same_person(kind: str, name: str, actor_id: object) -> bool:
    return kind == USER and isinstance(actor_id, str) and person_of(name) == person_of(actor_id)
