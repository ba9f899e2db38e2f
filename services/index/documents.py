"""The columns of a hot index: what recall must know of every entry without asking the database.

Invariant: documents are numbered 0, 1, 2 … in ascending order of ``seq``; noise types have no number at all, so
later steps need not leave them out. Appended rows never change, except the flag of a live priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.entries.tables import ENTRIES
from .arrays import ABSENT as ABSENT
from .arrays import Codes, GrowableArray, places_of
from .arrow import Texts
from .columns import HotTable

EMBEDDABLE: Final = 1
"""Flag: the entry is to have a vector."""
HIGH_PRIORITY: Final = 2
"""Flag: its live priority is high, pin or permanent."""
SPOKEN_BY_USER: Final = 4
"""Flag: ``actor_type`` is user, so its actor is a speaker."""
CONVERSATION: Final = 8
"""Flag: the catalogue calls its type a turn of a conversation."""
USERS: Final = 16
"""Flag: a turn that is the user's own and not an assistant's (``schemas.recall.turns.is_users``)."""
SPEECH: Final = 32
"""Flag: speech, about which the workspace chooses whether it is embedded; a crew does not share it for its vector."""

NOT_CURRENT: Final = 64
"""Flag: it is retracted, stale, superseded or contradicted (``services/index/standings``)."""
LEARNED: Final = 128
"""Flag: a rule that the crew learned, which its agents find as well."""
REMEMBERED_TEXT: Final = 512
"""Flag: a text that somebody asked to remember; 256 is ``services.index.take.NOISE``."""


class EntryColumns:
    """The columns of one workspace; ``entries`` holds those that ``journal_entries`` declares hot."""

    def __init__(self) -> None:
        self._seq = GrowableArray(np.int64)
        self._length = GrowableArray(np.uint16)
        self._flags = GrowableArray(np.uint16)
        self.has_rules = False
        self._id_data = GrowableArray(np.uint8)
        self._id_ends = GrowableArray(np.int64)
        self.entries = HotTable(ENTRIES)
        columns = self.entries.columns
        self.agents, self.crews = columns["agent_id"].names, columns["crew_id"].names
        self.sessions, self.actors = columns["trace_id"].names, columns["actor_id"].names

    def __len__(self) -> int:
        return len(self._id_ends)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; the vocabularies are not counted."""
        own = (self._seq, self._length, self._flags, self._id_data, self._id_ends)
        return sum(column.nbytes for column in own) + self.entries.nbytes

    @property
    def seq(self) -> npt.NDArray[np.int64]:
        """(n,) int64 stream sequences, ascending."""
        return self._seq.rows

    @property
    def ts_ms(self) -> npt.NDArray[np.int64]:
        """(n,) int64 milliseconds since the epoch."""
        return self.entries.columns["ts_ms"].rows

    @property
    def agent(self) -> Codes:
        """(n,) int32 codes in ``agents``."""
        return self.entries.columns["agent_id"].rows

    @property
    def crew(self) -> Codes:
        """(n,) int32 codes in ``crews``."""
        return self.entries.columns["crew_id"].rows

    @property
    def session(self) -> Codes:
        """(n,) int32 codes in ``sessions`` (trace ids)."""
        return self.entries.columns["trace_id"].rows

    @property
    def actor(self) -> Codes:
        """(n,) int32 codes in ``actors``."""
        return self.entries.columns["actor_id"].rows

    @property
    def words(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16 words, stop words included; 65,535 stands for more."""
        return self.entries.columns["words"].rows

    @property
    def length(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16 indexed tokens."""
        return self._length.rows

    @property
    def flags(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16 flags."""
        return self._flags.rows

    def append(
        self,
        seq: npt.NDArray[np.int64],
        flags: npt.NDArray[np.uint16],
        ids: Texts,
        length: npt.NDArray[np.uint16],
    ) -> None:
        """Append documents, newer than all before; ``length`` holds their numbers of indexed tokens."""
        self._seq.append(seq)
        self._length.append(length)
        self._flags.append(flags)
        self.has_rules |= bool((flags & LEARNED).any())
        base = len(self._id_data)
        self._id_data.append(ids.data)
        self._id_ends.append(ids.ends + base)

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

        doc_numbers = np.full(len(entry_ids), ABSENT, np.int32)
        ends = self._id_ends.rows
        offsets = np.concatenate((np.zeros(1, np.int64), ends))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._id_data.rows)]
        ids = pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)
        distinct = list(dict.fromkeys(entry_id.encode() for entry_id in entry_ids))
        place = pc.index_in(ids, value_set=pa.array(distinct, pa.large_binary()))
        docs = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
        doc_of = dict(zip((distinct[at] for at in place.drop_null().to_pylist()), docs.tolist(), strict=True))
        for row, entry_id in enumerate(entry_ids):
            doc_numbers[row] = doc_of.get(entry_id.encode(), ABSENT)
        return doc_numbers

    def set_flag(self, doc: int, flag: int, on: bool) -> None:
        """Set or clear a flag of one document."""
        flags = self._flags.rows
        flags[doc] = flags[doc] | flag if on else flags[doc] & ~np.uint8(flag)
