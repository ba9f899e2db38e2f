"""Who may change what another author recorded: one rule for retractions, facts and drawers.

Invariant: an author is known by the token under which the service recorded something, never by what a payload says.
OWNER and ADMIN change everything; what they recorded is changed by them alone. An agent changes what it recorded itself and
what a reactor made of its conversations, a LEAD also what agents of its crew recorded.
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
        agent_id: The agent, also that of the conversation which a reactor read.
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
        shared: Whether agents keep it together, as the facts of the knowledge graph, so that each may change what another
            one recorded.
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
        what: What is to be changed, with its id, such as ``drawer d1``.
        shared: As for ``may_change``.

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
