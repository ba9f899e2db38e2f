"""Finds the document of a request and checks who may write it; no other module checks scope, tier, key and role.

Invariant: AGENT and LEAD reach only their own agent, their own crew and the workspace; a request must agree with the
token. Every request is checked here before a store gets its address. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Protocol

from ...schemas.core.errors import (
    FieldProblem,
    InvalidQuery,
    InvalidRequest,
    InvalidTier,
    MissingKey,
    NoSuchMemory,
    NotAllowed,
    Unavailable,
)
from ...schemas.core.ids import name_key
from ...schemas.core.principal import Principal, Role
from ...schemas.documents.operations import FileScope
from ...schemas.documents.rules import (
    TIERS,
    WRITABLE,
    KeyKind,
    MinRole,
    Scope,
    TierRule,
    key_problem,
    owner_of,
    scope_of,
)
from ..desk import Caller
from ..index.scope import ScopeKind

# Whose documents a request searches.
#
# Invariant: only owners that the token may read are in a scope.


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


class NamesOwner(Protocol):
    """The fields of a request that name the owner of a memory."""

    @property
    def agent_id(self) -> str | None:
        """The agent, for OWNER and ADMIN."""
        ...

    @property
    def crew_id(self) -> str | None:
        """The crew, for OWNER and ADMIN."""
        ...


class Addressed(NamesOwner, Protocol):
    """The fields of a request that name a document's owner."""

    @property
    def scope(self) -> str | None:
        """``agent``, ``crew`` or ``workspace``."""
        ...


@dataclass(frozen=True)  # no slots: the key is kept
class DocumentAddress:
    """One document of a workspace."""

    workspace_id: str
    scope: Scope
    owner: str
    tier: str
    key: str | None

    @property
    def rule(self) -> TierRule:
        """The rule of its tier."""
        return TIERS[self.tier]

    @property
    def name(self) -> str | None:
        """Id of the agent or crew; None for the workspace."""
        return scope_of(self.owner)[1]

    @property
    def label(self) -> str:
        """``daily/2026-05-14.md``."""
        return self.rule.label_of(self.key)

    @cached_property
    def row_key(self) -> int:
        """The column ``key`` of its row."""
        return name_key((self.workspace_id, self.owner, self.tier, self.key or ""))

    @property
    def values(self) -> tuple[int, str, str, str, str | None]:
        """The values that select its row: key, workspace, owner, tier, key within the tier."""
        return self.row_key, self.workspace_id, self.owner, self.tier, self.key


def rule_of(tier: str) -> TierRule:
    """The rule of a tier.

    Raises:
        InvalidTier: If there is no such tier; case counts.
    """
    rule = TIERS.get(tier)
    if rule is None:
        rendered = " and ".join(sorted(TIERS.keys() - set(WRITABLE)))
        hint = f"use one of {', '.join(WRITABLE)}, or to read {rendered}; case counts"
        raise InvalidTier(f"there is no tier {tier[:32]!r}", hint=hint, field="tier")
    return rule


def address_of(caller: Caller, address: Addressed, tier: str, key: str | None, today: date | None) -> DocumentAddress:
    """The document that a request names.

    Args:
        caller: The caller.
        address: Names the owner; if it does not, the token determines the owner.
        tier: The tier.
        key: The key; today for ``daily`` if it is absent or empty.
        today: The date in UTC; None if ``daily`` requires a key.

    Raises:
        InvalidTier: If there is no such tier.
        MissingKey: If the key is missing, or not valid in the tier.
        NotAllowed: If the document belongs to an agent or crew other than the token's.
        InvalidRequest: If the tier has no such scope, or an operator did not name the owner.
        Unavailable: If the document belongs to a crew and the token has no crew.
    """
    rule = rule_of(tier)
    key = _key(rule, tier, key or None, today)
    check_own(caller, address)
    scope = _scope(caller, address, rule, tier)
    return DocumentAddress(caller.workspace_id, scope, owner_of(scope, _name(caller, address, scope)), tier, key)


def writable_address_of(
    caller: Caller, asked: Addressed, tier: str, key: str | None, today: date | None
) -> DocumentAddress:
    """The document that a write names; raises as ``address_of`` and ``check_may_write``."""
    address = address_of(caller, asked, tier, key, today)
    check_may_write(caller, address)
    return address


def check_own(caller: Caller, owner: NamesOwner) -> None:
    """Refuse a request of AGENT or LEAD that names another agent or crew.

    Raises:
        NotAllowed: If the request names another agent or crew.
    """
    if caller.administers:
        return
    own = {"agent_id": caller.principal.agent_id, "crew_id": caller.principal.crew_id}
    for name, value in (("agent_id", owner.agent_id), ("crew_id", owner.crew_id)):
        if value not in (None, own[name]):
            raise NotAllowed(
                f"the token is for {name} {own[name] or 'none'}, the request names another",
                hint=f"leave {name} out, or use an OWNER or ADMIN token",
                field=name,
            )


def check_may_write(caller: Caller, address: DocumentAddress) -> None:
    """Refuse a write that the tier or the role does not permit.

    Raises:
        InvalidTier: If the tier is a rendering.
        NotAllowed: If the write needs a higher role.
    """
    if not address.rule.writable:
        raise InvalidTier(
            f"{address.tier} is rendered from entries and cannot be written",
            hint="write to AGENT, daily or topics instead",
            field="tier",
        )
    needed = address.rule.writers[address.scope]
    lead = caller.principal.role is Role.LEAD
    if caller.administers or needed is MinRole.AGENT or (needed is MinRole.LEAD and lead):
        return
    who = "a LEAD of the crew, an OWNER or an ADMIN" if needed is MinRole.LEAD else "an OWNER or ADMIN"
    raise NotAllowed(
        f"{address.label} of the {address.scope.value} is written by {who}, not by {caller.principal.role.value}",
        hint="write to AGENT or daily, or ask one of them",
        field="tier",
    )


def _key(rule: TierRule, tier: str, key: str | None, today: date | None) -> str | None:
    if key is None and rule.key is KeyKind.DATE and today is not None:
        return today.isoformat()
    if key is None and rule.key is not KeyKind.NONE:
        raise MissingKey(f"{tier} needs a key", hint=f"name one: {rule.label_of('<key>')}", field="key")
    if (problem := key_problem(rule, key)) is not None:
        raise MissingKey(f"the key is not valid for {tier}", hint=problem, field="key")
    return key


def _scope(caller: Caller, address: Addressed, rule: TierRule, tier: str) -> Scope:
    scopes = tuple(rule.writers)
    if address.scope is not None:
        if address.scope not in scopes:
            fix = f"use {' or '.join(scopes)}, or leave scope out"
            raise InvalidRequest((FieldProblem("scope", f"{tier} has no scope {address.scope}", fix),))
        return Scope(address.scope)
    if address.agent_id is not None and Scope.AGENT in scopes:
        return Scope.AGENT
    if address.crew_id is not None and Scope.CREW in scopes:
        return Scope.CREW
    if caller.administers and caller.principal.agent_id is None and Scope.WORKSPACE in scopes:
        return Scope.WORKSPACE
    return scopes[0]


def _name(caller: Caller, address: Addressed, scope: Scope) -> str | None:
    """Id of the agent or crew that owns the document."""
    if scope is Scope.WORKSPACE:
        return None
    of_agent = scope is Scope.AGENT
    field = "agent_id" if of_agent else "crew_id"
    principal = caller.principal
    named = (address.agent_id or principal.agent_id) if of_agent else (address.crew_id or principal.crew_id)
    if named is not None:
        return named
    if caller.administers:
        problem = "is missing: this document belongs to an agent" if of_agent else "is missing: it belongs to a crew"
        raise InvalidRequest((FieldProblem(field, problem, f"name {field}; the token is for none"),))
    raise Unavailable("there is no crew", hint="the token has no crew_id; use the tiers AGENT and daily", field=field)
