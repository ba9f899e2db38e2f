"""The scope of a query: a predicate inside every arm (DESIGN §7, contract §4).

Invariant: entries out of scope have no influence on hits, document frequencies, lengths or neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ...schemas.core.errors import InvalidQuery, NotAllowed
from ...schemas.core.principal import Principal, Role
from .arrays import ABSENT
from .documents import EMBEDDABLE, HIGH_PRIORITY, LEARNED, NOT_CURRENT, SPEECH, EntryColumns


class ScopeKind(StrEnum):
    """Which entries are searched.

    ``own``: the agent's, and the rules and lessons of its crew. ``crew_shared``: own, plus the crew's that pass the embed
    policy, have a live priority of high or more, or are its rules and lessons. ``workspace``: everything (OWNER and ADMIN).
    """

    OWN = "own"
    CREW_SHARED = "crew_shared"
    WORKSPACE = "workspace"


class Among(StrEnum):
    """Which of the entries in scope are searched."""

    ALL = "all"
    RULES = "rules"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RecallScope:
    """A scope with the ids it needs.

    Attributes:
        current: Entries that do not count any more are left out.
        crew_only: Entries of other crews, and of none, are left out, the agent's own included.
    """

    kind: ScopeKind
    agent_id: str | None = None
    crew_id: str | None = None
    current: bool = False
    among: Among = Among.ALL
    crew_only: bool = False


def resolve_scope(
    principal: Principal,
    kind: ScopeKind | None,
    agent_id: str | None = None,
    crew_id: str | None = None,
    *,
    current: bool = False,
    crew_only: bool = False,
) -> RecallScope:
    """The scope of a request.

    If it is absent, the role decides: LEAD gets ``crew_shared``, AGENT gets ``own``; OWNER and ADMIN get
    ``crew_shared`` if they name a crew, ``own`` if they name an agent, and ``workspace`` otherwise. AGENT and LEAD are
    bound to the agent and crew of their token and may name no other.

    Raises:
        NotAllowed: The role does not permit this scope, or the request names another agent or crew than the token's.
        InvalidQuery: The scope or ``crew_only`` needs an agent or a crew, and none is given, or takes none.
    """
    if principal.role.administers:
        agent, crew = agent_id or principal.agent_id, crew_id or principal.crew_id
        if kind is None:
            kind = ScopeKind.CREW_SHARED if crew_id else ScopeKind.OWN if agent_id else ScopeKind.WORKSPACE
    else:
        agent, crew = principal.agent_id, principal.crew_id
        _refuse_other("agent_id", agent_id, agent)
        _refuse_other("crew_id", crew_id, crew)
        if kind is None:
            kind = ScopeKind.CREW_SHARED if principal.role is Role.LEAD else ScopeKind.OWN
        if kind is ScopeKind.WORKSPACE or (kind is ScopeKind.CREW_SHARED and principal.role is not Role.LEAD):
            raise NotAllowed(
                f"a token of role {principal.role.value} may not recall in scope {kind.value}",
                hint="leave scope out, or use a token of role LEAD for crew_shared, ADMIN or OWNER for workspace",
                field="scope",
            )
    if crew_only and not crew:
        raise InvalidQuery("crew_only needs a crew_id", hint="name the crew in crew_id", field="crew_id")
    if kind is ScopeKind.WORKSPACE:
        if field := "agent_id" if agent_id else "crew_id" if crew_id else None:
            raise InvalidQuery(
                f"scope workspace takes no {field}", hint=f"leave {field} out, or choose another scope", field=field
            )
        if crew_only:
            raise InvalidQuery("scope workspace takes no crew_only", hint="leave crew_only out", field="crew_only")
        return RecallScope(kind, current=current)
    if kind is ScopeKind.OWN:
        if not agent:
            raise InvalidQuery("scope own needs an agent_id", hint="name the agent in agent_id", field="agent_id")
        return RecallScope(kind, agent, crew, current, crew_only=crew_only)
    if not crew:
        raise InvalidQuery("scope crew_shared needs a crew_id", hint="name the crew in crew_id", field="crew_id")
    return RecallScope(kind, agent, crew, current, crew_only=crew_only)


def _refuse_other(field: str, named: str | None, bound: str | None) -> None:
    if named and named != bound:
        raise NotAllowed(
            f"the token belongs to another {field}",
            hint=f"leave {field} out, or use a token of that {field}",
            field=field,
        )


def scope_mask(scope: RecallScope, documents: EntryColumns, first: int, end: int) -> npt.NDArray[np.bool_]:
    """(end - first,) bool: which of the documents ``first`` to ``end`` (exclusive) are in scope."""
    mask = _kind_mask(scope, documents, first, end)
    if scope.current:
        mask &= (documents.flags[first:end] & NOT_CURRENT) == 0
    if scope.among is Among.RULES:
        mask &= (documents.flags[first:end] & LEARNED) != 0
    elif scope.among is Among.NONE:
        mask[:] = False
    return mask


def _kind_mask(scope: RecallScope, documents: EntryColumns, first: int, end: int) -> npt.NDArray[np.bool_]:
    if scope.kind is ScopeKind.WORKSPACE:
        return np.ones(end - first, bool)
    own = _equals(documents.agent[first:end], documents.agents.find(scope.agent_id) if scope.agent_id else ABSENT)
    crew = _equals(documents.crew[first:end], documents.crews.find(scope.crew_id) if scope.crew_id else ABSENT)
    if scope.crew_only:
        own &= crew
    flags = documents.flags[first:end]
    valued = (flags & LEARNED) != 0
    if scope.kind is ScopeKind.CREW_SHARED:
        valued |= ((flags & HIGH_PRIORITY) != 0) | ((flags & (EMBEDDABLE | SPEECH)) == EMBEDDABLE)
    in_scope: npt.NDArray[np.bool_] = own | (crew & valued)
    return in_scope


def _equals(codes: npt.NDArray[np.int32], code: int) -> npt.NDArray[np.bool_]:
    if code == ABSENT:
        return np.zeros(len(codes), bool)
    equal: npt.NDArray[np.bool_] = np.equal(codes, code)
    return equal
