"""The evidence of a search's hits: figures, a confidence and one plain reason for each, and which of them are returned.

Each figure means the same in a memory of five texts and of five million, under every embedding model: words weigh by how
rare they are in general (``word_rarity``), cosines count by the model's calibration. In turns of conversations, names of
speakers in scope are not counted as words, because they say whom a question is about and occur everywhere; a note about a
person holds the name as it holds other words. Few hits are judged, so figures are plain numbers: for ten, an operation of
numpy costs more than a loop.

``search`` leaves out hits without any evidence. If no hit of a question is likely or holds many of its words, the first ten
are returned, those without evidence behind the others. ``inject`` leaves out hits with too little, all hits where the prompt
asks nothing, and all turns if none of them has much: a prompt is better off without a memory than with a wrong one. A hit
that only repeats the question does not answer it and is left out.

An entry that the query calls by one of its own names (``payload.aliases``) is returned: "k8s?" shares one word with an entry
about a cluster, and no other evidence is possible. A name counts whole and word for word. A word of it may be inflected, and
a long one may miss a letter, have one too many or two swapped, as typing does; another letter makes another word ("mango").

Invariant: the order of the hits is the search's; judging leaves out or puts behind. Figures use only the query's scope
and, of the index, only the rows of the judged hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log1p, nan
from operator import mul
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ...schemas.access.tables import WORKSPACE_SETTINGS, read_workspace_settings
from ...schemas.core.ports import ViewReader
from ...schemas.models.rules import REMEMBERED
from ...schemas.recall.evidence import LIKELY, OVERHEARD, JudgedHit, judge_hits
from ...schemas.recall.operations import INJECT, Mode
from ...schemas.recall.questions import holds_kind
from ...schemas.recall.turns import ends_with_question
from ...schemas.text.analyzer import Analyzer, date_prefix, fold, tokens_of
from ...schemas.text.stop_words import foreign_words
from ...schemas.text.word_rarity import background_frequency, weight_of
from ..index.arrays import Docs
from ..index.entry_index import HotIndex
from ..index.records import HitRecord
from ..index.sessions import neighbours
from ..index.vectors import NO_ROW, Vectors
from ..kept import KeptValues, in_thread
from .arms import LexicalResult
from .asking import Query, Word, keyed_words
from .calibration import Calibration
from .recipes import knows_script
from .search import JUDGED, Searched

Floats = npt.NDArray[np.float64]

LEAST_VECTORS: Final = 30
"""Least number of vectors in scope that describe a model which was not measured yet."""
UNMEASURED_SLOPE: Final = 1.1
UNMEASURED_BIAS: Final = -5.5
"""Log odds by meaning of a model that was not measured yet, from the standard deviations above the mean cosine in scope; the
median of MiniLM and multilingual-e5-small on the reference texts."""
LOWEST_MEANING: Final = -6.0
HIGHEST_MEANING: Final = 12.0
"""Bounds of the log odds by meaning."""
UNRELATED_BEST: Final = 2.0
"""Standard deviations above the mean that the best of some dozen unrelated texts reaches by chance: a hit that is clear of
all others is compared with this at least, so that it stands out no more in a small memory than in a large one."""
ALIKE: Final = 5.0
"""Standard deviations above the cosine of unrelated texts from which two hits say nearly the same: neither makes the other
doubtful. MiniLM: cosine .52, multilingual-e5-small: .88."""
CLEAR: Final = 1.0
BEHIND: Final = -0.5
"""Bounds of the margin, in standard deviations: beyond them, it only says how much a memory is about one topic."""
MOST_TERMS: Final = 10
_NO_NAMES: Final = frozenset[int]()
ALL_PLACES: Final = 2
"""The place of a hit counts at most as the third where many entries answer together ("how much did I spend in all")."""
NEAR: Final = -0.5
"""Log odds by meaning from which ``search`` returns a hit that shares no word with a question. Of the answers to paraphrased
questions, one in ten is below, under MiniLM and multilingual-e5-small alike. For a statement or request, what is below
stands behind the hits that have evidence."""
PIECES: Final = 0.25
"""The same by word pieces (``ConversationWeights.alone_floor``)."""
REWORDED: Final = 0.4
"""Share of a question's weight in words below which, if no hit is likely, the answer may be worded otherwise: ``search``
then returns its first ``JUDGED`` hits, those without evidence behind the others (docs/adr/0025)."""
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
NAMES: Final = "aliases"
"""Where an entry's payload has its names: a string or an array of strings."""
MOST_NAMES: Final = 32
LEAST_MISTYPED: Final = 5
"""Letters of the shortest word that counts though it is mistyped: shorter ones are too often another word."""


def names_in(query: Query, payloads: Sequence[Mapping[str, Any] | None], analyzer: Analyzer) -> list[str | None]:
    """Of each payload the longest of its names that the query has, None if it has none.

    Args:
        query: The query.
        payloads: Of the hits; None for one that is gone.
        analyzer: Brings words to their stems.
    """
    return [
        None if payload is None or NAMES not in payload else _named(query.keyed, payload[NAMES], analyzer)
        for payload in payloads
    ]


def _named(asked: Sequence[Word], names: Any, analyzer: Analyzer) -> str | None:
    known = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    words = {text: keyed_words(tokens_of(text), analyzer) for text in known[:MOST_NAMES] if isinstance(text, str)}
    return max((text for text, own in words.items() if _holds(asked, own)), key=len, default=None)


def _holds(words: Sequence[Word], name: Sequence[Word]) -> bool:
    length = len(name)
    return bool(name) and any(all(map(_same, name, words[at : at + length])) for at in range(len(words) - length + 1))


def _same(word: Word, other: Word) -> bool:
    return word.key == other.key or _slips(word.text, other.text)


def _slips(name: str, word: str) -> bool:
    """Whether a word is a name but for a letter missing, one too many, or two beside each other swapped."""
    if (
        min(len(name), len(word)) < LEAST_MISTYPED - 1
        or max(len(name), len(word)) < LEAST_MISTYPED
        or name[0] != word[0]
    ):
        return False
    if len(name) == len(word):
        at = next((at for at, (char, other_char) in enumerate(zip(name, word, strict=True)) if char != other_char), 0)
        return name[:at] + name[at : at + 2][::-1] + name[at + 2 :] == word
    long, short = sorted((name, word), key=len, reverse=True)
    return len(long) - len(short) == 1 and any(long[:at] + long[at + 1 :] == short for at in range(1, len(long)))


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
    result: Searched,
    records: Sequence[HitRecord | None],
    names: Sequence[str | None],
    calibration: Calibration | None,
    floor: float | None,
    mode: Mode,
    rivals: Rivals | None = None,
) -> Judgement:
    """Judge what a search found.

    Args:
        index: The workspace's index.
        query: The query.
        result: What was found.
        records: The entry of each hit; None for one that is gone.
        names: Of each hit the name by which the query calls it; None if it does not.
        calibration: Of the vectors' model; None if it is not measured yet.
        floor: The workspace's floor for ``inject``; None for those of the constants.
        mode: ``inject`` is strict.
        rivals: Texts of other kinds that were found; None if there are none.
    """
    if not records:
        return Judgement([], [], [])
    texts = [None if record is None else record.summary for record in records]
    echoes = _echoes(query, texts)
    figures = figures_of(index, query, result, texts, calibration, echoes, rivals)
    judgements = judge_hits(figures.hits, figures.turns, asks=query.asks, absent=figures.absent)
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
    reasons = _reasons(index, result, figures)
    for at, name in enumerate(names):
        if name is not None:
            confidence[at], reasons[at], chosen[at] = max(confidence[at], NAMED), f"named: {name}", True
    kept = [at for at, is_chosen in enumerate(chosen) if is_chosen]
    if mode != INJECT and not query.asks:  # what a statement or request calls for is seldom near to it
        kept += [at for at, is_chosen in enumerate(chosen) if not is_chosen]
    elif mode != INJECT:
        first = [at for at in kept if at < JUDGED]  # without any of them, a question still gets nothing
        unlikely = first and max([confidence[at] for at in kept]) < LIKELY
        if unlikely and max(figures.hits["words"]) < REWORDED:
            weak = [at for at, echo in enumerate(echoes[:JUDGED]) if not (chosen[at] or echo)]
            kept = first + weak + kept[len(first) :]
    return Judgement(confidence, reasons, kept)


def _enough(figures: Figures, judged: Sequence[JudgedHit], records: Sequence[HitRecord | None]) -> list[bool]:
    """Whether each hit reaches the floor of its row, and turns have one among them that reaches the gate."""
    gated = any(
        turn and record is not None and judgement.opens(meaning, record.summary, record.actor_id)
        for judgement, turn, record, meaning in zip(
            judged, figures.turns, records, figures.hits["meaning"], strict=True
        )
    )
    enough = []
    for judgement, turn, record in zip(judged, figures.turns, records, strict=True):
        least = judgement.row.floor
        if not turn and record is not None and record.entry_type != REMEMBERED:
            least *= OVERHEARD
        enough.append(judgement.confidence >= least and (gated or not turn))
    return enough


def _something(figures: Figures) -> list[bool]:
    hits = figures.hits
    return [
        near > 0 or static >= PIECES or meaning >= NEAR or uncertain  # NaN is below
        for near, static, meaning, uncertain in zip(
            hits["words_near"], hits["static"], hits["meaning"], figures.uncertain, strict=True
        )
    ]


def _echoes(query: Query, texts: Sequence[str | None]) -> list[bool]:
    """Which texts only ask what the query asks, or are the query itself."""
    prompt, words = fold(query.text).strip(), frozenset(query.tokens)
    ends = (f": {prompt}", f"] {prompt}")
    recognised = query.asks or len(words) >= _LEAST_SAID
    echoes = []
    for text in texts:
        if not text:
            echoes.append(False)
        elif query.asks and ends_with_question(text):
            echoes.append(_same_question(words, fold(text).strip()))
        elif (
            len(text) < len(prompt)
            or not recognised
            or (text.isascii() and text.rstrip()[-len(prompt) :].casefold() != prompt)
        ):
            echoes.append(False)
        else:
            folded = fold(text).strip()
            echoes.append(folded == prompt or folded.endswith(ends))
    return echoes


def _same_question(own: frozenset[str], other: str) -> bool:
    words = set(tokens_of(other))
    if len(words) > max(LONGER * len(own), len(own) + _WORDS_MORE):
        return False
    weights = {word: weight_of(background_frequency(word), 0, 0) for word in own}
    return sum(weights[word] for word in own & words) >= ECHOED * sum(weights.values())


def _telling(words: Sequence[str]) -> Sequence[str]:
    """Words without function words of other languages, which count where a query hardly shows its language."""
    foreign = foreign_words()
    return [word for word in words if word not in foreign] or words


def _reasons(index: HotIndex, result: Searched, figures: Figures) -> list[str]:
    """Of each of the judged hits, like ``same words: checkout, denied; said on 8 May 2026``."""
    count = len(figures.shared)
    places = result.order[:count]
    rarest = sorted(range(len(figures.terms)), key=lambda row: -figures.weights[row])
    words = [(row, figures.words[row]) for row in rarest]
    cosine, near = result.cosine[places].tolist(), figures.hits["words_near"]
    reasons = []
    for at, held in enumerate(figures.shared):
        if held:
            shared = [word for row, word in words if row in held]
            reasons.append("same words: " + ", ".join(_telling(shared)[:WORDS_NAMED]))
        elif near[at] > 0:
            reasons.append("follows an entry with the same words")
        else:
            reasons.append("similar meaning" if cosine[at] > 0 else "similar words")

    def gaining(*shares: str) -> list[int]:
        """The hits to which one of these shares adds."""
        known = [result.shares[name][places] > 0 for name in shares if name in result.shares]
        return np.logical_or.reduce(known).nonzero()[0].tolist() if known else []

    for at in gaining("speaker"):
        reasons[at] += "; said by the person named"
    for at in gaining("day"):
        reasons[at] += f"; said on {date_prefix(int(index.documents.ts_ms[result.docs[places[at]]]))}"
    for at in gaining("interval"):
        reasons[at] += "; names a time"
    return reasons


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of n hits.

    Attributes:
        hits: Name → one value a hit, NaN where it has none.
        turns: Whether each is a turn of a conversation.
        shared: Of each hit, which of ``terms`` it holds: their places.
        terms: The query's terms. Turns of conversations hold no names of speakers: who speaks is judged by itself.
        words: Of each term.
        weights: Of each term.
        uncertain: Whether each has a cosine whose meaning is not known: the model is not measured, and few vectors are in
            scope.
        absent: Figures that no hit has.
    """

    hits: Mapping[str, Sequence[float]]
    turns: Sequence[bool]
    shared: Sequence[set[int]]
    terms: tuple[int, ...]
    words: Sequence[str]
    weights: Sequence[float]
    uncertain: Sequence[bool]
    absent: frozenset[str]


_LATE: Final = frozenset(["static", "context"])
_MEANING: Final = frozenset(["meaning"])


def figures_of(
    index: HotIndex,
    query: Query,
    result: Searched,
    texts: Sequence[str | None],
    calibration: Calibration | None,
    echoes: Sequence[bool] = (),
    rivals: Rivals | None = None,
) -> Figures:
    """The figures of the hits.

    Args:
        index: The workspace's index.
        query: The query.
        result: What was found.
        texts: The text of each hit; None for one that is gone.
        calibration: Of the vectors' model; None if it is not measured yet.
        echoes: Whether each hit only repeats the query; no other hit is compared with such a one.
        rivals: Texts of other kinds, with which the hits are compared as well.
    """
    count = len(texts)
    order = result.order
    docs = result.docs[order[:count]]
    terms = tuple(query.terms)
    words_of_terms = [query.words.get(term, "") for term in terms]
    said = index.names.name_words(words_of_terms, result.scoped.speakers)
    names = frozenset(at for at, word in enumerate(words_of_terms) if word in said)
    if len(names) == len(terms):
        names = _NO_NAMES
    frequency = result.lexical.frequencies
    size = result.scoped.size
    weights = [
        weight_of(everyday, frequency.get(term, 0), size) for everyday, term in zip(query.everyday, terms, strict=True)
    ]
    previous, _ = neighbours(index.order, index.documents, result.scoped.count, docs, result.scoped.mask)
    either = _shared(result.lexical, terms, np.concatenate((docs, previous)))
    turns = result.scoped.turns[docs].tolist()
    total, of_names = sum(weights), sum([weights[at] for at in names])
    left_out = [names if turn else _NO_NAMES for turn in turns]
    whole = [(total - of_names if turn else total) or 1.0 for turn in turns]
    shared = [held - out for held, out in zip(either[:count], left_out, strict=True)]
    near = [held | (before - out) for held, before, out in zip(shared, either[count:], left_out, strict=True)]
    words = [sum([weights[at] for at in held]) / of for held, of in zip(shared, whole, strict=True)]
    words_near = [sum([weights[at] for at in held]) / of for held, of in zip(near, whole, strict=True)]
    only_turns = all(turns)  # whose rows weigh neither the kind of answer nor the margin
    meaning, margin = [nan] * count, [0.0] * count
    if result.dense is not None:
        means, distances = _meaning_of(index, result, docs, calibration)
        meaning = np.minimum(np.maximum(means, LOWEST_MEANING), HIGHEST_MEANING).tolist()
        if not only_turns and not np.isnan(distances[:count]).all():
            margin = _margins_of(index, result, calibration, distances, echoes, rivals)[:count]
    if not knows_script(index.model, unspaced=query.unspaced):  # the rows for turns hardly weigh meaning
        meaning = [value if turn else nan for value, turn in zip(meaning, turns, strict=True)]
    kind = None if only_turns else query.kind
    query_words = frozenset(query.tokens) if kind is not None else frozenset[str]()
    holds = [None if kind is None or text is None else holds_kind(kind, text, query_words) for text in texts]
    most = ALL_PLACES if query.asks_for_all else count
    hits = {
        **_of_texts(meaning, words, margin),
        "words_near": words_near,
        "near_squared": list(map(mul, words_near, words_near)),
        "meaning_near": list(map(mul, meaning, words_near)),
        "lacks_kind": [float(has is False) for has in holds],
        "has_kind": [float(has is True) for has in holds],
        "terms": [float(min(len(terms) - len(out), MOST_TERMS)) for out in left_out],
        "place": [log1p(min(place, most)) for place in range(count)],
        "context": result.context[order[:count]].tolist(),
        "static": result.static[order[:count]].tolist(),
    }
    uncertain = [
        isnan(cosine_share) and cosine > 0
        for cosine_share, cosine in zip(meaning, result.cosine[order[:count]].tolist(), strict=True)
    ]
    absent = (_LATE if "late" not in result.shares else frozenset()) | (
        _MEANING if result.dense is None else frozenset()
    )
    return Figures(hits, turns, shared, terms, words_of_terms, weights, uncertain, absent)


def _of_texts(meaning: Sequence[float], words: Sequence[float], margin: Sequence[float]) -> dict[str, Sequence[float]]:
    """What the rows for texts weigh of meaning and words."""
    return {
        "meaning": meaning,
        "words": words,
        "margin": margin,
        "shares": [float(value > 0) for value in words],
        "words_squared": list(map(mul, words, words)),
        "meaning_words": list(map(mul, meaning, words)),
    }


def _meaning_of(
    index: HotIndex, result: Searched, docs: Docs, calibration: Calibration | None
) -> tuple[Floats, Floats]:
    """The log odds by meaning of the judged hits, and the distance of every hit in standard deviations; NaN if not known."""
    cosines = result.cosine[result.order].astype(np.float64)
    if calibration is None or result.dense is None or index.vectors is None:
        distances = _in_scope(result, cosines)
        return UNMEASURED_SLOPE * distances[: len(docs)] + UNMEASURED_BIAS, distances
    rows = index.vectors.rows_of(docs)
    have = (rows != NO_ROW).nonzero()[0]
    means = np.full(len(docs), np.nan)
    if len(have):
        means[have] = calibration.meaning(cosines[have], result.dense.query, index.vectors.vectors[rows[have]])
    return means, calibration.distance(cosines)


def _shared(lexical: LexicalResult, terms: tuple[int, ...], docs: Docs) -> list[set[int]]:
    """Of each document, the places of the terms that it holds."""
    held: list[set[int]] = [set() for _ in docs]
    row = {term: at for at, term in enumerate(terms)}
    for part in lexical.parts:
        at = row.get(lexical.stands_for.get(part.term, part.term))
        if at is not None:
            matches = part.docs.take(part.docs.searchsorted(docs), mode="clip") == docs
            for place in matches.nonzero()[0].tolist():
                held[place].add(at)
    return held


def _in_scope(result: Searched, cosines: Floats) -> Floats:
    """Standard deviations above the mean cosine of the vectors in scope; NaN if there are few."""
    every = result.dense.in_scope() if result.dense is not None else None
    if every is None or len(every) < LEAST_VECTORS:
        return np.full(len(cosines), np.nan)
    mean = float(np.add.reduce(every)) / len(every)
    spread = (
        float(every.dot(every)) / len(every) - mean * mean
    )  # two passes without a copy: thousands of rows are common
    distance: Floats = (cosines - mean) / (spread**0.5 if spread > 0 else np.nan)
    return distance


def _alike(index: HotIndex, result: Searched, calibration: Calibration | None) -> npt.NDArray[np.bool_]:
    """(n, n) bool: which of the judged hits say nearly the same, such as two statements of one fact."""
    docs = result.docs[result.order]
    alike = np.eye(len(docs), dtype=bool)
    if calibration is None or index.vectors is None:
        return alike
    rows = index.vectors.rows_of(docs)
    have = (rows != NO_ROW).nonzero()[0]
    vectors = index.vectors.vectors[rows[have]]
    alike[np.ix_(have, have)] |= calibration.distance((vectors @ vectors.T).astype(np.float64)) >= ALIKE
    return alike


def _margins_of(
    index: HotIndex,
    result: Searched,
    calibration: Calibration | None,
    distances: Floats,
    echoes: Sequence[bool],
    rivals: Rivals | None,
) -> list[float]:
    others = distances.copy()
    others[: len(echoes)][list(echoes)] = np.nan
    alike = _alike(index, result, calibration)
    if rivals is not None and calibration is not None:
        own = Rivals(calibration, distances, _vectors_of(index, result))
        others, alike = np.concatenate((others, rivals.distance)), np.concatenate((alike, own.alike(rivals)), 1)
    return _margins(distances, others, alike)


def _margins(distance: Floats, others: Floats, alike: npt.NDArray[np.bool_]) -> list[float]:
    """How far each is from the best of those that say something else, bounded; 0 without a vector."""
    rivals = np.where(alike | np.isnan(others)[None, :], UNRELATED_BEST, others[None, :])
    margins = np.minimum(np.maximum(distance - rivals.max(1, initial=UNRELATED_BEST), BEHIND), CLEAR)
    margins[np.isnan(margins)] = 0.0
    of_each: list[float] = margins.tolist()
    return of_each


# The evidence of texts of other kinds than entries, on the same scale.


@dataclass(frozen=True, slots=True)
class Rivals:
    """Texts with which others are compared: whether they are clear of them.

    Attributes:
        calibration: Of the vectors' model.
        distance: (m,) float64 standard deviations above the cosine of unrelated texts; NaN without a vector.
        vectors: Of each; None without one.
    """

    calibration: Calibration
    distance: Floats
    vectors: Sequence[Vectors | None]

    def alike(self, others: Rivals) -> npt.NDArray[np.bool_]:
        """(m, n) bool: which of the texts say nearly the same as others."""
        alike = np.zeros((len(self.vectors), len(others.vectors)), bool)
        own, theirs = (
            [at for at, vector in enumerate(some) if vector is not None] for some in (self.vectors, others.vectors)
        )
        if own and theirs:
            left, right = (
                np.stack([vector for vector in some if vector is not None]) for some in (self.vectors, others.vectors)
            )
            alike[np.ix_(own, theirs)] = self.calibration.distance((left @ right.T).astype(np.float64)) >= ALIKE
        return alike


def _vectors_of(index: HotIndex, result: Searched) -> list[Vectors | None]:
    if index.vectors is None:
        return [None] * len(result.order)
    rows = index.vectors.rows_of(result.docs[result.order]).tolist()
    return [None if row == NO_ROW else index.vectors.vectors[row] for row in rows]


def entries_as_rivals(index: HotIndex, result: Searched, calibration: Calibration | None) -> Rivals | None:
    """The entries that a search found, as rivals of texts of other kinds; None if the model is not measured yet."""
    if calibration is None:
        return None
    cosines = result.cosine[result.order].astype(np.float64)
    return Rivals(calibration, calibration.distance(cosines), _vectors_of(index, result))


class Evident(Protocol):
    """A text of another kind than entries, with what it shares with the query (``FoundText``)."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def held(self) -> frozenset[int]:
        """Which of the query's terms it holds."""

    @property
    def vector(self) -> Vectors | None:
        """Its vector, of the query's model."""


def texts_as_rivals(query: Query, texts: Sequence[Evident], calibration: Calibration | None) -> Rivals | None:
    """Texts of other kinds as rivals of entries and of each other; None if their cosines are not known to say anything."""
    if calibration is None or query.vector is None or not texts:
        return None
    if not knows_script(calibration.model, unspaced=query.unspaced):
        return None
    vectors = [text.vector for text in texts]
    cosines = [np.nan if vector is None else float(vector @ query.vector) for vector in vectors]
    return Rivals(calibration, calibration.distance(np.array(cosines)), vectors)


FEWEST_LINES: Final = 3
"""Lines from which on a text is also judged by its best line: a heading and two items."""
LINE_WORDS: Final = 0.6
"""Share of the query's weight below which the words of a line alone never reach the floor."""


def _line_figures(
    text: Evident, query: Query, weights: Mapping[int, float], whole: float
) -> dict[str, Sequence[float]] | None:
    """The figures of the line that says most of the query, with the headings above it; None for a text of one line.

    The vector of a text is that of all its lines, so it says little about one item of a list.
    """
    analyzer, forms = query.wording.analyzer, query.wording.forms
    lines = [line for line in text.text.split("\n") if line.strip()]
    if analyzer is None or text.vector is None or len(lines) < FEWEST_LINES:
        return None
    best, said, heading = 0.0, "", frozenset[int]()
    for line in lines:
        held = frozenset(forms.get(term, term) for term in analyzer.terms(line)) & weights.keys()
        if line.startswith("#"):
            heading = held
        share = sum(weights[term] for term in held | heading) / whole
        if share > best:
            best, said = share, line
    has = None if query.kind is None else holds_kind(query.kind, said, frozenset(query.tokens))
    return {
        **_of_texts([nan], [best], [nan]),
        "lacks_kind": [float(has is False)],
        "has_kind": [float(has is True)],
    }


def judged_texts(
    query: Query,
    texts: Sequence[Evident],
    frequencies: Mapping[int, int],
    size: int,
    own: Rivals | None,
    entries: Rivals | None,
    floor: float | None,
    mode: Mode,
) -> Judgement:
    """Judge texts of other kinds than entries, as ``judged`` judges entries that are no turns of a conversation.

    Args:
        query: The query.
        texts: The texts.
        frequencies: Texts in scope, of every kind, that hold each of its terms.
        size: Texts in scope, of every kind.
        own: The texts as rivals; None if the model is not measured yet.
        entries: The entries that were found, as rivals of the texts.
        floor: The workspace's floor for ``inject``; None for those of the constants.
        mode: ``inject`` is strict.
    """
    terms = tuple(query.terms)
    weights = {
        term: weight_of(everyday, frequencies.get(term, 0), size)
        for everyday, term in zip(query.everyday, terms, strict=True)
    }
    whole = sum(weights.values()) or 1.0
    words = [sum(weights[term] for term in text.held) / whole for text in texts]
    meaning, margins = [float("nan")] * len(texts), [0.0] * len(texts)
    if own is not None and query.vector is not None:
        have = [at for at, vector in enumerate(own.vectors) if vector is not None]
        if have:
            vectors = np.stack([vector for vector in own.vectors if vector is not None])
            cosines = (vectors @ query.vector).astype(np.float64)
            odds = own.calibration.meaning(cosines, query.vector, vectors)
            for at, value in zip(have, np.clip(odds, LOWEST_MEANING, HIGHEST_MEANING).tolist(), strict=True):
                meaning[at] = value
        alike = own.alike(own) | np.eye(len(texts), dtype=bool)
        others = own.distance
        if entries is not None:
            others = np.concatenate((others, entries.distance))
            alike = np.concatenate((alike, own.alike(entries)), 1)
        margins = _margins(own.distance, others, alike)
    kind, query_words = query.kind, frozenset(query.tokens)
    holds = [None if kind is None else holds_kind(kind, text.text, query_words) for text in texts]
    count = float(min(len(terms), MOST_TERMS))
    figures = {
        **_of_texts(meaning, words, margins),
        "lacks_kind": [float(has is False) for has in holds],
        "has_kind": [float(has is True) for has in holds],
        "terms": [count] * len(texts),
    }
    echoes = _echoes(query, [text.text for text in texts])
    rarest = sorted(weights, key=lambda term: -weights[term])
    confidence, reasons, kept = [], [], []
    judgements = judge_hits(figures, [False] * len(texts), asks=query.asks)
    lines = [
        _line_figures(text, query, weights, whole) if words[at] >= LINE_WORDS else None for at, text in enumerate(texts)
    ]
    for at, line in enumerate(lines):
        if line is not None:
            alone = judge_hits({**line, "terms": [count]}, [False], asks=query.asks)[0]
            judgements[at] = max(judgements[at], alone, key=lambda judgement: judgement.confidence)
    for at, (text, echo, judgement) in enumerate(zip(texts, echoes, judgements, strict=True)):
        sure = 0.0 if echo and query.asks else judgement.confidence
        confidence.append(sure)
        shared = [query.words.get(term, "") for term in rarest if term in text.held]
        reasons.append("same words: " + ", ".join(_telling(shared)[:WORDS_NAMED]) if text.held else "similar meaning")
        has = words[at] > 0 or meaning[at] >= NEAR or (text.vector is not None and isnan(meaning[at]))
        if mode == INJECT:
            least = judgement.row.floor if floor is None else floor
            has = has and sure >= least and not echo and not query.asks_nothing
        if has and not (echo and query.asks):
            kept.append(at)
    return Judgement(confidence, reasons, kept)


# The floor of confidence that a workspace has set for ``inject``; most have none.


def kept_floors(views: ViewReader) -> KeptValues[str, float | None]:
    """The floor of each workspace, None if it has set none."""

    def read(workspace_id: str) -> float | None:
        return read_workspace_settings(views, workspace_id).evidence_floor

    return KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(read))
