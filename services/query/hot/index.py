"""The hot index of one workspace: columns, postings and vectors in memory, a cache of the DuckDB views.

Why: a search in SQL costs 10 to 25 ms while entries are written (facts/duckdb.md), in memory less than 1 ms. Invariant:
a loaded index and one extended commit by commit give the same answers and scores. Used on the event loop; only
``merge_segments`` and ``sort_sessions``, which work on immutable values, run in a thread.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ....schemas import views
from ....schemas.entry import Priority
from ....schemas.views import IMPORTANCE, TURNS, VALIDITIES
from .arrow import Texts
from .columns import HotTable
from .documents import CONVERSATION, HIGH_PRIORITY, NOT_CURRENT, EntryColumns
from .edges import SimilarEdges
from .postings import (
    INLINE_MERGE_POSTINGS,
    Postings,
    Segment,
    Terms,
    build_segment,
    merge_segments,
)
from .records import Records
from .scope import RecallScope, ScopeKind
from .scoped import ScopedDocuments, ScopeRows, WithoutVectors
from .sessions import EMPTY_ORDER, SessionOrder, ToSort, is_due, sort_both
from .speakers import SpeakerNames
from .standings import Standings
from .sums import Sums
from .turns import HotTurns
from .vector_matrix import VectorMatrix
from .vocabulary import ABSENT

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
        rows = self._scopes.get(scope)
        if rows is None:
            rows = self._scopes[scope] = ScopeRows(scope)
            if len(self._scopes) > SCOPES_KEPT:
                self._scopes.popitem(last=False)
        self._scopes.move_to_end(scope)
        return rows.upto(self.documents, len(self.documents))

    def without_vectors(self, scope: RecallScope) -> WithoutVectors:
        """How many entries in scope have no vector of the active model; counted once for each commit."""
        scoped = self.scoped(scope)
        return self._scopes[scope].without_vectors(scoped.count, self.vectors, self.seq)

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
