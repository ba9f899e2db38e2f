"""Finds the previous and next entry in a session, for the rules about neighbours.

Invariant: a session is ordered by (ts, seq), and only rows in scope count: entries out of scope do not change the
result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from .arrays import ABSENT
from .arrays import Docs as Places
from .documents import EntryColumns

Docs = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

RESORT_MIN: Final = 512
"""Unsorted documents up to which a query sorts those that it needs."""
RESORT_SHARE: Final = 32
"""Above that, all are sorted again in a thread if this share is unsorted. A query then scans at most 3,000 documents of
100,000.
"""


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """Documents [0, covered) that have a session, sorted by (session, ts, seq).

    Attributes:
        docs: (m,) int32.
        place: (covered,) int32 index of each document in ``docs``, -1 without a session.
        starts: (sessions + 1,) int64: session ``s`` is ``docs[starts[s] : starts[s + 1]]``.
        covered: Number of documents in the order; later ones are found by scanning.
    """

    docs: Docs
    place: Docs
    starts: npt.NDArray[np.int64]
    covered: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.docs.nbytes + self.place.nbytes + self.starts.nbytes


EMPTY_ORDER: Final = SessionOrder(np.empty(0, np.int32), np.empty(0, np.int32), np.zeros(1, np.int64), 0)


def sort_sessions(session: npt.NDArray[np.int32], ts_ms: npt.NDArray[np.int64]) -> SessionOrder:
    """Sort documents given in order of ``seq``."""
    docs = np.flatnonzero(session != ABSENT).astype(np.int32)
    by_session = docs[np.argsort(session[docs], kind="stable")]
    own, ts = session[by_session], ts_ms[by_session]
    if bool(np.any((own[1:] == own[:-1]) & (ts[1:] < ts[:-1]))):
        by_session = by_session[np.lexsort((ts, own))]
    counts = np.bincount(own, minlength=1) if len(own) else np.zeros(1, np.int64)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64, copy=False)
    place = np.full(len(session), ABSENT, np.int32)
    place[by_session] = np.arange(len(by_session), dtype=np.int32)
    return SessionOrder(by_session, place, starts, len(session))


ToSort = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""For each document: session, session if it is a turn (else ``ABSENT``), time."""


def sort_both(
    session: npt.NDArray[np.int32], turn_session: npt.NDArray[np.int32], ts_ms: npt.NDArray[np.int64]
) -> tuple[SessionOrder, SessionOrder]:
    """The order of all documents, and that of turns only."""
    every = sort_sessions(session, ts_ms)
    return every, every if np.array_equal(session, turn_session) else sort_sessions(turn_session, ts_ms)


def is_due(order: SessionOrder, documents: int) -> bool:
    """Whether the order should be sorted again."""
    return documents - order.covered > max(RESORT_MIN, documents // RESORT_SHARE)


def neighbours(
    order: SessionOrder,
    documents: EntryColumns,
    count: int,
    docs: Places,
    mask: Mask | None,
    *,
    all_in_scope: bool = False,
) -> tuple[Places, Places]:
    """The previous and the next entry in the session of each document, among the rows in scope.

    Args:
        order: An order of the first ``order.covered`` documents.
        documents: The columns.
        count: Number of documents that this query sees.
        docs: (m,) intp, in scope.
        mask: (count,) rows in scope; None for all.
        all_in_scope: Whether every document of ``order`` is in scope, so that only newer ones need the mask.

    Returns:
        Two (m,) intp arrays, -1 without a session or neighbour.
    """
    session = documents.session[:count]
    own = session[docs].astype(np.intp)
    easy = own != ABSENT
    hard = np.zeros(len(docs), bool)  # documents whose neighbour is more than one place away
    newest = session[order.covered :]
    if len(newest):
        unsorted = np.zeros(len(documents.sessions) + 1, bool)  # sessions with documents that are not in the order yet
        unsorted[newest] = True
        unsorted[ABSENT] = False
        hard = unsorted[own]
        easy &= ~hard
    direct = easy.nonzero()[0]
    if len(direct) == len(docs):
        previous, following = _beside(order, docs, own)
        before, after = previous, following
    else:
        before, after = _beside(order, docs[direct], own[direct])
        previous, following = np.full((2, len(docs)), ABSENT)
        previous[direct], following[direct] = before, after
    if mask is not None and not all_in_scope:
        hard[direct] = ((before != ABSENT) & ~mask[before]) | ((after != ABSENT) & ~mask[after])
    far = hard.nonzero()[0]
    if len(far):
        members, member_session = _members(order, documents, np.unique(own[far]), count, mask)
        previous[far], following[far] = _among(members, member_session, docs[far])
    return previous, following


def _beside(order: SessionOrder, docs: Places, session: npt.NDArray[np.intp]) -> tuple[Places, Places]:
    """The documents one place before and after in the same session, regardless of scope; -1 at its ends."""
    place = order.place[docs].astype(np.intp)
    before = order.docs[place - 1].astype(np.intp)
    before[place == order.starts[session]] = ABSENT
    place += 1
    after = order.docs.take(place, mode="clip").astype(np.intp)
    after[place == order.starts[session + 1]] = ABSENT
    return before, after


def _among(members: Docs, member_session: npt.NDArray[np.integer], docs: Places) -> tuple[Docs, Docs]:
    """Previous and next of each document in a sorted list of members."""
    same = member_session[1:] == member_session[:-1]
    previous, following = np.full((2, len(members)), ABSENT, np.int32)
    previous[1:][same] = members[:-1][same]
    following[:-1][same] = members[1:][same]
    by_doc = np.argsort(members)
    place = by_doc[members.searchsorted(docs, sorter=by_doc)]
    return previous[place], following[place]


def _members(
    order: SessionOrder, documents: EntryColumns, wanted: npt.NDArray[np.integer], count: int, mask: Mask | None
) -> tuple[Docs, npt.NDArray[np.integer]]:
    """Documents in scope of the wanted sessions, sorted by (session, ts, seq), and their sessions."""
    session, ts_ms = documents.session[:count], documents.ts_ms[:count]
    known = wanted[wanted < len(order.starts) - 1]
    begin = order.starts[known]
    lengths = order.starts[known + 1] - begin
    steps = np.arange(int(lengths.sum())) + np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    is_wanted = np.zeros(len(documents.sessions) + 1, bool)  # the last slot is for ABSENT
    is_wanted[wanted] = True
    newest = np.flatnonzero(is_wanted[session[order.covered :]]).astype(np.int32) + np.int32(order.covered)
    members = np.concatenate((order.docs[steps], newest))
    if mask is not None:
        members = members[mask[members]]
    member_session = wanted.searchsorted(session[members])
    ts = ts_ms[members] - int(ts_ms[members].min())
    key = member_session * (int(ts.max()) + 1) + ts
    rank = np.argsort(key, kind="stable")  # near-linear: all but the newest documents are in order
    return members[rank], member_session[rank]
