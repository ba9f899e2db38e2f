"""The inverted index of one workspace: immutable segments in compressed-row form, which are merged from time to time.

Each commit adds a small sorted segment, which is fast; segments of similar size are merged, since a search is faster
with few segments. Invariants: segments are immutable and cover ascending, disjoint ranges of documents, so a term's
slices are sorted by document. The tuple of segments is replaced as a whole.

Postings with a term frequency of 1 (about nine in ten) are stored separately, with four bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Terms = npt.NDArray[np.uint64]
Docs = npt.NDArray[np.int32]
Counts = npt.NDArray[np.uint16]
Offsets = npt.NDArray[np.int64]

MERGE_RATIO: Final = 4
"""A segment is merged with the younger ones if it has at most this many times their postings. Every posting is then
rewritten about log5(n) times, and ten segments hold a million documents.
"""
MAX_SEGMENTS: Final = 8
"""Segments above which merging starts; each costs a query about 3 µs per term."""
INLINE_MERGE_POSTINGS: Final = 200_000
"""Postings up to which a merge runs at once (about 3 ms); larger merges run in a thread."""
SORTED_RUN: Final = 4_096
"""Average postings per run from which merging runs is faster than sorting."""
_CHUNK: Final = 1 << 21
"""Postings that a merge moves at once; bounds its memory to 32 MB."""


@dataclass(frozen=True, slots=True)
class TermRows:
    """Documents by term: ``docs[starts[i] : starts[i + 1]]`` are those of ``terms[i]``, ascending.

    Attributes:
        terms: (t,) uint64, ascending, unique.
        starts: (t + 1,) int64.
        docs: (p,) int32.
        tf: (p,) uint16 term frequencies; None where all are 1.
    """

    terms: Terms
    starts: Offsets
    docs: Docs
    tf: Counts | None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        tf = 0 if self.tf is None else self.tf.nbytes
        return self.terms.nbytes + self.starts.nbytes + self.docs.nbytes + tf

    def slices_of(self, wanted: Terms) -> list[tuple[int, slice]]:
        """Indices of the wanted terms that have postings, and the slices of these."""
        if not len(self.terms):
            return []
        place = self.terms.searchsorted(wanted)
        known = (self.terms.take(place, mode="clip") == wanted).nonzero()[0].tolist()
        return [(at, slice(int(self.starts[place[at]]), int(self.starts[place[at] + 1]))) for at in known]


@dataclass(frozen=True, slots=True)
class Segment:
    """The postings of a range of documents, split by term frequency 1 and above."""

    once: TermRows
    often: TermRows

    @property
    def size(self) -> int:
        """Number of postings."""
        return len(self.once.docs) + len(self.often.docs)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.once.nbytes + self.often.nbytes


@dataclass(frozen=True, slots=True)
class TermPostings:
    """One term's postings over all segments.

    Attributes:
        once: (p,) int32 documents that contain the term once, ascending.
        often: (q,) int32 documents that contain it more often, ascending.
        tf: (q,) uint16 term frequencies of these.
    """

    once: Docs
    often: Docs
    tf: Counts


def _rows(term: Terms, doc: Docs, tf: Counts | None) -> TermRows:
    """Rows from columns already sorted by (term, doc)."""
    if not len(term):
        return TermRows(term, np.zeros(1, np.int64), doc, tf)
    first = np.flatnonzero(np.concatenate(([True], term[1:] != term[:-1])))
    starts = np.concatenate((first, [len(term)])).astype(np.int64, copy=False)
    return TermRows(term[first].copy(), starts, doc, tf)


def build_segment(term: Terms, doc: Docs, tf: Counts) -> Segment:
    """A segment from postings in any order.

    Args:
        term: (p,) uint64 term keys.
        doc: (p,) int32 local documents; each (term, doc) at most once.
        tf: (p,) uint16, at least 1.
    """
    if len(term) > SORTED_RUN and (runs := _sorted_runs(term, doc)) is not None:
        return merge_segments([_segment(term[run], doc[run], tf[run]) for run in runs])
    if len(doc) and bool(np.any(doc[1:] < doc[:-1])):
        by_doc = np.argsort(doc, kind="stable")
        term, doc, tf = term[by_doc], doc[by_doc], tf[by_doc]
    by_term = np.argsort(term, kind="stable")
    return _segment(term[by_term], doc[by_term], tf[by_term])


def _segment(term: Terms, doc: Docs, tf: Counts) -> Segment:
    """A segment from postings sorted by (term, doc)."""
    once = tf <= 1
    more = ~once
    return Segment(_rows(term[once], doc[once], None), _rows(term[more], doc[more], tf[more]))


def _sorted_runs(term: Terms, doc: Docs) -> list[slice] | None:
    """The postings as runs sorted by (term, doc) over disjoint ranges of documents, oldest first, or None.

    The full-text view stores such runs; merging them is linear, while sorting five million postings takes seconds.
    """
    starts = np.concatenate(([0], np.flatnonzero(term[1:] < term[:-1]) + 1))
    if len(starts) * SORTED_RUN > len(term):
        return None
    inside = term[1:] == term[:-1]
    if bool(np.any(inside & (doc[1:] <= doc[:-1]))):
        return None
    lowest, highest = np.minimum.reduceat(doc, starts), np.maximum.reduceat(doc, starts)
    order = np.argsort(lowest)
    if bool(np.any(highest[order][:-1] >= lowest[order][1:])):
        return None
    ends = np.append(starts[1:], len(term))
    return [slice(int(starts[i]), int(ends[i])) for i in order]


def _merge_rows(parts: Sequence[TermRows]) -> TermRows:
    every = np.concatenate([part.terms for part in parts])
    terms, inverse = np.unique(every, return_inverse=True)
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    totals = np.zeros(len(terms), np.int64)
    np.add.at(totals, inverse, counts)
    starts = np.concatenate(([0], np.cumsum(totals))).astype(np.int64, copy=False)
    cursor = starts[:-1].copy()
    docs = np.empty(int(starts[-1]), np.int32)
    tf = None if parts[0].tf is None else np.empty(len(docs), np.uint16)
    first = 0
    for part in parts:
        own = inverse[first : first + len(part.terms)]
        length = np.diff(part.starts)
        shift = cursor[own] - part.starts[:-1]
        cursor[own] += length
        first += len(part.terms)
        for begin, end in _chunks(part.starts):
            lo, hi = int(part.starts[begin]), int(part.starts[end])
            target = np.repeat(shift[begin:end], length[begin:end])
            target += np.arange(lo, hi)
            docs[target] = part.docs[lo:hi]
            if tf is not None and part.tf is not None:
                tf[target] = part.tf[lo:hi]
    return TermRows(terms, starts, docs, tf)


def _chunks(starts: Offsets) -> Iterator[tuple[int, int]]:
    """Ranges of terms with about ``_CHUNK`` postings each."""
    begin, last = 0, len(starts) - 1
    while begin < last:
        end = int(starts.searchsorted(starts[begin] + _CHUNK, side="right")) - 1
        end = min(max(end, begin + 1), last)
        yield begin, end
        begin = end


def merge_segments(segments: Sequence[Segment]) -> Segment:
    """Merge adjacent segments, oldest first; linear."""
    return Segment(_merge_rows([s.once for s in segments]), _merge_rows([s.often for s in segments]))


class Postings:
    """The segments of one workspace."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: tuple[Segment, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; immutable."""
        return self._segments

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(segment.nbytes for segment in self._segments)

    def append(self, segment: Segment) -> None:
        """Add the postings of documents that are newer than all before."""
        if segment.size:
            self._segments = (*self._segments, segment)

    def due(self) -> tuple[Segment, ...]:
        """The youngest segments that should be merged, or none."""
        if len(self._segments) <= MAX_SEGMENTS:
            return ()
        total, first = self._segments[-1].size, len(self._segments) - 1
        while first and self._segments[first - 1].size <= MERGE_RATIO * total:
            first -= 1
            total += self._segments[first].size
        return self._segments[first:] if len(self._segments) - first > 1 else ()

    def replace(self, old: tuple[Segment, ...], new: Segment) -> bool:
        """Replace ``old`` by ``new``; False, without a change, if ``old`` is no longer a run of segments."""
        for first in range(len(self._segments) - len(old) + 1):
            if all(a is b for a, b in zip(self._segments[first:], old, strict=False)):
                self._segments = (*self._segments[:first], new, *self._segments[first + len(old) :])
                return True
        return False

    def held(self, terms: Sequence[int]) -> list[int]:
        """Those of the terms that have postings."""
        wanted = np.array(terms, np.uint64)
        places = {
            at
            for segment in self._segments
            for rows in (segment.once, segment.often)
            for at, _ in rows.slices_of(wanted)
        }
        return [terms[at] for at in sorted(places)]

    def of(self, terms: Sequence[int]) -> list[TermPostings]:
        """The postings of each term over all segments."""
        wanted = np.array(terms, np.uint64)
        once: list[list[Docs]] = [[] for _ in terms]
        often: list[list[Docs]] = [[] for _ in terms]
        tf: list[list[Counts]] = [[] for _ in terms]
        for segment in self._segments:
            for at, place in segment.once.slices_of(wanted):
                once[at].append(segment.once.docs[place])
            if segment.often.tf is not None:
                for at, place in segment.often.slices_of(wanted):
                    often[at].append(segment.often.docs[place])
                    tf[at].append(segment.often.tf[place])
        return [
            TermPostings(_joined(docs, _NO_DOCS), _joined(more, _NO_DOCS), _joined(counts, _NO_COUNTS))
            for docs, more, counts in zip(once, often, tf, strict=True)
        ]


_NO_DOCS: Final[Docs] = np.empty(0, np.int32)
_NO_COUNTS: Final[Counts] = np.empty(0, np.uint16)


_Scalar = TypeVar("_Scalar", bound=np.generic)


def _joined(parts: list[npt.NDArray[_Scalar]], empty: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
