"""Keeps DuckDB to the files of its views: no statement reads, writes, attaches or loads another one.

Invariant: whatever SQL reaches a connection, it opens the view file, what DuckDB keeps beside it (log, spill folder) and the
file of a rebuild, and nothing else; it cannot be allowed more while the file is open. All of them are their owner's alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import duckdb

REBUILD_SUFFIX: Final = ".rebuild"
"""Of the file that a rebuild fills beside the views and some of its tables are copied from."""
WAL_SUFFIX: Final = ".wal"
_PRIVATE: Final = 0o600


def beside(path: Path, suffix: str) -> Path:
    """The file of that suffix beside ``path``."""
    return path.with_name(path.name + suffix)


def confine(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Confine the whole database of ``con``; DuckDB itself adds the files that it keeps beside ``path``.

    ``lock_configuration`` is not set: the memory limit is set again to give memory back (``giving_back``). Without it, too,
    DuckDB refuses to lift these two while the file is open.
    """
    rebuilt = beside(path, REBUILD_SUFFIX)
    allowed = ", ".join("'{}'".format(str(file).replace("'", "''")) for file in (rebuilt, beside(rebuilt, WAL_SUFFIX)))
    con.execute(f"SET allowed_paths = [{allowed}]")
    con.execute("SET enable_external_access = false")


def make_private(path: Path) -> None:
    """Take the rights of others from a view file and its log, should an earlier version have left them any."""
    for file in (path, beside(path, WAL_SUFFIX)):
        if file.is_file() and file.stat().st_mode & ~_PRIVATE & 0o777:
            with contextlib.suppress(PermissionError):  # another user's; `doctor` says that others may read it
                file.chmod(_PRIVATE)
