"""Decides which entries are embedded (contract §2), and which types are embedded if a workspace chooses so.

Invariant: a pure function of version, choice, type, severity, payload and refs. A changed policy is a new
``VERSION``, which applies to a workspace only from an explicit reindex on. The choice is separate from the policy and
does not change its version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 2

REMEMBERED: Final = "memory.remembered"
"""Notes that an agent makes on purpose. Version 2 adds this type to the eight types of contract §2."""
ALWAYS: Final = frozenset(
    {
        "peer.escalation",
        "summary.generated",
        "memory.consolidated",
        "approval.denied",
        "eval.regression_detected",
        REMEMBERED,
    }
)
CHAT: Final = "chat."
"""Prefix of the types that are embedded only if a workspace chooses so; no version of the policy selects them."""
WHEN_SEVERE: Final = frozenset({"keeper.decision", "mission.status_change"})
SEVERE: Final = frozenset({"warn", "error"})
WHEN_FLAGGED: Final = "peer.conversation"
EMBEDDABLE: Final = ALWAYS | WHEN_SEVERE | {WHEN_FLAGGED}
"""The types that can be embedded; ``refs.episodic`` has an effect on these only."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the policy.

    Attributes:
        types: The types that can be embedded; ``refs.episodic`` has an effect on these only.
        judge: Pure function of (type, severity, payload, refs): whether an entry of these types is embedded.
    """

    types: frozenset[str]
    judge: Callable[[str, str, Mapping[str, Any], Mapping[str, Any]], bool]


def _judge(entry_type: str, severity: str, payload: Mapping[str, Any], refs: Mapping[str, Any]) -> bool:
    """Contract §2."""
    if entry_type in ALWAYS or refs.get("episodic") is True:
        return True
    if entry_type in WHEN_SEVERE:
        return severity in SEVERE
    return payload.get("state") == "escalated"


POLICIES: Final[dict[int, Policy]] = {1: Policy(EMBEDDABLE - {REMEMBERED}, _judge), 2: Policy(EMBEDDABLE, _judge)}
"""Every version of the policy. A workspace uses one of them; only a reindex changes which."""
FIRST: Final = 2
"""Used in a workspace until its first reindex. It treats the types of version 1 as version 1 does."""


def is_chat(entry_type: str) -> bool:
    """Whether entries of a type are embedded only where their workspace chooses so."""
    return entry_type.startswith(CHAT)


def is_embedded(
    entry_type: str,
    severity: str,
    payload: Mapping[str, Any],
    refs: Mapping[str, Any],
    version: int = VERSION,
    *,
    with_chat: bool = False,
) -> bool:
    """Whether an entry is embedded.

    Args:
        entry_type: Its type.
        severity: info, notice, warn or error.
        payload: Its payload; a conversation is embedded if ``state`` is ``"escalated"``.
        refs: Its refs; ``episodic`` counts only if it is the boolean true, and only for types that can be embedded.
        version: Version of the policy.
        with_chat: Whether the workspace has chosen that ``chat.*`` is embedded.
    """
    if is_chat(entry_type):
        return with_chat
    policy = POLICIES[version]
    return entry_type in policy.types and policy.judge(entry_type, severity, payload, refs)
