"""The cause of a failed fold: the event, the environment, or the projection.

Invariant: only a fault that the same event would cause again on any machine parks the event; the environment's faults
(disk, memory, a broken file) stop the host, for parking would then lose good events; everything else is a bug of the
projection, which leaves the group while the others go on.
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
"""In the texts of DuckDB 1.0 to 2.0; it has no class for them. ``Corrupt`` also stands in the text by which it refuses
everything after the first such fault."""
_PATH: Final = re.compile(r'"[^"]*/([^"/]*)"')


def text_of(error: BaseException) -> str:
    """The first line of what DuckDB says, names of files instead of their paths."""
    message = str(error).strip() or type(error).__name__
    return _PATH.sub(r'"\1"', message.splitlines()[0])


def as_damage(error: BaseException) -> ViewsDamaged | None:
    """The error ``ViewsDamaged`` if ``error`` means that a file is broken, else None."""
    if isinstance(error, duckdb.Error) and _DAMAGE.search(str(error)):
        return ViewsDamaged(f"the views are damaged: {text_of(error)}", hint=ViewsDamaged.HINT)
    return None


def damage_behind(error: BaseException | None) -> ViewsDamaged | None:
    """The damage that ``error`` is or was raised from, None if absent."""
    while error is not None:
        if isinstance(error, ViewsDamaged):
            return error
        error = error.__cause__
    return None


@contextmanager
def telling_damage() -> Iterator[None]:
    """Raises what DuckDB says of a broken file as our own error.

    Raises:
        ViewsDamaged: In its place; every other error goes on as it is.
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
    """The host cannot commit (disk, memory, dead letters unreachable); it folds again when the cause is gone."""

    title = "Folding has stopped"


_ENVIRONMENT: Final = (
    OSError,
    MemoryError,
    duckdb.OperationalError,  # IOException, OutOfMemory, Connection, Serialization, Transaction, ResourceInUse
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.InterruptException,
    duckdb.PermissionException,
    Unavailable,  # ViewsDamaged and ViewsUnusable among them
)
_EVENT: Final = (
    FoldError,
    ValueError,  # UnicodeError and pyarrow's ArrowInvalid among them
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
    """One line for a dead letter or a status: our own messages whole, others by type; never memory text, never a path."""
    if isinstance(error, FoldError | Unavailable):
        return error.message
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or 'no reason given'}"
    if isinstance(error, duckdb.Error) and fault_of(error) is Fault.ENVIRONMENT:
        return f"{type(error).__name__}: {text_of(error)}"
    return f"{type(error).__name__} in the fold"


# How many events a projection may have parked for faults that it did not foresee, before it is the projection's fault.


PARKINGS_TABLE: Final = "parkings"
PARKINGS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {PARKINGS_TABLE} (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, strikes BIGINT NOT NULL)"""
LIMIT: Final = PARKINGS_LIMIT * PARKING_RECOVERY_EVENTS
"""Strikes at which a projection parks no more."""


class Leniency:
    """Strikes of each projection: an unforeseen parking adds ``PARKING_RECOVERY_EVENTS``, a folded event takes one away."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}

    def load(self, con: duckdb.DuckDBPyConnection, projections: Iterable[Projection]) -> None:
        """Take the strikes of these versions from the file."""
        known = con.execute(f"SELECT projection, version, strikes FROM {PARKINGS_TABLE}").fetchall()
        stored = {(name, version): strikes for name, version, strikes in known}
        all_strikes = {p.name: stored.get((p.name, p.version), 0) for p in projections}
        self._strikes = {name: strikes for name, strikes in all_strikes.items() if strikes}

    def is_used_up(self, projection: Projection) -> bool:
        """Whether the next event that it cannot fold is no longer parked."""
        return self._strikes.get(projection.name, 0) >= LIMIT

    def after_fold(self, projections: Iterable[Projection], events: int) -> dict[Projection, int]:
        """The strikes of those that have any, once they have folded so many events."""
        if not self._strikes:
            return {}
        return {p: max(0, self._strikes[p.name] - events) for p in projections if p.name in self._strikes}

    def after_parking(self, projection: Projection) -> dict[Projection, int]:
        """Its strikes once an event was parked."""
        return {projection: self._strikes.get(projection.name, 0) + PARKING_RECOVERY_EVENTS}

    def learn(self, strikes: Mapping[Projection, int]) -> None:
        """What was committed."""
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


# Keeps DuckDB to the files of its views: no statement reads, writes, attaches or loads another one.


REBUILD_SUFFIX: Final = ".rebuild"
"""Of the file that a rebuild fills beside the views and some of its tables are copied from."""
WAL_SUFFIX: Final = ".wal"
_PRIVATE: Final = 0o600


def beside(path: Path, suffix: str) -> Path:
    """The file of that suffix beside ``path``."""
    return path.with_name(path.name + suffix)


def confine(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Confine the whole database of ``con``; DuckDB itself adds the files that it keeps beside ``path``.

    ``lock_configuration`` is not set: the memory limit is set again to give memory back (``store``). Without it, too,
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
