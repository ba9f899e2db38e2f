"""Whose documents a request searches.

Invariant: only owners that the token may read are in a scope.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.core.errors import InvalidQuery, NoSuchMemory, NotAllowed
from ...schemas.core.principal import Principal, Role
from ...schemas.documents.operations import FileScope
from ...schemas.documents.rules import Scope, owner_of
from ..index.scope import ScopeKind


@dataclass(frozen=True, slots=True)
class SearchedOwners:
    """The owners in scope; None for all of the workspace. ``agent_id`` and ``crew_id`` are whose documents they are."""

    owners: tuple[str, ...] | None
    agent_id: str | None
    crew_id: str | None


def file_scope(principal: Principal, scope: FileScope, agent_id: str | None, crew_id: str | None) -> SearchedOwners:
    """The owners of the scopes of seed 3.

    Raises:
        NotAllowed: If AGENT or LEAD names another agent or crew.
        InvalidQuery: If an operator names no agent, or no crew, where the scope needs one.
        NoSuchMemory: If scope is ``crew`` and the agent has no crew.
    """
    agent, crew = _bound(principal, agent_id, crew_id)
    owners: list[str] = []
    if scope != "crew" and agent is not None:
        owners.append(owner_of(Scope.AGENT, agent))
    if scope != "agent" and crew is not None:
        owners.append(owner_of(Scope.CREW, crew))
    if owners and scope == "both":
        owners.append(owner_of(Scope.WORKSPACE, None))
    if owners:
        return SearchedOwners(tuple(owners), agent if scope != "crew" else None, crew if scope != "agent" else None)
    field = "crew_id" if scope == "crew" else "agent_id"
    if scope == "crew" and not principal.role.administers:
        raise NoSuchMemory(
            f"agent {agent} has no crew, so there is no crew memory",
            hint="search with scope agent, or use a token that is bound to a crew",
            field="scope",
        )
    hint = f"name whose documents in {field}" + ("" if crew is None else ", or search the crew's with scope crew")
    raise InvalidQuery(f"scope {scope} needs {field}", hint=hint, field=field)


def memory_scope(
    principal: Principal, scope: str | None, agent_id: str | None, crew_id: str | None
) -> tuple[SearchedOwners, ScopeKind]:
    """The owners of the scopes of recall, and the scope in which entries are recalled.

    An AGENT may read its crew's documents but recall its own entries only.

    Raises:
        NotAllowed: If the role does not permit the scope, or the request names another agent or crew than the token's.
        InvalidQuery: If the scope needs an agent or a crew, and there is none.
    """
    agent, crew = _bound(principal, agent_id, crew_id)
    if scope is None and principal.role.administers:
        scope = ScopeKind.CREW_SHARED if crew_id else ScopeKind.OWN if agent_id else ScopeKind.WORKSPACE
    elif scope is None:
        scope = ScopeKind.CREW_SHARED if principal.role is Role.LEAD else ScopeKind.OWN
    kind = ScopeKind(scope)
    if kind is ScopeKind.WORKSPACE:
        if not principal.role.administers:
            raise NotAllowed(
                f"a token of role {principal.role.value} may not search the workspace",
                hint="leave scope out, or use an OWNER or ADMIN token",
                field="scope",
            )
        return SearchedOwners(None, None, None), kind
    if kind is ScopeKind.CREW_SHARED and crew is None:
        raise InvalidQuery("scope crew_shared needs a crew_id", hint="name the crew in crew_id", field="crew_id")
    if kind is ScopeKind.OWN and agent is None:
        raise InvalidQuery("scope own needs an agent_id", hint="name the agent in agent_id", field="agent_id")
    if kind is ScopeKind.OWN:
        crew = None
    searched_owners = file_scope(principal, "both" if crew else "agent", agent_id, crew_id)
    return searched_owners, ScopeKind.OWN if principal.role is Role.AGENT else kind


def _bound(principal: Principal, agent_id: str | None, crew_id: str | None) -> tuple[str | None, str | None]:
    if principal.role.administers:
        return agent_id or principal.agent_id, crew_id or principal.crew_id
    for field, named, own in (("agent_id", agent_id, principal.agent_id), ("crew_id", crew_id, principal.crew_id)):
        if named and named != own:
            raise NotAllowed(
                f"the token belongs to another {field}",
                hint=f"leave {field} out, or use a token of that {field}",
                field=field,
            )
    return principal.agent_id, principal.crew_id
