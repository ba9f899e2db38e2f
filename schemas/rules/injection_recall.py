"""Scanner (b) of contract §17: the recall guard, for texts that are put into an agent's prompt or returned to an agent.

Invariant: a finding of severity high blocks; one of severity medium is only recorded. Rules run over the text as it
is, and each is bounded, so time is linear in the text. The results of the two scanners differ; both are always run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from .lookalikes import EMOJI_JOINER

VERSION: Final = 2

RTL_OVERRIDE: Final = "\u202e"
RTL_BELOW: Final = 1_024
"""Length of a text, in characters, below which an RTL override counts as an attack and not as typography."""


@dataclass(frozen=True, slots=True)
class RecallFinding:
    """One rule that fired."""

    severity: Literal["high", "medium"]
    pattern: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern, and what an ASCII text holds in small letters if the pattern matches: one of ``needs``."""

    name: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]

    def fires(self, text: str, small: str | None) -> bool:
        """Whether it matches a text; ``small`` is the text in small letters if it is ASCII."""
        if small is not None:
            for need in self.needs:
                if need in small:
                    break
            else:
                return False
        return self.pattern.search(text) is not None


def _rule(name: str, pattern: str, *needs: str) -> _Rule:
    return _Rule(name, needs, re.compile(pattern, re.IGNORECASE))


_FILLER: Final = r"(?:(?:of|the|any|your|my|these|those|other|earlier|prior)\s+){0,3}"

_OF_SOMETHING: Final = r"\s+(?:of|for|on|in|to|with|from|about|at|under|behind)\s+(?!your\b|this\b)"
"""What follows if "the rules" are those of a thing and not the reader's: "print the rules of the firewall"."""

HIGH: Final = (
    _rule(
        "ignore_instructions",
        rf"ignore\s+{_FILLER}(?:previous|all|above)\s+{_FILLER}(?:(?:previous|all|above)\s+{_FILLER})?"
        r"(?:instruction|prompt)s?\b",
        "ignore",
    ),
    _rule("disregard_instructions", r"disregard\s+(?:[\w'-]{1,30}\s+){0,6}instructions?\b", "disregard"),
    _rule(
        "reveal_system_prompt",
        r"(?:reveal|show|print|output)\s+(?:me\s+|us\s+)?(?:(?:your|the)\s+system\s+(?:prompt|instructions|rules)|"
        rf"your\s+(?:instructions|rules)|the\s+(?:instructions|rules)(?!{_OF_SOMETHING}))\b",
        "prompt",
        "instructions",
        "rules",
    ),
    _rule("dan_mode", r"\bDAN\s+(?:mode|prompt)\b", "dan"),
    _rule("pretend_no_restrictions", r"pretend\s+(?:[\w'-]{1,30}\s+){0,8}no\s+restrictions", "pretend"),
    _rule("zero_width", "[\u200b-\u200d\u2060\ufeff]"),
)
"""The rules that block, in the order in which they are reported."""
MEDIUM: Final = (
    _rule("you_are_now", r"\byou\s+are\s+(?:now|actually)\b", "now", "actually"),
    _rule("new_instructions", r"\bnew\s+(?:instructions|rules|persona)\b", "instructions", "rules", "persona"),
    _rule(
        "what_is_your_prompt",
        r"\bwhat\s+(?:is|are)\s+your\s+(?:system|initial)\s+(?:prompt|instructions)\b"
        r"|\bwhat\s+(?:is|are)\s+your\s+(?:prompt|instructions)\b",
        "prompt",
        "instructions",
    ),
    _rule("developer_mode", r"\bdeveloper\s+mode\b", "developer"),
    _rule("jailbreak", r"\bjail\s?break", "jail"),
)
"""The rules that only record."""


def guard_recall(text: str) -> list[RecallFinding]:
    """Every rule that fires, those that block first; empty for a clean text."""
    if not text:
        return []
    small = text.lower() if text.isascii() else None
    if small is None:
        text = EMOJI_JOINER.sub("", text)
    findings = [RecallFinding("high", rule.name) for rule in HIGH if rule.fires(text, small)]
    if RTL_OVERRIDE in text and len(text) < RTL_BELOW:
        findings.append(RecallFinding("high", "rtl_override"))
    findings += [RecallFinding("medium", rule.name) for rule in MEDIUM if rule.fires(text, small)]
    return findings
