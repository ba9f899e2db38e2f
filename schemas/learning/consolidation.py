"""The candidates of a consolidation, the conditions of a run, and the score of a rule (contract §12).

Invariant: pure; entries that a run records are never candidates of a later run.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import log
from typing import Any, Final

from ..core.entry import ActorType, Severity
from ..text.analyzer import Analyzer, fold, tokens_of
from ..text.injection import finding_in
from ..text.secrets import find_secrets
from .events import MemoryConsolidated, RuleLearned

# Whether a text only reports success or routine, so that its repetition teaches nothing (DESIGN §13).


VERSION: Final = 1
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_PREFIX: Final = "*"


@dataclass(frozen=True, slots=True)
class _RoutineWords:
    """Whole words, and beginnings of words."""

    whole: frozenset[str]
    prefixes: tuple[str, ...]

    def have(self, word: str) -> bool:
        return word in self.whole or word.startswith(self.prefixes)


def is_routine(text: str) -> bool:
    """Whether a text only reports success or routine."""
    success, trouble, absent, absent_what = _lists()
    words = _WORD.findall(fold(text))
    left: list[str] = []
    is_good = False
    for word in words:
        if left and absent_what.have(word) and absent.have(left[-1]):
            left.pop()
            is_good = True
        else:
            left.append(word)
    if any(trouble.have(word) for word in left):
        return False
    return is_good or any(success.have(word) for word in left)


@cache
def _lists() -> tuple[_RoutineWords, _RoutineWords, _RoutineWords, _RoutineWords]:
    data = tomllib.loads(resources.files(__package__).joinpath("routine.toml").read_text("utf-8"))
    success, trouble, absent, absent_words = (
        _words(data[name]) for name in ("success", "trouble", "absent", "absent_what")
    )
    return success, trouble, absent, absent_words


def _words(by_language: dict[str, str]) -> _RoutineWords:
    words = [fold(word) for text in by_language.values() for word in text.split()]
    return _RoutineWords(
        frozenset(word for word in words if not word.endswith(_PREFIX)),
        tuple(sorted({word.removesuffix(_PREFIX) for word in words if word.endswith(_PREFIX)})),
    )


CONSOLIDATION_VERSION: Final = 2

SOURCES: Final = (
    "peer.escalation",
    "summary.generated",
    "keeper.decision",
    "mission.status_change",
    "eval.regression_detected",
)
"""Types that rules are learned from: from ``keeper.decision`` only denials, from ``mission.status_change`` only entries
of severity warn and error, because a mission that goes on or ends well teaches nothing.
"""
DECISION: Final = "keeper.decision"
MISSION: Final = "mission.status_change"
ACTIONS: Final = ("resolution", "fix", "recommendation", "answer", "reason")
"""Payload fields that say what to do, in order of preference."""
UNSHARED_BY: Final = "consolidate@1"
"""The actor of rules from the time before publishers were counted. A single agent may have caused such a rule, so the
rule waits for a person's review, and recall does not find it.
"""
OWN_OUTPUT: Final = ("rule.", "lesson.", "proposal.", MemoryConsolidated.ENTRY_TYPE)
"""Prefixes of types that no run reads, even if an entry is permanent."""
MIN_ENTRIES: Final = 10
"""A run is skipped if fewer candidates lie within the look-back, unless one of its entries is permanent."""
MAX_ENTRIES: Final = 500
"""Maximum number of candidates of one run; the newest count."""
HISTORY_DAYS: Final = 30
"""Occurrences count if they are at most this many days older than the run; the six hours between runs rarely span two
days.
"""
REPEAT_DAYS: Final = 7
"""Days for which a pattern is not learned again, even with other evidence."""
WAITING_MAX: Final = 20
"""Maximum number of pending proposals of one publisher, so that one agent cannot fill a person's list."""
AUTHORS_NAMED: Final = 10
"""Maximum number of authors that a rule names; authors of most of its evidence come first."""
RECALL_DAYS: Final = 7
"""Searches of this many last days count for a promotion."""

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
"""Values at which a part of the score reaches 1."""
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
    """Whether rules are learned from an entry.

    A permanent entry counts regardless of its type, except for types that runs record.
    """
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
    return entry_type == RuleLearned.ENTRY_TYPE and actor_type == ActorType.SYSTEM and actor_id == UNSHARED_BY


def is_worthwhile(candidates: int, *, permanent: bool) -> bool:
    """Whether this number of candidates within the look-back is enough for a run."""
    return candidates >= MIN_ENTRIES or permanent


def normalised(pattern: str) -> str:
    """A pattern in lower case with single blanks: patterns with the same form are equal."""
    return " ".join(pattern.lower().split())


@dataclass(frozen=True, slots=True)
class Usefulness:
    """The inputs of the score of a rule.

    Attributes:
        relevance: Confidence of the rule, in [0, 1].
        recalls: Recorded searches within ``RECALL_DAYS`` with the rule or its evidence among their hits.
        queries: Different queries of those searches.
        days_since: Days since the last search; None without a search, negative if the clock of the search was ahead.
        runs: Runs that found the rule, including the run that learned it.
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


# Finds groups of similar texts that recur often enough and on more than one day.


SIMILAR: Final = 0.7
"""Minimum mean similarity of an entry to a group. Of 40 recurrences among 600 entries about the same services, problems and
causes (tests/support/planted.py), 0.4 finds 2 % with a precision of .01, 0.6 30 % with .24, 0.7 78 % with .82, 0.8 53 %
with 1; among unrelated entries, 0.4 finds 50 % with .67, 0.7 95 % with 1."""
MIN_TERMS: Final = 3
"""Texts with fewer terms are not compared."""
MIN_OCCURRENCES: Final = 3
MIN_DAYS: Final = 2
SMOOTHING: Final = 2
"""The confidence of ``n`` occurrences is their mean similarity times ``n / (n + 2)``: three count 0.6, eight 0.8."""

_ROUNDING: Final = 1 + 1e-9
"""Tolerance for rounding: sums of the same weights in a different order differ by less."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An entry: its id, its day (days since the epoch, UTC), its terms, and the day of its receipt if that differs."""

    entry_id: str
    day: int
    terms: frozenset[int]
    received: int | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Entries with similar texts.

    Attributes:
        evidence: Their ids, in the order given.
        typical: The entry that is most similar to the others.
        days: Different days of receipt.
        confidence: In [0, 1].
    """

    evidence: tuple[str, ...]
    typical: str
    days: int
    confidence: float


def terms_of(analyzer: Analyzer, text: str) -> frozenset[int]:
    """The terms of a text; words with digits are left out, because they identify a single occurrence."""
    words = [word for word in tokens_of(text) if word.isalpha()]
    return frozenset(key for key in analyzer.keys_of(words) if key)


def is_covered(terms: frozenset[int], by: frozenset[int]) -> bool:
    """Whether a text with the terms ``by`` contains most of ``terms``."""
    return len(terms & by) >= SIMILAR * len(terms)


def recurrences(entries: Sequence[Occurrence]) -> list[Recurrence]:
    """The groups that recur, the largest first."""
    distinct: dict[str, Occurrence] = {}
    for one in entries:
        distinct.setdefault(one.entry_id, one)
    told = [one for one in distinct.values() if len(one.terms) >= MIN_TERMS]
    weights = _weights(told)
    whole = {one.entry_id: sum(weights[term] for term in one.terms) for one in told}

    def may_be_similar(one: Occurrence, other: Occurrence) -> bool:
        # whether ``_similarity`` may reach SIMILAR, at a tenth of its cost
        common = sum([weights[term] for term in one.terms & other.terms]) * _ROUNDING
        return common >= SIMILAR * (whole[one.entry_id] + whole[other.entry_id] - common)

    groups: list[list[Occurrence]] = []
    for occurrence in told:
        best, chosen = SIMILAR, None
        for group in groups:
            if not any(may_be_similar(occurrence, other) for other in group):
                continue
            mean = sum(_similarity(occurrence, other, weights) for other in group) / len(group)
            if mean > best or (mean == best and chosen is None):
                best, chosen = mean, group
        if chosen is None:
            groups.append([occurrence])
        else:
            chosen.append(occurrence)
    recurrences_ = [
        _recurrence(group, weights)
        for group in groups
        if len(group) >= MIN_OCCURRENCES
        and max(len({occurrence.day for occurrence in group}), _days(group)) >= MIN_DAYS
    ]
    return sorted(recurrences_, key=lambda recurrence: -len(recurrence.evidence))


def _days(group: Sequence[Occurrence]) -> int:
    """Different days of receipt."""
    return len({occurrence.day if occurrence.received is None else occurrence.received for occurrence in group})


def _weights(entries: Sequence[Occurrence]) -> Mapping[int, float]:
    counts = Counter(term for occurrence in entries for term in occurrence.terms)
    return {term: log(1 + len(entries) / count) for term, count in counts.items()}


def _similarity(occurrence: Occurrence, other_occurrence: Occurrence, weights: Mapping[int, float]) -> float:
    shared = occurrence.terms & other_occurrence.terms
    if not shared:
        return 0.0
    return sum(weights[term] for term in sorted(shared)) / sum(
        weights[term] for term in sorted(occurrence.terms | other_occurrence.terms)
    )


def _recurrence(group: Sequence[Occurrence], weights: Mapping[int, float]) -> Recurrence:
    closeness = [
        sum(_similarity(occurrence, other, weights) for other in group if other is not occurrence) / (len(group) - 1)
        for occurrence in group
    ]
    typical = max(range(len(group)), key=lambda at: (closeness[at], -at))
    mean = sum(closeness) / len(group)
    return Recurrence(
        evidence=tuple(occurrence.entry_id for occurrence in group),
        typical=group[typical].entry_id,
        days=_days(group),
        confidence=round(mean * len(group) / (len(group) + SMOOTHING), 4),
    )
