"""Ideas for ranking turns beyond the recipe, each a few lines over what the recipe found: what ``further`` puts to the test.

Invariant: an idea sees a question, the best hits of the recipe with their scores, and the turns in scope, and gives new
scores for those hits; none of it is part of the service. Shares are ``weight * z`` over the hits, as in the recipe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.quality_index import ANALYZER, Asked, Set
from crew_journal.schemas.recall.questions import AnswerKind, asked_kind
from crew_journal.schemas.text.analyzer import STOP_WORDS, indexed_text, tokens_of
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.arms import K1, B, idf_of
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.fusion import z_scores
from crew_journal.services.recall.late import distances

Floats = npt.NDArray[np.float64]
Docs = npt.NDArray[np.int32]

RERANKED: Final = 30
"""Best hits that ideas about the whole list choose among."""
CHAIN_HITS: Final = 5
CHAIN_DOCS: Final = 12
"""A term of the best ``CHAIN_HITS`` links them to others if two of them bear it and at most ``CHAIN_DOCS`` in scope."""
_FIRST: Final = re.compile(r"\b(first|earliest|initially|originally)\b", re.I)
_LAST: Final = re.compile(r"\b(last|latest|most recent|recently|currently|current|now|newest)\b", re.I)
_LIST: Final = re.compile(
    r"(?:in )?(?:what|which|who|where)\b(?: \w+){0,2} (?:\w\w+(?<!s|u|i)s|children|people)\b", re.I
)
_VERBS: Final = frozenset({"does", "was", "has", "his", "this", "its"})
_NAME: Final = re.compile(
    r"\b(?:who|whose|whom|where|names?|named|called|title|(?:which|what) (?:cit|countr|state|book|band|song|movie|compan"
    r"|team|place|game|artist|musical|shelter|organi|school|area)\w*)\b",
    re.I,
)
_CAPITAL: Final = re.compile(r"(?<=[a-z,;] )[A-Z][\w&-]+")
_NO_NAME: Final = re.compile(
    r"I\b|(?:Jan|Febr)uary|March|April|May|June|July|August|(?:Septem|Octo|Novem|Decem)ber|\w+day\b"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """The turns of a set, by document.

    Attributes:
        texts: Summary of each.
        terms: Indexed terms of each.
        vectors: (n, d) float32.
        session: (n,) int32.
        ts_ms: (n,) int64.
        pieces: (n,) runs of word pieces.
        rows: Conversation → its documents, ascending.
        frequency: Conversation → documents in it that bear a term.
        speakers: Folded words of the speakers' names.
    """

    texts: Sequence[str]
    terms: Sequence[Counter[int]]
    vectors: npt.NDArray[np.float32]
    session: npt.NDArray[np.int32]
    ts_ms: npt.NDArray[np.int64]
    pieces: Sequence[npt.NDArray[np.uint16]]
    rows: dict[str, Docs]
    frequency: dict[str, Counter[int]]
    speakers: frozenset[str]

    @classmethod
    def of(cls, journal: Set, index: HotIndex) -> Memory:
        """Of a set in which everything has a vector."""
        entries = [event.entry for event in journal.events]
        n = len(entries)
        terms = [
            Counter(ANALYZER.terms(indexed_text(event.ts_ms, event.entry.summary, event.entry.payload)))
            for event in journal.events
        ]
        runs = index.turns.pieces.gather(np.arange(n))
        agents = np.array([entry.agent_id for entry in entries])
        rows = {str(agent): np.flatnonzero(agents == agent).astype(np.int32) for agent in np.unique(agents)}
        return cls(
            [entry.summary for entry in entries],
            terms,
            np.array(
                [
                    np.frombuffer(vector_and_tokens[0], np.float32)
                    for vector_and_tokens in journal.made
                    if vector_and_tokens is not None
                ]
            ),
            index.documents.session[:n].copy(),
            index.documents.ts_ms[:n].copy(),
            np.split(index.turns.pieces.values[runs.at], np.cumsum(runs.counts)[:-1]),
            rows,
            {agent: Counter(term for doc in docs for term in terms[doc]) for agent, docs in rows.items()},
            frozenset(word for entry in entries for word in tokens_of(entry.actor_id or "")),
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and the recipe's best hits, best first.

    Attributes:
        asked: The question.
        query: As the arms take it.
        docs: (m,) int32.
        scores: (m,) float64, descending.
    """

    asked: Asked
    query: Query
    docs: Docs
    scores: Floats


Idea = Callable[[Memory, Answered, float], Floats]


def _greedy(hits: Answered, gain: Callable[[int, list[int]], float]) -> Floats:
    """Choose hit after hit: its score and what it gains beside those chosen."""
    left, chosen = list(range(min(RERANKED, len(hits.docs)))), list[int]()
    while left:
        best = max(left, key=lambda i: hits.scores[i] + gain(i, chosen))
        left.remove(best)
        chosen.append(best)
    scores = hits.scores.copy()
    scores[chosen] = hits.scores.max(initial=0.0) + np.arange(len(chosen), 0, -1)
    return scores


def _lists(hits: Answered) -> bool:
    """Whether the question asks for many things: a plural behind its question word."""
    match = _LIST.match(hits.asked.text)
    asks = match is not None and match[0].split()[-1].lower() not in _VERBS
    return asks and asked_kind(hits.asked.text) is not AnswerKind.TIME


def spread(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Coverage: each further hit of a session costs."""
    session = memory.session[hits.docs]
    return _greedy(hits, lambda i, chosen: -weight * min(3, int(np.sum(session[chosen] == session[i]))))


def spread_of_lists(memory: Memory, hits: Answered, weight: float) -> Floats:
    """The same, for questions that ask for many things."""
    return spread(memory, hits, weight) if _lists(hits) else hits.scores


def unlike(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Maximal marginal relevance: likeness to what was chosen costs (Carbonell and Goldstein, 1998)."""
    near = memory.vectors[hits.docs] @ memory.vectors[hits.docs].T
    return _greedy(hits, lambda i, chosen: -weight * float(near[i, chosen].max(initial=0.0)))


def represent(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Facility location: what stands for other good hits gains."""
    near = np.maximum(memory.vectors[hits.docs] @ memory.vectors[hits.docs].T, 0.0)
    share = np.exp(hits.scores - hits.scores.max(initial=0.0))
    share /= share.sum()

    def gain(i: int, chosen: list[int]) -> float:
        covered = near[chosen].max(axis=0, initial=0.0)
        return weight * float(share @ np.maximum(0.0, near[i] - covered))

    return _greedy(hits, gain)


def _answers(memory: Memory, hits: Answered, docs: Docs) -> tuple[Floats, Floats]:
    """(t, m) how well each piece of the query is answered in each document, and (t,) the pieces' weights."""
    late = hits.query.late
    assert late is not None
    assert late.table is not None
    query_bits = late.table[late.pieces]
    best = np.zeros((len(query_bits), len(docs)))
    for at, doc in enumerate(docs):
        if len(memory.pieces[doc]):
            best[:, at] = 1.0 - distances(query_bits, late.table[memory.pieces[doc]]).min(axis=1) / (
                query_bits.shape[1] * 32.0
            )
    frequency, size = memory.frequency[hits.asked.cluster], len(memory.rows[hits.asked.cluster])
    weights = np.sqrt([idf_of(frequency[term], size) for term in late.terms])
    return best, weights / weights.sum()


def cover(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Coverage of the query's words (xQuAD, Santos et al., 2010): what answers words not yet answered gains."""
    best, words = _answers(memory, hits, hits.docs)

    def gain(i: int, chosen: list[int]) -> float:
        return weight * float(words @ np.maximum(0.0, best[:, i] - best[:, chosen].max(axis=1, initial=0.0)))

    return _greedy(hits, gain)


def chain(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Entity chains: rare terms that several of the best hits share, and the query lacks, lead to further ones."""
    frequency, size = memory.frequency[hits.asked.cluster], len(memory.rows[hits.asked.cluster])
    shared = Counter(term for doc in hits.docs[:CHAIN_HITS] for term in memory.terms[doc])
    links = [
        term
        for term, hit in shared.items()
        if hit > 1 and frequency[term] <= CHAIN_DOCS and term not in hits.query.terms
    ]
    value = [sum(shared[t] * idf_of(frequency[t], size) for t in links if t in memory.terms[doc]) for doc in hits.docs]
    return hits.scores + weight * z_scores(np.array(value))


def similar(memory: Memory, hits: Answered, weight: float) -> Floats:
    """A hop along similar edges: nearness to the best three hits, which relations of kind ``similar`` say."""
    near = memory.vectors[hits.docs] @ memory.vectors[hits.docs[:3]].T
    np.fill_diagonal(near, 0.0)
    return hits.scores + weight * z_scores(near.max(axis=1))


def proper_noun(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Whether the entry has a capitalised word of the query other than a speaker's name."""
    words = [word.lower() for word in re.findall(r"(?<!\A)\b[A-Z]\w+", hits.asked.text)]
    wanted = {word for word in words if word not in memory.speakers and word not in STOP_WORDS}
    bears = [not wanted.isdisjoint(tokens_of(memory.texts[doc])) for doc in hits.docs]
    return hits.scores + weight * np.array(bears)


def rarest(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Whether the entry contains the rarest of the query's terms that occur at all."""
    frequency = memory.frequency[hits.asked.cluster]
    indexed = [term for term in hits.query.terms if frequency[term]]
    if not indexed:
        return hits.scores
    rare = min(indexed, key=lambda term: frequency[term])
    return hits.scores + weight * np.array([rare in memory.terms[doc] for doc in hits.docs])


def asks_name(memory: Memory, hits: Answered, weight: float) -> Floats:
    """The query asks for a name ("who", "which city"), and the entry has one: a capital within a sentence."""
    if _NAME.search(hits.asked.text) is None:
        return hits.scores

    def has(doc: int) -> bool:
        words = (word for word in _CAPITAL.findall(memory.texts[doc]) if _NO_NAME.match(word) is None)
        return any(word.lower() not in memory.speakers for word in words)

    return hits.scores + weight * np.array([has(int(doc)) for doc in hits.docs])


def _bm25(terms: Sequence[int], units: Sequence[Counter[int]]) -> Floats:
    length = np.array([unit.total() for unit in units], float)
    norm = K1 * (1.0 - B + B * length / length.mean())
    scores = np.zeros(len(units))
    for term in terms:
        tf = np.array([unit[term] for unit in units], float)
        if tf.any():
            scores += idf_of(int(np.count_nonzero(tf)), len(units)) * tf * (K1 + 1.0) / (tf + norm)
    return scores


def session_bm25(memory: Memory, hits: Answered, weight: float) -> Floats:
    """BM25 of the whole session as one document."""
    rows = memory.rows[hits.asked.cluster]
    sessions, of_row = np.unique(memory.session[rows], return_inverse=True)
    units = [Counter[int]() for _ in sessions]
    for doc, at in zip(rows, of_row, strict=True):
        units[at].update(memory.terms[doc])
    value = _bm25(hits.query.terms, units)
    return hits.scores + weight * z_scores(value[sessions.searchsorted(memory.session[hits.docs])])


def _beside(memory: Memory, doc: int, reach: int) -> list[int]:
    near = range(max(0, doc - reach), min(len(memory.texts), doc + reach + 1))
    return [at for at in near if memory.session[at] == memory.session[doc]]


def window_bm25(memory: Memory, hits: Answered, weight: float) -> Floats:
    """BM25 of each turn with the two before and the two behind it as one document."""
    rows = memory.rows[hits.asked.cluster]
    units = [sum((memory.terms[at] for at in _beside(memory, int(doc), 2)), Counter[int]()) for doc in rows]
    value = _bm25(hits.query.terms, units)
    return hits.scores + weight * z_scores(value[rows.searchsorted(hits.docs)])


def _cosines(hits: Answered, sums: npt.NDArray[np.float32]) -> Floats:
    assert hits.query.vector is not None
    values: Floats = (sums @ hits.query.vector / np.linalg.norm(sums, axis=1)).astype(np.float64)
    return values


def session_centroid(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Cosine with the mean vector of the session."""
    session = memory.session[hits.docs]
    means = np.array([memory.vectors[memory.session == session_id].sum(axis=0) for session_id in session])
    return hits.scores + weight * z_scores(_cosines(hits, means))


def window_centroid(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Cosine with the mean vector of a turn and the one before and behind it."""
    means = np.array([memory.vectors[_beside(memory, int(doc), 1)].sum(axis=0) for doc in hits.docs])
    return hits.scores + weight * z_scores(_cosines(hits, means))


def session_late(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Late interaction with all that was found of a session as one document."""
    best, words = _answers(memory, hits, hits.docs)
    session = memory.session[hits.docs]
    value = np.array([words @ best[:, session == session_id].max(axis=1) for session_id in session])
    return hits.scores + weight * z_scores(value)


def order(memory: Memory, hits: Answered, weight: float) -> Floats:
    """Questions with "first" or "last": among the best hits the earlier or the later ones gain."""
    sign = -1.0 if _FIRST.search(hits.asked.text) else 1.0 if _LAST.search(hits.asked.text) else 0.0
    best = min(RERANKED, len(hits.docs))
    place = np.argsort(np.argsort(memory.ts_ms[hits.docs[:best]], kind="stable"), kind="stable")
    scores = hits.scores.copy()
    scores[:best] += sign * weight * (2.0 * place / max(1, best - 1) - 1.0)
    return scores


def substance(memory: Memory, hits: Answered, weight: float) -> Floats:
    """How much an entry says at all: the logarithm of the sum of its terms' idf."""
    frequency, size = memory.frequency[hits.asked.cluster], len(memory.rows[hits.asked.cluster])
    value = [np.log1p(sum(idf_of(frequency[term], size) for term in memory.terms[doc])) for doc in hits.docs]
    return hits.scores + weight * z_scores(np.array(value))


IDEAS: Final[dict[Idea, tuple[float, float, float]]] = {
    spread: (0.1, 0.2, 0.4),
    spread_of_lists: (0.2, 0.4, 0.8),
    cover: (1.0, 3.0, 10.0),
    unlike: (0.3, 1.0, 2.0),
    represent: (0.3, 1.0, 3.0),
    chain: (0.05, 0.1, 0.2),
    similar: (0.05, 0.1, 0.2),
    proper_noun: (0.3, 0.6, 1.0),
    rarest: (0.1, 0.2, 0.4),
    asks_name: (0.3, 0.6, 1.0),
    session_bm25: (0.05, 0.1, 0.2),
    window_bm25: (0.05, 0.1, 0.2),
    session_centroid: (0.05, 0.1, 0.2),
    window_centroid: (0.05, 0.1, 0.2),
    session_late: (0.05, 0.1, 0.2),
    order: (0.2, 0.5, 1.0),
    substance: (0.05, 0.1, 0.2),
}
"""Each with the weights that are tried."""
