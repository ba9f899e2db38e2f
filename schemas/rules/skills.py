"""The procedure that is written for an approved skill.

Invariant: pure; key and text follow from the proposal, so a repeated approval writes the same text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from .render import one_line

_KEY_CHARS: Final = 48
_EVIDENCE_SHOWN: Final = 20
"""Maximum number of ids of entries in the text; a procedure has at most 32,000 bytes."""


def skill_key(rule_id: str, pattern: str) -> str:
    """The key of the procedure: words of the pattern and a digest of the rule's id."""
    words = re.sub(r"[^a-z0-9]+", "-", pattern.lower())[:_KEY_CHARS].strip("-")
    return f"{words or 'skill'}-{hashlib.blake2b(rule_id.encode(), digest_size=4).hexdigest()}"


def skill_text(rule_id: str, pattern: str, action: str, days: int, evidence: Sequence[str]) -> str:
    """The text of the procedure."""
    action_line = f"{one_line(action)}\n\n" if action else ""
    evidence_shown = ", ".join(evidence[:_EVIDENCE_SHOWN]) + (", …" if len(evidence) > _EVIDENCE_SHOWN else "")
    return (
        f"# {one_line(pattern)}\n\n{action_line}"
        f"Seen {len(evidence)} times on {days} days. Learned rule: {rule_id}. Evidence: {evidence_shown}.\n"
    )
