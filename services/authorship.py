"""Decides who may change records of another author, for retractions, facts and drawers.

Invariant: the author is determined by the token with which something was recorded, never by a payload. OWNER and ADMIN
may change everything, and only they may change their records. An agent may change its own records and those that a
reactor derived from its conversations; a LEAD may also change records of its crew's agents.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schemas.core.entry import ActorType
from ..schemas.core.errors import NotAllowed
from ..schemas.core.principal import Role
from .desk import Caller


@dataclass(frozen=True, slots=True)
class Author:
    """Who recorded something.

    Attributes:
        type: ``user`` for OWNER and ADMIN, ``agent`` for LEAD and AGENT, ``system`` for a reactor.
        name: The agent, the id of the operator's token, or the reactor.
        agent_id: The agent; for a reactor, the agent of the conversation that it read.
        crew_id: The crew of the token.
    """

    type: str
    name: str | None
    agent_id: str | None = None
    crew_id: str | None = None


def is_operator(author: Author) -> bool:
    """Whether an OWNER or ADMIN recorded it."""
    return author.type == ActorType.USER.value


def may_change(caller: Caller, author: Author, *, shared: bool = False) -> bool:
    """Whether the caller may change what the author recorded.

    Args:
        caller: The caller.
        author: The author.
        shared: Whether agents share the record, like facts of the knowledge graph, so that each agent may change
            records of others.
    """
    if caller.administers:
        return True
    if is_operator(author):
        return False
    principal = caller.principal
    own = author.agent_id is not None and author.agent_id == principal.agent_id
    crew = author.crew_id is not None and author.crew_id == principal.crew_id
    led = principal.role is Role.LEAD and author.type == ActorType.AGENT.value and crew
    return shared or own or led


def check_may_change(caller: Caller, author: Author, what: str, *, shared: bool = False) -> None:
    """Refuse a change to what another author recorded.

    Args:
        caller: The caller.
        author: The author.
        what: The record to change, with its id, such as ``drawer d1``.
        shared: As in ``may_change``.

    Raises:
        NotAllowed: If the caller may not change it.
    """
    if may_change(caller, author, shared=shared):
        return
    if is_operator(author):
        raise NotAllowed(f"{what} was recorded by an OWNER or ADMIN", hint="ask an OWNER or ADMIN to change it")
    by = f"{author.type} {author.name}" if author.name else author.type
    raise NotAllowed(
        f"{what} was recorded by {by}, whose records this token may not change",
        hint="ask its author, a LEAD of the author's crew, an OWNER or ADMIN",
    )
