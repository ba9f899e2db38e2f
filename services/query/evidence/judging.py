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
from ....schemas.rules.stop_words import foreign_words
from ....schemas.rules.text import date_prefix, fold, tokens_of
from ....schemas.rules.turns import ends_with_question
from ....schemas.rules.word_rarity import weight_of
from ..asking import Query
from ..hot.index import HotIndex
from ..hot.records import EntryRecord
from ..search import Searched
from .calibration import Calibration
from .figures import Figures, figures_of
from .names import names_in

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
class Judgement:
    """The evidence of a search's k hits, and which of them are returned.

    Attributes:
        confidence: Probability that each is relevant.
        reasons: The evidence of each, in words.
        kept: Places of the hits that are returned, in order.
    """

    confidence: list[float]
    reasons: list[str]
    kept: list[int]

    @property
    def answer(self) -> float | None:
        """The confidence of the best hit, returned or not; None if nothing was found."""
        return round(max(self.confidence), 3) if self.confidence else None


def judged(
    index: HotIndex,
    query: Query,
    found: Searched,
    records: Sequence[EntryRecord | None],
    calibration: Calibration | None,
    floor: float | None,
    mode: Mode,
) -> Judgement:
    """Judge what a search found.

    Args:
        index: The workspace's index.
        query: The query.
        found: What was found.
        records: The entry of each hit; None for one that is gone.
        calibration: Of the vectors' model; None if it is not measured yet.
        floor: The workspace's floor for ``inject``; None for those of the constants.
        mode: ``inject`` is strict.
    """
    if not records:
        return Judgement([], [], [])
    echoes = _echoes(query, records)
    texts = [None if record is None else record.summary for record in records]
    figures = figures_of(index, query, found, texts, calibration, echoes)
    judgements = [
        judge(figures.hits, at, turn=turn, asks=query.asks, shares=bool(held))
        for at, (turn, held) in enumerate(zip(figures.turns, figures.shared, strict=True))
    ]
    confidence = [0.0 if echo and query.asks else hit.confidence for hit, echo in zip(judgements, echoes, strict=True)]
    chosen = [has and not (echo and query.asks) for echo, has in zip(echoes, _something(figures), strict=True)]
    if mode == INJECT:
        if query.asks_nothing:
            enough = [False] * len(records)
        elif floor is not None:
            enough = [value >= floor for value in confidence]
        else:
            enough = _enough(figures, judgements, records)
        chosen = [has and so and not echo for has, so, echo in zip(enough, chosen, echoes, strict=True)]
    reasons = _reasons(index, found, figures)
    if query.wording.analyzer is not None:
        payloads = [None if record is None else record.payload for record in records]
        for at, name in enumerate(names_in(query.keyed, payloads, query.wording.analyzer)):
            if name is not None:
                confidence[at], reasons[at], chosen[at] = max(confidence[at], NAMED), f"named: {name}", True
    return Judgement(confidence, reasons, [at for at, is_chosen in enumerate(chosen) if is_chosen])


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


def _echoes(query: Query, records: Sequence[EntryRecord | None]) -> list[bool]:
    """Which entries only ask what the query asks, or are the query itself."""
    prompt, words = fold(query.text).strip(), frozenset(query.tokens)
    ends = (f": {prompt}", f"] {prompt}")
    recognised = query.asks or len(words) >= _LEAST_SAID
    echoes = []
    for record in records:
        text = "" if record is None else record.summary
        if not text:
            echoes.append(False)
        elif query.asks and ends_with_question(text):
            echoes.append(_same_question(words, fold(text).strip()))
        elif len(text) < len(prompt) or not recognised:
            echoes.append(False)
        else:
            folded = fold(text).strip()
            echoes.append(folded == prompt or folded.endswith(ends))
    return echoes


def _same_question(own: frozenset[str], other: str) -> bool:
    words = set(tokens_of(other))
    if len(words) > max(LONGER * len(own), len(own) + _WORDS_MORE):
        return False
    weight = sum(weight_of(word, 0, 0) for word in own)
    return sum(weight_of(word, 0, 0) for word in own & words) >= ECHOED * weight


def _reasons(index: HotIndex, found: Searched, figures: Figures) -> list[str]:
    """Of each of the judged hits, like ``same words: checkout, denied; said on 8 May 2026``."""
    count = len(figures.shared)
    places = found.order[:count]
    rarest = sorted(range(len(figures.terms)), key=lambda row: -figures.weights[row])
    words = [(row, figures.words[row]) for row in rarest]
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
    for at, held in enumerate(figures.shared):
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
