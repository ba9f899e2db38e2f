"""The features of candidates for a recipe's rules, read from the hot index.

Invariant: only rows in the query's scope count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..hot.documents import ABSENT, SPOKEN_BY_USER
from ..hot.index import HotIndex
from ..hot.lists import Docs
from ..hot.scoped import ScopedDocuments
from ..hot.sessions import neighbours

NO_NEIGHBOUR: Final = -1
NOT_FOUND: Final = -2
"""There is a neighbour, but no arm found it."""


@dataclass(frozen=True, slots=True)
class Features:
    """Of m candidates.

    Attributes:
        previous: (m,) int64 index of the previous entry of the session among the candidates, or ``NO_NEIGHBOUR`` or
            ``NOT_FOUND``.
        following: (m,) likewise the next.
        session: (m,) int32 code of the session, negative for none.
        words: (m,) uint16 words of the entry.
        named: (m,) bool: the query names one speaker, and it is the entry's.
    """

    previous: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]
    session: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint16]
    named: npt.NDArray[np.bool_]


def features_of(index: HotIndex, scoped: ScopedDocuments, speaker: int | None, docs: Docs) -> Features:
    """The features of candidates.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        speaker: Code of the speaker that the query names; None if it names none.
        docs: (m,) intp, ascending, in scope.
    """
    documents = index.documents
    previous, following = neighbours(index.order, documents, scoped.count, docs, scoped.mask)
    if speaker is None:
        named = np.zeros(len(docs), bool)
    else:
        by_user = (documents.flags[docs] & SPOKEN_BY_USER) != 0
        named = (documents.actor[docs] == speaker) & by_user
    before, after = place_among_candidates(docs, np.concatenate((previous, following))).reshape(2, -1)
    return Features(before, after, documents.session[docs], documents.words[docs], named)


def place_among_candidates(docs: Docs, wanted: Docs) -> npt.NDArray[np.int64]:
    """Index of each wanted document in the ascending ``docs``; ``NO_NEIGHBOUR`` if none is wanted, else ``NOT_FOUND``."""
    if not len(docs):
        return np.zeros(len(wanted), np.int64)
    place = docs.searchsorted(wanted)
    place[place == len(docs)] = 0
    place[docs[place] != wanted] = NOT_FOUND
    place[wanted == ABSENT] = NO_NEIGHBOUR
    return place
