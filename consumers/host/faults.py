"""The cause of a failed fold: the event, the environment, or the projection.

Invariant: an event is parked only for a fault that it would cause again on any machine. Faults of the environment
(disk, memory, a broken file) stop the host, because parking would lose good events. Any other fault is a bug of the
projection, which leaves the group while the other projections continue.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

import duckdb

from ...schemas.core.errors import FoldError, Unavailable, ViewsDamaged
from ...schemas.settings import PARKING_RECOVERY_EVENTS, PARKINGS_LIMIT
from ..projection import Projection

# Distinguishes a damaged file from every other fault that DuckDB reports.


_DAMAGE: Final = re.compile(
    "is not a valid DuckDB database file|Could not read enough bytes from file|Corrupt (?:database|WAL) file"
    "|WAL does not match database file|Is a directory"
)
"""Phrases in error texts of DuckDB 1.0 to 2.0, which has no exception class for damage. ``Corrupt`` is also in the text
with which DuckDB refuses all requests after the first such fault.
"""
_PATH: Final = re.compile(r'"[^"]*/([^"/]*)"')


def text_of(error: BaseException) -> str:
    """The first line of DuckDB's message, with file names instead of paths."""
    message = str(error).strip() or type(error).__name__
    return _PATH.sub(r'"\1"', message.splitlines()[0])


def as_damage(error: BaseException) -> ViewsDamaged | None:
    """The error ``ViewsDamaged`` if ``error`` means that a file is broken, else None."""
    if isinstance(error, duckdb.Error) and _DAMAGE.search(str(error)):
        return ViewsDamaged(f"the views are damaged: {text_of(error)}", hint=ViewsDamaged.HINT)
    return None


def damage_behind(error: BaseException | None) -> ViewsDamaged | None:
    """The ``ViewsDamaged`` in the chain of causes of ``error``, None if there is none."""
    while error is not None:
        if isinstance(error, ViewsDamaged):
            return error
        error = error.__cause__
    return None


@contextmanager
def telling_damage() -> Iterator[None]:
    """Converts DuckDB's errors about a damaged file to ``ViewsDamaged``.

    Raises:
        ViewsDamaged: If DuckDB reports a damaged file; other errors are raised unchanged.
    """
    try:
        yield
    except duckdb.Error as error:
        damage = as_damage(error)
        if damage is None:
            raise
        raise damage from error


class Fault(Enum):
    """The cause of an exception inside a fold's transaction: event, environment or projection."""

    EVENT = "event"
    ENVIRONMENT = "environment"
    PROJECTION = "projection"


class FoldingStopped(Unavailable):
    """The host cannot commit (disk, memory, dead letters unreachable); it continues when the cause is removed."""

    title = "Folding has stopped"


_ENVIRONMENT: Final = (
    OSError,
    MemoryError,
    duckdb.OperationalError,  # IOException, OutOfMemory, Connection, Serialization, Transaction, ResourceInUse
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.InterruptException,
    duckdb.PermissionException,
    Unavailable,  # includes ViewsDamaged and ViewsUnusable
)
_EVENT: Final = (
    FoldError,
    ValueError,  # includes UnicodeError and pyarrow's ArrowInvalid
    KeyError,
    IndexError,
    TypeError,
    ArithmeticError,
    RecursionError,
    duckdb.DataError,  # Conversion, OutOfRange, TypeMismatch
    duckdb.IntegrityError,
    duckdb.InvalidInputException,
)


def fault_of(error: BaseException) -> Fault:
    """Classify an exception raised inside a fold or by its commit."""
    if isinstance(error, _ENVIRONMENT):
        return Fault.ENVIRONMENT
    if isinstance(error, _EVENT):
        return Fault.EVENT
    return Fault.PROJECTION


def describe(error: BaseException) -> str:
    """One line for a dead letter or a status: our own messages, the type of other exceptions; no memory text, no path."""
    if isinstance(error, FoldError | Unavailable):
        return error.message
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or 'no reason given'}"
    if isinstance(error, duckdb.Error) and fault_of(error) is Fault.ENVIRONMENT:
        return f"{type(error).__name__}: {text_of(error)}"
    return f"{type(error).__name__} in the fold"


# Limits how many events a projection may park for unexpected errors before the projection itself is at fault.


PARKINGS_TABLE: Final = "parkings"
PARKINGS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {PARKINGS_TABLE} (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, strikes BIGINT NOT NULL)"""
LIMIT: Final = PARKINGS_LIMIT * PARKING_RECOVERY_EVENTS
"""Number of strikes at which a projection is suspended instead of parking."""


class Leniency:
    """Strikes of each projection: an unexpected parking adds ``PARKING_RECOVERY_EVENTS``; a folded event subtracts 1."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}

    def load(self, con: duckdb.DuckDBPyConnection, projections: Iterable[Projection]) -> None:
        """Load the strikes of these projection versions from the file."""
        known = con.execute(f"SELECT projection, version, strikes FROM {PARKINGS_TABLE}").fetchall()
        stored = {(name, version): strikes for name, version, strikes in known}
        all_strikes = {p.name: stored.get((p.name, p.version), 0) for p in projections}
        self._strikes = {name: strikes for name, strikes in all_strikes.items() if strikes}

    def is_used_up(self, projection: Projection) -> bool:
        """Whether the projection is suspended at the next event that it cannot fold."""
        return self._strikes.get(projection.name, 0) >= LIMIT

    def after_fold(self, projections: Iterable[Projection], events: int) -> dict[Projection, int]:
        """The strikes, after ``events`` folded events, of the projections that have strikes."""
        if not self._strikes:
            return {}
        return {p: max(0, self._strikes[p.name] - events) for p in projections if p.name in self._strikes}

    def after_parking(self, projection: Projection) -> dict[Projection, int]:
        """The projection's strikes after one more parking."""
        return {projection: self._strikes.get(projection.name, 0) + PARKING_RECOVERY_EVENTS}

    def learn(self, strikes: Mapping[Projection, int]) -> None:
        """Take over committed strikes."""
        for projection, count in strikes.items():
            if count:
                self._strikes[projection.name] = count
            else:
                self._strikes.pop(projection.name, None)


def write_strikes(con: duckdb.DuckDBPyConnection, strikes: Mapping[Projection, int]) -> None:
    """Store strikes, inside the caller's transaction."""
    for projection, count in strikes.items():
        forget_strikes(con, projection)
        if count:
            con.execute(f"INSERT INTO {PARKINGS_TABLE} VALUES (?, ?, ?)", [projection.name, projection.version, count])


def forget_strikes(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Forget the strikes of a projection, inside the caller's transaction."""
    con.execute(f"DELETE FROM {PARKINGS_TABLE} WHERE projection = ?", [projection.name])


# Restricts DuckDB to the files of its views: no statement can read, write, attach or load another file.


REBUILD_SUFFIX: Final = ".rebuild"
"""Suffix of the file that a rebuild fills next to the views and from which tables are copied."""
WAL_SUFFIX: Final = ".wal"
_PRIVATE: Final = 0o600


def beside(path: Path, suffix: str) -> Path:
    """The file next to ``path`` with that suffix."""
    return path.with_name(path.name + suffix)


def confine(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Restrict the database of ``con`` to ``path`` and the files that DuckDB keeps next to it.

    ``lock_configuration`` is not set, because setting the memory limit again returns memory (``store``). DuckDB refuses
    to lift these two restrictions while the file is open anyway.
    """
    rebuilt = beside(path, REBUILD_SUFFIX)
    allowed = ", ".join("'{}'".format(str(file).replace("'", "''")) for file in (rebuilt, beside(rebuilt, WAL_SUFFIX)))
    con.execute(f"SET allowed_paths = [{allowed}]")
    con.execute("SET enable_external_access = false")


def make_private(path: Path) -> None:
    """Remove other users' permissions on a view file and its log, which an earlier version may have left."""
    for file in (path, beside(path, WAL_SUFFIX)):
        if file.is_file() and file.stat().st_mode & ~_PRIVATE & 0o777:
            with contextlib.suppress(
                PermissionError
            ):  # the file of another user; `doctor` reports that others may read it
                file.chmod(_PRIVATE)
