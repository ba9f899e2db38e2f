"""Checks that each of our providers makes before it acts, and the deadline of a health check.

Invariant: a request is checked in one order: scope, tier, mode, content, key, role. A refused request changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from ....schemas.errors import (
    CascadeUnsupported,
    DocumentConflict,
    DocumentError,
    EmptyContent,
    InvalidMode,
    InvalidTier,
    MissingKey,
    NotAllowed,
    ScopeMismatch,
    SelectorConflict,
)
from ....schemas.ids import is_id
from ....schemas.principal import Role
from ....schemas.provider import (
    HEALTH_DEADLINE_S,
    HEALTH_TIMEOUT_MESSAGE,
    ForgetRequest,
    HealthStatus,
    LabelsRequest,
    ProviderScope,
    ReadRequest,
    RecallRequest,
    RetainRequest,
)
from ....schemas.rules.documents import finding_in, sha256_of
from ....schemas.rules.tiers import TIERS, MinRole, Scope, TierRule, key_problem, owner_of, tier_of_label
from ..documents.addressing import rule_of
from ..documents.answers import blocked, too_large

MODES: Final = ("replace", "append")
_RECALL_SCOPES: Final[dict[str, tuple[Scope, ...]]] = {
    "agent": (Scope.AGENT,),
    "crew": (Scope.CREW,),
    "both": (Scope.AGENT, Scope.CREW, Scope.WORKSPACE),
}
_MAY_WRITE: Final = {
    MinRole.AGENT: frozenset(Role),
    MinRole.LEAD: frozenset({Role.LEAD, Role.ADMIN, Role.OWNER}),
    MinRole.OPERATOR: frozenset({Role.ADMIN, Role.OWNER}),
}


_Asked = RetainRequest | RecallRequest | ForgetRequest | ReadRequest | LabelsRequest


@dataclass(frozen=True, slots=True)
class Place:
    """One document.

    Attributes:
        scope: Whose it is.
        name: The agent or crew; None for the workspace.
        tier: Its tier.
        key: Its key within the tier.
        rule: The rule of the tier.
    """

    scope: Scope
    name: str | None
    tier: str
    key: str | None
    rule: TierRule

    @property
    def label(self) -> str:
        """Its id: the path below ``.memory``."""
        return self.rule.label_of(self.key)

    @property
    def owner(self) -> str:
        """Its owner as in a subject."""
        return owner_of(self.scope, self.name)


def check_scope(bound: ProviderScope, asked: _Asked) -> None:
    """Raise if the request names another workspace, agent or crew than the provider is bound to.

    Raises:
        ScopeMismatch: Naming both.
    """
    for what in ("workspace", "agent", "crew"):
        named, own = getattr(asked, f"{what}_id"), getattr(bound, f"{what}_id")
        if named is not None and named != own:
            raise ScopeMismatch(
                f"the request names {what} {named[:64]!r}, the provider is bound to {own or 'none'}",
                hint=f"use a provider of that {what}, or leave {what}_id out",
                field=f"{what}_id",
            )


def place_to_write(bound: ProviderScope, asked: RetainRequest) -> Place:
    """The document that a write goes to.

    Raises:
        DocumentError: The first thing that is wrong: scope, tier, mode, content, key.
        NotAllowed: If the role may not write there.
    """
    check_scope(bound, asked)
    rule = rule_of(asked.tier)
    if not rule.writable:
        raise InvalidTier(
            f"tier {asked.tier} is made from lessons and cannot be written", hint="write AGENT or CREW", field="tier"
        )
    if asked.mode not in MODES:
        raise InvalidMode(
            f"mode {asked.mode[:32]!r} is not a mode", hint="use replace or append; there is no default", field="mode"
        )
    if not asked.content.strip():
        raise EmptyContent("content is empty", hint="to remove a document, forget it by its id", field="content")
    place = _place(bound, asked.tier, asked.key, asked.scope)
    if asked.write_id is not None and not is_id(asked.write_id):
        raise DocumentError("write_id is not an id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="write_id")
    check_role(bound, place.tier, place.rule, place.scope)
    return place


def place_to_read(bound: ProviderScope, asked: ReadRequest) -> Place:
    """The document that is read.

    Raises:
        DocumentError: The first thing that is wrong: scope, tier, key.
    """
    check_scope(bound, asked)
    rule_of(asked.tier)
    return _place(bound, asked.tier, asked.key, asked.scope)


def place_to_forget(bound: ProviderScope, asked: ForgetRequest, *, cascade: str) -> Place:
    """The document that is forgotten.

    Args:
        bound: The provider's scope.
        asked: The request.
        cascade: What can forget a person, as the hint of the refusal.

    Raises:
        SelectorConflict: Unless exactly one of id and data subject is given.
        CascadeUnsupported: If it is the data subject.
        DocumentError: If the scope is another or the id is not a label.
        NotAllowed: If the role may not write there.
    """
    check_scope(bound, asked)
    if bool(asked.id) == bool(asked.data_subject_id):
        given = "both are" if asked.id else "neither is"
        raise SelectorConflict(
            f"exactly one of id and data_subject_id is needed, {given} given", hint="give one of them", field="id"
        )
    if not asked.id:
        raise CascadeUnsupported(
            "cascade not implemented: this provider does not forget a person", hint=cascade, field="data_subject_id"
        )
    known = tier_of_label(asked.id)
    if known is None:
        raise InvalidTier(
            f"id {asked.id[:128]!r} is not the label of a document",
            hint="send the id that retain returned, such as AGENT.md or daily/2026-05-21.md",
            field="id",
        )
    place = _place(bound, *known, asked.scope)
    check_role(bound, place.tier, place.rule, place.scope)
    return place


def owners_to_search(bound: ProviderScope, asked: RecallRequest) -> list[tuple[Scope, str | None]]:
    """Whose documents a search covers: scope and name of each owner.

    Raises:
        DocumentError: If scope or tier are not valid.
    """
    check_scope(bound, asked)
    if asked.tier is not None:
        rule_of(asked.tier)
    if asked.scope not in _RECALL_SCOPES:
        raise DocumentError(f"scope {asked.scope[:32]!r} is not a scope", hint="use agent, crew or both", field="scope")
    if not asked.query.strip():
        raise DocumentError("query is blank", hint="send words or a question", field="query")
    named = [(scope, _name(bound, scope)) for scope in _RECALL_SCOPES[asked.scope]]
    return [(scope, name) for scope, name in named if name is not None or scope is Scope.WORKSPACE]


def owner_to_list(bound: ProviderScope, asked: LabelsRequest) -> tuple[Scope, str | None]:
    """Whose documents are named: scope and name of the owner.

    Raises:
        ScopeMismatch: If the request names another, or the provider is bound to none.
        DocumentError: If the scope is not valid.
    """
    check_scope(bound, asked)
    if asked.scope not in list(Scope):
        raise DocumentError(
            f"scope {asked.scope[:32]!r} is not a scope", hint="use agent, crew or workspace", field="scope"
        )
    scope = Scope(asked.scope)
    return scope, _owner_name(bound, scope, "the request")


def check_expected(place: Place, asked: RetainRequest, before: str) -> None:
    """Check that a replace knows what it replaces: a text that is blocked was not read by whoever replaces it.

    Raises:
        DocumentConflict: If the text is another than the expected one, or is blocked and none is expected.
    """
    if asked.mode != "replace":
        return
    present = sha256_of(before)
    if asked.expected_sha256 is None:
        if finding_in(before) is None:
            return
        problem = "is blocked by the injection scanners, and would be lost"
        hint = f"ask an operator to look at it; to replace it all the same, send expected_sha256={present}"
    elif asked.expected_sha256 != present:
        problem, hint = "is not the text that is expected", "read it, then write with the sha256 of the answer"
    else:
        return
    raise DocumentConflict(f"{place.label} {problem}", hint=hint, field="expected_sha256")


def check_result(place: Place, before: str, after: str) -> None:
    """Check the text that a document would have.

    Raises:
        Quarantined: If the scanners block it.
        CapExceeded: If it is larger than the tier allows.
    """
    if (finding := finding_in(after)) is not None:
        raise blocked(place.label, finding)
    cap, size, present = place.rule.cap_bytes, len(after.encode()), len(before.encode())
    if cap is not None and size > cap:
        raise too_large(place.label, place.tier, cap, size, present, before)


async def health_of(probe: Callable[[], Awaitable[str | None]], clock: Callable[[], datetime]) -> HealthStatus:
    """The health that ``probe`` finds: it returns what is wrong, None if nothing is. Ends within the deadline.

    The probe is cancelled but not awaited, so that one that does not end cannot hold the answer up.
    """
    task = asyncio.ensure_future(probe())
    task.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # retrieved, so asyncio does not log it
    try:
        done, _ = await asyncio.wait({task}, timeout=HEALTH_DEADLINE_S)
    finally:
        task.cancel()
    if not done:
        message: str | None = HEALTH_TIMEOUT_MESSAGE
    elif task.cancelled() or (error := task.exception()) is not None:
        message = "cancelled" if task.cancelled() else type(error).__name__
    else:
        message = task.result()
    return HealthStatus(ok=message is None, message=message, checked_at=clock())


def _place(bound: ProviderScope, tier: str, key: str | None, scope: str | None) -> Place:
    rule = TIERS[tier]
    if (problem := key_problem(rule, key)) is not None:
        raise MissingKey(f"key {(key or '')[:64]!r} of tier {tier}: {problem}", hint="correct the key", field="key")
    if rule.key != "none" and key is None:
        raise MissingKey(f"tier {tier} needs a key", hint=f"send key: a {rule.key.value}", field="key")
    whose = next(iter(rule.writers)) if scope is None else _scope(scope, tier, rule)
    return Place(whose, _owner_name(bound, whose, f"tier {tier}"), tier, key, rule)


def _owner_name(bound: ProviderScope, scope: Scope, what: str) -> str | None:
    name = _name(bound, scope)
    if name is None and scope is not Scope.WORKSPACE:
        raise ScopeMismatch(
            f"{what} is about {_an(scope)}, and the provider is bound to none",
            hint=f"use a provider that is bound to {_an(scope)}",
            field=f"{scope.value}_id",
        )
    return name


def _scope(named: str, tier: str, rule: TierRule) -> Scope:
    if named not in [scope.value for scope in rule.writers]:
        known = " or ".join(scope.value for scope in rule.writers)
        raise InvalidTier(f"tier {tier} has no scope {named[:32]!r}", hint=f"use {known}", field="scope")
    return Scope(named)


def check_role(bound: ProviderScope, tier: str, rule: TierRule, scope: Scope) -> None:
    """Raise if the role may not write the tier there.

    Raises:
        NotAllowed: Naming the role that may.
    """
    least = rule.writers[scope]
    if bound.role not in _MAY_WRITE[least]:
        raise NotAllowed(
            f"role {bound.role} may not write {tier} of {_an(scope)}",
            hint=f"this needs {'OWNER or ADMIN' if least is MinRole.OPERATOR else 'the LEAD of the crew'}",
            field="tier",
        )


def _name(bound: ProviderScope, scope: Scope) -> str | None:
    return {Scope.AGENT: bound.agent_id, Scope.CREW: bound.crew_id, Scope.WORKSPACE: None}[scope]


def _an(scope: Scope) -> Literal["an agent", "a crew", "the workspace"]:
    return {Scope.AGENT: "an agent", Scope.CREW: "a crew", Scope.WORKSPACE: "the workspace"}[scope]  # type: ignore[return-value]
