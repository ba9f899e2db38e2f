"""What is worth returning of a search, how sure it is, and one plain reason for each hit.

``search`` leaves out what has nothing to speak for it; ``inject`` leaves out what has not enough, and answers nothing at
all where the answer as a whole has not: a prompt is better off without a memory than with a wrong one.

Invariant: the order of the hits is the search's; judging only leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas.operations.recall import INJECT, Mode
from ....schemas.rules.evidence import Judged, judge
from ....schemas.rules.text import date_prefix
from ..hot.index import HotIndex
from ..search import Found, Query, Searched
from .figures import Figures, figures_of

LIKENESS: Final = 2.5
"""Standard deviations above the mean cosine in scope from which a hit is like the query, where a model's cosines are not
known; one vector in 160 of a normal distribution."""
PIECES: Final = 0.25
"""The same by word pieces (``ConversationWeights.alone_floor``)."""
WORDS_NAMED: Final = 4
"""Words that a reason names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is returned.

    Attributes:
        hits: The hits kept, in order.
        confidence: Probability that each is relevant.
        reasons: What speaks for each.
        answer: Probability that there is an answer among them; None where nothing was found.
    """

    hits: list[Found]
    confidence: list[float]
    reasons: list[str]
    answer: float | None


def judgement(
    index: HotIndex, query: Query, found: Searched, recipe: str, mode: Mode, floor: float | None
) -> Judgement:
    """Judge what a search found.

    Args:
        index: The workspace's index.
        query: The query.
        found: What was found.
        recipe: The recipe's name.
        mode: ``inject`` is strict.
        floor: The workspace's floor for ``inject``; None for that of the constants.
    """
    if not found.hits:
        return Judgement([], [], [], None)
    figures = figures_of(index, query, found)
    model = index.model if query.vector is not None else None
    judged = judge(figures.answer, figures.hits, model, recipe, floor)
    kept = _kept(figures, judged, len(found.hits), mode)
    return Judgement(
        [found.hits[at] for at in kept],
        [round(float(judged.hits[at]), 3) for at in kept],
        [_reason(index, query, found, figures, at) for at in kept],
        round(judged.answer, 3),
    )


def _kept(figures: Figures, judged: Judged, count: int, mode: Mode) -> list[int]:
    if mode == INJECT:
        if judged.answer < judged.gate:
            return []
        chosen = judged.hits >= judged.floors
    else:
        hits = figures.hits
        chosen = (hits["words_near"] > 0) | _at_least(hits["static"], PIECES)
        if judged.similarity is None:
            usual = np.isnan(hits["likeness"])  # too few vectors to say what is not
            chosen |= np.where(usual, _at_least(hits["cosine"], 0.0), _at_least(hits["likeness"], LIKENESS))
        else:
            chosen |= _at_least(hits["cosine"], judged.similarity)
    kept: list[int] = chosen[:count].nonzero()[0].tolist()
    return kept


def _at_least(values: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
    """(n,) bool; NaN is below."""
    reached: npt.NDArray[np.bool_] = values >= least
    return reached


def _reason(index: HotIndex, query: Query, found: Searched, figures: Figures, at: int) -> str:
    """``same words: checkout, denied; said on 8 May 2026``."""
    place = found.order[at]
    shares = {name: values[place] for name, values in found.shares.items()}
    idf = found.lexical.idf
    terms = [term for term, held in zip(figures.terms, figures.shared[:, at], strict=True) if held]
    terms.sort(key=lambda term: -idf.get(term, 0.0))
    reasons = []
    if terms:
        reasons.append("same words: " + ", ".join(query.words.get(term, "") for term in terms[:WORDS_NAMED]))
    cosine = figures.hits["cosine"][at]
    if not terms and figures.hits["words_near"][at] > 0:
        reasons.append("follows an entry with the same words")
    elif not terms:
        reasons.append("similar meaning" if cosine > 0 else "similar words")
    if shares.get("speaker", 0.0) > 0:
        reasons.append("said by the person named")
    if shares.get("day", 0.0) > 0:
        reasons.append(f"said on {date_prefix(int(index.documents.ts_ms[found.docs[place]]))}")
    if shares.get("time", 0.0) > 0 or shares.get("interval", 0.0) > 0:
        reasons.append("names a time")
    return "; ".join(reasons)
