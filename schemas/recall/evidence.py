"""The confidence of a hit: a logistic formula over its figures, with constants as data.

The constants (``evidence.json``) are fitted by ``python -m bench.evidence_fit --write``. There is a row for texts and
one for turns of conversations, each for questions and for everything else (requests, situations), ordered by decreasing
number of figures: a hit is judged by the first row whose figures it has all. No row depends on the embedding model,
because the figures mean the same under every one.

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
from typing import Any, Final, Literal, NamedTuple

from ..text.analyzer import fold
from ..text.kinds import kind_of

OVERHEARD: Final = 1.5
"""Factor of the floor for texts that were not stored with the operation remember."""

DECIDED: Final = 0.7
"""Factor of the gate for turns that state a decision or a preference, because such turns are likelier to be worth
recalling. With it, recall answers two more of 16 questions to a team's chat, and on conversations that were not used
for fitting, it stays silent for as many foreign questions as before.
"""
NEAR_DECISION: Final = 4.0
"""Minimum log odds by meaning for this factor."""
_DECIDES: Final = frozenset(["decision", "preference"])


def decides(text: str, speaker: str | None) -> bool:
    """Whether a turn decides something or states a preference.

    Args:
        text: What was said, with or without the speaker's name before it.
        speaker: The name of the speaker; None if unknown.
    """
    name, colon, rest = text.partition(":")
    has_speaker = colon and speaker is not None and fold(name).strip() == fold(speaker.replace("_", " "))
    return kind_of(rest if has_speaker else text) in _DECIDES


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """The constants of one kind of hit.

    Attributes:
        name: Name of the row.
        turns: Whether it judges turns of conversations or other texts.
        asks: Whether it judges questions or other prompts; None for both.
        weights: Name of the figure → its weight in the log odds.
        bias: Added to the weighted sum.
        floor: Confidence below which ``inject`` leaves a hit out.
        gate: Confidence that at least one turn must reach for any to be returned by ``inject``.
    """

    name: str
    turns: bool
    asks: bool | None
    weights: Mapping[str, float]
    bias: float
    floor: float
    gate: float

    def confidences(self, figures: Mapping[str, Sequence[float]]) -> list[float]:
        """The probability that each hit is relevant; NaN for a hit that lacks a figure."""
        weights = tuple(self.weights.values())
        every = zip(*[figures[name] for name in self.weights], strict=True)
        odds = [self.bias + sum(map(mul, weights, values)) for values in every]
        return [value if isnan(value) else 1.0 / (1.0 + exp(-value)) for value in odds]


class JudgedHit(NamedTuple):
    """The judgement of a hit: the probability that it is relevant, and the row that gave it."""

    confidence: float
    row: EvidenceRow

    def opens(self, meaning: float, text: str, speaker: str | None) -> bool:
        """Whether a turn reaches the gate, so that ``inject`` may return turns.

        Args:
            meaning: The hit's log odds by meaning; NaN without a vector.
            text: What was said.
            speaker: The name of the speaker; None if unknown.
        """
        if self.confidence >= self.row.gate:
            return True
        if self.confidence < DECIDED * self.row.gate or not meaning >= NEAR_DECISION:
            return False
        return decides(text, speaker)


def judge_hits(
    figures: Mapping[str, Sequence[float]],
    turns: Sequence[bool],
    *,
    asks: bool,
    absent: frozenset[str] = frozenset(),
) -> list[JudgedHit]:
    """Judge hits, each by the first row whose figures it has all.

    Args:
        figures: Name of the figure → one value per hit, NaN if the hit lacks the figure.
        turns: Whether each hit is a turn of a conversation.
        asks: Whether the prompt is a question.
        absent: Figures that no hit has.

    Returns:
        The judgements.
    """
    of_rows: dict[str, list[float]] = {}
    judgements = []
    for at, turn in enumerate(turns):
        for row in rows_for(turn, asks, absent):
            confidences = of_rows.get(row.name)
            if confidences is None:
                confidences = of_rows[row.name] = row.confidences(figures)
            if not isnan(confidences[at]):
                judgements.append(JudgedHit(confidences[at], row))
                break
    return judgements


@cache
def rows_for(turn: bool, asks: bool, absent: frozenset[str] = frozenset()) -> tuple[EvidenceRow, ...]:
    """The rows for a kind of hit and prompt that need none of the absent figures, by decreasing number of figures."""
    return tuple(
        row
        for row in evidence_rows()
        if row.turns == turn and row.asks in (None, asks) and absent.isdisjoint(row.weights)
    )


@cache
def evidence_rows() -> tuple[EvidenceRow, ...]:
    """Every row of the table."""
    data = json.loads(resources.files(__package__).joinpath("evidence.json").read_text("utf-8"))
    return tuple(map(_row, data["rows"]))


def _row(data: Mapping[str, Any]) -> EvidenceRow:
    return EvidenceRow(
        data["name"],
        data["turns"],
        data["asks"],
        data["weights"],
        data["bias"],
        data["floor"],
        data["gate"],
    )


# The confidence of a hit as one word, for models and people.


SURE: Final = 0.7
"""Minimum confidence of a ``sure`` hit. Chosen, not fitted: more than two of three such hits should be relevant."""
LIKELY: Final = 0.3
"""Minimum confidence of a ``likely`` hit; chosen, not fitted."""

ConfidenceWord = Literal["sure", "likely", "weak"]
WEAK: Final[ConfidenceWord] = "weak"


def confidence_word(confidence: float) -> ConfidenceWord:
    """``sure``, ``likely`` or ``weak``, for a calibrated probability that a hit is relevant (0 to 1)."""
    return "sure" if confidence >= SURE else "likely" if confidence >= LIKELY else "weak"


# Proposes an evidence floor from a workspace's own receipts: the highest floor that keeps most of the used hits.


FLOORS: Final = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
KEEP: Final = 0.95
"""Share of the used hits that the proposed floor keeps."""
LEAST_USED: Final = 20
"""Minimum number of used hits for a proposal: with fewer, one hit changes the share by more than 5 %."""


@dataclass(frozen=True, slots=True)
class ReplayedHit:
    """A hit of a receipt: its confidence, and whether it was reported as used."""

    confidence: float
    used: bool


@dataclass(frozen=True, slots=True)
class FloorFigures:
    """The effect of a floor on the receipts.

    Attributes:
        floor: The floor.
        hits: Mean number of hits per recall.
        used_kept: Share of the used hits that the floor keeps.
        used_share: Share of the kept hits that were used; None if the floor keeps no hit.
        silent: Share of the recalls that return no hit.
    """

    floor: float
    hits: float
    used_kept: float
    used_share: float | None
    silent: float


@dataclass(frozen=True, slots=True)
class FloorProposal:
    """The floor to set, None if too few hits were used, and the table it was chosen from."""

    floor: float | None
    figures: tuple[FloorFigures, ...]


def propose_floor(receipts: Sequence[Sequence[ReplayedHit]], keep: float = KEEP) -> FloorProposal:
    """Replay receipts under every floor of ``FLOORS``.

    Args:
        receipts: The hits of each recall in mode ``search``; recalls in mode ``inject`` lack the hits below their
            floor.
        keep: Share of the used hits that must be kept.
    """
    used = sum(hit.used for hits in receipts for hit in hits)
    figures = tuple(_figures(receipts, floor, used) for floor in FLOORS) if receipts else ()
    enough = [row.floor for row in figures if row.used_kept >= keep]
    return FloorProposal(max(enough) if enough and used >= LEAST_USED else None, figures)


def _figures(receipts: Sequence[Sequence[ReplayedHit]], floor: float, used: int) -> FloorFigures:
    kept = [[hit for hit in hits if hit.confidence >= floor] for hits in receipts]
    left = sum(map(len, kept))
    useful = sum(hit.used for hits in kept for hit in hits)
    return FloorFigures(
        floor,
        left / len(receipts),
        useful / used if used else 1.0,
        useful / left if left else None,
        sum(not hits for hits in kept) / len(receipts),
    )
