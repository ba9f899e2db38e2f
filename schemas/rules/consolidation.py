"""The candidates of a consolidation, the conditions of a run, and the score of a rule (contract §12).

Invariant: pure; entries that a run records are never candidates of a later run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any, Final

from ..entry import ActorType, Severity
from .documents import finding_in
from .routine import is_routine
from .secrets import find_secrets

VERSION: Final = 2

SOURCES: Final = (
    "peer.escalation",
    "summary.generated",
    "keeper.decision",
    "mission.status_change",
    "eval.regression_detected",
)
"""Types that rules are learned from: of ``keeper.decision`` only denials, of ``mission.status_change`` only those of
severity warn and error, because that a mission went on or ended well teaches nothing."""
DECISION: Final = "keeper.decision"
MISSION: Final = "mission.status_change"
ACTIONS: Final = ("resolution", "fix", "recommendation", "answer", "reason")
"""Fields of a payload that say what to do, the best first."""
UNSHARED_BY: Final = "consolidate@1"
"""The actor of rules that were learned before publishers were counted: one agent alone can have taught them, so they wait
for a person's review, and are not found by recall."""
CONSOLIDATED: Final = "memory.consolidated"
LEARNED: Final = "rule.learned"
LESSON: Final = "lesson.recorded"
OWN_OUTPUT: Final = ("rule.", "lesson.", "proposal.", CONSOLIDATED)
"""Prefixes of types that no run reads, even if an entry is permanent."""
MIN_ENTRIES: Final = 10
"""Candidates within the look-back below which a run is skipped, unless an entry within it is permanent."""
MAX_ENTRIES: Final = 500
"""Maximum number of candidates of one run; the newest count."""
HISTORY_DAYS: Final = 30
"""Days before a run in which occurrences count: an interval of six hours seldom holds two days."""
REPEAT_DAYS: Final = 7
"""Days for which a pattern is not learned again, even with other evidence."""
WAITING_MAX: Final = 20
"""Proposals of one publisher that may wait for a review at a time, so that one agent cannot fill a person's list."""
AUTHORS_NAMED: Final = 10
"""Authors that a rule names, those with most of its evidence."""
RECALL_DAYS: Final = 7
"""Days of searches that count for a promotion."""

_SEVERE: Final = frozenset({Severity.WARN.value, Severity.ERROR.value})
_DENIED: Final = frozenset({"deny", "denied", "reject", "rejected"})
_VERDICTS: Final = ("decision", "outcome", "result")

WEIGHTS: Final = {
    "relevance": 0.30,
    "frequency": 0.24,
    "diversity": 0.15,
    "recency": 0.15,
    "consolidation": 0.10,
    "richness": 0.06,
}
_FULL_RECALLS, _FULL_QUERIES, _FULL_RUNS, _FULL_EVIDENCE, _FULL_TYPES = 30, 10, 5, 8, 4
"""Values from which on a part of the score is 1."""
_HALF_LIFE_DAYS: Final = 14.0
PROMOTE_SCORE: Final = 0.80
PROMOTE_RECALLS: Final = 3
PROMOTE_QUERIES: Final = 3
SKILL_SCORE: Final = 0.85
SKILL_RECALLS: Final = 10


def is_denial(payload: Mapping[str, Any]) -> bool:
    """Whether a decision denies: it says so in decision, outcome or result, or ``allowed`` is the boolean false."""
    verdicts = (payload.get(name) for name in _VERDICTS)
    return payload.get("allowed") is False or any(
        isinstance(verdict, str) and verdict.strip().casefold() in _DENIED for verdict in verdicts
    )


def is_candidate(entry_type: str, severity: str, payload: Mapping[str, Any], *, permanent: bool) -> bool:
    """Whether rules are learned from an entry. A permanent entry counts whatever its type, except types that runs record."""
    if entry_type.startswith(OWN_OUTPUT):
        return False
    if permanent:
        return True
    if entry_type == DECISION:
        return is_denial(payload)
    return entry_type in SOURCES and (entry_type != MISSION or severity in _SEVERE)


def action_in(payload: Mapping[str, Any]) -> str:
    """What an entry says to do, on one line; empty if it says nothing."""
    actions = (payload.get(name) for name in ACTIONS)
    return next((" ".join(action.split()) for action in actions if isinstance(action, str) and action.strip()), "")


def is_fit(summary: str, action: str, *, permanent: bool) -> bool:
    """Whether a candidate's text may become a rule: no injection, no credential, and not only success or routine.

    Text of a permanent entry may be routine: a person has marked it.
    """
    text = f"{summary}\n{action}"
    if finding_in(text) is not None or find_secrets(text):
        return False
    return permanent or bool(action) or not is_routine(summary)


def is_unshared_rule(entry_type: str, actor_type: str, actor_id: str | None) -> bool:
    """Whether an entry is a learned rule that only a person's review may show to other agents."""
    return entry_type == LEARNED and actor_type == ActorType.SYSTEM and actor_id == UNSHARED_BY


def is_worthwhile(candidates: int, *, permanent: bool) -> bool:
    """Whether a run with this number of candidates within its look-back is made."""
    return candidates >= MIN_ENTRIES or permanent


def normalised(pattern: str) -> str:
    """A pattern in lower case with single blanks: two patterns of one form are the same."""
    return " ".join(pattern.lower().split())


@dataclass(frozen=True, slots=True)
class Usefulness:
    """The inputs of the score of a rule.

    Attributes:
        relevance: Confidence of the rule, in [0, 1].
        recalls: Recorded searches within ``RECALL_DAYS`` with the rule or its evidence among their hits.
        queries: Different queries of those searches.
        days_since: Days since the last of them; None if absent, negative if its clock was ahead.
        runs: Runs that found the rule, the one that learned it included.
        evidence: Entries of its evidence.
        types: Different types of those entries.
    """

    relevance: float
    recalls: int
    queries: int
    days_since: float | None
    runs: int
    evidence: int
    types: int


def parts(usefulness: Usefulness) -> dict[str, float]:
    """The parts of the score, each in [0, 1]."""
    age = usefulness.days_since
    return {
        "relevance": min(max(usefulness.relevance, 0.0), 1.0),
        "frequency": min(log(1 + usefulness.recalls) / log(1 + _FULL_RECALLS), 1.0),
        "diversity": min(log(1 + usefulness.queries) / log(1 + _FULL_QUERIES), 1.0),
        "recency": 0.0 if age is None else min(0.5 ** (age / _HALF_LIFE_DAYS), 1.0),
        "consolidation": min(usefulness.runs / _FULL_RUNS, 1.0),
        "richness": 0.3 * min(usefulness.evidence / _FULL_EVIDENCE, 1.0)
        + 0.7 * min(usefulness.types / _FULL_TYPES, 1.0),
    }


def score(usefulness: Usefulness) -> float:
    """The weighted sum of the parts, in [0, 1]."""
    return sum(WEIGHTS[name] * part for name, part in parts(usefulness).items())


def is_promoted(usefulness: Usefulness) -> bool:
    """Whether a rule has proved useful."""
    return (
        usefulness.recalls >= PROMOTE_RECALLS
        and usefulness.queries >= PROMOTE_QUERIES
        and score(usefulness) >= PROMOTE_SCORE
    )


def is_skill(usefulness: Usefulness) -> bool:
    """Whether a rule is useful enough to be proposed as a skill."""
    return is_promoted(usefulness) and usefulness.recalls >= SKILL_RECALLS and score(usefulness) >= SKILL_SCORE
