"""Fits the constants of ``schemas/rules/evidence.json``: logistic regression on questions with and without an answer.

``python -m bench.evidence_fit`` prints what the constants reach on the conversation left out; ``--write`` also writes those
fitted on everything. Evaluation data decides numbers here and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.evidence_data import PROJECT, Case, cases, conversations, sample_journal, situations
from bench.figures import say
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.rules.evidence import ANSWER, CROWD, LEAST_EXPECTED, STATEMENT
from crew_journal.services.query.evidence.figures import SHARES
from crew_journal.services.query.recipes import CONVERSATIONAL, CONVERSATIONAL_STATIC, ROBUST

Floats = npt.NDArray[np.float64]

TABLE: Final = PROJECT / "schemas" / "rules" / "evidence.json"
FOREIGN_ANSWERS: Final = 0.5
"""Weight of a question without an answer when answers are judged."""
FOREIGN_HITS: Final = 0.25
"""Weight of its hits when hits are judged: most questions that are asked have an answer."""
RIDGE: Final = 3.0
SILENCED: Final = 0.03
"""Share of the questions that recall answers which ``inject`` may leave without an answer."""
HITS: Final = 3.9
"""Hits an own question gets in the mean, in ``inject``."""
TALK: Final = (CONVERSATIONAL.name, CONVERSATIONAL_STATIC.name)


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table: what it judges by and where it applies."""

    name: str
    models: tuple[str, ...] | None
    recipes: tuple[str, ...] | None
    answer: tuple[str, ...]
    hit: tuple[str, ...]
    similarity: float | None


SIMILARITY: Final = 0.3
_ORDER: Final = ("score", "behind", "lead", "ahead", "when", "length", *SHARES)
_WORDS: Final = ("words", "words_near")
KINDS: Final = (
    Kind(
        "statements",
        (MODEL_ID,),
        (STATEMENT,),
        ("cosine", "likeness", *_WORDS),
        ("cosine", "likeness", *_WORDS, "place", "length"),
        SIMILARITY,
    ),
    Kind(
        "context",
        (MODEL_ID,),
        (CONVERSATIONAL.name,),
        ("context", "background", "static", "cosine", "score", "words_near"),
        (*_ORDER, "words_near", "context"),
        SIMILARITY,
    ),
    Kind(
        "pieces and vectors",
        (MODEL_ID,),
        TALK,
        ("static", "cosine", "score", "words_near"),
        (*_ORDER, "words_near", "static"),
        SIMILARITY,
    ),
    Kind("pieces", None, TALK, ("static", "score", "words_near"), (*_ORDER, "words_near", "static"), None),
    Kind(
        "vectors among many",
        (MODEL_ID,),
        None,
        ("cosine", "likeness", *_WORDS),
        ("cosine", "likeness", *_WORDS, "place", "length"),
        SIMILARITY,
    ),
    Kind("vectors", (MODEL_ID,), None, ("cosine", "words"), ("cosine", "words", "place", "length"), SIMILARITY),
    Kind("unknown vectors", None, None, ("likeness", *_WORDS), ("likeness", *_WORDS, "place", "length"), None),
    Kind("words", None, None, _WORDS, (*_WORDS, "place", "length"), None),
)


def logistic(x: Floats, y: npt.NDArray[np.bool_], weights: Floats) -> tuple[Floats, float]:
    """Weights and bias by Newton's method with a ridge on standardised figures, in the figures' own units."""
    mean, spread = np.average(x, 0, weights), x.std(0) + 1e-9
    z = np.c_[(x - mean) / spread, np.ones(len(x))]
    ridge = np.eye(z.shape[1]) * RIDGE
    ridge[-1, -1] = 1e-6
    beta = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-z @ beta))
        step = np.linalg.solve(
            (z * (weights * p * (1 - p))[:, None]).T @ z + ridge, z.T @ (weights * (p - y)) + ridge @ beta
        )
        beta -= step
        if np.abs(step).max() < 1e-9:
            break
    own = beta[:-1] / spread
    return own, float(beta[-1] - own @ mean)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One kind's constants."""

    kind: Kind
    answer: tuple[Floats, float]
    hit: tuple[Floats, float]

    def answer_odds(self, case: Case) -> float:
        """Log odds that it answers."""
        return float(_answer(self.kind, case) @ self.answer[0] + self.answer[1])

    def confidence(self, case: Case) -> Floats:
        """(n,) probability that each hit is relevant."""
        odds = (
            np.c_[_hits(self.kind, case), np.full(len(case.relevant), self.answer_odds(case))] @ self.hit[0]
            + self.hit[1]
        )
        values: Floats = 1.0 / (1.0 + np.exp(-odds))
        return values


def fit(kind: Kind, training: Sequence[Case]) -> Fitted:
    """The constants by some questions."""
    judged = [case for case in training if case.answered or not case.own]
    answered = np.array([case.answered for case in judged])
    x = np.array([_answer(kind, case) for case in judged])
    answer = logistic(x, answered, np.where(answered, 1.0, FOREIGN_ANSWERS))
    half = Fitted(kind, answer, (np.zeros(0), 0.0))
    rows = [np.c_[_hits(kind, case), np.full(len(case.relevant), half.answer_odds(case))] for case in training]
    weight = np.concatenate([np.full(len(c.relevant), 1.0 if c.own else FOREIGN_HITS) for c in training])
    hit = logistic(np.concatenate(rows), np.concatenate([case.relevant for case in training]), weight)
    return Fitted(kind, answer, hit)


@dataclass(frozen=True, slots=True)
class Held:
    """What constants fitted on the other conversations say of a question."""

    case: Case
    odds: float
    confidence: Floats

    @property
    def worth(self) -> Floats:
        """(n,) what a floor is compared with."""
        worth: Floats = self.confidence / max(LEAST_EXPECTED, float(self.confidence.sum())) ** CROWD
        return worth


def left_out(kind: Kind, every: Sequence[Case]) -> list[Held]:
    """Each conversation judged by constants fitted on the others."""
    held = []
    for cluster in dict.fromkeys(case.asked.cluster for case in every):
        fitted = fit(kind, [case for case in every if case.asked.cluster != cluster])
        held += [
            Held(case, fitted.answer_odds(case), fitted.confidence(case))
            for case in every
            if case.asked.cluster == cluster
        ]
    return held


def gate_of(held: Sequence[Held], share: float = SILENCED) -> float:
    """The log odds below which ``share`` of the answered questions lie."""
    return float(np.quantile([one.odds for one in held if one.case.answered], share))


def floor_of(held: Sequence[Held], gate: float, hits: float = HITS) -> float:
    """The worth that keeps so many hits an own question in the mean."""
    own = [one for one in held if one.case.own]
    values = np.sort(np.concatenate([one.worth for one in own if one.odds >= gate]))[::-1]
    return float(values[min(int(hits * len(own)), len(values) - 1)])


def recall_kept(held: Sequence[Held], gate: float, floor: float) -> float:
    """Mean recall of own questions in ``inject``."""
    return float(
        np.mean(
            [
                (one.case.relevant & (one.worth >= floor)).sum() / len(one.case.asked.relevant)
                if one.odds >= gate
                else 0.0
                for one in held
                if one.case.own
            ]
        )
    )


def summary(name: str, held: Sequence[Held]) -> str:
    """Silence, recall and calibration on the conversations left out."""
    gate = gate_of(held)
    foreign = np.array([one.odds < gate for one in held if not one.case.own])
    at_four = np.mean([one.odds < gate_of(held, 0.04) for one in held if not one.case.own])
    p = np.concatenate([one.confidence for one in held if one.case.own])
    r = np.concatenate([one.case.relevant for one in held if one.case.own])
    sure = (p >= 0.75) & (p < 0.85)
    recalls = {hits: recall_kept(held, gate, floor_of(held, gate, hits)) for hits in (3, 4)}
    all_ten = np.mean([one.case.relevant.sum() / len(one.case.asked.relevant) for one in held if one.case.own])
    return (
        f"{name}: silent {foreign.mean():.3f} at {SILENCED:.0%} of own ({at_four:.3f} at 4%), recall {recalls[3]:.3f} in 3, "
        f"{recalls[4]:.3f} in 4, {all_ten:.3f} in all; said .8: {r[sure].mean():.2f} of {sure.sum()}"
    )


def _answer(kind: Kind, case: Case) -> Floats:
    return np.nan_to_num(np.array([case.figures.answer[name] for name in kind.answer]))


def _hits(kind: Kind, case: Case) -> Floats:
    return np.nan_to_num(np.array([case.figures.hits[name] for name in kind.hit]).T.reshape(-1, len(kind.hit)))


async def training_sets() -> dict[str, list[Case]]:
    """The cases each kind is fitted on."""
    talk = await conversations()
    asked = [question for question in talk.questions if question.relevant]
    sample = await sample_journal([question.text for question in asked[::2]])
    plain = [*cases(talk, ROBUST), *cases(sample, ROBUST)]
    words = [*cases(talk, ROBUST, vectors=False), *cases(sample, ROBUST, vectors=False)]
    return {
        "statements": cases(await situations(), CONVERSATIONAL),
        "context": cases(talk, CONVERSATIONAL),
        "pieces and vectors": cases(talk, CONVERSATIONAL_STATIC),
        "pieces": cases(talk, CONVERSATIONAL, vectors=False),
        "vectors among many": plain,
        "vectors": plain,
        "unknown vectors": plain,
        "words": words,
    }


def row_of(kind: Kind, every: Sequence[Case]) -> dict[str, Any]:
    """The row of the table: constants fitted on everything, floors by the questions left out."""
    held = left_out(kind, every)
    say(summary(kind.name, held))
    fitted = fit(kind, every)
    gate = gate_of(held)
    return {
        "name": kind.name,
        "models": kind.models,
        "recipes": kind.recipes,
        "answer": _named(kind.answer, *fitted.answer),
        "hit": _named((*kind.hit, ANSWER), *fitted.hit),
        "gate": round(1.0 / (1.0 + np.exp(-gate)), 4),
        "floor": round(floor_of(held, gate), 4),
        "similarity": kind.similarity,
    }


def _named(names: Sequence[str], weights: Floats, bias: float) -> dict[str, float]:
    return {**{name: round(float(one), 4) for name, one in zip(names, weights, strict=True)}, "bias": round(bias, 4)}


async def main() -> None:
    """Fit, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table")
    write = parser.parse_args().write
    sets = await training_sets()
    rows = [row_of(kind, sets[kind.name]) for kind in KINDS]
    if write:
        TABLE.write_text(json.dumps({"version": 1, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
