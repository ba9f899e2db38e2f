"""Distinguishes a damaged file from every other fault that DuckDB reports.

Invariant: only a fault that no retry, disk space or permission can fix counts as damage: a file that is not a DuckDB file,
ends too early, fails its checksums or is a directory. A full disk, a missing right, another process's lock, a disk that
cannot be read and a file of a newer DuckDB are not: folding again would not help there, or would lose what can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from ...schemas.errors import ViewsDamaged

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
