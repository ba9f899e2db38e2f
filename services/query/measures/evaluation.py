"""Measures of retrieval, as pure functions of ranked ids.

Invariant: questions without relevant entries are left out of all means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DEPTHS: Final = (5, 10)
"""Depths k that are reported."""
SESSION_DEPTH: Final = 5
OVERALL: Final = "overall"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of one question."""

    category: str
    ranked: Sequence[str]
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class MeanFigures:
    """Means over questions.

    Attributes:
        recall: Recall at each depth.
        ndcg: Normalised discounted cumulative gain at each depth.
        mrr: Mean reciprocal rank of the first relevant entry.
        session_recall: Recall of sessions at ``SESSION_DEPTH``.
    """

    questions: int
    recall: dict[int, float]
    ndcg: dict[int, float]
    mrr: float
    session_recall: float

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON, rounded to four decimals."""
        return {
            "questions": self.questions,
            **{f"recall@{k}": round(v, 4) for k, v in self.recall.items()},
            **{f"ndcg@{k}": round(v, 4) for k, v in self.ndcg.items()},
            "mrr": round(self.mrr, 4),
            f"session_recall@{SESSION_DEPTH}": round(self.session_recall, 4),
        }


def recall_at(ranked: Sequence[str], relevant: frozenset[str], k: int) -> float:
    """Share of the relevant ids that are among the first ``k``; 0 if nothing is relevant."""
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def ndcg_at(ranked: Sequence[str], relevant: frozenset[str], k: int) -> float:
    """``DCG@k / ideal DCG@k`` with binary gains and ``1 / log2(rank + 1)`` (Järvelin and Kekäläinen, 2002)."""
    gained = sum(1.0 / math.log2(rank + 1) for rank, entry_id in enumerate(ranked[:k], 1) if entry_id in relevant)
    ideal = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gained / ideal if ideal else 0.0


def reciprocal_rank(ranked: Sequence[str], relevant: frozenset[str]) -> float:
    """``1 / rank`` of the first relevant id, 0 if there is none."""
    return next((1.0 / rank for rank, entry_id in enumerate(ranked, 1) if entry_id in relevant), 0.0)


def session_recall_at(ranked: Sequence[str], relevant: frozenset[str], session_of: Mapping[str, str], k: int) -> float:
    """Share of the relevant sessions that are among the first ``k`` distinct sessions of the ranking."""
    wanted = {session_of[entry_id] for entry_id in relevant if entry_id in session_of}
    sessions = list(dict.fromkeys(session_of[entry_id] for entry_id in ranked if entry_id in session_of))[:k]
    return len(wanted.intersection(sessions)) / len(wanted) if wanted else 0.0


def evaluate(rankings: Iterable[Ranking], session_of: Mapping[str, str]) -> dict[str, MeanFigures]:
    """The figures of each category, and of all questions under ``OVERALL``.

    Args:
        rankings: Rankings of at least ``max(DEPTHS)`` entries (50 for session recall); those without relevant ids are
            left out.
        session_of: Entry id → session.
    """
    groups: dict[str, list[Ranking]] = {}
    for ranking in rankings:
        if not ranking.relevant:
            continue
        groups.setdefault(OVERALL, []).append(ranking)
        groups.setdefault(ranking.category, []).append(ranking)
    return {name: _figures(group, session_of) for name, group in groups.items()}


def _figures(group: Sequence[Ranking], session_of: Mapping[str, str]) -> MeanFigures:
    n = len(group)
    return MeanFigures(
        n,
        {k: sum(recall_at(r.ranked, r.relevant, k) for r in group) / n for k in DEPTHS},
        {k: sum(ndcg_at(r.ranked, r.relevant, k) for r in group) / n for k in DEPTHS},
        sum(reciprocal_rank(r.ranked, r.relevant) for r in group) / n,
        sum(session_recall_at(r.ranked, r.relevant, session_of, SESSION_DEPTH) for r in group) / n,
    )
