"""Opens a node's view file, and renames a file that is damaged or cannot belong to the current stream.

Invariant: an opened file belongs to the current stream, which ``STREAM_TABLE`` records, and no checkpoint in it lies
beyond the stream's end. A checkpoint beyond the end means that the stream has lost its end (a power failure, a restored
backup): its sequences would be assigned to other messages, which would be skipped silently up to the checkpoint. A file
is renamed, never overwritten; a file with entries that the stream has lost (``AHEAD``) is kept until an operator has
accepted the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import duckdb
import structlog

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import FoldError, Unavailable, ViewsDamaged
from ...schemas.core.subjects import JOURNAL_STREAM
from ...schemas.decode import decode
from ..feed.messages import RawMessage
from .admission import ADMISSION_TABLE
from .store import StreamStamp, ViewStore
from .transaction import transaction

# The identity of the folded stream, stored in the view file and compared with the current stream.


STREAM_TABLE: Final = "folded_stream"
STREAM_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {STREAM_TABLE} (stream VARCHAR NOT NULL, made VARCHAR NOT NULL);
    ALTER TABLE {STREAM_TABLE} ADD COLUMN IF NOT EXISTS journal VARCHAR"""
_HALF: Final = 8
_SAMPLE: Final = 4
"""Number of entries that are compared at each end of a stream that may have been recreated with the same messages."""


@dataclass(frozen=True, slots=True)
class StreamAtHand:
    """The stream from which views are folded.

    Attributes:
        made: Creation time in the broker's format; distinguishes the stream from every other.
        last_seq: Its last sequence.
        message: Returns the message at a sequence, None if it is deleted; blocking.
        own: Whether the stream is stored in the data directory of the views; a different stream there means that the
            former stream was lost, or that the views are of another journal.
        journal: As in ``StreamStamp``.
    """

    made: str
    last_seq: int
    message: Callable[[int], RawMessage | None]
    own: bool = False
    journal: str | None = None

    @property
    def stamp(self) -> StreamStamp:
        """What views of this stream bear."""
        return StreamStamp(self.made, self.journal)


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
    """Why the views cannot belong to this stream, None if they belong to it.

    Args:
        store: The views.
        stream: The stream.
        seq: The highest checkpoint of the views.

    Raises:
        ViewsDamaged: If the file is damaged.
        BrokerUnavailable: If the broker does not answer.
    """
    if seq == 0:
        return None
    folded = _stamp_of(store)
    known = folded is not None
    if folded is not None and folded.made != stream.made and not _is_held(store, stream):
        foreign = None not in (folded.journal, stream.journal) and folded.journal != stream.journal
        if stream.own and not foreign:
            return NotOf(
                f"the stream was recreated at {stream.made}; the views, of one made {folded.made}, went to {seq}", True
            )
        what = "another journal" if foreign else "another stream"
        return NotOf(f"views of {what}, made {folded.made}; this one was made {stream.made}", False)
    if seq > stream.last_seq:
        if known or stream.own:
            return NotOf(f"the stream has lost its end: the views went to {seq}, it ends at {stream.last_seq}", True)
        return NotOf(f"views of another stream, which went to {seq}; this one ends at {stream.last_seq}", False)
    newest = _entries(store, seq, "DESC", 1)
    if not newest:
        return None if known else NotOf("views without the stamp of a stream", False)
    at, identity, content = newest[0]
    stored = stream.message(at)
    if stored is None:  # deleted later, or a gap of another stream
        if known:
            return None
        return NotOf(f"views that cannot be compared with this stream: {at} is gone", False)
    if _entry_of(stored) != (identity, content):
        where = "views of another stream, or of this one before it was restored"
        return NotOf(f"{where}: it holds another message at {at}", known)
    return None


def _is_held(store: ViewStore, stream: StreamAtHand) -> bool:
    """Whether the stream holds the first and the last entries of the views, except at deleted sequences."""
    sample = [entry for order in ("DESC", "ASC") for entry in _entries(store, stream.last_seq, order, _SAMPLE)]
    stored = [(stream.message(seq), identity, content) for seq, identity, content in sample]
    matches = [
        _entry_of(message) == (identity, content) for message, identity, content in stored if message is not None
    ]
    return bool(matches) and all(matches)


def stamp(con: duckdb.DuckDBPyConnection, known: StreamStamp) -> bool:
    """Write the stream's stamp in one transaction; returns whether the file had no such stamp."""
    with transaction(con):
        con.execute(STREAM_DDL)
        wanted = (JOURNAL_STREAM, *known)
        if con.execute(f"SELECT stream, made, journal FROM {STREAM_TABLE}").fetchall() == [wanted]:
            return False
        con.execute(f"DELETE FROM {STREAM_TABLE}")
        con.execute(f"INSERT INTO {STREAM_TABLE} VALUES (?, ?, ?)", wanted)
    return True


def _stamp_of(store: ViewStore) -> StreamStamp | None:
    if STREAM_TABLE not in store.tables():
        return None
    rows = store.rows(f"SELECT * FROM {STREAM_TABLE} WHERE stream = ?", [JOURNAL_STREAM])
    return StreamStamp(*rows[0][1:]) if rows else None


def _entries(store: ViewStore, last_seq: int, order: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """Sequence, identity and content hash of the first or last entries that were admitted up to ``last_seq``."""
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


AHEAD: Final = ".ahead-"
"""Marks the name of a view file with events that the stream has lost."""
DAMAGED: Final = ".damaged-"
"""Marks the name of a view file with bad blocks; its other blocks may also hold entries that the stream has lost."""
_WAL: Final = ".wal"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PutAside:
    """A view file that was replaced by an empty file, into which the stream is folded again.

    Attributes:
        name: New name of the file, in the same folder.
        reason: Why it was replaced.
        at: When it was renamed.
        ahead: Whether it has entries that the stream has lost.
        damaged: Whether it has bad blocks.
    """

    name: str
    reason: str
    at: datetime
    ahead: bool = False
    damaged: bool = False


def open_views(path: Path, *, memory_mb: int, stream: StreamAtHand) -> tuple[ViewStore, PutAside | None]:
    """Open or create the file; blocking.

    Args:
        path: The DuckDB file.
        memory_mb: DuckDB's memory limit, MiB.
        stream: The stream from which the views are folded.

    Returns:
        The store, and the file that was renamed for it.

    Raises:
        DataDirBusy: If another process has it open.
        Unavailable: If the file cannot be opened, or the broker does not answer.
    """
    try:
        store = ViewStore.open(path, memory_mb=memory_mb)
        try:
            seq = _highest_checkpoint(store)
            wrong = why_not_of(store, stream, seq)
            if wrong is None:
                _bind(store, stream)
                return store, None
        except BaseException:
            store.close()
            raise
    except ViewsDamaged as damage:
        aside = put_damaged_aside(path, damage)
        return _open_new(path, memory_mb, stream), aside
    store.close()
    now = datetime.now(UTC)
    suffix = f"{AHEAD}{now:%Y%m%dT%H%M%S.%fZ}" if wrong.ahead else f".of-{seq}"
    aside = replace(_put_aside(path, suffix, wrong.reason), ahead=wrong.ahead)
    fields = {"views_seq": seq, "stream_seq": stream.last_seq, "reason": wrong.reason, "kept_as": aside.name}
    _log.error("journal.lost_its_end" if wrong.ahead else "views.of_another_stream", **fields)
    return _open_new(path, memory_mb, stream), aside


def _open_new(path: Path, memory_mb: int, stream: StreamAtHand) -> ViewStore:
    store = ViewStore.open(path, memory_mb=memory_mb)
    try:
        _bind(store, stream)
    except BaseException:
        store.close()
        raise
    return store


def _bind(store: ViewStore, stream: StreamAtHand) -> None:
    if store.write_blocking(lambda con: stamp(con, stream.stamp)):
        store.write_blocking(lambda con: con.execute("CHECKPOINT"))  # DDL never waits in the log (facts/duckdb.md)
    store.stamp = stream.stamp


def inspect_views(path: Path) -> int:
    """Check, without changing it, whether an unused file can be opened; reads the header, not the rows.

    Returns:
        The highest folded sequence.

    Raises:
        ViewsDamaged: If the file is damaged.
        DataDirBusy: If another process has it open.
        Unavailable: If the file cannot be opened for another reason.
    """
    store = ViewStore(path, {"threads": 1, "access_mode": "READ_ONLY"})
    try:
        return _highest_checkpoint(store)
    finally:
        store.close()


def put_damaged_aside(path: Path, damage: ViewsDamaged) -> PutAside:
    """Rename a closed, damaged file and its log.

    Files that were renamed earlier stay until a check has shown that the journal has lost nothing (``forget_damaged``).

    Raises:
        Unavailable: If the file cannot be renamed.
    """
    now = datetime.now(UTC)
    aside = replace(_put_aside(path, f"{DAMAGED}{now:%Y%m%dT%H%M%S.%fZ}", damage.message), damaged=True)
    _log.error("views.damaged", reason=damage.message, kept_as=aside.name)
    return aside


def forget_damaged(path: Path) -> None:
    """Remove the renamed damaged files except the last; call it only if the journal has lost nothing."""
    files = sorted(file for file in path.parent.glob(f"{path.name}{DAMAGED}*") if file.is_file())
    names = sorted({file.name.removesuffix(_WAL) for file in files})
    for old in files:
        if old.name.removesuffix(_WAL) != names[-1]:
            old.unlink(missing_ok=True)


def _put_aside(path: Path, suffix: str, reason: str) -> PutAside:
    kept = path.with_name(path.name + suffix)
    while kept.exists():
        kept = kept.with_name(kept.name + "-")
    log, kept_log = path.with_name(path.name + _WAL), kept.with_name(kept.name + _WAL)
    try:
        if log.exists():
            log.replace(kept_log)  # first, because a log without its file would be applied to the next file
        path.replace(kept)
    except FileNotFoundError:
        pass  # only a log was left
    except OSError as error:
        raise Unavailable(
            f"{reason}, and {path.name} cannot be moved: {error.strerror}",
            hint=f"move {path.name} out of the data directory yourself; it is folded again from the journal",
        ) from error
    return PutAside(kept.name, reason, datetime.now(UTC))


def _highest_checkpoint(store: ViewStore) -> int:
    """The highest checkpoint in the file.

    Raises:
        ViewsDamaged: If the file ends before its last block, which DuckDB itself notices only when it reads that far.
    """
    _refuse_cut_off(store)
    if "checkpoint" not in store.tables():
        return 0
    ((highest,),) = store.rows("SELECT coalesce(max(seq), 0) FROM checkpoint")
    return int(highest)


def _refuse_cut_off(store: ViewStore) -> None:
    size = store.path.stat().st_size
    ((block, total),) = store.rows("SELECT block_size, total_blocks FROM pragma_database_size()")
    if size >= block * total:
        return
    needed = block * (_last_block(store) + 1)  # DuckDB also cuts free blocks off the end, but still counts them
    if size < needed:
        raise ViewsDamaged(
            f"the views are damaged: their file ends at {size:,} bytes of {needed:,}", hint=ViewsDamaged.HINT
        )


def _last_block(store: ViewStore) -> int:
    """The last block of the file that is in use; takes 20 ms."""
    tables = store.rows("SELECT table_name FROM duckdb_tables() WHERE NOT temporary")
    of_rows = "SELECT greatest(max(block_id), max(list_max(additional_block_ids))) FROM pragma_storage_info(?)"
    last = [block for (table,) in tables for (block,) in store.rows(of_rows, [f'"{table}"'])]
    last += [block for (block,) in store.rows("SELECT max(block_id) FROM pragma_metadata_info()")]
    return max((int(block) for block in last if block is not None), default=-1)
