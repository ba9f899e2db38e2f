"""Decides which entry is the first with its (workspace, id).

The index is in memory; the table ``admitted`` restores it at a start.

Invariant: an entry is canonical iff the index's sequence for its key is its own. The first entry in the stream wins, so
the decision depends on the log alone: projections at different checkpoints, replays and retries decide equally, and an
index that is ahead of the commits changes no decision.

Memory: 40 bytes an entry in sorted arrays, plus a dict of at most ``TAIL_ENTRIES`` recent ones.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import duckdb
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import ViewsDamaged
from ...schemas.core.ids import identity_key
from ...schemas.core.ports import Identity
from ...schemas.core.table import Tables
from ...schemas.entries.events import ErasureRequested, ErasureScoped
from ...schemas.entries.tables import ADMISSION_PROJECTION, ADMITTED, BARRED
from .transaction import arrow_table, insert_columns

ADMISSION_VERSION: Final = 1
ADMISSION_TABLE: Final = ADMITTED.name
ADMISSION_TABLES: Final = (ADMITTED, BARRED)
TAIL_ENTRIES: Final = 65_536
"""Maximum entries of the dict before it is merged into the arrays: about 20 MB; a merge into 1M entries takes 0.1 s."""

_KEY_BYTES: Final = 16
_ODD_CONTENT: Final = f"SELECT min(seq) FROM {ADMISSION_TABLE} WHERE octet_length(content) <> {_KEY_BYTES}"
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Columns sorted by ``k0``; ``c0, c1`` are the content hash."""

    k0: U64
    k1: U64
    c0: U64
    c1: U64
    seq: U64


def _empty() -> _Sorted:
    none = np.empty(0, np.uint64)
    return _Sorted(none, none, none, none, none)


def _halves(joined: bytes) -> tuple[U64, U64]:
    pairs = np.frombuffer(joined, dtype="<u8").reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


class IdentityIndex:
    """Implements ``schemas.core.ports.IdentityReader``; ``find`` is memory only and may be called from any thread."""

    def __init__(self) -> None:
        self._sorted = _empty()
        self._tail: dict[bytes, tuple[int, bytes]] = {}
        self._barred: dict[bytes, int] = {}
        self._changing = threading.Lock()

    def __len__(self) -> int:
        """The number of identities."""
        return len(self._sorted.seq) + len(self._tail)

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Replace the content by the table ``admitted``.

        Raises:
            ViewsDamaged: If a content hash in the table has the wrong length.
        """
        ((odd,),) = con.execute(_ODD_CONTENT).fetchall()
        if odd is not None:
            raise ViewsDamaged(
                f"the views are damaged: table {ADMISSION_TABLE}, row {odd}: no content hash", hint=ViewsDamaged.HINT
            )
        table = arrow_table(con, f"SELECT k0, k1, content, seq FROM {ADMISSION_TABLE} ORDER BY k0")
        barred = con.execute(f"SELECT k0, k1, min(seq) FROM {BARRED} GROUP BY k0, k1").fetchall()
        content = b"".join(table.column("content").to_pylist())
        c0, c1 = _halves(content)
        k0, k1, seq = (table.column(name).to_numpy() for name in ("k0", "k1", "seq"))
        with self._changing:
            self._barred = {b"".join(half.to_bytes(8, "little") for half in key): at for *key, at in barred}
            self._sorted = _Sorted(k0, k1, c0, c1, seq)  # before the tail: ``find`` on other threads misses nothing
            self._tail = {}

    def find(self, workspace_id: str, entry_id: str) -> Identity | None:
        """The first entry with this id, if the views know one."""
        row = self._find(identity_key(workspace_id, entry_id))
        return None if row is None else Identity(*row)

    def find_all(self, wanted: Sequence[tuple[str, str]]) -> list[Identity | None]:
        """``find`` for many workspaces and ids, at a third of its cost each."""
        keys = [identity_key(workspace_id, entry_id) for workspace_id, entry_id in wanted]
        tail = (
            self._tail
        )  # before the arrays, as in ``_find``: a merge fills the arrays first and then replaces the tail
        rows = (tail.get(key) or older for key, older in zip(keys, self._find_many(keys), strict=True))
        return [None if row is None else Identity(*row) for row in rows]

    @property
    def bars(self) -> bool:
        """Whether any id was erased."""
        return bool(self._barred)

    def bar(self, seq: int, keys: Iterable[bytes]) -> None:
        """Learn that ids were erased by the event at ``seq``."""
        for key in keys:
            self._barred[key] = min(seq, self._barred.get(key, seq))

    def is_barred(self, key: bytes, seq: int) -> bool:
        """Whether an id was erased before ``seq``; an index that is ahead of the commits decides equally."""
        at = self._barred.get(key)
        return at is not None and at < seq

    def _find(self, key: bytes) -> tuple[int, bytes] | None:
        hit = self._tail.get(key)  # before the arrays: a merge fills the arrays first and empties the tail last
        if hit is not None:
            return hit
        known = self._sorted
        k0, k1 = (int.from_bytes(half, "little") for half in (key[:8], key[8:]))
        at = int(known.k0.searchsorted(np.uint64(k0)))
        while at < len(known.k0) and int(known.k0[at]) == k0:
            if int(known.k1[at]) == k1:
                return int(known.seq[at]), _content(known, at)
            at += 1
        return None

    def admit(self, entries: Sequence[EntryRecorded]) -> list[tuple[int, bytes] | None]:
        """Learn the entries of a batch, in stream order.

        Returns:
            For each entry None if it is canonical, else sequence and content hash of the first entry with its id.
        """
        if not entries:
            return []
        with self._changing:
            older = self._find_many([entry.identity for entry in entries])
            verdicts: list[tuple[int, bytes] | None] = []
            tail = self._tail
            for entry, known in zip(entries, older, strict=True):
                first = known or tail.get(entry.identity)
                if first is None or first[0] > entry.seq:
                    tail[entry.identity] = (entry.seq, entry.content)
                    verdicts.append(None)
                else:
                    verdicts.append(None if first[0] == entry.seq else first)
            if len(tail) >= TAIL_ENTRIES:
                self._merge()
            return verdicts

    def _find_many(self, keys: list[bytes]) -> list[tuple[int, bytes] | None]:
        known = self._sorted
        rows: list[tuple[int, bytes] | None] = [None] * len(keys)
        if not keys or not len(known.k0):
            return rows
        k0, _ = _halves(b"".join(keys))
        at = np.minimum(known.k0.searchsorted(k0), len(known.k0) - 1)
        for i in np.flatnonzero(known.k0[at] == k0).tolist():
            rows[i] = self._find(keys[i])
        return rows

    def _merge(self) -> None:
        tail = self._tail
        k0, k1 = _halves(b"".join(tail))
        c0, c1 = _halves(b"".join(content for _, content in tail.values()))
        seq = np.fromiter((at for at, _ in tail.values()), np.uint64, len(tail))
        known = self._sorted
        joined = _Sorted(
            np.concatenate((known.k0, k0)),
            np.concatenate((known.k1, k1)),
            np.concatenate((known.c0, c0)),
            np.concatenate((known.c1, c1)),
            np.concatenate((known.seq, seq)),
        )
        order = np.argsort(joined.k0, kind="stable")
        self._sorted = _Sorted(
            joined.k0[order], joined.k1[order], joined.c0[order], joined.c1[order], joined.seq[order]
        )
        self._tail = {}


def _content(known: _Sorted, at: int) -> bytes:
    return int(known.c0[at]).to_bytes(8, "little") + int(known.c1[at]).to_bytes(8, "little")


class AdmissionView:
    """The table ``admitted``, declared for ``verify`` like a projection."""

    name: ClassVar[str] = ADMISSION_PROJECTION
    tables: ClassVar[Tables] = ADMISSION_TABLES


def erased_by(event: EntryRecorded) -> list[bytes]:
    """The keys of the ids that an event erases; none if it is not valid, because it is then parked."""
    ids: tuple[str, ...] = ()
    with contextlib.suppress(ValidationError):
        if event.entry.entry_type == ErasureRequested.ENTRY_TYPE:
            ids = ErasureRequested.model_validate(event.entry.payload).entry_ids
        elif event.entry.entry_type == ErasureScoped.ENTRY_TYPE:
            ids = ErasureScoped.model_validate(event.entry.payload).scope.ids
    return [identity_key(event.workspace_id, entry_id) for entry_id in ids]


def insert_admitted(con: duckdb.DuckDBPyConnection, entries: Sequence[EntryRecorded]) -> None:
    """Write the rows of newly admitted entries and erased ids, inside the caller's transaction."""
    if not entries:
        return
    barred = [(entry.seq, key) for entry in entries if entry.control for key in erased_by(entry)]
    if barred:
        k0, k1 = _halves(b"".join(key for _, key in barred))
        seq = np.fromiter((seq for seq, _ in barred), np.uint64, len(barred))
        insert_columns(con, BARRED.name, {"seq": seq, "k0": k0, "k1": k1})
    k0, k1 = _halves(b"".join(entry.identity for entry in entries))
    columns = {
        "k0": k0,
        "k1": k1,
        "content": [entry.content for entry in entries],
        "seq": np.fromiter((entry.seq for entry in entries), np.uint64, len(entries)),
    }
    insert_columns(con, ADMISSION_TABLE, columns)
