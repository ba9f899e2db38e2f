"""Fits the constants of ``schemas/recall/evidence.json``: logistic regression on prompts with and without an answer.

``python -m bench.evidence_fit`` prints what the constants reach on the journal left out; ``--write`` also writes those
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

from bench.evidence_data import (
    PROJECT,
    Case,
    cases,
    conversations,
    reference,
    sample_journal,
    situations,
    unrelated,
)
from bench.figures import say
from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.recall.evidence import DECIDED
from crew_journal.schemas.recall.questions import is_question
from crew_journal.schemas.settings import Settings
from crew_journal.services.recall.calibration import Calibration, logistic, measure
from crew_journal.services.recall.recipes import CONVERSATIONAL, ROBUST

Floats = npt.NDArray[np.float64]

TABLE: Final = PROJECT / "schemas" / "recall" / "evidence.json"
CALIBRATIONS: Final = PROJECT / "services" / "recall" / "calibrations.json"
FOREIGN: Final = 0.5
"""Weight of a turn that was found for a foreign question: most questions that are asked have an answer."""
RIDGE: Final = 3.0
SILENCED: Final = 0.05
"""Share of the questions that recall answers which ``inject`` may leave without an answer, on the conversations left out.
There, .04, .05 and .06 leave .69, .72 and .73 of the foreign questions silent, at a recall of .702, .700 and .693
(docs/evidence.md)."""
TURNS: Final = 3.3
"""Turns an own question gets in the mean, in ``inject``."""
TEXT_FLOOR: Final = 0.22
"""A text is injected if it is at least about one time in five relevant: what a prompt gets beside it costs little. With .25,
.22 and .2, prompts get .62, .65 and .66 of the answers in five journals of forty notes, and .92, .91 and .89 are silent."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table: what it judges, and by which figures."""

    name: str
    turns: bool
    asks: bool | None
    figures: tuple[str, ...]

    def applies(self, case: Case) -> npt.NDArray[np.bool_]:
        """(n,) bool: which hits of a case it judges."""
        applies: npt.NDArray[np.bool_] = np.array(case.figures.turns, bool) == self.turns
        return applies


_NEAR: Final = ("words_near", "near_squared")
_WORDS: Final = ("words", "words_squared")
_TOGETHER: Final = ("meaning", *_WORDS, "meaning_words", "margin", "shares")
_KINDS_ASKED: Final = ("lacks_kind", "has_kind", "terms")
KINDS: Final = (
    Kind("turns in context", True, True, ("meaning", *_NEAR, "meaning_near", "context", "place", "terms")),
    Kind("turns", True, True, ("meaning", *_NEAR, "meaning_near", "place", "terms")),
    Kind("turns by pieces", True, True, (*_NEAR, "static", "place")),
    Kind("turns, situations", True, False, ("meaning", "words_near", "meaning_near", "terms")),
    Kind("turns by words", True, None, (*_NEAR, "place")),
    Kind("texts", False, True, (*_TOGETHER, *_KINDS_ASKED)),
    Kind("texts, situations", False, False, (*_TOGETHER, "terms")),
    Kind("texts by words", False, None, (*_WORDS, *_KINDS_ASKED)),
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One kind's constants."""

    kind: Kind
    weights: Floats
    bias: float

    def confidence(self, case: Case) -> Floats:
        """(n,) probability that each hit is relevant; NaN for one of the other kind, or that lacks a figure."""
        x = _figures(self.kind, case)
        values: Floats = 1.0 / (1.0 + np.exp(-(x @ self.weights + self.bias)))
        values[~self.kind.applies(case)] = np.nan
        return values


def fit(kind: Kind, training: Sequence[Sequence[Case]]) -> Fitted:
    """The constants by some sources, each of which counts the same."""
    figures, labels, weights = list[Floats](), list[npt.NDArray[np.bool_]](), list[Floats]()
    for source in training:
        judged = [case for case in source if kind.asks in (None, is_question(case.asked.text))]
        first = len(figures)
        for case in judged:
            x = _figures(kind, case)
            known = ~np.isnan(x).any(1) & kind.applies(case)
            figures.append(x[known])
            labels.append(case.relevant[known])
            weights.append(np.full(int(known.sum()), 1.0 if case.own or not kind.turns else FOREIGN))
        total = sum(len(rows) for rows in weights[first:])
        for at in range(first, len(weights)):
            weights[at] *= 1_000.0 / total
    fitted_weights, bias = logistic(np.concatenate(figures), np.concatenate(labels), np.concatenate(weights), RIDGE)
    return Fitted(kind, fitted_weights, bias)


@dataclass(frozen=True, slots=True)
class Held:
    """What constants fitted on the other journals say of a prompt's hits."""

    case: Case
    confidence: Floats

    @property
    def best(self) -> float:
        """The highest confidence, as far as the gate goes; 0 without a hit of the kind."""
        weighed = np.where(self.case.decides, self.confidence / DECIDED, self.confidence)
        known = weighed[~np.isnan(weighed)]
        return float(known.max()) if len(known) else 0.0


def left_out(kind: Kind, source: Sequence[Case], others: Sequence[Sequence[Case]] = ()) -> list[Held]:
    """Each journal of a source judged by constants fitted on its other journals and on the other sources."""
    held = []
    for cluster in dict.fromkeys(case.asked.cluster for case in source):
        fitted = fit(kind, [[case for case in source if case.asked.cluster != cluster], *others])
        held += [Held(case, fitted.confidence(case)) for case in source if case.asked.cluster == cluster]
    return [item for item in held if kind.asks in (None, is_question(item.case.asked.text))]


def gate_of(held: Sequence[Held], share: float = SILENCED) -> float:
    """The confidence of the best hit below which ``share`` of the answered prompts lie."""
    return float(np.quantile([item.best for item in held if item.case.answered], share))


def floor_of(held: Sequence[Held], gate: float, hits: float = TURNS) -> float:
    """The confidence that keeps so many hits an own prompt in the mean."""
    own_rows = [item for item in held if item.case.own]
    values = np.concatenate([item.confidence for item in own_rows if item.best >= gate])
    values = np.sort(values[~np.isnan(values)])[::-1]
    return float(values[min(int(hits * len(own_rows)), len(values) - 1)])


def recall_kept(held: Sequence[Held], gate: float, floor: float) -> float:
    """Mean recall of own prompts in ``inject``."""
    return float(
        np.mean(
            [
                (item.case.relevant & (item.confidence >= floor)).sum() / len(item.case.asked.relevant)
                if item.best >= gate
                else 0.0
                for item in held
                if item.case.own
            ]
        )
    )


def summary(name: str, held: Sequence[Held], gate: float, floor: float) -> str:
    """What a gate and a floor reach."""
    answered = [item for item in held if item.case.answered]
    emptied = np.mean([item.best < max(gate, floor) for item in answered])
    kinds = {}
    for category in dict.fromkeys(item.case.asked.category for item in held if not item.case.own):
        kinds[category] = np.mean(
            [
                item.best < max(gate, floor)
                for item in held
                if not item.case.own and item.case.asked.category == category
            ]
        )
    silent = ", ".join(f"{category} {share:.2f}" for category, share in kinds.items())
    kept = sum(int((item.confidence >= floor).sum()) for item in held if item.best >= gate and item.case.own)
    right = sum(int((item.case.relevant & (item.confidence >= floor)).sum()) for item in held if item.best >= gate)
    return (
        f"{name}: own emptied {emptied:.3f}, silent: {silent}; recall {recall_kept(held, gate, floor):.3f}, "
        f"precision {right / max(1, kept):.2f}"
    )


def _figures(kind: Kind, case: Case) -> Floats:
    if not len(case.relevant):
        return np.empty((0, len(kind.figures)))
    return np.array([case.figures.hits[name] for name in kind.figures], float).T.reshape(-1, len(kind.figures))


async def training_sets() -> tuple[dict[str, list[Case]], dict[str, list[Case]]]:
    """What rows for turns and for texts are fitted on: name of the source → its cases, with and without vectors."""
    sets = {
        "conversations": (await conversations(), CONVERSATIONAL),
        "situations": (await situations(), CONVERSATIONAL),
        "unrelated": (await unrelated(), CONVERSATIONAL),
        "reference": (await reference(), ROBUST),
        "sample": (await sample_journal([]), ROBUST),
    }
    with_vectors = {name: cases(journal, recipe) for name, (journal, recipe) in sets.items()}
    return with_vectors, {name: cases(journal, recipe, vectors=False) for name, (journal, recipe) in sets.items()}


def row_of(kind: Kind, source: Sequence[Case], others: Sequence[Sequence[Case]] = ()) -> dict[str, Any]:
    """The row of the table: constants fitted on everything; gate and floor of turns by the journals left out."""
    held = left_out(kind, source, others)
    if kind.turns:
        gate = gate_of(held)
        floor = floor_of(held, gate)
    else:
        gate, floor = 0.0, TEXT_FLOOR
    say(summary(kind.name, held, gate, floor))
    fitted = fit(kind, [source, *others])
    return {
        "name": kind.name,
        "turns": kind.turns,
        "asks": kind.asks,
        "weights": {name: round(float(weight), 4) for name, weight in zip(kind.figures, fitted.weights, strict=True)},
        "bias": round(fitted.bias, 4),
        "floor": round(floor, 4),
        "gate": round(gate, 4),
    }


async def measured() -> Calibration:
    """MiniLM's calibration, as a node measures other models."""
    embedder = MiniLmEmbedder(Settings().models_dir)
    calibration = await measure(embedder, MODEL_ID)
    await embedder.close()
    assert calibration is not None
    return calibration


def as_json(calibration: Calibration) -> dict[str, Any]:
    """The constants as they are stored."""
    return {
        "weights": [round(one, 4) for one in calibration.weights],
        "bias": round(calibration.bias, 4),
        "mean": round(calibration.mean, 5),
        "deviation": round(calibration.deviation, 5),
        "texts": np.round(calibration.texts.astype(float), 4).tolist(),
        "queries": np.round(calibration.queries.astype(float), 4).tolist(),
    }


async def main() -> None:
    """Fit, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table")
    write = parser.parse_args().write
    with_vectors, by_words = await training_sets()
    rows = []
    for kind in KINDS:
        sets = with_vectors if "meaning" in kind.figures else by_words
        if kind.turns:
            source = "situations" if kind.asks is False else "conversations"
            rows.append(row_of(kind, sets[source], [sets["unrelated"]] if kind.asks is False else []))
        else:
            rows.append(row_of(kind, sets["reference"], [sets["sample"]] if kind.asks is None else []))
    if write:
        CALIBRATIONS.write_text(json.dumps({MODEL_ID: as_json(await measured())}) + "\n", "utf-8")
        version = json.loads(TABLE.read_text("utf-8"))["version"] + 1
        TABLE.write_text(json.dumps({"version": version, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
