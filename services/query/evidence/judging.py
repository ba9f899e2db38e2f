"""What is worth returning of a search, how sure it is, and one plain reason for each hit.

``search`` leaves out what has nothing to speak for it; ``inject`` leaves out what has not enough, and answers nothing at
all where the answer as a whole has not: a prompt is better off without a memory than with a wrong one.

Invariant: the order of the hits is the search's; judging only leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

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
    """What a search says for its k hits, before anything is left out.

    Attributes:
        confidence: (k,) float64 probability that each is relevant.
        enough: (k,) bool: which have enough for ``inject``.
        something: (k,) bool: which have anything at all.
        reasons: What speaks for each.
        answer: Probability that there is an answer among them; None where nothing was found.
    """

    confidence: npt.NDArray[np.float64]
    enough: npt.NDArray[np.bool_]
    something: npt.NDArray[np.bool_]
    reasons: list[str]
    answer: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is returned.

    Attributes:
        kept: Which hits, in order.
        confidence: Probability that each of these is relevant.
        reasons: What speaks for each of these.
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
        none = np.zeros(0, bool)
        return Weighed(np.zeros(0), none, none, [], None)
    figures = figures_of(index, query, found)
    model = index.model if query.vector is not None else None
    kind = recipe if query.told is Told.ASKS else STATEMENT
    judged = judge(figures.answer, figures.hits, model, kind, floor)
    enough = (judged.hits >= judged.floors) & (judged.answer >= judged.gate)
    if floor is None and found.scoped.size < FEW:
        enough |= judged.hits >= SURE
    something = _something(figures, judged)
    if floor is not None:
        enough &= something  # a floor of zero lets everything through that search would return
    reasons = [_reason(index, query, found, figures, at) for at in range(count)]
    return Weighed(judged.hits[:count], enough[:count], something[:count], reasons, judged.answer)


def judgement(of: Weighed, mode: Mode, names: Sequence[str | None] = ()) -> Judgement:
    """Leave out what the mode leaves out.

    Args:
        of: The hits.
        mode: ``inject`` is strict.
        names: Of each hit the name by which the query names it, None if it does not; empty for none.
    """
    names = names or [None] * len(of.reasons)
    named = np.array([name is not None for name in names], bool)
    confidence = np.where(named, np.maximum(of.confidence, NAMED), of.confidence)
    kept = ((of.enough if mode == INJECT else of.something) | named).nonzero()[0].tolist()
    return Judgement(
        kept,
        [round(float(confidence[at]), 3) for at in kept],
        [of.reasons[at] if names[at] is None else f"named: {names[at]}" for at in kept],
        None if of.answer is None else round(max(of.answer, NAMED if named.any() else 0.0), 3),
    )


def _something(figures: Figures, judged: Judged) -> npt.NDArray[np.bool_]:
    hits = figures.hits
    chosen = (hits["words_near"] > 0) | _at_least(hits["static"], PIECES)
    if judged.similarity is not None:
        return chosen | _at_least(hits["cosine"], judged.similarity)
    usual = np.isnan(hits["likeness"])  # too few vectors to say what is not
    return chosen | np.where(usual, _at_least(hits["cosine"], 0.0), _at_least(hits["likeness"], LIKENESS))


def _at_least(values: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
    """(n,) bool; NaN is below."""
    reached: npt.NDArray[np.bool_] = values >= least
    return reached


def _reason(index: HotIndex, query: Query, found: Searched, figures: Figures, at: int) -> str:
    """``same words: checkout, denied; said on 8 May 2026``."""
    place = int(found.order[at])
    idf = found.lexical.idf
    terms = [figures.terms[row] for row in figures.shared[:, at].nonzero()[0].tolist()]
    terms.sort(key=lambda term: -idf.get(term, 0.0))
    reasons = []
    if terms:
        words = [
            query.words.get(term, "") for term in terms
        ]  # function words count where a query hardly shows its language
        named = [word for word in words if word not in foreign_words()] or words
        reasons.append("same words: " + ", ".join(named[:WORDS_NAMED]))
    cosine = figures.hits["cosine"][at]
    if not terms and figures.hits["words_near"][at] > 0:
        reasons.append("follows an entry with the same words")
    elif not terms:
        reasons.append("similar meaning" if cosine > 0 else "similar words")
    if _has(found, "speaker", place):
        reasons.append("said by the person named")
    if _has(found, "day", place):
        reasons.append(f"said on {date_prefix(int(index.documents.ts_ms[found.docs[place]]))}")
    if _has(found, "time", place) or _has(found, "interval", place):
        reasons.append("names a time")
    return "; ".join(reasons)


def _has(found: Searched, share: str, place: int) -> bool:
    return share in found.shares and found.shares[share][place] > 0
