"""Opens a node's view file, and puts one aside that cannot be of the stream at hand.

Invariant: no checkpoint of an opened file lies beyond the stream's end. If it did, the file would be of another stream or
of one that lost its end (a power failure, a restored backup): sequences would come again with other messages, and every
one up to the checkpoint would be skipped in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from crew_journal.consumers.host.store import ViewStore

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PutAside:
    """A view file that was replaced by an empty one.

    Attributes:
        seq: Its highest checkpoint.
        path: Where it is now; it may hold what the stream has lost.
    """

    seq: int
    path: Path


def open_views(path: Path, *, memory_mb: int, last_seq: int) -> tuple[ViewStore, PutAside | None]:
    """Open or create the file; blocking.

    Args:
        path: The DuckDB file.
        memory_mb: DuckDB's memory limit, MiB.
        last_seq: Last sequence of the stream.

    Returns:
        The store, and what was put aside for it.

    Raises:
        DataDirBusy: If another process has it open.
        Unavailable: If it cannot be opened.
    """
    store = ViewStore.open(path, memory_mb=memory_mb)
    seq = _highest_checkpoint(store)
    if seq <= last_seq:
        return store, None
    store.close()
    aside = PutAside(seq, path.with_name(f"{path.name}.of-{seq}"))
    path.replace(aside.path)
    _log.error("views.ahead_of_stream", views_seq=seq, stream_seq=last_seq, kept_as=aside.path.name)
    return ViewStore.open(path, memory_mb=memory_mb), aside


def _highest_checkpoint(store: ViewStore) -> int:
    if not store.rows("SELECT 1 FROM information_schema.tables WHERE table_name = 'checkpoint'"):
        return 0
    ((highest,),) = store.rows("SELECT coalesce(max(seq), 0) FROM checkpoint")
    return int(highest)
