"""Which entries are embedded: contract §2, bounded so that no flag can force noise into the vector space.

Invariant: a pure function of type, severity, payload and refs. A changed policy is a new ``VERSION`` and an explicit
re-index, never a silent change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VERSION: Final = 1

ALWAYS: Final = frozenset(
    {
        "peer.escalation",
        "summary.generated",
        "memory.consolidated",
        "approval.denied",
        "eval.regression_detected",
    }
)
WHEN_SEVERE: Final = frozenset({"keeper.decision", "mission.status_change"})
SEVERE: Final = frozenset({"warn", "error"})
WHEN_FLAGGED: Final = "peer.conversation"
EMBEDDABLE: Final = ALWAYS | WHEN_SEVERE | {WHEN_FLAGGED}
"""The eight types of the allow-list; ``refs.episodic`` upgrades only these."""


def is_embedded(entry_type: str, severity: str, payload: Mapping[str, Any], refs: Mapping[str, Any]) -> bool:
    """Whether the policy embeds an entry.

    Args:
        entry_type: Its type.
        severity: info, notice, warn or error.
        payload: Its payload; ``state == "escalated"`` qualifies a conversation.
        refs: Its refs; ``episodic`` counts only as the boolean true.
    """
    if entry_type not in EMBEDDABLE:
        return False
    if entry_type in ALWAYS or refs.get("episodic") is True:
        return True
    if entry_type in WHEN_SEVERE:
        return severity in SEVERE
    return payload.get("state") == "escalated"
