"""Which hits of a search are returned, with a confidence and one plain reason for each.

``search`` leaves out hits without any evidence. ``inject`` leaves out hits with too little, all hits where the prompt asks
nothing, and all turns if none of them has much: a prompt is better off without a memory than with a wrong one. A question is
no answer to itself, so what only repeats it is left out.

Invariant: the order of the hits is the search's; judging only leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....schemas.operations.recall import INJECT, Mode
from ....schemas.rules.embed_policy import REMEMBERED
from ....schemas.rules.evidence import OVERHEARD, JudgedHit, judge
from ....schemas.rules.prompts import asks_nothing, is_question
from ....schemas.rules.stop_words import foreign_words
from ....schemas.rules.text import date_prefix, fold, tokens_of
from ....schemas.rules.turns import ends_with_question
from ....schemas.rules.word_rarity import weight_of
from ..hot.index import HotIndex
from ..hot.records import EntryRecord
from ..search import Query, Searched
from .calibration import Calibration
from .figures import Figures, figures_of

NEAR: Final = -0.5
"""Log odds by meaning from which ``search`` returns a hit that shares no word. Of the answers to paraphrased questions, one
in ten is below, under MiniLM and multilingual-e5-small alike."""
PIECES: Final = 0.25
"""The same by word pieces (``ConversationWeights.alone_floor``)."""
NAMED: Final = 0.8
"""Confidence in a hit that the query calls by one of its names: set, not fitted."""
WORDS_NAMED: Final = 4
"""Words that a reason names."""
ECHOED: Final = 0.9
"""Share of the weight of a question's words that an earlier question must hold to be the same question."""
LONGER: Final = 1.5
"""An earlier question of more than this times as many words, and two, asks something else besides."""
_WORDS_MORE: Final = 2
_LEAST_SAID: Final = 3
"""Words of the shortest statement that is recognised as the prompt itself."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """The evidence of a search's k hits, before any is left out.

    Attributes:
        confidence: Probability that each is relevant.
        enough: Whether each has enough evidence for ``inject``.
        something: Whether each has any evidence.
        reasons: The evidence of each, in words.
    """

    confidence: list[float]
    enough: list[bool]
    something: list[bool]
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The hits that are returned.

    Attributes:
        kept: Their places, in order.
        confidence: Probability that each of these is relevant.
        reasons: The evidence of each, in words.
        answer: The confidence of the best hit, returned or not; None if nothing was found.
    """

    kept: list[int]
    confidence: list[float]
    reasons: list[str]
    answer: float | None


def weighed(
    index: HotIndex,
    query: Query,
    found: Searched,
    records: Sequence[EntryRecord | None],
    calibration: Calibration | None,
    floor: float | None,
) -> Weighed:
    """Weigh what a search found.

    Args:
        index: The workspace's index.
        query: The query.
        found: What was found.
        records: The entry of each hit; None for one that is gone.
        calibration: Of the vectors' model; None if it is not measured yet.
        floor: The workspace's floor for ``inject``; None for those of the constants.
    """
    count = len(records)
    if not count:
        return Weighed([], [], [], [])
    asks = is_question(query.text)
    echo = _Echo(query.text, asks)
    echoes = [record is not None and echo.of(record.summary) for record in records]
    texts = [None if record is None else record.summary for record in records]
    figures = figures_of(index, query, found, texts, calibration, echoes)
    judged = [
        judge(figures.hits, at, turn=turn, asks=asks, shares=bool(held))
        for at, (turn, held) in enumerate(zip(figures.turns, figures.shared, strict=True))
    ]
    confidence = [0.0 if echo and asks else one.confidence for one, echo in zip(judged, echoes, strict=True)]
    if asks_nothing(query.text):
        enough = [False] * count
    elif floor is not None:
        enough = [one >= floor for one in confidence]
    else:
        enough = _enough(figures, judged, records)
    something = [has and not (echo and asks) for echo, has in zip(echoes, _something(figures), strict=True)]
    enough = [one and has and not echo for one, has, echo in zip(enough, something, echoes, strict=True)]
    return Weighed(confidence, enough, something, _reasons(index, query, found, figures, count))


def judgement(of: Weighed, mode: Mode, names: Sequence[str | None] = ()) -> Judgement:
    """Leave out hits by the rule of the mode.

    Args:
        of: The hits.
        mode: ``inject`` is strict.
        names: Of each hit the name by which the query names it, None if it does not; empty for none.
    """
    confidence, reasons = list(of.confidence), list(of.reasons)
    chosen = list(of.enough if mode == INJECT else of.something)
    for at, name in enumerate(names):
        if name is not None:
            confidence[at], reasons[at], chosen[at] = max(confidence[at], NAMED), f"named: {name}", True
    kept = [at for at, is_chosen in enumerate(chosen) if is_chosen]
    return Judgement(
        kept,
        [round(confidence[at], 3) for at in kept],
        [reasons[at] for at in kept],
        round(max(confidence), 3) if confidence else None,
    )


def _enough(figures: Figures, judged: Sequence[JudgedHit], records: Sequence[EntryRecord | None]) -> list[bool]:
    """Whether each hit reaches the floor of its row, and turns have one among them that reaches the gate."""
    gated = any(
        turn and record is not None and one.opens(meaning, record.summary, record.actor_id)
        for one, turn, record, meaning in zip(judged, figures.turns, records, figures.hits["meaning"], strict=True)
    )
    enough = []
    for one, turn, record in zip(judged, figures.turns, records, strict=True):
        least = one.row.floor
        if not turn and record is not None and record.entry_type != REMEMBERED:
            least *= OVERHEARD
        enough.append(one.confidence >= least and (gated or not turn))
    return enough


def _something(figures: Figures) -> list[bool]:
    hits = figures.hits
    return [
        near > 0 or static >= PIECES or meaning >= NEAR or uncertain  # NaN is below
        for near, static, meaning, uncertain in zip(
            hits["words_near"], hits["static"], hits["meaning"], figures.uncertain, strict=True
        )
    ]


class _Echo:
    """Recognises texts that only ask what a prompt asks, or are the prompt itself.

    Args:
        prompt: The prompt.
        asks: Whether it is a question.
    """

    def __init__(self, prompt: str, asks: bool) -> None:
        self._prompt = fold(prompt).strip()
        self._asks = asks
        self._ends = (f": {self._prompt}", f"] {self._prompt}")
        self._words = frozenset(tokens_of(self._prompt))

    def of(self, text: str) -> bool:
        """Whether a text is one of these."""
        if self._asks and ends_with_question(text):
            return self._same(fold(text).strip())
        if len(text) < len(self._prompt) or not (self._asks or len(self._words) >= _LEAST_SAID):
            return False
        said = fold(text).strip()
        return said == self._prompt or said.endswith(self._ends)

    def _same(self, said: str) -> bool:
        words, own = set(tokens_of(said)), self._words
        if len(words) > max(LONGER * len(own), len(own) + _WORDS_MORE):
            return False
        weight = sum(weight_of(word, 0, 0) for word in own)
        return sum(weight_of(word, 0, 0) for word in own & words) >= ECHOED * weight


def _reasons(index: HotIndex, query: Query, found: Searched, figures: Figures, count: int) -> list[str]:
    """Of each of the first hits, like ``same words: checkout, denied; said on 8 May 2026``."""
    places = found.order[:count]
    rarest = sorted(range(len(figures.terms)), key=lambda row: -figures.weights[row])
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
    cosine, near = found.cosine[places].tolist(), figures.hits["words_near"]
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
