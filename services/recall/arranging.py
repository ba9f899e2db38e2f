"""Arranges hits: repeats become one hit, what does not count stands below what replaced it, rules above their evidence.

Neighbours of hits, and what holds in their place, join them before.

Two entries repeat each other if they are of one type, agent and actor, and either their texts are equal after folding, or
one has all content words of the other in their order and few more: none of them a number, a name or a negation, so that
neither "approved" and "rejected" nor two invoices become one. The newest entry that counts stands for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from ...schemas.core.timestamps import format_ms, parse_ts, to_ms
from ...schemas.learning.events import RuleLearned
from ...schemas.recall.operations import HitExplanation, Via
from ...schemas.relations.rules import SIMILAR
from ...schemas.standing.operations import Standing, State
from ...schemas.text.analyzer import STOP_WORDS, Analyzer, fold, tokens_of
from ...schemas.text.marks import marks_of
from ..index.entry_index import HotIndex
from ..index.records import HitRecord
from ..index.scope import RecallScope
from ..index.scoped import ScopedDocuments
from .arms import ranked
from .evidence import Judgement
from .search import RankedHit

# Adds entries one hop from the hits along ``similar`` edges (seed 1, "Memory relations").


@dataclass(frozen=True, slots=True)
class Walked:
    """A neighbour of a hit.

    Attributes:
        via: The hit from which it was reached: the one with the heaviest edge, then the best hit.
        weight: Weight of the edge, also the neighbour's score.
    """

    doc: int
    via: int
    weight: float


def walk(index: HotIndex, scope: RecallScope, hits: Sequence[int], k: int) -> list[Walked]:
    """At most ``k`` neighbours of hits."""
    if not hits or not len(index.edges):
        return []
    mask = index.scoped(scope).mask
    direct = frozenset(hits)
    reached: dict[int, Walked] = {}
    for hit in hits:
        for doc, weight in index.edges.neighbours(hit):
            if doc in direct or (mask is not None and not mask[doc]):
                continue
            if doc not in reached or weight > reached[doc].weight:
                reached[doc] = Walked(doc, hit, weight)
    docs = np.fromiter(sorted(reached), np.int32, len(reached))
    weights = np.array([reached[doc].weight for doc in docs.tolist()], np.float64)
    return [reached[int(docs[place])] for place in ranked(index.documents, docs, weights, k).tolist()]


NO_EVIDENCE: Final = "near"
"""Reason of a hit without evidence."""
REPLACES: Final = 0.69
"""Most confidence that an entry takes over from the hit that it replaced: it is likely that it answers, not sure, because a
rule decided that it speaks of the same thing."""
NEAR: Final = 0.75
"""Least share of common content words, so that a text of seven words may have two more."""
FEWEST_WORDS: Final = 3
"""Content words below which only equal texts are repeats."""
_TEXTS: Final = ("text", "question", "reason")
"""Strings of the payload that are compared as well."""
COMPARED_CHARS: Final = 2_000
"""Characters that are compared by their words; what follows has to be equal."""
_LAST: Final = frozenset({State.RETRACTED, State.STALE})


class Candidate(NamedTuple):
    """What may become a hit: it was found, is a neighbour of a hit, or holds in the place of one.

    Attributes:
        doc: The document.
        score: Its score; for a neighbour the weight of the edge.
        holder: The document that holds in its place at the time asked about; itself if none does.
        live_priority: The priority that operators gave it; None if they gave none.
        standing: Why it does not count any more; None if it counts.
        explanation: Of its rank, on request.
        neighbour_of: The hit whose neighbour it is.
        via: How it was reached from there.
    """

    doc: int
    score: float
    holder: int
    live_priority: str | None
    standing: Standing | None
    explanation: HitExplanation | None = None
    neighbour_of: int | None = None
    via: Via | None = None


def candidates_of(
    index: HotIndex,
    scoped: ScopedDocuments,
    hits: Sequence[RankedHit],
    walked: Sequence[Walked],
    holders: Mapping[int, int],
) -> list[Candidate]:
    """The hits that were found, their neighbours, and what holds in their place and is in scope; in this order.

    What holds in the place of hits has the score of the first of these.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        hits: The hits that were found.
        walked: Neighbours of hits.
        holders: Of each of these documents, the one that holds in its place at the time asked about.
    """
    standing_of = index.standings.of

    def candidate(
        doc: int,
        score: float,
        explanation: HitExplanation | None = None,
        neighbour_of: int | None = None,
        via: Via | None = None,
    ) -> Candidate:
        live = index.priorities.get(index.documents.id_of(doc)) if index.priorities else None
        return Candidate(doc, score, holders.get(doc, doc), live, standing_of(doc), explanation, neighbour_of, via)

    candidates = [candidate(hit.doc, hit.score, hit.explanation) for hit in hits]
    for doc, of, weight in ((neighbour.doc, neighbour.via, neighbour.weight) for neighbour in walked):
        via = Via(entry_id=index.documents.id_of(of), relation=SIMILAR, weight=weight)
        candidates.append(candidate(doc, weight, None, of, via))
    brought: dict[int, float] = {}
    for hit in hits:
        holder = holders[hit.doc]
        in_scope = scoped.mask is None or (holder < scoped.count and bool(scoped.mask[holder]))
        if holder not in holders and in_scope:
            brought.setdefault(holder, hit.score)
    return candidates + [candidate(doc, score) for doc, score in brought.items()]


def hits_of(
    index: HotIndex,
    candidates: Sequence[Candidate],
    records: Sequence[tuple[int, int, HitRecord | None]],
    judgement: Judgement,
    *,
    near: bool,
) -> list[Shown]:
    """The candidates that are shown, in the order in which they were found.

    Args:
        index: The workspace's index.
        candidates: The hits that were judged, and others behind them.
        records: Sequence, time and entry of each; None for one that is gone.
        judgement: Of the hits.
        near: Show also hits without evidence.
    """
    judged = len(judgement.confidence)
    evidence = {at: (round(judgement.confidence[at], 3), judgement.reasons[at]) for at in judgement.kept}
    if near:
        evidence |= {at: (judgement.confidence[at], NO_EVIDENCE) for at in range(judged) if at not in evidence}
    of_holder = {candidates[place].holder: place for place in reversed(judgement.kept)}
    for at, candidate in enumerate(candidates):
        place = of_holder.get(candidate.doc)
        if place is not None and at not in evidence:
            own = judgement.confidence[at] if at < judged else 0.0
            replaced = records[place][2]
            in_place = "a hit" if replaced is None else replaced.entry_id
            evidence[at] = (max(own, min(evidence[place][0], REPLACES)), f"holds in the place of {in_place}")
    kept = {candidates[at].doc for at in judgement.kept}
    beside = [at for at, candidate in enumerate(candidates) if candidate.neighbour_of in kept and at not in evidence]
    hits: list[Shown] = []
    for at in (*evidence, *beside):
        candidate, (seq, ts_ms, record) = candidates[at], records[at]
        if record is None:  # erased between the search and now: it must not be shown
            continue
        confidence, reason = evidence.get(at, (None, "similar to a hit"))
        standing = candidate.standing
        below = index.documents.id_of(candidate.holder) if candidate.holder != candidate.doc else None
        hits.append(
            Shown(
                record,
                seq,
                ts_ms,
                candidate.score,
                confidence,
                reason,
                candidate.live_priority or record.priority,
                candidate.explanation,
                None if at in evidence else candidate.via,
                standing,
                below=below,
                held_then=below is None and standing is not None and standing.state is State.SUPERSEDED,
            )
        )
    return hits


class Shown(NamedTuple):
    """A hit before it becomes part of an answer, under the names of ``RecallHit``."""

    record: HitRecord
    seq: int
    ts_ms: int
    score: float
    confidence: float | None
    reason: str
    live_priority: str
    explanation: HitExplanation | None
    via: Via | None
    standing: Standing | None
    repeats: int = 0
    below: str | None = None
    """Id of the entry that holds in its place at the time asked about."""
    held_then: bool = False
    """Whether it held at the time asked about, though another entry has replaced it since."""

    @property
    def never_held(self) -> bool:
        """Whether another entry is in its place since its own date, as after a correction."""
        if self.below is None or self.standing is None or self.standing.state is not State.SUPERSEDED:
            return False
        valid_at = self.record.valid_at
        return to_ms(parse_ts(self.standing.at)) <= (self.ts_ms if valid_at is None else to_ms(parse_ts(valid_at)))

    @property
    def comes_last(self) -> bool:
        """Whether it was retracted or is stale, and nothing holds in its place."""
        return self.below is None and self.standing is not None and self.standing.state in _LAST

    def fields(self, now_ms: int) -> dict[str, Any]:
        """The fields of a ``RecallHit``: the answer validates all its hits at once."""
        fields = self.record._asdict()
        fields["score"] = self.score
        fields["confidence"] = self.confidence
        fields["reason"] = self.reason
        fields["ts"] = format_ms(self.ts_ms)
        fields["age_seconds"] = max(0, now_ms - self.ts_ms) / 1000
        fields["live_priority"] = self.live_priority
        fields["seq"] = self.seq
        fields["explain"] = self.explanation
        fields["via"] = self.via
        fields["standing"] = self.standing
        fields["repeats"] = self.repeats
        return fields


class ComparedText:
    """A text that is compared with others.

    ``begins`` is the first two letters of the content words, which stemming leaves as they are, but for "dying" and
    "die": of two repeats, one has all that the other has, so that few texts need a further comparison.
    """

    def __init__(self, whole: str, analyzer: Analyzer) -> None:
        self.text, self._rest = whole[:COMPARED_CHARS], whole[COMPARED_CHARS:]
        self._analyzer = analyzer
        self._tokens = tokens_of(self.text)
        begins = " ".join([word[:2] for word in {*self._tokens} - STOP_WORDS])
        self.begins = frozenset(begins.replace("y", "i").split(" "))

    @cached_property
    def _folded(self) -> str:
        return " ".join(fold(self.text).split()).strip(" .!?")

    @cached_property
    def _words(self) -> list[int]:
        """Terms of the content words in order."""
        return [key for key in self._analyzer.keys_of(self._tokens) if key]

    def repeats(self, other: ComparedText) -> bool:
        """Whether both say the same."""
        if not (self.begins <= other.begins or other.begins <= self.begins) or self._rest != other._rest:
            return False
        if self._folded == other._folded:
            return True
        few, many = sorted((self._words, other._words), key=len)
        if len(few) < FEWEST_WORDS or len(few) < NEAR * len(many):
            return False
        rest = iter(many)
        return all(word in rest for word in few) and marks_of(self.text) == marks_of(other.text)


class KnownTexts:
    """Texts that are kept, by the two rarest beginnings of words in each: these lead to the texts that may repeat it.

    Args:
        texts: All that will be looked for or kept.
    """

    def __init__(self, texts: Iterable[ComparedText]) -> None:
        self._held = Counter(chain.from_iterable(text.begins for text in texts))
        self._kept: list[tuple[ComparedText, int]] = []
        self._by_rarest: dict[str, list[tuple[str, int]]] = {}
        self._by_begin: dict[str, set[int]] = {}

    def find(self, text: ComparedText) -> int | None:
        """The place of the first text kept that says the same."""
        first, second = self._rarest(text)
        begins, nothing = text.begins, set[int]()
        candidates = self._by_begin.get(first, nothing) & self._by_begin.get(second, nothing)
        candidates |= {at for begin in begins for other, at in self._by_rarest.get(begin, ()) if other in begins}
        kept = (self._kept[at] for at in sorted(candidates))
        return next((place for other, place in kept if other.repeats(text)), None)

    def keep(self, text: ComparedText, place: int) -> None:
        """Add a text at a place."""
        first, second = self._rarest(text)
        self._by_rarest.setdefault(first, []).append((second, len(self._kept)))
        for begin in text.begins:
            self._by_begin.setdefault(begin, set()).add(len(self._kept))
        self._kept.append((text, place))

    def _rarest(self, text: ComparedText) -> tuple[str, str]:
        """The rarest one and the next; twice the same in a text that has one alone."""
        held = self._held
        order = sorted([(held[begin], begin) for begin in text.begins])
        return order[0][1], order[min(1, len(order) - 1)][1]


def arranged(hits: Sequence[Shown], analyzer: Analyzer) -> list[Shown]:
    """Hits, best first, without repeats and in the order in which they count."""
    return in_order(_without_repeats(hits, analyzer))


def _without_repeats(hits: Sequence[Shown], analyzer: Analyzer) -> list[Shown]:
    alike: dict[tuple[str | None, ...], list[Shown]] = {}
    for hit in hits:
        record = hit.record
        alike.setdefault((record.entry_type, record.actor_type, record.actor_id, record.agent_id), []).append(hit)
    if len(alike) == len(hits):
        return list(hits)
    best = {id(first_hit): hit for some in alike.values() for first_hit, hit in _distinct(some, analyzer)}
    return [best[id(hit)] for hit in hits if id(hit) in best]


_COMPARED_EACH: Final = 8
"""Texts up to which each is compared with each: for few, looking them up costs more."""


def _distinct(hits: Sequence[Shown], analyzer: Analyzer) -> list[tuple[Shown, Shown]]:
    """The best hit of each group of repeats, and the hit that stands for the group."""
    if len(hits) == 1:
        return [(hits[0], hits[0])]
    texts = [ComparedText(text_of(hit.record), analyzer) for hit in hits]
    known = KnownTexts(texts) if len(texts) > _COMPARED_EACH else None
    groups, firsts = list[list[Shown]](), list[ComparedText]()
    for hit, text in zip(hits, texts, strict=True):
        if known is not None:
            place = known.find(text)
        else:
            place = next((at for at, first in enumerate(firsts) if first.repeats(text)), None)
        if place is None:
            if known is not None:
                known.keep(text, len(groups))
            firsts.append(text)
            groups.append([hit])
        else:
            groups[place].append(hit)
    return [(members[0], members[0] if len(members) == 1 else _one_of(members)) for members in groups]


def text_of(record: HitRecord) -> str:
    """What of an entry is compared with other texts."""
    more = (record.payload.get(name) for name in _TEXTS)
    return "\n".join((record.summary, *(part for part in more if isinstance(part, str))))


def _one_of(members: Sequence[Shown]) -> Shown:
    newest = max(members, key=lambda hit: (hit.standing is None, hit.ts_ms, hit.seq))
    best = members[0]
    return newest._replace(
        repeats=len(members) - 1,
        score=best.score,
        via=best.via,
        confidence=best.confidence,
        reason=best.reason,
    )


def in_order(hits: list[Shown]) -> list[Shown]:
    """Hits, best first, in the order in which they count."""
    if all(
        hit.standing is None and hit.below is None and hit.record.entry_type != RuleLearned.ENTRY_TYPE for hit in hits
    ):
        return hits
    place = {hit.record.entry_id: float(at) for at, hit in enumerate(hits)}
    for hit in sorted(hits, key=lambda hit: hit.seq, reverse=True):  # what replaces comes after what it replaces
        if hit.standing is not None and hit.below is None and not hit.held_then:
            above = len(hits) if hit.comes_last else place.get(hit.standing.by or "", -1)
            if above >= place[hit.record.entry_id]:
                place[hit.record.entry_id] = above + 0.5
    for holder, instead in _replaced(hits, place).items():  # what holds has the best place of all it replaces
        first = min(place[holder], *(place[doc] for doc in instead))
        place[holder] = first - 0.25
        for at, doc in enumerate(sorted(instead, key=place.__getitem__), 1):
            place[doc] = first + at / (4 * len(hits))
    for hit in hits:
        learned = hit.record.entry_type == RuleLearned.ENTRY_TYPE and hit.standing is None
        evidence = hit.record.payload.get("evidence") if learned else None
        if isinstance(evidence, list):
            first = min((place[doc] for doc in evidence if doc in place), default=len(hits))
            place[hit.record.entry_id] = min(place[hit.record.entry_id], first - 0.25)
    return sorted(hits, key=lambda hit: place[hit.record.entry_id])


def first_hits(hits: Sequence[Shown], most: int) -> list[Shown]:
    """The first ``most`` hits that were found, of which at most half come last as long as there are others."""
    found = [hit for hit in hits if hit.via is None]
    last, others = [hit for hit in found if hit.comes_last], [hit for hit in found if not hit.comes_last]
    places = min(len(last), max(most - len(others), most // 2))
    left_out = {id(hit) for hit in (*last[places:], *others[most - places :])}
    return [hit for hit in found if id(hit) not in left_out]


def _replaced(hits: Sequence[Shown], place: Mapping[str, float]) -> dict[str, list[str]]:
    """Entry → the entries among the hits in whose place it holds."""
    groups: dict[str, list[str]] = {}
    for hit in hits:
        if hit.below is not None and hit.below in place:
            groups.setdefault(hit.below, []).append(hit.record.entry_id)
    return groups
