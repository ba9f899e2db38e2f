"""Finds procedures: steps that several runs of a crew took in the same order before they ended well.

Invariant: pure. A procedure is only proposed to a person; no agent is given it before an approval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from .agreement import Keys, Saying, common_wording, shared_wording

RUN_ENDS: Final = {"run.completed": True, "run.failed": False}
"""Types that end a run, and whether it ended well."""
NO_STEPS: Final = ("chat.", "run.", "llm.", "user.", "rule.", "lesson.", "proposal.", "memory.", "sweep.")
"""Beginnings of types whose entries are no steps of the work."""
MIN_RUNS: Final = 3
MIN_STEPS: Final = 3
MAX_STEPS: Final = 20
RUNS_READ: Final = 30
"""Newest runs of a crew that are compared with each other: 435 pairs of at most 40 steps take 0.2 s on a shared core."""
STEPS_READ: Final = 40
"""First steps of a run that are compared."""
SAME_STEP: Final = 0.7
"""Two steps are the same from this Jaccard index of their terms, as for actions."""
MIN_STEP_TERMS: Final = 2
FAILED_SHARE: Final = 0.5
"""A procedure is proposed only if its share of the failed runs is at most this part of its share of the good ones."""
SAME_PROCEDURE: Final = 0.7
"""Share of the steps of the shorter of two procedures from which they are the same."""


@dataclass(frozen=True, slots=True)
class RunOfSteps:
    """A run that ended.

    Attributes:
        entry_id: The entry that ended it.
        summary: Of that entry.
        publisher: Whose token published that entry.
        day: Of its receipt, days since the epoch.
        ended_well: Whether it completed.
        steps: The texts of its entries in the order of time.
    """

    entry_id: str
    summary: str
    publisher: str
    day: int
    ended_well: bool
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedProcedure:
    """Steps that runs repeated; ``name`` follows from the steps, ``evidence`` are the entries that ended the runs."""

    name: str
    title: str
    steps: tuple[str, ...]
    evidence: tuple[str, ...]
    days: int
    publishers: tuple[str, ...]


def procedures_in(runs: Sequence[RunOfSteps], keys: Keys) -> list[RepeatedProcedure]:
    """The procedures of runs, those of most steps and runs first; each run belongs to at most one.

    Args:
        runs: Of one crew, oldest first.
        keys: Terms of a word.
    """
    labels = _Labels(keys)
    sequences = [labels.of(run.steps) for run in runs]
    good = [at for at, run in enumerate(runs) if run.ended_well and len(sequences[at]) >= MIN_STEPS]
    failed = [at for at, run in enumerate(runs) if not run.ended_well]
    candidates = {
        common[:MAX_STEPS]
        for one, other in combinations(good, 2)
        if len(common := _common(sequences[one], sequences[other])) >= MIN_STEPS
    }
    found: list[RepeatedProcedure] = []
    left = set(good)
    while candidates:
        supports = {steps: [at for at in sorted(left) if _has(sequences[at], steps)] for steps in candidates}
        candidates = {steps for steps, support in supports.items() if len(support) >= MIN_RUNS}
        if not candidates:
            break
        best = max(candidates, key=lambda steps: (len(steps) * len(supports[steps]), len(steps), steps))
        candidates.discard(best)
        support = supports[best]
        also_failed = sum(_has(sequences[at], best) for at in failed)
        if failed and also_failed / len(failed) > FAILED_SHARE * len(support) / len(good):
            continue
        left -= set(support)
        found.append(_procedure([runs[at] for at in support], best, labels, keys))
    return found


def is_known(procedure: RepeatedProcedure, known: Sequence[Sequence[str]], keys: Keys) -> bool:
    """Whether a procedure has most of the steps of one that was proposed before.

    Args:
        procedure: The procedure.
        known: The steps of each procedure that was proposed.
        keys: Terms of a word.
    """
    labels = _Labels(keys)
    mine = labels.of(procedure.steps)
    return any(
        len(_common(mine, theirs)) >= SAME_PROCEDURE * min(len(mine), len(theirs))
        for steps in known
        if (theirs := labels.of(steps))
    )


class _Labels:
    """Numbers the steps, so that steps of the same wording have the same number."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._terms: list[frozenset[int]] = []
        self._texts: list[str] = []
        self._known: dict[frozenset[int], int] = {}

    def of(self, steps: Sequence[str]) -> tuple[int, ...]:
        """The numbers of steps; steps of too few terms, and repetitions of a step, are left out."""
        found: list[int] = []
        for text in steps[:STEPS_READ]:
            label = self.label(text)
            if label is not None and label not in found:
                found.append(label)
        return tuple(found)

    def label(self, text: str) -> int | None:
        """The number of a step; None for a text of too few terms."""
        terms = frozenset(term for word in text.split() for term in self._keys(word))
        if len(terms) < MIN_STEP_TERMS:
            return None
        known = self._known.get(terms)
        if known is None:
            known = next((at for at, other in enumerate(self._terms) if _is_same(terms, other)), None)
            if known is None:
                known = len(self._terms)
                self._terms.append(terms)
                self._texts.append(text)
            self._known[terms] = known
        return known


def _is_same(terms: frozenset[int], others: frozenset[int]) -> bool:
    return len(terms & others) >= SAME_STEP * len(terms | others)


def _common(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The longest common subsequence."""
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for at in range(len(one) - 1, -1, -1):
        for to in range(len(other) - 1, -1, -1):
            is_equal = one[at] == other[to]
            lengths[at][to] = lengths[at + 1][to + 1] + 1 if is_equal else max(lengths[at + 1][to], lengths[at][to + 1])
    steps: list[int] = []
    at = to = 0
    while at < len(one) and to < len(other):
        if one[at] == other[to]:
            steps.append(one[at])
            at, to = at + 1, to + 1
        elif lengths[at + 1][to] >= lengths[at][to + 1]:
            at += 1
        else:
            to += 1
    return tuple(steps)


def _has(sequence: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether a sequence has the steps in their order."""
    left = iter(sequence)
    return all(step in left for step in steps)


def _procedure(runs: Sequence[RunOfSteps], steps: Sequence[int], labels: _Labels, keys: Keys) -> RepeatedProcedure:
    texts = [
        _wording(
            [Saying(run.publisher, text) for run in runs for text in run.steps if labels.label(text) == step], keys
        )
        for step in steps
    ]
    title = _wording([Saying(run.publisher, run.summary) for run in runs], keys)
    return RepeatedProcedure(
        name=hashlib.blake2b("/".join(texts).encode(), digest_size=12).hexdigest(),
        title=title if any(keys(word) for word in title.split()) else texts[0],
        steps=tuple(texts),
        evidence=tuple(run.entry_id for run in runs),
        days=len({run.day for run in runs}),
        publishers=tuple(dict.fromkeys(run.publisher for run in runs)),
    )


def _wording(sayings: Sequence[Saying], keys: Keys) -> str:
    """The shared wording of texts; the newest text if they share too few words."""
    text = shared_wording(sayings, len(sayings) - 1) or common_wording(sayings, keys) or sayings[-1].text
    return " ".join(text.split())[:200]
