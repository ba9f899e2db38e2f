"""The columns of a hot index: what recall must know of every entry without asking the database.

Invariant: documents are numbered 0, 1, 2 … in ascending order of ``seq``; noise types have no number at all, so
nothing downstream has to leave them out again. Appended rows never change, except the flag of a live priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .growable import GrowableArray

ABSENT: Final = -1
"""Code of an absent agent, crew, session or actor."""

EMBEDDABLE: Final = 1
"""Flag: the embed policy takes the entry."""
HIGH_PRIORITY: Final = 2
"""Flag: its live priority is high, pin or permanent."""
SPOKEN_BY_USER: Final = 4
"""Flag: ``actor_type`` is user, so its actor is a speaker."""
CONVERSATION: Final = 8
"""Flag: the catalogue calls its type a turn of a conversation."""
USERS: Final = 16
"""Flag: a turn that is the user's own and not an assistant's (``rules.turns.is_users``)."""

Codes = npt.NDArray[np.int32]
MAX_COUNT: Final = 65_535
"""Words and indexed tokens are stored as uint16; an entry has at most 8,000 indexed tokens."""


class Vocabulary:
    """Names → small numbers, in order of first appearance."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, name: str) -> int:
        """The code of a name, ``ABSENT`` if it was never seen."""
        return self._codes.get(name, ABSENT)

    def learn(self, name: str | None) -> int:
        """The code of a name, a new one if need be; ``ABSENT`` for None."""
        return ABSENT if name is None else self._codes.setdefault(name, len(self._codes))

    def names(self) -> list[str]:
        """Every name, by code."""
        return list(self._codes)

    def learn_all(self, names: Sequence[str | None]) -> Codes:
        """(m,) int32 codes of names."""
        return np.fromiter((self.learn(name) for name in names), np.int32, len(names))


@dataclass(frozen=True, slots=True)
class Texts:
    """Many texts as one run of UTF-8: text ``i`` is ``data[ends[i - 1] : ends[i]]``, ``ends[-1]`` standing for 0."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """From strings."""
        encoded = [one.encode() for one in texts]
        ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)


@dataclass(frozen=True, slots=True)
class NewDocuments:
    """Columns of documents to append, all of length m, in ascending order of ``seq``.

    Attributes:
        seq: int64 stream sequences.
        ts_ms: int64 milliseconds since the epoch.
        agent, crew, session, actor: int32 codes of the index's vocabularies.
        words: words of summary and payload, stop words included.
        flags: uint8, sum of the flags of this module.
        ids: entry ids.
    """

    seq: npt.NDArray[np.int64]
    ts_ms: npt.NDArray[np.int64]
    agent: Codes
    crew: Codes
    session: Codes
    actor: Codes
    words: npt.NDArray[Any]
    flags: npt.NDArray[np.uint8]
    ids: Texts


def places_of(own: npt.NDArray[np.int64], seqs: npt.NDArray[np.int64]) -> Codes:
    """(m,) int32 places of stream sequences in the ascending ``own``, -1 where there is none."""
    if not len(own):
        return np.full(len(seqs), ABSENT, np.int32)
    place = np.minimum(own.searchsorted(seqs), len(own) - 1)
    return np.where(own[place] == seqs, place, ABSENT).astype(np.int32)


class Documents:
    """The columns of one workspace."""

    def __init__(self) -> None:
        self._seq = GrowableArray(np.int64)
        self._ts_ms = GrowableArray(np.int64)
        self._agent = GrowableArray(np.int32)
        self._crew = GrowableArray(np.int32)
        self._session = GrowableArray(np.int32)
        self._actor = GrowableArray(np.int32)
        self._words = GrowableArray(np.uint16)
        self._length = GrowableArray(np.uint16)
        self._flags = GrowableArray(np.uint8)
        self._id_data = GrowableArray(np.uint8)
        self._id_ends = GrowableArray(np.int64)
        self.agents = Vocabulary()
        self.crews = Vocabulary()
        self.sessions = Vocabulary()
        self.actors = Vocabulary()

    def __len__(self) -> int:
        return len(self._id_ends)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; the vocabularies are not counted."""
        return sum(
            column.nbytes
            for column in (
                self._seq,
                self._ts_ms,
                self._agent,
                self._crew,
                self._session,
                self._actor,
                self._words,
                self._length,
                self._flags,
                self._id_data,
                self._id_ends,
            )
        )

    @property
    def seq(self) -> npt.NDArray[np.int64]:
        """(n,) int64 stream sequences, ascending."""
        return self._seq.rows

    @property
    def ts_ms(self) -> npt.NDArray[np.int64]:
        """(n,) int64 milliseconds since the epoch."""
        return self._ts_ms.rows

    @property
    def agent(self) -> Codes:
        """(n,) int32 codes in ``agents``."""
        return self._agent.rows

    @property
    def crew(self) -> Codes:
        """(n,) int32 codes in ``crews``."""
        return self._crew.rows

    @property
    def session(self) -> Codes:
        """(n,) int32 codes in ``sessions`` (trace ids)."""
        return self._session.rows

    @property
    def actor(self) -> Codes:
        """(n,) int32 codes in ``actors``."""
        return self._actor.rows

    @property
    def words(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16 words, stop words included; 65,535 stands for more."""
        return self._words.rows

    @property
    def length(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16 indexed tokens."""
        return self._length.rows

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8 flags."""
        return self._flags.rows

    def append(self, new: NewDocuments, length: npt.NDArray[np.uint16]) -> None:
        """Append documents; ``length`` holds their numbers of indexed tokens."""
        self._seq.append(new.seq)
        self._ts_ms.append(new.ts_ms)
        self._agent.append(new.agent)
        self._crew.append(new.crew)
        self._session.append(new.session)
        self._actor.append(new.actor)
        self._words.append(np.minimum(new.words, MAX_COUNT))
        self._length.append(length)
        self._flags.append(new.flags)
        base = len(self._id_data)
        self._id_data.append(new.ids.data)
        self._id_ends.append(new.ids.ends + base)

    def id_of(self, doc: int) -> str:
        """The entry id of a document."""
        ends = self._id_ends.rows
        begin = int(ends[doc - 1]) if doc else 0
        return self._id_data.rows[begin : int(ends[doc])].tobytes().decode()

    def local(self, seqs: npt.NDArray[np.int64]) -> Codes:
        """(m,) int32 documents of stream sequences, -1 where there is none (noise, or not of this workspace)."""
        return places_of(self.seq, seqs)

    def find_ids(self, entry_ids: Sequence[str]) -> Codes:
        """(m,) int32 documents with these ids, -1 where there is none; one scan of the ids, however many are asked for."""
        import pyarrow.compute as pc  # builds all its functions, which a start need not wait for

        found = np.full(len(entry_ids), ABSENT, np.int32)
        ends = self._id_ends.rows
        offsets = np.concatenate((np.zeros(1, np.int64), ends))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._id_data.rows)]
        ids = pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)
        distinct = list(dict.fromkeys(entry_id.encode() for entry_id in entry_ids))
        place = pc.index_in(ids, value_set=pa.array(distinct, pa.large_binary()))
        docs = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
        doc_of = dict(zip((distinct[at] for at in place.drop_null().to_pylist()), docs.tolist(), strict=True))
        for row, entry_id in enumerate(entry_ids):
            found[row] = doc_of.get(entry_id.encode(), ABSENT)
        return found

    def set_flag(self, doc: int, flag: int, on: bool) -> None:
        """Set or clear a flag of one document."""
        flags = self._flags.rows
        flags[doc] = flags[doc] | flag if on else flags[doc] & ~np.uint8(flag)
