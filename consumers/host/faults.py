"""The cause of a failed fold: the event, the environment, or the projection.

Invariant: only a fault that the same event would cause again on any machine parks the event; the environment's faults
(disk, memory, a broken file) stop the host, for parking would then lose good events; everything else is a bug of the
projection, which leaves the group while the others go on.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import duckdb

from ...schemas.errors import FoldError, Unavailable
from .damage import text_of


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
