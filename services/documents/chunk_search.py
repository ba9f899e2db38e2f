"""One search over the chunks of some owners: BM25, cosine where there are vectors, and their fusion.

BM25 as in ``services/recall/arms``, with N, df and avg counted over the live chunks in scope. With a query vector, both
arms are fused by reciprocal ranks: ``1 / (60 + rank)`` summed over the best ``ARM_DEPTH`` of each arm (Cormack, Clarke
and Büttcher, SIGIR 2009). A chunk without a vector counts in the dense arm as in the lexical one, so that a
new text does not rank lower only because it is not embedded yet.

Invariant: a hit shares a word with the query, or its cosine is high for its model; scores depend only on the query and the
chunks in scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.errors import InvalidQuery, NoSuchMemory, NotAllowed
from ...schemas.core.principal import Principal, Role
from ...schemas.documents.operations import FileScope
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.text.analyzer import Analyzer, tokens_of
from ...schemas.text.word_forms import MAX_MEANT, SHARE
from ..index.arrays import floor_of
from ..index.postings import TermPostings
from ..index.scope import ScopeKind
from ..index.texts import OwnerChunks, tier_code
from ..index.vectors import Vectors
from ..recall.arms import K1, B, idf_of
from ..recall.asking import Query
from ..recall.calibration import known_calibration
from ..recall.evidence import LEAST_VECTORS

RANK_CONSTANT: Final = 60
"""The k of reciprocal rank fusion (seed 1)."""
ARM_DEPTH: Final = 20
"""Chunks of each arm that are fused, more only if more are wanted: full lists are worse than the better arm alone
(facts/retrieval.md: recall@10 .698 against .627)."""

LIKENESS: Final = 2.5
"""Standard deviations above the mean cosine from which a chunk that shares no word is a hit; one vector in 160 of a normal
distribution."""

Floats = npt.NDArray[np.float32]
Masks = Sequence[npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A chunk that was found.

    Attributes:
        owner: Its owner.
        slot: Its slot.
        score: Its rank follows from this: BM25, or with a query vector the sum of reciprocal ranks.
        cosine: Its cosine; None without a vector.
    """

    owner: OwnerChunks
    slot: int
    score: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class ChunksFound:
    """Hits, best first, and the weight of each term that they were found by."""

    hits: list[ChunkHit]
    weights: dict[int, float]


def search_chunks(
    owners: Sequence[OwnerChunks],
    query: Query,
    limit: int,
    *,
    tier: str | None = None,
    model: str | None = None,
    least: float | None = None,
) -> ChunksFound:
    """The best chunks: score descending, then newer, then label and line.

    Args:
        owners: The scope.
        query: The query; its vector must be of ``model``.
        limit: Most hits.
        tier: Only chunks of documents of this tier; None for all.
        model: The model of the vectors.
        least: The cosine from which a chunk that shares no word is a hit; ``cosine_floor`` if None.
    """
    masks = [owner.live if tier is None else owner.live & (owner.tier == tier_code(tier)) for owner in owners]
    words = Words(owners, masks)
    words.find(query)
    touched = [np.flatnonzero(sums) for sums in words.sums]
    scores = [sums[slots] for sums, slots in zip(words.sums, touched, strict=True)]
    depth = max(ARM_DEPTH, limit)
    if query.vector is None:
        best = best_of(owners, touched, scores, limit)
        return ChunksFound([ChunkHit(owners[at], slot, score, None) for at, slot, score in best], words.weights)
    cosines = [cosines_of(owner, mask, query.vector) for owner, mask in zip(owners, masks, strict=True)]
    by_words = best_of(owners, touched, scores, depth)
    known = [np.flatnonzero(~np.isnan(values)) for values in cosines]
    by_meaning = best_of(owners, known, [values[slots] for values, slots in zip(cosines, known, strict=True)], depth)
    every = np.concatenate([values[slots] for values, slots in zip(cosines, known, strict=True)] or [_NONE])
    floor = cosine_floor(every, model) if least is None else least
    fused = _fused(by_words, by_meaning, cosines, floor)
    slots = [np.array([slot for at, slot in fused if at == owner], np.intp) for owner in range(len(owners))]
    totals = [np.array([fused[at, slot] for slot in some.tolist()], np.float64) for at, some in enumerate(slots)]
    best = best_of(owners, slots, totals, limit)
    return ChunksFound(
        [ChunkHit(owners[at], slot, score, _or_none(float(cosines[at][slot]))) for at, slot, score in best],
        words.weights,
    )


_NONE: Final = np.zeros(0, np.float32)
_Place = tuple[int, int]
"""Place of the owner in the scope, and slot."""


def _fused(
    by_words: Sequence[tuple[int, int, float]],
    by_meaning: Sequence[tuple[int, int, float]],
    cosines: Sequence[Floats],
    floor: float,
) -> dict[_Place, float]:
    fused: dict[_Place, float] = {}
    for rank, (at, slot, _) in enumerate(by_words, 1):
        share = 1.0 / (RANK_CONSTANT + rank)
        fused[at, slot] = share if cosines[at][slot] == cosines[at][slot] else 2.0 * share  # NaN: no vector
    for rank, (at, slot, cosine) in enumerate(by_meaning, 1):
        if (at, slot) in fused or cosine >= floor:
            fused[at, slot] = fused.get((at, slot), 0.0) + 1.0 / (RANK_CONSTANT + rank)
    return fused


class Words:
    """BM25 of the chunks in scope.

    Attributes:
        sums: For each owner (n,) float32 scores.
        weights: Term → idf, of the terms that occur in scope, those looked up instead of others included.
    """

    def __init__(self, owners: Sequence[OwnerChunks], masks: Masks) -> None:
        self._owners = owners
        self._masks = masks
        self._size = sum(int(np.count_nonzero(mask)) for mask in masks)
        total = sum(int(owner.length[mask].sum()) for owner, mask in zip(owners, masks, strict=True))
        self._slope = K1 * B * self._size / total if total else 0.0
        self.sums = [np.zeros(len(owner), np.float32) for owner in owners]
        self.weights: dict[int, float] = {}

    def find(self, query: Query) -> None:
        """Add the scores of the query's terms, other forms of its words, and words that replace unknown ones.

        Of a query of nothing but stop words, every word counts.
        """
        if not query.terms:
            self._add(Analyzer.stop_keys(query.text))
        self._add(query.terms)
        self._add(list(query.wording.forms), SHARE)
        stood_for = {query.wording.forms[form] for form in query.wording.forms if form in self.weights}
        missing = [term for term in query.terms if term not in self.weights and term not in stood_for]
        for _, groups in query.wording.meant(missing):
            for group in groups:
                held = {term for owner in self._owners for term in owner.postings.held(list(group))}
                terms = [term for term in self._frequencies(sorted(held)) if term not in self.weights]
                if terms:
                    self._add(terms[:MAX_MEANT], SHARE)
                    break

    def _frequencies(self, terms: Sequence[int]) -> list[int]:
        """The terms that occur in scope, the most frequent first."""
        counts = {term: sum(len(once) + len(more) for _, once, more, _ in parts) for term, parts in self._parts(terms)}
        return sorted((term for term, count in counts.items() if count), key=lambda term: (-counts[term], term))

    def _add(self, terms: Sequence[int], share: float = 1.0) -> None:
        for term, parts in self._parts(terms):
            frequency = sum(len(once) + len(often) for _, once, often, _ in parts)
            if not frequency:
                continue
            self.weights[term] = idf_of(frequency, self._size)
            gain = share * self.weights[term] * (K1 + 1.0)
            for at, once, often, tf in parts:
                sums, length = self.sums[at], self._owners[at].length
                sums[once] += np.float32(gain) / (1.0 + self._norms(length[once]))
                sums[often] += np.float32(gain) * tf / (tf + self._norms(length[often]))

    def _norms(self, length: npt.NDArray[np.int32]) -> Floats:
        norms: Floats = (K1 * (1.0 - B) + self._slope * length).astype(np.float32)
        return norms

    def _parts(
        self, terms: Sequence[int]
    ) -> Iterable[tuple[int, list[tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint16]]]]]:
        """Each term with its chunks in scope by owner: those that hold it once, and oftener with how often."""
        wanted = list(dict.fromkeys(terms))
        postings_by_owner: list[list[TermPostings]] = (
            [owner.postings.of(wanted) for owner in self._owners] if wanted else []
        )
        for place, term in enumerate(wanted):
            parts = []
            for at, postings in enumerate(postings_by_owner):
                term_postings, mask = postings[place], self._masks[at]
                inside = mask[term_postings.often]
                parts.append(
                    (
                        at,
                        term_postings.once[mask[term_postings.once]],
                        term_postings.often[inside],
                        term_postings.tf[inside],
                    )
                )
            yield term, parts


def cosines_of(owner: OwnerChunks, mask: npt.NDArray[np.bool_], query: Vectors) -> Floats:
    """(n,) float32 cosine of each chunk in scope; NaN without a vector, or with one of other dimensions."""
    cosines = np.full(len(owner), np.nan, np.float32)
    matrix = owner.matrix
    if matrix.dim == len(query):
        cosines[matrix.doc] = np.vecdot(matrix.vectors, query)
        cosines[~mask] = np.nan
    return cosines


def cosine_floor(cosines: Floats, model: str | None) -> float:
    """The cosine from which a chunk that shares no word is a hit.

    The model's, if it is known; else one that few chunks in scope reach. With few vectors, only words count.
    """
    if (calibration := known_calibration(model)) is not None:
        return calibration.mean + LIKENESS * calibration.deviation
    if len(cosines) < LEAST_VECTORS:
        return np.inf
    return float(cosines.mean() + LIKENESS * cosines.std())


def best_of(
    owners: Sequence[OwnerChunks],
    slots: Sequence[npt.NDArray[np.intp]],
    scores: Sequence[npt.NDArray[np.floating]],
    limit: int,
) -> list[tuple[int, int, float]]:
    """The best slots with the place of their owner and their score."""
    every = np.concatenate(scores) if scores else _NONE
    least = floor_of(every, limit) if len(every) > limit else -np.inf
    chosen: list[tuple[int, int, float]] = []
    for at, (some, own) in enumerate(zip(slots, scores, strict=True)):
        kept = own >= least
        chosen += [
            (at, slot, score) for slot, score in zip(some[kept].tolist(), own[kept].astype(float).tolist(), strict=True)
        ]

    def numbers(hit: tuple[int, int, float]) -> tuple[float, int]:
        return -hit[2], -owners[hit[0]].document_of(hit[1]).updated_ms

    chosen.sort(key=numbers)
    if len(chosen) > limit:  # labels are looked up only for those that may be among the best
        last = numbers(chosen[limit - 1])
        chosen = [hit for hit in chosen if numbers(hit) <= last]
    return sorted(chosen, key=lambda hit: (*numbers(hit), *_name(owners[hit[0]], hit[1])))[:limit]


def _name(owner: OwnerChunks, slot: int) -> tuple[str, str, int]:
    return owner.document_of(slot).label, owner.owner, owner.first_line_of(slot)


def _or_none(cosine: float) -> float | None:
    return None if np.isnan(cosine) else cosine


# Whose documents a request searches.


@dataclass(frozen=True, slots=True)
class SearchedOwners:
    """The owners in scope; None for all of the workspace. ``agent_id`` and ``crew_id`` are whose documents they are."""

    owners: tuple[str, ...] | None
    agent_id: str | None
    crew_id: str | None


def file_scope(principal: Principal, scope: FileScope, agent_id: str | None, crew_id: str | None) -> SearchedOwners:
    """The owners of the scopes of seed 3.

    Raises:
        NotAllowed: If AGENT or LEAD names another agent or crew.
        InvalidQuery: If an operator names no agent, or no crew, where the scope needs one.
        NoSuchMemory: If scope is ``crew`` and the agent has no crew.
    """
    agent, crew = _bound(principal, agent_id, crew_id)
    owners: list[str] = []
    if scope != "crew" and agent is not None:
        owners.append(owner_of(Scope.AGENT, agent))
    if scope != "agent" and crew is not None:
        owners.append(owner_of(Scope.CREW, crew))
    if owners and scope == "both":
        owners.append(owner_of(Scope.WORKSPACE, None))
    if owners:
        return SearchedOwners(tuple(owners), agent if scope != "crew" else None, crew if scope != "agent" else None)
    field = "crew_id" if scope == "crew" else "agent_id"
    if scope == "crew" and not principal.role.administers:
        raise NoSuchMemory(
            f"agent {agent} has no crew, so there is no crew memory",
            hint="search with scope agent, or use a token that is bound to a crew",
            field="scope",
        )
    hint = f"name whose documents in {field}" + ("" if crew is None else ", or search the crew's with scope crew")
    raise InvalidQuery(f"scope {scope} needs {field}", hint=hint, field=field)


def memory_scope(
    principal: Principal, scope: str | None, agent_id: str | None, crew_id: str | None
) -> tuple[SearchedOwners, ScopeKind]:
    """The owners of the scopes of recall, and the scope in which entries are recalled.

    An AGENT may read its crew's documents but recall its own entries only.

    Raises:
        NotAllowed: If the role does not permit the scope, or the request names another agent or crew than the token's.
        InvalidQuery: If the scope needs an agent or a crew, and there is none.
    """
    agent, crew = _bound(principal, agent_id, crew_id)
    if scope is None and principal.role.administers:
        scope = ScopeKind.CREW_SHARED if crew_id else ScopeKind.OWN if agent_id else ScopeKind.WORKSPACE
    elif scope is None:
        scope = ScopeKind.CREW_SHARED if principal.role is Role.LEAD else ScopeKind.OWN
    kind = ScopeKind(scope)
    if kind is ScopeKind.WORKSPACE:
        if not principal.role.administers:
            raise NotAllowed(
                f"a token of role {principal.role.value} may not search the workspace",
                hint="leave scope out, or use an OWNER or ADMIN token",
                field="scope",
            )
        return SearchedOwners(None, None, None), kind
    if kind is ScopeKind.CREW_SHARED and crew is None:
        raise InvalidQuery("scope crew_shared needs a crew_id", hint="name the crew in crew_id", field="crew_id")
    if kind is ScopeKind.OWN and agent is None:
        raise InvalidQuery("scope own needs an agent_id", hint="name the agent in agent_id", field="agent_id")
    if kind is ScopeKind.OWN:
        crew = None
    searched_owners = file_scope(principal, "both" if crew else "agent", agent_id, crew_id)
    return searched_owners, ScopeKind.OWN if principal.role is Role.AGENT else kind


def _bound(principal: Principal, agent_id: str | None, crew_id: str | None) -> tuple[str | None, str | None]:
    if principal.role.administers:
        return agent_id or principal.agent_id, crew_id or principal.crew_id
    for field, named, own in (("agent_id", agent_id, principal.agent_id), ("crew_id", crew_id, principal.crew_id)):
        if named and named != own:
            raise NotAllowed(
                f"the token belongs to another {field}",
                hint=f"leave {field} out, or use a token of that {field}",
                field=field,
            )
    return principal.agent_id, principal.crew_id


# The part of a chunk that is shown with a hit.


DOTS: Final = "..."


def snippet_of(text: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The lines around the one that says most of the query; the whole text if it is short.

    Args:
        text: Text of the chunk.
        weights: Term → its weight in the query.
        analyzer: Turns lines into terms.
        chars: Most characters, dots aside.
    """
    if len(text) <= chars:
        return text
    lines = text.split("\n")
    worth = [sum(weights.get(term, 0.0) for term in set(analyzer.terms(line))) for line in lines]
    first = last = max(range(len(lines)), key=lambda at: (worth[at], -at))
    size = len(lines[first])
    if size > chars:
        return _cut(lines[first], weights, analyzer, chars) + DOTS
    while True:
        below = last + 1 < len(lines) and size + 1 + len(lines[last + 1]) <= chars
        above = first > 0 and size + 1 + len(lines[first - 1]) <= chars
        if not below and not above:
            break
        if below and (not above or worth[last + 1] >= worth[first - 1]):
            last += 1
            size += 1 + len(lines[last])
        else:
            first -= 1
            size += 1 + len(lines[first])
    return "\n".join(lines[first : last + 1]) + DOTS


def _cut(line: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The part of a long line that holds most of the query, beginning at a word."""
    words = line.split(" ")
    begins = [0]
    for word in words:
        begins.append(begins[-1] + len(word) + 1)
    places = [
        begins[at]
        for at, word in enumerate(words)
        if any(key in weights for key in analyzer.keys_of(tokens_of(word)) if key)
    ]
    if not places:
        return line[:chars]
    best = max(places, key=lambda begin: (sum(begin <= other < begin + chars for other in places), -begin))
    latest = len(line) - chars
    start = min((begin for begin in begins if min(best, latest) - chars // 4 <= begin <= best), default=best)
    return line[start : start + chars]
