"""Declares a table of a view by the type of its rows: columns, key, digest, and the columns of in-memory indexes.

Invariant: DDL, typed rows, replacing and deleting by key, digest, hot columns and their loading follow from the
declaration (``consumers/host/transaction``, ``services/index``); there is no second list of a table's columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R", bound=tuple[Any, ...])

Seq = Annotated[int, "UBIGINT"]
"""A stream sequence, or a 64-bit hash."""
Int32 = Annotated[int, "INTEGER"]
Ms = int
"""Milliseconds since the epoch."""

PRESENT: Final = "until_seq IS NULL"
"""SQL condition that selects the current rows of a table that keeps history (columns ``since_seq`` and ``until_seq``)."""


def as_of(seq: int) -> str:
    """SQL condition that selects the rows that were current right after the event at ``seq``."""
    return f"since_seq <= {seq:d} AND (until_seq IS NULL OR until_seq > {seq:d})"


_TYPES: Final = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", bytes: "BLOB", str: "VARCHAR"}


@dataclass(frozen=True, slots=True)
class Hot:
    """How the in-memory indexes of entries hold a column; one value per entry.

    Attributes:
        dtype: numpy's name of the type; values outside the range of an unsigned type are clipped.
        missing: The value for a document without a row in the table.
        coded: Whether the column is text, held as codes of a vocabulary.
    """

    dtype: str
    missing: float = 0
    coded: bool = False


CODED: Final = Hot("int32", missing=-1, coded=True)


@dataclass(frozen=True, slots=True)
class Default:
    """The SQL value of a column in rows that were written before it was added."""

    sql: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, DuckDB type and whether it may be NULL."""

    name: str
    type: str
    nullable: bool = False
    default: str | None = None
    hot: Hot | None = None


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """One table of a view. ``str(table)`` is its name, for use in SQL.

    Attributes:
        name: Name of the table in DuckDB's schema ``main``.
        row: A ``NamedTuple``: its annotations are the columns. ``Annotated[int, "UBIGINT"]`` names a DuckDB type that
            does not follow from the Python type; a ``Hot`` or a ``Default`` may stand beside it.
        view: The projection that owns the table.
        key: Columns that identify a row. In large tables, the first is called ``key`` and holds a 64-bit hash of the
            row's name, by which a fold finds rows.
        document: The column with the stream sequence of the entry that the row describes, if there is such an entry.
        digested: Whether the digest covers the rows; False for a table that only describes the layout of others.
        rest: Another table whose rows count as rows of this table in the digest.
        columns: The columns in order; the digest follows it.
        hot: The columns that hot indexes hold by document.
        workspace: The column with the workspace of a row; a column ``ws`` holds the workspace's hash.
        keeps_history: Whether rows have ``since_seq`` and ``until_seq``; folds find and replace the current ones.
    """

    name: str
    row: type[R]
    view: str
    key: tuple[str, ...] = ()
    document: str | None = None
    digested: bool = True
    rest: Table[R] | None = None
    columns: tuple[Column, ...] = field(init=False)
    hot: tuple[Column, ...] = field(init=False)
    workspace: str = field(init=False)
    keeps_history: bool = field(init=False)

    def __post_init__(self) -> None:
        """Read the columns from the row type."""
        hints = get_type_hints(self.row, include_extras=True)
        columns = tuple(_column(name, hint) for name, hint in hints.items())
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "hot", tuple(column for column in columns if column.hot is not None))
        object.__setattr__(self, "workspace", "ws" if "ws" in hints else "workspace_id")
        object.__setattr__(self, "keeps_history", "until_seq" in hints)

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> str:
        """The columns' names as an SQL list."""
        return ", ".join(column.name for column in self.columns)


Tables = tuple[Table[Any], ...]


def _column(name: str, hint: Any) -> Column:
    marks: list[Any] = []
    nullable = False
    while (origin := get_origin(hint)) is not None:
        if origin is Annotated:
            hint, *more = get_args(hint)
            marks += more
        elif origin in (Union, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
            nullable = True
    kind = next((mark for mark in marks if isinstance(mark, str)), None) or _TYPES[hint]
    default = next((mark.sql for mark in marks if isinstance(mark, Default)), None)
    return Column(name, kind, nullable, default, next((mark for mark in marks if isinstance(mark, Hot)), None))
