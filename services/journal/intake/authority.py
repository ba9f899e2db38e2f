"""What a token allows of an entry: its type, its priority, and the actor it names. Pure.

Invariant: these checks are made here, at intake, for every way in, and nowhere else; folds ask only for the family of the
subject (DESIGN §4) and for the header that records ``vouches``. An agent's token speaks for its agent. It may also report
in ``chat.user_message`` what a user said, but it vouches for a person only with a grant that names the person or every
user. OWNER and ADMIN may name every actor and vouch like other tokens: several programs and people share such a token.
"""

from __future__ import annotations

from ....schemas.catalogue import info_of
from ....schemas.entry import JournalEntry, Priority
from ....schemas.errors import NotAllowed
from ....schemas.events.payload import SERVICE_ALONE, PublisherKind
from ....schemas.grants import USER, actor_of, covers, speaks_for
from ....schemas.persons import is_person
from ....schemas.principal import Principal, Role
from ....schemas.rules.actors import AGENT_RESPONSE, USER_MESSAGE

_OWNER, _ADMIN = Role.OWNER, Role.ADMIN  # looked up once: an enum's members cost 0.1 µs each time


def default_actor(principal: Principal, entry_type: object = None) -> tuple[str, str | None]:
    """Type and id of the actor of an entry that names no ``actor_type``.

    A token with ``speaks_for`` acts as the first of those, a person's (OWNER, ADMIN) as the user, an agent's as itself. An
    agent's answer is never a person's.
    """
    if principal.speaks_for:
        kind, name = actor_of(principal.speaks_for[0])
        if kind != USER or entry_type != AGENT_RESPONSE:
            return kind, name
    role = principal.role
    if role is _OWNER or role is _ADMIN:
        return "user", None
    return "agent", principal.agent_id


def may_speak(principal: Principal, entry_type: object, actor_type: object, actor_id: object) -> bool:
    """Whether the token may publish as this actor; the values need not be valid."""
    if actor_type == "agent" and (actor_id is None or actor_id == principal.agent_id):
        return True
    role = principal.role
    if role is _OWNER or role is _ADMIN or (actor_type == "user" and entry_type == USER_MESSAGE):
        return True
    return speaks_for(principal.speaks_for, actor_type, actor_id)


def vouches(principal: Principal, actor_type: object, actor_id: object) -> bool:
    """Whether what the token submits counts as the own words of the actor, who is a named person."""
    if actor_type != "user" or not principal.speaks_for or not isinstance(actor_id, str):
        return False
    return is_person(actor_id) and speaks_for(principal.speaks_for, actor_type, actor_id)


def check_actor(principal: Principal, entry: JournalEntry, prefix: str = "") -> None:
    """Refuse an entry of an actor that the token may not name.

    Raises:
        NotAllowed: Naming the field: ``actor_id`` if another id of the same type is allowed, else ``actor_type``.
    """
    actor_type, actor_id = entry.actor_type.value, entry.actor_id
    if may_speak(principal, entry.entry_type, actor_type, actor_id):
        return
    allowed = (f"agent:{principal.agent_id}", *principal.speaks_for)
    wrong_id = any(actor_of(actor)[0] == actor_type for actor in allowed)
    field = "actor_id" if wrong_id else "actor_type"
    raise NotAllowed(
        f"{prefix}{field}: the token may not speak for {actor_type}{f' {actor_id}' if actor_id and wrong_id else ''}",
        hint=f"leave actor_type and actor_id out, name one of {', '.join(allowed)} (user in chat.user_message), or ask an "
        f"operator for a token with --speaks-for {actor_type} and send the entry over HTTP",
        field=f"{prefix}{field}",
    )


def needs_control(principal: Principal, entry: JournalEntry, prefix: str = "") -> bool:
    """Whether the entry decides something, so that it goes to ``control.``.

    Raises:
        NotAllowed: If the principal has no authority for its type or priority.
    """
    publisher = info_of(entry.entry_type).publisher
    if publisher in SERVICE_ALONE:
        reserved = publisher is PublisherKind.RESERVED
        raise NotAllowed(
            f"{prefix}entry_type {entry.entry_type} is {'reserved for' if reserved else 'published by'} the service only",
            hint="choose a type that is not reserved (docs/format.md), like note.taken"
            if reserved
            else "use the command or route that decides it; it writes the entry itself",
            field=f"{prefix}entry_type",
        )
    administers = principal.role.administers
    if publisher is PublisherKind.VOUCHED and not administers and not covers(principal.may_publish, entry.entry_type):
        raise NotAllowed(
            f"{prefix}entry_type {entry.entry_type} needs a token that was granted it, or one of role OWNER or ADMIN",
            hint="use a type that agents may publish, or ask an operator for a token with "
            f"--may-publish {entry.entry_type} and send the entry over HTTP",
            field=f"{prefix}entry_type",
        )
    decides = publisher is PublisherKind.OPERATORS
    if not decides and entry.priority is Priority.NORMAL:
        return False
    if not administers:
        field = "entry_type" if decides else "priority"
        value = entry.entry_type if decides else entry.priority.value
        own_way = "use a type that agents may publish" if decides else "leave priority out"
        raise NotAllowed(
            f"{prefix}{field} {value} needs a token of role OWNER or ADMIN, this one is {principal.role.value}",
            hint=f"{own_way}, or ask an operator",
            field=f"{prefix}{field}",
        )
    return True
