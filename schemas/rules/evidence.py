"""The confidence of a hit and of an answer: logistic formulas over the figures of a search, with constants as data.

The constants (``evidence.json``) are fitted by ``python -m bench precision --fit`` on questions with and without an
answer, per model and recipe. A row applies to hits that have every figure it weighs, and the first such row counts.
So for an unknown model, or none, a row is used whose figures mean the same under every model.

Invariant: pure; a changed constant is a new ``version`` of the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import exp, isnan
from operator import mul
from typing import Any, Final

ANSWER: Final = "answer"
"""Name of a hit's figure: the log odds that its answer has a relevant hit at all."""
STATEMENT: Final = "statement"
"""Takes the place of the recipe if the query is a statement: other figures count then, under every recipe."""
CROWDED: Final = 10
"""Number of hits whose confidences are summed to the expected number of relevant ones."""
CROWD: Final = 0.8
"""The floor rises with the expected number of relevant hits to this power: of many weak hits, the better ones
are kept. Recall in four hits per question: .787, against .776 with power 0 (docs/evidence.md)."""
LEAST_EXPECTED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Logistic:
    """Log odds as a weighted sum of figures.

    Attributes:
        weights: Name of the figure → its weight.
        bias: Constant that is added to the sum.
    """

    weights: Mapping[str, float]
    bias: float

    def of_hits(self, figures: Mapping[str, Sequence[float]], answer: float) -> list[float]:
        """The log odds of each hit, given those of its answer (``answer``); NaN for a hit that lacks a figure."""
        bias = self.bias + self.weights.get(ANSWER, 0.0) * answer
        weights = [weight for name, weight in self.weights.items() if name != ANSWER]
        by_hit = zip(*(figures[name] for name in self.weights if name != ANSWER), strict=True)
        return [bias + sum(map(mul, weights, values)) for values in by_hit]

    def of_answer(self, figures: Mapping[str, float]) -> float:
        """The log odds of an answer; NaN if it lacks a figure."""
        return self.bias + sum(weight * figures[name] for name, weight in self.weights.items())


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """The constants of one kind of search.

    Attributes:
        name: Name of the row.
        models: Models it is fitted for; None for any and none.
        recipes: Recipes it is fitted for; None for any.
        answer: Formula of the confidence of an answer.
        hit: Formula of the confidence of a hit.
        gate: Probability below which ``inject`` returns nothing.
        floor: Confidence below which ``inject`` leaves out a hit, where one relevant hit is expected.
        similarity: Cosine below which a hit that shares no word has no evidence; None if a model's cosines are not
            known.
    """

    name: str
    models: frozenset[str] | None
    recipes: frozenset[str] | None
    answer: Logistic
    hit: Logistic
    gate: float
    floor: float
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of an answer.

    Attributes:
        answer: Probability that it has a relevant hit.
        hits: Probability that each hit is relevant.
        gate: Probability below which ``inject`` returns nothing.
        floors: Confidence below which each hit is left out, in ``inject``.
        similarity: Cosine below which a hit that shares no word has no evidence, if known.
    """

    answer: float
    hits: list[float]
    gate: float
    floors: list[float]
    similarity: float | None


def judge(
    answer: Mapping[str, float],
    hits: Mapping[str, Sequence[float]],
    model: str | None,
    recipe: str,
    floor: float | None = None,
) -> Judged:
    """Judge an answer and its hits.

    Args:
        answer: The answer's figures, NaN where there is none.
        hits: Figures of the hits, at least one, NaN where a hit has none.
        model: The model of the vectors; None if none took part.
        recipe: The recipe's name, or ``STATEMENT``.
        floor: The floor of the workspace, which replaces those of the table.
    """
    known = ((row, odds) for row in rows_for(model, recipe) if not isnan(odds := row.answer.of_answer(answer)))
    row, odds = next(known)
    judged = row.hit.of_hits(hits, odds)
    floors = [row.floor] * len(judged)
    while any(map(isnan, judged)):
        other, own = next(known)
        for at, value in enumerate(other.hit.of_hits(hits, own)):
            if isnan(judged[at]):
                judged[at], floors[at] = value, other.floor
    confidence = [_probability(value) for value in judged]
    crowded = max(LEAST_EXPECTED, sum(confidence[:CROWDED])) ** CROWD
    floors = [crowded * (least if floor is None else floor) for least in floors]
    return Judged(_probability(odds), confidence, row.gate, floors, row.similarity)


def _probability(odds: float) -> float:
    """The probability of log odds, which are bounded because figures and constants are."""
    return 1.0 / (1.0 + exp(-odds))


@cache
def rows_for(model: str | None, recipe: str) -> tuple[EvidenceRow, ...]:
    """The rows for a model and a recipe, the most specific first; the last one needs only figures about words."""
    return tuple(
        row
        for row in evidence_rows()
        if (row.models is None or model in row.models) and (row.recipes is None or recipe in row.recipes)
    )


@cache
def evidence_rows() -> tuple[EvidenceRow, ...]:
    """Every row of the table."""
    data = json.loads(resources.files("crew_journal.schemas").joinpath("rules/evidence.json").read_text("utf-8"))
    return tuple(map(_row, data["rows"]))


def _row(data: Mapping[str, Any]) -> EvidenceRow:
    return EvidenceRow(
        data["name"],
        _names(data["models"]),
        _names(data["recipes"]),
        _logistic(data["answer"]),
        _logistic(data["hit"]),
        data["gate"],
        data["floor"],
        data["similarity"],
    )


def _names(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _logistic(data: Mapping[str, float]) -> Logistic:
    return Logistic({name: weight for name, weight in data.items() if name != "bias"}, data["bias"])
