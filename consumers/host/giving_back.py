"""Returns memory to the system that DuckDB, Arrow and the C library have freed but keep.

Why: after 100,000 entries were folded DuckDB's allocator kept 130 MiB of freed pages and Arrow's default one 170 (in a heap
for each thread that ever used it, which only that thread can empty); after loading their hot index the C library's kept 140
and Arrow's 110. Each returns it only during further work, and an idle node has none.

Invariant: nothing in use is touched and no result changes; only the next allocations have to ask the system again.
"""

from __future__ import annotations

from typing import Final

import duckdb
import pyarrow as pa
import structlog

_SET_LIMIT: Final = "SET memory_limit = '{limit}'"
"""Setting the limit, be it to the same value, makes DuckDB purge its allocator and trim the C library's. The settings named
for it (``allocator_flush_threshold``) apply to DuckDB's own threads only, and this process has none."""

_log = structlog.get_logger(__name__)


def share_one_heap() -> None:
    """Have Arrow, in the whole process, take memory from the C library: freed in one thread, it serves all and can go back.

    Rebuilding costs the same CPU as with Arrow's mimalloc: 48.4 and 49.0 µs a message, the mean of two runs each.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def give_back(con: duckdb.DuckDBPyConnection, memory_limit: str) -> None:
    """Return freed memory to the system; 5 to 20 ms after 100,000 entries were folded.

    Args:
        con: The writer's connection, between transactions.
        memory_limit: DuckDB's limit as it is set, for example ``512MB``; it stays as it is.
    """
    try:
        con.execute(_SET_LIMIT.format(limit=memory_limit))
    except duckdb.OutOfMemoryException:  # more than the limit is pinned: nothing of it is free
        _log.debug("duckdb_memory_kept")
    pa.default_memory_pool().release_unused()
