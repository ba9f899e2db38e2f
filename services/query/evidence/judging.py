"""Which hits of a search are returned, with a confidence and one plain reason for each.

``search`` leaves out hits without evidence. ``inject`` leaves out hits with too little evidence, and all hits if the answer
as a whole has too little: a prompt is better off without a memory than with a wrong one.

Invariant: the order of the hits is the search's; judging only leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from operator import and_
from typing import Final

from ....schemas.operations.recall import INJECT, Mode
from ....schemas.rules.evidence import STATEMENT, Judged, judge
from ....schemas.rules.statements import Told
from ....schemas.rules.stop_words import foreign_words
from ....schemas.rules.text import date_prefix
from ..hot.index import HotIndex
from ..search import Query, Searched
from .figures import Figures, figures_of

LIKENESS: Final = 2.5
"""Standard deviations above the mean cosine in scope from which a hit is like the query, where a model's cosines are not
known; one vector in 160 of a normal distribution."""
PIECES: Final = 0.25
"""The same by word pieces (``ConversationWeights.alone_floor``)."""
NAMED: Final = 0.8
"""Confidence in a hit that the query calls by one of its names: set, not fitted."""
FEW: Final = 50
"""Entries in scope below which the figures of an answer as a whole, which are fitted on hundreds, say little."""
SURE: Final = 0.1
"""Confidence from which a hit in so small a scope is enough by itself: set, not fitted."""
WORDS_NAMED: Final = 4
"""Words that a reason names."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """The evidence of a search's k hits, before any is left out.

    Attributes:
        confidence: Probability that each is relevant.
        enough: Whether each has enough evidence for ``inject``.
        something: Whether each has any evidence.
        reasons: The evidence of each, in words.
        answer: Probability that there is an answer among them; None where nothing was found.
    """

    confidence: list[float]
    enough: list[bool]
    something: list[bool]
    reasons: list[str]
    answer: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The hits that are returned.

    Attributes:
        kept: Their places, in order.
        confidence: Probability that each of these is relevant.
        reasons: The evidence of each, in words.
        answer: Probability that there is an answer among them; None where nothing was found.
    """

    kept: list[int]
    confidence: list[float]
    reasons: list[str]
    answer: float | None


def weighed(index: HotIndex, query: Query, found: Searched, recipe: str, floor: float | None) -> Weighed:
    """Weigh what a search found.

    Args:
        index: The workspace's index.
        query: The query.
        found: What was found.
        recipe: The recipe's name.
        floor: The workspace's floor for ``inject``; None for that of the constants.
    """
    count = len(found.hits)
    if not count:
        return Weighed([], [], [], [], None)
    figures = figures_of(index, query, found)
    model = index.model if query.vector is not None else None
    kind = recipe if query.told is Told.ASKS else STATEMENT
    judged = judge(figures.answer, figures.hits, model, kind, floor)
    answers = judged.answer >= judged.gate
    enough = [answers and sure >= least for sure, least in zip(judged.hits, judged.floors, strict=True)]
    something = _something(figures, judged)
    if floor is not None:  # a floor of zero lets everything through that search would return
        enough = list(map(and_, enough, something))
    elif found.scoped.size < FEW:
        enough = [has or sure >= SURE for has, sure in zip(enough, judged.hits, strict=True)]
    reasons = _reasons(index, query, found, figures, count)
    return Weighed(judged.hits[:count], enough[:count], something[:count], reasons, judged.answer)


def judgement(of: Weighed, mode: Mode, names: Sequence[str | None] = ()) -> Judgement:
    """Leave out hits by the rule of the mode.

    Args:
        of: The hits.
        mode: ``inject`` is strict.
        names: Of each hit the name by which the query names it, None if it does not; empty for none.
    """
    confidence, reasons, answer = list(of.confidence), list(of.reasons), of.answer
    chosen = list(of.enough if mode == INJECT else of.something)
    for at, name in enumerate(names):
        if name is not None:
            confidence[at], reasons[at], chosen[at] = max(confidence[at], NAMED), f"named: {name}", True
            answer = None if answer is None else max(answer, NAMED)
    kept = [at for at, is_chosen in enumerate(chosen) if is_chosen]
    return Judgement(
        kept,
        [round(confidence[at], 3) for at in kept],
        [reasons[at] for at in kept],
        None if answer is None else round(answer, 3),
    )


def _something(figures: Figures, judged: Judged) -> list[bool]:
    hits = figures.hits
    if judged.similarity is not None:
        alike = [value >= judged.similarity for value in hits["cosine"]]  # NaN is below
    else:  # too few vectors to describe the model: any likeness counts
        alike = [
            (cosine >= 0.0) if isnan(likeness) else likeness >= LIKENESS
            for cosine, likeness in zip(hits["cosine"], hits["likeness"], strict=True)
        ]
    return [
        near > 0 or static >= PIECES or like
        for near, static, like in zip(hits["words_near"], hits["static"], alike, strict=True)
    ]


def _reasons(index: HotIndex, query: Query, found: Searched, figures: Figures, count: int) -> list[str]:
    """Of each of the first hits, like ``same words: checkout, denied; said on 8 May 2026``."""
    places = found.order[:count]
    idf = found.lexical.idf
    rarest = sorted(range(len(figures.terms)), key=lambda row: -idf.get(figures.terms[row], 0.0))
    words = [(row, query.words.get(figures.terms[row], "")) for row in rarest]
    foreign = foreign_words()  # function words count where a query hardly shows its language
    speaks = {
        name: (found.shares[name][places] > 0).tolist()
        for name in ("speaker", "day", "time", "interval")
        if name in found.shares
    }
    nothing = [False] * count
    speaker, day = speaks.get("speaker", nothing), speaks.get("day", nothing)
    time, interval = speaks.get("time", nothing), speaks.get("interval", nothing)
    cosine, near = figures.hits["cosine"], figures.hits["words_near"]
    reasons = []
    for at, held in enumerate(figures.shared[:count]):
        shared = [word for row, word in words if row in held]
        if shared:
            named = [word for word in shared if word not in foreign] or shared
            parts = ["same words: " + ", ".join(named[:WORDS_NAMED])]
        elif near[at] > 0:
            parts = ["follows an entry with the same words"]
        else:
            parts = ["similar meaning" if cosine[at] > 0 else "similar words"]
        if speaker[at]:
            parts.append("said by the person named")
        if day[at]:
            parts.append(f"said on {date_prefix(int(index.documents.ts_ms[found.docs[places[at]]]))}")
        if time[at] or interval[at]:
            parts.append("names a time")
        reasons.append("; ".join(parts))
    return reasons
