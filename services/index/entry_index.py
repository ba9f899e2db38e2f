"""The hot index of one workspace: columns, postings and vectors in memory, a cache of the DuckDB views.

Why: a search in SQL costs 10 to 25 ms while entries are written (facts/duckdb.md), in memory less than 1 ms. Invariant:
a loaded index and one extended commit by commit give the same answers and scores. Used on the event loop; only
``merge_segments`` and ``sort_sessions``, which work on immutable values, run in a thread.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas import tables as views
from ...schemas.core.entry import ActorType, Priority
from ...schemas.entries.tables import TURNS
from ...schemas.relations.rules import SIMILAR, RelationState
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.tables import IMPORTANCE, VALIDITIES
from ...schemas.text.analyzer import STOP_WORDS, tokens_of
from .arrays import ABSENT, GrowableArray, Ragged, Vocabulary, places_of
from .arrays import Docs as ArraysDocs
from .arrow import Texts, array, dictionary, kept, present, runs, sequences
from .columns import HotColumn, HotTable
from .documents import CONVERSATION, HIGH_PRIORITY, NOT_CURRENT, EntryColumns
from .postings import INLINE_MERGE_POSTINGS, Postings, Segment, Terms, build_segment, merge_segments
from .records import Records
from .rows import Rows
from .scope import RecallScope, ScopeKind
from .scoped import ScopedDocuments, ScopeRows, WithoutVectors
from .sessions import EMPTY_ORDER, SessionOrder, ToSort, is_due, sort_both
from .standings import Standings
from .vectors import VectorMatrix

# The ``similar`` edges of one workspace, by document, so that recall walks them without a query.


Docs = npt.NDArray[np.int32]


class SimilarEdges:
    """Undirected edges between documents, retracted ones included (they do not count, and stay retracted)."""

    def __init__(self) -> None:
        self._ends = GrowableArray(np.int32, 2)
        self._weight = GrowableArray(np.float64)
        self._counts = GrowableArray(np.bool_)
        self._seq = GrowableArray(np.int64)
        self._sorted_docs: Docs = np.zeros(0, np.int32)
        self._sorted_rows: Docs = np.zeros(0, np.int32)
        self._later: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; the few edges that came since the load have a dictionary beside them."""
        columns = self._ends.nbytes + self._weight.nbytes + self._counts.nbytes + self._seq.nbytes
        return columns + self._sorted_docs.nbytes + self._sorted_rows.nbytes

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
        """Take in edges between documents, whose ascending sequences are ``seqs``; others come with their entries."""
        table = rows.of(RELATIONS, "src_seq", "dst_seq", "weight", "state", "seq", relation=SIMILAR)
        if table is None:
            return
        table = present(table, "dst_seq")  # the event may not name it
        ends = np.stack([places_of(seqs, sequences(table, name)) for name in ("src_seq", "dst_seq")], axis=1)
        known = (ends != ABSENT).all(axis=1)
        states, state = dictionary(table.column("state"))
        counts = np.array([name != RelationState.RETRACTED for name in states], bool)[state]
        self.put(ends[known], array(table, "weight")[known], counts[known], sequences(table, "seq")[known])

    def put(
        self,
        ends: Docs,
        weight: npt.NDArray[np.float64],
        counts: npt.NDArray[np.bool_],
        seq: npt.NDArray[np.int64],
    ) -> None:
        """Set edges.

        Args:
            ends: (m, 2) int32 documents.
            weight: (m,) float64.
            counts: (m,) bool: whether the edge is not retracted.
            seq: (m,) int64 sequence of the event that made the edge what it is.
        """
        if not len(self):
            self._append(ends, weight, counts, seq)
            both = ends.T.reshape(-1)
            order = np.argsort(both, kind="stable")
            self._sorted_docs = both[order]
            self._sorted_rows = (order % max(1, len(ends))).astype(np.int32)
            return
        for at, (src, dst) in enumerate(ends.tolist()):
            row = next((row for row in self._rows_of(src) if dst in self._ends.rows[row]), None)
            if row is None:
                for doc in (src, dst):
                    self._later.setdefault(doc, []).append(len(self))
                part = slice(at, at + 1)
                self._append(ends[part], weight[part], counts[part], seq[part])
            elif seq[at] > self._seq.rows[row]:
                self._weight.rows[row], self._counts.rows[row], self._seq.rows[row] = weight[at], counts[at], seq[at]

    def _append(
        self,
        ends: Docs,
        weight: npt.NDArray[np.float64],
        counts: npt.NDArray[np.bool_],
        seq: npt.NDArray[np.int64],
    ) -> None:
        self._ends.append(ends)
        self._weight.append(weight)
        self._counts.append(counts)
        self._seq.append(seq)

    def neighbours(self, doc: int) -> Iterator[tuple[int, float]]:
        """Each document that an edge joins with ``doc``, and the edge's weight; retracted edges do not count."""
        for row in self._rows_of(doc):
            if self._counts.rows[row]:
                first, second = self._ends.rows[row].tolist()
                yield (second if first == doc else first), float(self._weight.rows[row])

    def _rows_of(self, doc: int) -> list[int]:
        begin, end = np.searchsorted(self._sorted_docs, [doc, doc + 1]).tolist()
        loaded: list[int] = self._sorted_rows[begin:end].tolist()
        return loaded + self._later.get(doc, [])


# An array of sums by document, in which the lexical arm adds up scores.


Scores = npt.NDArray[np.float32]

FILL_SHARE: Final = 8
"""If more than one sum in this many was touched, all are zeroed instead of keeping a list."""


class Sums:
    """The sums of one index."""

    def __init__(self) -> None:
        self._sums = np.zeros(0, np.float32)
        self._touched: ArraysDocs | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._sums.nbytes + (0 if self._touched is None else self._touched.nbytes)

    def begin(self, lists: Sequence[ArraysDocs], count: int) -> tuple[Scores, ArraysDocs]:
        """Begin a query with zeros.

        Args:
            lists: Documents whose sums will be used, one or more arrays.
            count: Number of documents.

        Returns:
            (count,) float32 zeros, writable at those documents only, and the concatenated lists.
        """
        touched = np.concatenate(lists)
        if len(self._sums) < count:
            self._sums = np.zeros(count + count // 8, np.float32)
        elif self._touched is None:
            self._sums.fill(0.0)
        else:
            self._sums[self._touched] = 0.0
        self._touched = touched if len(touched) * FILL_SHARE < len(self._sums) else None
        return self._sums[:count], touched


# Finds the speaker that a query names, for the speaker rule.


NO_NAMES: Final = STOP_WORDS | frozenset(kind.value for kind in ActorType) | {"assistant", "human", "bot"}
"""Words that do not count as a speaker's name, although an actor may have it: "will", "user"."""


class SpeakerNames:
    """Actors by the first word of their name."""

    def __init__(self, actors: Vocabulary) -> None:
        self._actors = actors
        self._by_first_word: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        self._by_word: dict[str, set[int]] = {}
        self._seen = 0

    def speaker_named(self, words: Sequence[str], speakers: Collection[int]) -> int | None:
        """The speaker that a query names; None if it names none or several.

        A name matches as a whole or by its first word.

        Args:
            words: The folded words of the query in order.
            speakers: Codes of the actors who speak in scope.
        """
        self._learn()
        whole: set[int] = set()
        first: set[int] = set()
        for at, word in enumerate(words):
            for name, code in self._by_first_word.get(word, ()):
                if code in speakers:
                    (whole if tuple(words[at : at + len(name)]) == name else first).add(code)
        found = whole or first
        return next(iter(found)) if len(found) == 1 else None

    def name_words(self, words: Collection[str], speakers: frozenset[int]) -> frozenset[str]:
        """Those of ``words`` that are part of the name of a speaker in scope: they say who, and not what.

        Args:
            words: Folded words of a query.
            speakers: Codes of the actors who speak in scope.
        """
        self._learn()
        return frozenset(word for word in words if not speakers.isdisjoint(self._by_word.get(word, ())))

    def first_words(self, speakers: Collection[int]) -> Iterator[str]:
        """The first word of the name of each speaker in scope, folded."""
        self._learn()
        for word, named in self._by_first_word.items():
            if any(code in speakers for _, code in named):
                yield word

    def _learn(self) -> None:
        if self._seen == len(self._actors):
            return
        for code, name in enumerate(self._actors.names()[self._seen :], self._seen):
            words = tuple(tokens_of(name))
            for word in words:
                self._by_word.setdefault(word, set()).add(code)
            if words and words[0] not in NO_NAMES:
                self._by_first_word.setdefault(words[0], []).append((words, code))
        self._seen = len(self._actors)


# The view of turns as columns of the hot index, one value a document.


class HotTurns:
    """The turns among the documents of one workspace.

    Args:
        flags: uint8 flags of ``schemas.recall.turns`` by document.
        first_passage: uint16: how many of a turn's word pieces belong to its first passage.
    """

    def __init__(self, flags: HotColumn, first_passage: HotColumn) -> None:
        self._flags = flags
        self._first_passage = first_passage
        self.pieces = Ragged(np.uint16)
        self.days = Ragged(np.int32, 2)

    @property
    def nbytes(self) -> int:
        """Bytes allocated beside the two columns."""
        return self.pieces.nbytes + self.days.nbytes

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8 flags of ``schemas.recall.turns``; 0 for a document that is not a turn."""
        return self._flags.rows

    @property
    def first_passage(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16: how many of a turn's word pieces belong to its first passage."""
        return self._first_passage.rows

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> None:
        """Take in word pieces and days of documents, whose ascending sequences are ``seqs``."""
        table = rows.of(TURNS, "doc", "pieces", "days", order="doc")
        if table is None:
            return
        docs = places_of(seqs, sequences(table, "doc"))
        here = docs != ABSENT
        docs, table = docs[here], kept(table, here)
        pieces, piece_counts = runs(table, "pieces", "<u2")
        days, day_counts = runs(table, "days", "<i4")
        self.pieces.append(docs, pieces, piece_counts)
        self.days.append(docs, days.reshape(-1, 2), day_counts // 2)


HIGH: Final = frozenset(priority.value for priority in Priority if priority is not Priority.NORMAL)
"""Live priorities that make an entry readable in the scope ``crew_shared`` (DESIGN §7)."""
SCOPES_KEPT: Final = 64
"""Most scopes whose masks are cached, one byte per document."""
STANDBY_KEPT: Final = 2
"""Most matrices of inactive models: the former model and one under comparison. Each has 15 MB at 10,000 vectors of 384
dimensions; they are evicted first.
"""


@dataclass(frozen=True, slots=True)
class PostingColumns:
    """Postings from the full-text view: columns of equal length p.

    Attributes:
        term: (p,) uint64 term keys.
        seq: (p,) int64 stream sequence of each posting's entry.
        tf: (p,) uint16 term frequencies.
        length: (p,) uint16 indexed words of the posting's entry.
    """

    term: Terms
    seq: npt.NDArray[np.int64]
    tf: npt.NDArray[np.uint16]
    length: npt.NDArray[np.uint16]

    def joined(self, other: PostingColumns) -> PostingColumns:
        """Both."""
        return PostingColumns(
            np.concatenate((self.term, other.term)),
            np.concatenate((self.seq, other.seq)),
            np.concatenate((self.tf, other.tf)),
            np.concatenate((self.length, other.length)),
        )


class HotIndex:
    """The hot index of a workspace.

    Args:
        record_bytes: Most bytes of entries' texts to keep.
    """

    def __init__(self, workspace_id: str, vectors: VectorMatrix | None = None, record_bytes: int = 0) -> None:
        self.workspace_id = workspace_id
        self.documents = EntryColumns()
        entries = self.documents.entries
        self.tables = {table.name: HotTable(table) for table in views.TABLES if table.hot} | {
            entries.table.name: entries
        }
        """The columns that are declared hot, by table."""
        self.postings = Postings()
        self.vectors = vectors
        self.importances = self.tables[IMPORTANCE.name].columns["importance_score"]
        self.priorities: dict[str, str] = {}
        """Live priorities set by operators, by entry id; may hold ids that are not documents."""
        self.edges = SimilarEdges()
        self.standings = Standings(self.documents, self.tables[VALIDITIES.name].columns["valid_ms"])
        turns = self.tables[TURNS.name].columns
        self.turns = HotTurns(turns["flags"], turns["first_passage"])
        self.walk_depths: dict[str, tuple[int, int]] = {}
        """By agent: the default of ``walk_depth`` and the sequence of its registration."""
        self._standby: OrderedDict[str, VectorMatrix] = OrderedDict()
        self.records = Records(record_bytes)
        self.order: SessionOrder = EMPTY_ORDER
        self.turn_order: SessionOrder = EMPTY_ORDER
        self.names = SpeakerNames(self.documents.actors)
        self.seq = 0
        self._scopes: OrderedDict[RecallScope, ScopeRows] = OrderedDict()
        self.sums = Sums()

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def nbytes(self) -> int:
        """Bytes used, including the array for sums."""
        vectors = sum(matrix.nbytes for matrix in self.matrices())
        scopes = sum(rows.nbytes for rows in self._scopes.values())
        columns = self.documents.nbytes + self.postings.nbytes + self.order.nbytes + self.records.nbytes
        columns += self.turn_order.nbytes if self.turn_order is not self.order else 0
        columns += self.edges.nbytes + self.turns.nbytes
        columns += sum(held.nbytes for held in self.tables.values() if held is not self.documents.entries)
        return columns + vectors + scopes + self.sums.nbytes

    # the vectors

    @property
    def model(self) -> str | None:
        """The model of the vectors in use, or None."""
        return self.vectors.model if self.vectors is not None else None

    def matrices(self) -> list[VectorMatrix]:
        """The matrices of the active and of inactive models."""
        active = [self.vectors] if self.vectors is not None else []
        return [*active, *self._standby.values()]

    def matrix_of(self, model: str) -> VectorMatrix | None:
        """The matrix of a model, or None."""
        return next((matrix for matrix in self.matrices() if matrix.model == model), None)

    def use(self, matrix: VectorMatrix | None) -> None:
        """Use these vectors from now on; the former ones are kept for switching back."""
        former, self.vectors = self.vectors, matrix
        if former is not None and former is not matrix:
            self.keep(former)
        if matrix is not None:
            self._standby.pop(matrix.model, None)

    def keep(self, matrix: VectorMatrix) -> None:
        """Keep the vectors of an inactive model, for a switch or a comparison."""
        self._standby[matrix.model] = matrix
        self._standby.move_to_end(matrix.model)
        while len(self._standby) > STANDBY_KEPT:
            self._standby.popitem(last=False)

    def forget_standby(self) -> int:
        """Drop the vectors of inactive models; returns the bytes freed."""
        freed = sum(matrix.nbytes for matrix in self._standby.values())
        self._standby.clear()
        return freed

    def forget_model(self, model: str) -> None:
        """Drop the vectors of a model, even the active one."""
        self._standby.pop(model, None)
        if self.model == model:
            self.vectors = None

    def over(self, matrix: VectorMatrix) -> HotIndex:
        """The index with other vectors, for one search before the next ``await``; copies nothing."""
        other = copy.copy(self)
        other.vectors = matrix
        return other

    # the columns

    @property
    def needed_seq(self) -> int:
        """Where the views must be for all columns to be right."""
        return max(held.needed_seq for held in self.tables.values())

    @property
    def stale(self) -> list[HotTable]:
        """The tables whose columns must be read again."""
        return [held for held in self.tables.values() if held.stale]

    # the documents

    def append(
        self, seqs: npt.NDArray[np.int64], flags: npt.NDArray[np.uint16], ids: Texts, *postings: PostingColumns
    ) -> None:
        """Append documents, newer than all before, and their postings.

        Args:
            seqs: (m,) int64 ascending stream sequences.
            flags: (m,) uint16, sums of the flags of ``documents``.
            ids: Their entry ids.
            postings: Their postings, in parts over ascending, disjoint ranges of documents. Postings of other entries
                (noise) are left out.
        """
        base = len(self.documents)
        lengths = np.zeros(len(seqs), np.uint16)
        segments = []
        for part in postings:
            place, own = _places(seqs, part.seq)
            term, tf, length = part.term, part.tf, part.length
            if not own.all():
                place, term, tf, length = place[own], term[own], tf[own], length[own]
            lengths[place] = length
            doc = place.astype(np.int32)
            doc += np.int32(base)
            segments.append(build_segment(term, doc, tf))
        self.documents.append(seqs, flags, ids, lengths)
        for segment in segments:
            self.postings.append(segment)
        due = self.postings.due()
        if due and sum(segment.size for segment in due) <= INLINE_MERGE_POSTINGS:
            self.postings.replace(due, merge_segments(due))

    def set_priorities(self, changed: Mapping[str, str]) -> None:
        """Set live priorities. They change which entries a crew shares; importances change at the next decay.

        Args:
            changed: The priorities by entry id; unknown ids are ignored.
        """
        if not changed:
            return
        self.priorities.update(changed)
        moved = False
        for doc, priority in zip(self.documents.find_ids(list(changed)).tolist(), changed.values(), strict=True):
            high = priority in HIGH
            if doc != ABSENT and bool(self.documents.flags[doc] & HIGH_PRIORITY) != high:
                self.documents.set_flag(doc, HIGH_PRIORITY, high)
                moved = True
        if moved:
            for scope in [s for s in self._scopes if s.kind is ScopeKind.CREW_SHARED]:
                del self._scopes[scope]

    def set_current(self, entry_ids: Collection[str]) -> None:
        """Set the flags of entries whose standing may have changed; ids that are not documents are ignored."""
        moved = False
        for doc in self.documents.find_ids(list(entry_ids)).tolist() if entry_ids else ():
            if doc != ABSENT:
                gone = self.standings.leaves_out(doc)
                moved |= bool(self.documents.flags[doc] & NOT_CURRENT) != gone
                self.documents.set_flag(doc, NOT_CURRENT, gone)
        if moved:
            for scope in [s for s in self._scopes if s.current]:
                del self._scopes[scope]

    def scoped(self, scope: RecallScope) -> ScopedDocuments:
        """The rows in scope."""
        return self._rows_of(scope).upto(self.documents, len(self.documents))

    def _rows_of(self, scope: RecallScope) -> ScopeRows:
        rows = self._scopes.get(scope)
        if rows is None:
            rows = self._scopes[scope] = ScopeRows(scope)
            if len(self._scopes) > SCOPES_KEPT:
                self._scopes.popitem(last=False)
        self._scopes.move_to_end(scope)
        return rows

    def without_vectors(self, scope: RecallScope) -> WithoutVectors:
        """How many entries in scope have no vector of the active model; counted once for each commit."""
        rows, count = self._rows_of(scope), len(self.documents)
        rows.upto(self.documents, count)
        return rows.without_vectors(count, self.vectors, self.seq)

    def merge_due(self) -> tuple[Segment, ...]:
        """Segments that ``merge_segments`` should merge in a thread, before ``replace``."""
        return self.postings.due()

    def sort_due(self) -> bool:
        """Whether the sessions should be sorted again, in a thread."""
        return is_due(self.order, len(self.documents))

    def sort(self) -> None:
        """Sort the sessions at once (after a load)."""
        self.order, self.turn_order = sort_both(*self.to_sort())

    def to_sort(self) -> ToSort:
        """The present input of ``sort_both``."""
        documents = self.documents
        is_turn = (documents.flags & CONVERSATION) != 0
        return documents.session, np.where(is_turn, documents.session, np.int32(ABSENT)), documents.ts_ms


DENSE_LOOKUP_SPAN: Final = 64
"""A lookup table with at most this many slots per document replaces the binary search; six times as fast for 760,000
postings.
"""


def _places(
    seqs: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Index of each wanted sequence in the ascending ``seqs``, and whether it is present."""
    if not len(seqs):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    low, span = int(seqs[0]), int(seqs[-1]) - int(seqs[0]) + 1
    if span <= DENSE_LOOKUP_SPAN * max(len(seqs), len(wanted)):
        table = np.full(span, ABSENT, np.int32)
        table[seqs - low] = np.arange(len(seqs), dtype=np.int32)
        inside = (wanted >= low) & (wanted <= int(seqs[-1]))
        place = np.full(len(wanted), ABSENT, np.int64)
        place[inside] = table[wanted[inside] - low]
        return place, place != ABSENT
    place = np.minimum(seqs.searchsorted(wanted), len(seqs) - 1)
    return place, seqs[place] == wanted
