"""Which stream a view file was folded from, kept in the file itself and compared with the current stream.

Why: sequences of two streams look alike. A file of another broker, or of a stream that was recreated, would pass for this
one's wherever its checkpoint is not beyond the end: rows, tokens included, would be shown that this journal never held,
and its own entries up to the checkpoint would never be folded.

Invariant: a file with a checkpoint is opened only if it bears the stamp of the stream, the time at which the stream was
made (to the nanosecond; it survives restarts and a copied store), and its newest entry is still the message at that
sequence. The second rejects the same stream when it was restored from an older copy and has grown differently since. A
stream whose metadata was lost is recreated by the broker around the blocks that are there: it is known by its messages.
A file of before there were stamps has only the second: an id in a workspace, 128 bits of their hash, and 128 bits of
the content's do not agree by chance at the same sequence of two streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import duckdb

from ...schemas.decode import decode
from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded
from ...schemas.subjects import JOURNAL_STREAM
from ..feed.messages import RawMessage
from .admission import ADMISSION_TABLE
from .store import ViewStore
from .transaction import transaction

STREAM_TABLE: Final = "folded_stream"
STREAM_DDL: Final = f"CREATE TABLE IF NOT EXISTS {STREAM_TABLE} (stream VARCHAR NOT NULL, made VARCHAR NOT NULL)"
_HALF: Final = 8
_SAMPLE: Final = 4
"""Entries asked for at each end of a stream that may have been recreated around the same messages."""


@dataclass(frozen=True, slots=True)
class StreamAtHand:
    """The stream that views are to be folded from.

    Attributes:
        made: When it was made, as the broker writes it; distinguishes it from every other.
        last_seq: Its last sequence.
        message: The message stored at a sequence, None if it is gone; blocking.
        own: Whether it lies in the data directory of the views, so that another stream there means that everything was lost.
    """

    made: str
    last_seq: int
    message: Callable[[int], RawMessage | None]
    own: bool = False


@dataclass(frozen=True, slots=True)
class NotOf:
    """Why views must not be used with a stream.

    Attributes:
        reason: The reason, for an error message.
        ahead: True if the views hold entries that this stream has lost; False if they belong to another stream.
    """

    reason: str
    ahead: bool


def why_not_of(store: ViewStore, stream: StreamAtHand, seq: int) -> NotOf | None:
    """Why the views cannot be of this stream, None if they are.

    Args:
        store: The views.
        stream: The stream.
        seq: The highest checkpoint of the views.

    Raises:
        ViewsDamaged: If the file is broken.
        BrokerUnavailable: If the broker does not answer.
    """
    if seq == 0:
        return None
    stamp = _stamp_of(store)
    known = stamp is not None
    if known and stamp != stream.made and not _is_held(store, stream):
        if stream.own:
            return NotOf(
                f"the stream was recreated at {stream.made}; the views, of one made {stamp}, went to {seq}", True
            )
        return NotOf(f"views of another stream, made {stamp}; this one was made {stream.made}", False)
    if seq > stream.last_seq:
        if known or stream.own:
            return NotOf(f"the stream has lost its end: the views went to {seq}, it ends at {stream.last_seq}", True)
        return NotOf(f"views of another stream, which went to {seq}; this one ends at {stream.last_seq}", False)
    newest = _entries(store, seq, "DESC", 1)
    if not newest:
        return None if known else NotOf("views without the stamp of a stream", False)
    at, identity, content = newest[0]
    stored = stream.message(at)
    if stored is None:  # deleted since, or another stream's gap
        if known:
            return None
        return NotOf(f"views that cannot be compared with this stream: {at} is gone", False)
    if _entry_of(stored) != (identity, content):
        where = "views of another stream, or of this one before it was restored"
        return NotOf(f"{where}: it holds another message at {at}", known)
    return None


def _is_held(store: ViewStore, stream: StreamAtHand) -> bool:
    """Whether the stream holds the first and the last entries of the views, where there is a message at all."""
    sample = [entry for order in ("DESC", "ASC") for entry in _entries(store, stream.last_seq, order, _SAMPLE)]
    stored = [(stream.message(seq), identity, content) for seq, identity, content in sample]
    matches = [
        _entry_of(message) == (identity, content) for message, identity, content in stored if message is not None
    ]
    return bool(matches) and all(matches)


def stamp(con: duckdb.DuckDBPyConnection, created: str) -> bool:
    """Write the stamp of the stream in one transaction; returns whether it is new to the file."""
    with transaction(con):
        con.execute(STREAM_DDL)
        if con.execute(f"SELECT stream, made FROM {STREAM_TABLE}").fetchall() == [(JOURNAL_STREAM, created)]:
            return False
        con.execute(f"DELETE FROM {STREAM_TABLE}")
        con.execute(f"INSERT INTO {STREAM_TABLE} VALUES (?, ?)", [JOURNAL_STREAM, created])
    return True


def _stamp_of(store: ViewStore) -> str | None:
    if STREAM_TABLE not in store.tables():
        return None
    rows = store.rows(f"SELECT made FROM {STREAM_TABLE} WHERE stream = ?", [JOURNAL_STREAM])
    return str(rows[0][0]) if rows else None


def _entries(store: ViewStore, last_seq: int, order: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """Sequence, identity and content of the first or last entries that were admitted up to a sequence."""
    if ADMISSION_TABLE not in store.tables():
        return []
    rows = store.rows(
        f"SELECT seq, k0, k1, content FROM {ADMISSION_TABLE} WHERE seq <= ? ORDER BY seq {order} LIMIT ?",
        [last_seq, count],
    )
    return [
        (int(seq), k0.to_bytes(_HALF, "little") + k1.to_bytes(_HALF, "little"), bytes(content))
        for seq, k0, k1, content in rows
    ]


def _entry_of(message: RawMessage) -> tuple[bytes, bytes] | None:
    try:
        event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
    except FoldError:
        return None
    return (event.identity, event.content) if isinstance(event, EntryRecorded) else None
