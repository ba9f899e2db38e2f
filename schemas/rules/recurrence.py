"""Finds groups of similar texts that recur often enough and on more than one day.

The similarity of two texts is their weighted Jaccard index: the weight of their common terms divided by that of all
their terms. A term weighs ``ln(1 + n / df)`` if ``df`` of ``n`` texts have it, so a rare term weighs more. An entry
joins the group to whose members it is most similar on average, if that is at least ``SIMILAR``.

Invariant: pure; the same entries in the same order give the same groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from .text import Analyzer, tokens_of

SIMILAR: Final = 0.7
"""Minimum mean similarity of an entry to a group. Of 40 recurrences among 600 entries about the same services, problems and
causes (tests/support/planted.py), 0.4 finds 2 % with a precision of .01, 0.6 30 % with .24, 0.7 78 % with .82, 0.8 53 %
with 1; among unrelated entries, 0.4 finds 50 % with .67, 0.7 95 % with 1."""
MIN_TERMS: Final = 3
"""Minimum number of terms of a text that is compared."""
MIN_OCCURRENCES: Final = 3
MIN_DAYS: Final = 2
SMOOTHING: Final = 2
"""The confidence of ``n`` occurrences is their mean similarity times ``n / (n + 2)``: three count 0.6, eight 0.8."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An entry: its id, its day (days since the epoch, UTC), its terms, and the day of its receipt if that is another."""

    entry_id: str
    day: int
    terms: frozenset[int]
    received: int | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Entries with similar texts.

    Attributes:
        evidence: Their ids, in the order given.
        typical: The one that is most similar to the others.
        days: Different days of receipt.
        confidence: In [0, 1].
    """

    evidence: tuple[str, ...]
    typical: str
    days: int
    confidence: float


def terms_of(analyzer: Analyzer, text: str) -> frozenset[int]:
    """The terms of a text; words with digits name one occurrence and are left out."""
    words = [word for word in tokens_of(text) if word.isalpha()]
    return frozenset(key for key in analyzer.keys_of(words) if key)


def is_covered(terms: frozenset[int], by: frozenset[int]) -> bool:
    """Whether a text with the terms ``by`` contains most of ``terms``."""
    return len(terms & by) >= SIMILAR * len(terms)


def recurrences(entries: Sequence[Occurrence]) -> list[Recurrence]:
    """The groups that recur, the largest first."""
    distinct: dict[str, Occurrence] = {}
    for occurrence in entries:
        distinct.setdefault(occurrence.entry_id, occurrence)
    usable = [occurrence for occurrence in distinct.values() if len(occurrence.terms) >= MIN_TERMS]
    weights = _weights(usable)
    groups: list[list[Occurrence]] = []
    for occurrence in usable:
        best, chosen = SIMILAR, None
        for group in groups:
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
