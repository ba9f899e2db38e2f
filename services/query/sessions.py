"""Which entries of a session stand next to each other, for the rules about neighbours.

Invariant: the order within a session is (ts, seq), and neighbours are found among the rows in scope only: the answer is
the same as if nothing else had been published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from crew_journal.services.query.documents import ABSENT, Documents

Docs = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

RESORT_MIN: Final = 4_096
"""Documents since the last sort below which a query simply scans them (some 5 µs)."""
RESORT_SHARE: Final = 8
"""Beyond that, sort anew when an eighth is unsorted: each document is then sorted about nine times in its life."""


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """Documents [0, covered) that have a session, sorted by (session, ts, seq).

    Attributes:
        docs: (m,) int32.
        starts: (sessions + 1,) int64: session ``s`` has ``docs[starts[s] : starts[s + 1]]``.
        covered: Number of documents looked at; later ones are found by scanning.
    """

    docs: Docs
    starts: npt.NDArray[np.int64]
    covered: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.docs.nbytes + self.starts.nbytes


EMPTY_ORDER: Final = SessionOrder(np.empty(0, np.int32), np.zeros(1, np.int64), 0)


def sort_sessions(session: npt.NDArray[np.int32], ts_ms: npt.NDArray[np.int64]) -> SessionOrder:
    """Sort documents given in order of ``seq``."""
    docs = np.flatnonzero(session != ABSENT).astype(np.int32)
    by_session = docs[np.argsort(session[docs], kind="stable")]
    own, ts = session[by_session], ts_ms[by_session]
    if bool(np.any((own[1:] == own[:-1]) & (ts[1:] < ts[:-1]))):
        by_session = by_session[np.lexsort((ts, own))]
    counts = np.bincount(own, minlength=1) if len(own) else np.zeros(1, np.int64)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64, copy=False)
    return SessionOrder(by_session, starts, len(session))


def is_due(order: SessionOrder, documents: int) -> bool:
    """Whether the order should be sorted anew."""
    return documents - order.covered > max(RESORT_MIN, documents // RESORT_SHARE)


def neighbours(
    order: SessionOrder, documents: Documents, count: int, docs: Docs, mask: Mask | None
) -> tuple[Docs, Docs]:
    """The previous and the next entry of each document's session, among the rows in scope.

    Args:
        order: An order of the first ``order.covered`` documents.
        documents: The columns.
        count: Documents that exist for this query.
        docs: (m,) int32, in scope.
        mask: (count,) rows in scope; None for all.

    Returns:
        Two (m,) int32 arrays, -1 where there is no session or no neighbour.
    """
    session, ts_ms = documents.session[:count], documents.ts_ms[:count]
    own = session[docs]
    wanted = np.unique(own[own != ABSENT])
    if not len(wanted):
        nobody = np.full(len(docs), ABSENT, np.int32)
        return nobody, nobody
    members = _members(order, session, wanted, len(documents.sessions), mask)
    member_session = wanted.searchsorted(session[members])
    ts = ts_ms[members]
    span = int(ts.max()) - int(ts.min()) + 1
    key = member_session * span + (ts - int(ts.min()))
    rank = np.argsort(key, kind="stable")  # near-linear: all but the newest documents are in order
    members, member_session = members[rank], member_session[rank]
    same = member_session[1:] == member_session[:-1]
    previous = np.full(len(members), ABSENT, np.int32)
    following = np.full(len(members), ABSENT, np.int32)
    previous[1:][same] = members[:-1][same]
    following[:-1][same] = members[1:][same]
    by_doc = np.argsort(members)
    place = by_doc[np.minimum(members.searchsorted(docs, sorter=by_doc), len(members) - 1)]
    found = members[place] == docs
    return np.where(found, previous[place], ABSENT), np.where(found, following[place], ABSENT)


def _members(
    order: SessionOrder,
    session: npt.NDArray[np.int32],
    wanted: npt.NDArray[np.int32],
    sessions: int,
    mask: Mask | None,
) -> Docs:
    """Every document of the wanted sessions in scope: sorted ones session by session, then the newest by seq."""
    known = wanted[wanted < len(order.starts) - 1]
    begin, end = order.starts[known], order.starts[known + 1]
    lengths = end - begin
    total = int(lengths.sum())
    steps = np.arange(total) + np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    base = order.docs[steps]
    is_wanted = np.zeros(sessions + 1, bool)  # the last slot stands for ABSENT
    is_wanted[wanted] = True
    newest = np.flatnonzero(is_wanted[session[order.covered :]]).astype(np.int32) + np.int32(order.covered)
    members = np.concatenate((base, newest))
    return members if mask is None else members[mask[members]]
