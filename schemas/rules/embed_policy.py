"""Which entries are embedded: contract §2, bounded so that no flag can force noise into the vector space.

Invariant: a pure function of version, type, severity, payload and refs. A changed policy is a new ``VERSION`` beside the old
ones, in force in a workspace from an explicit reindex on, never a silent change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 2

REMEMBERED: Final = "memory.remembered"
"""What an agent notes on purpose. Version 2 adds it to the eight types of contract §2 and changes nothing else."""
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
WHEN_SEVERE: Final = frozenset({"keeper.decision", "mission.status_change"})
SEVERE: Final = frozenset({"warn", "error"})
WHEN_FLAGGED: Final = "peer.conversation"
EMBEDDABLE: Final = ALWAYS | WHEN_SEVERE | {WHEN_FLAGGED}
"""The types of the allow-list; ``refs.episodic`` upgrades only these."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the policy.

    Attributes:
        types: The types it may embed; ``refs.episodic`` upgrades only these.
        judge: (type, severity, payload, refs) → whether an entry of these types is embedded; pure.
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
"""Every version there was: an entry is judged by the one in force, which only a reindex changes."""
FIRST: Final = 2
"""In force in a workspace until its first reindex; of a type that version 1 knows, both say the same."""


def is_embedded(
    entry_type: str, severity: str, payload: Mapping[str, Any], refs: Mapping[str, Any], version: int = VERSION
) -> bool:
    """Whether the policy embeds an entry.

    Args:
        entry_type: Its type.
        severity: info, notice, warn or error.
        payload: Its payload; ``state == "escalated"`` qualifies a conversation.
        refs: Its refs; ``episodic`` counts only as the boolean true, and only for the types of the allow-list.
        version: Which version of the policy judges.
    """
    policy = POLICIES[version]
    return entry_type in policy.types and policy.judge(entry_type, severity, payload, refs)
