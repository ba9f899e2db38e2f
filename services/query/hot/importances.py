"""The importance of every document of a hot index, as the view ``memory_importance`` has it.

Invariant: between two decays an entry's importance never changes (contract §6): the first vector sets it, and only a
sweep moves it. So the column is extended with each vector, and read anew, alone, after each decay; until then it answers
as before the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ....schemas.ports import ViewReader
from ....schemas.views import IMPORTANCE, IMPORTANCE_PROJECTION
from .documents import ABSENT, Codes, Documents
from .growable import GrowableArray

MISSING_IMPORTANCE: Final = 0.5
"""Of an entry that has a vector and no importance, contract §4: it happens only while that view is behind."""
_SCORES: Final = f"""SELECT entry_seq::BIGINT AS entry_seq, importance_score FROM {IMPORTANCE}
    WHERE workspace_id = ? AND indexed_at IS NOT NULL"""

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ImportanceRead:
    """What the view held: columns of equal length, and the sequence it had passed before it was read."""

    seq: int
    entry_seq: npt.NDArray[np.int64]
    score: npt.NDArray[np.float64]


def read_importances(views: ViewReader, workspace_id: str) -> ImportanceRead:
    """A workspace's importances; blocking, for a worker thread."""
    seq = views.view_seq(IMPORTANCE_PROJECTION)
    table = views.columns(_SCORES, [workspace_id])
    return ImportanceRead(seq, table.column("entry_seq").to_numpy(), table.column("importance_score").to_numpy())


class Importances:
    """Importance by document.

    Attributes:
        needed_seq: The view must have passed this for the column to be right: the last decay, or where it was loaded.
        read_seq: Where the view was when the column was read.
    """

    def __init__(self) -> None:
        self._score = GrowableArray(np.float32)
        self._known = GrowableArray(np.bool_)
        self.needed_seq = 0
        self.read_seq = 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._score.nbytes + self._known.nbytes

    @property
    def stale(self) -> bool:
        """Whether a sweep has moved what was read."""
        return self.read_seq < self.needed_seq

    def of(self, docs: npt.NDArray[np.integer[Any]]) -> Scores:
        """(m,) float32 importance of documents that have a vector, in [0, 1]."""
        scores: Scores = self._score.rows.take(docs)
        return scores

    def begin(self, doc: int, score: float) -> None:
        """A document has its first vector; a later one changes nothing (contract §3)."""
        self.cover(doc + 1)
        if not self._known.rows[doc]:
            self._known.rows[doc] = True
            self._score.rows[doc] = score

    def take(self, read: ImportanceRead, documents: Documents) -> None:
        """Take over what was read; documents it does not name (their vectors are newer) stay as they are."""
        docs: Codes = documents.local(read.entry_seq)
        here = docs != ABSENT
        self.cover(len(documents))
        self._score.rows[docs[here]] = read.score[here]
        self._known.rows[docs[here]] = True
        self.read_seq = max(self.read_seq, read.seq)

    def cover(self, documents: int) -> None:
        """Make room for so many documents."""
        if (more := documents - len(self._score)) > 0:
            self._score.append(np.full(more, MISSING_IMPORTANCE, np.float32))
            self._known.append(np.zeros(more, bool))
