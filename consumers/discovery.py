"""Finds every projection (``*fold.py``) and every reactor (``*reactor.py``) of the families.

Invariant: each name and each table has one owner; the order is that of the module names.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ..schemas.core.errors import CrewJournalError
from ..schemas.core.table import Table
from ..schemas.entries.tables import ADMISSION_PROJECTION, DECODE_STAGE
from .host.admission import ADMISSION_TABLES
from .host.faults import PARKINGS_TABLE
from .projection import Projection


class DiscoveryError(CrewJournalError):
    """Two parts use the same name or table, or a file has no valid part."""

    title = "The parts do not fit together"


_MACHINERY: Final = frozenset({"adapters", "feed", "folds", "host", "reacting"})
_HOST: Final = "the host"
_REMOVE: Final = "mend the file or remove it"
_RENAME: Final = "rename one; a name that was in use is never used for another meaning"
_PROTOCOL: Final = "consumers/projection.py says what a projection has; mend the file or remove it"


@dataclass(frozen=True, slots=True)
class _FoundModule:
    """A module with a projection or reactors, and its file."""

    module: ModuleType
    file: str


def _parts(kind: str) -> Iterator[_FoundModule]:
    """The modules of the families whose name ends in ``kind``: ``fold`` or ``reactor``."""
    for family in sorted(family.name for family in pkgutil.iter_modules([str(Path(__file__).parent)]) if family.ispkg):
        if family in _MACHINERY:
            continue
        package = importlib.import_module(f"{__package__}.{family}")
        found = sorted((module.name, module) for module in pkgutil.iter_modules(package.__path__))
        for name, info in found:
            if name != kind and not name.endswith(f"_{kind}"):
                continue
            file = str(Path(getattr(info.module_finder, "path", "")) / f"{name}.py")
            try:
                yield _FoundModule(importlib.import_module(f"{package.__name__}.{name}"), file)
            except Exception as error:  # importing the module may raise any error
                raise DiscoveryError(f"{file} cannot be imported: {_error_text(error)}", hint=_REMOVE) from error


def _error_text(error: Exception) -> str:
    """The error; for a syntax error, with the line of the source."""
    where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}{where}: {message}"


def _projection_of(part: _FoundModule) -> Projection:
    declared = getattr(part.module, "PROJECTION", None)
    if declared is None:
        raise DiscoveryError(f"{part.file} exposes no PROJECTION", hint="name the class in PROJECTION")
    if not isinstance(declared, type):
        kind = type(declared).__name__
        raise DiscoveryError(
            f"PROJECTION of {part.file} is of type {kind}", hint="name the class, not one of its objects"
        )
    try:
        projection: Projection = declared()
    except Exception as error:
        raise DiscoveryError(
            f"{declared.__name__} of {part.file} cannot be made: {_error_text(error)}", hint=_REMOVE
        ) from error
    if wrong := next(_faults(projection), None):
        raise DiscoveryError(f"{declared.__name__} of {part.file} is not a projection: {wrong}", hint=_PROTOCOL)
    return projection


def _faults(projection: Any) -> Iterator[str]:
    """The reasons why an object is not a ``Projection``."""
    members = ("name", "version", "tables", "folds", "apply")
    if missing := [name for name in members if not hasattr(projection, name)]:
        yield f"it has no {' and no '.join(missing)}"
        return
    if not isinstance(projection.name, str) or not projection.name:
        yield "its name must be text"
    if not isinstance(projection.version, int) or isinstance(projection.version, bool) or projection.version < 1:
        yield "its version must be a positive integer"
    if not isinstance(projection.tables, tuple | list) or not all(
        isinstance(table, Table) for table in projection.tables
    ):
        yield "its tables is not a tuple of Table"
    if not isinstance(projection.folds, tuple) or not all(isinstance(kind, type) for kind in projection.folds):
        yield "its folds is not a tuple of payload and event classes"
    if not callable(projection.apply):
        yield "its apply cannot be called"


def discover_projections() -> tuple[Projection, ...]:
    """A new instance of the ``PROJECTION`` class of every ``fold.py`` and ``*_fold.py`` of a family.

    Raises:
        DiscoveryError: If a module cannot be imported or has no projection, or if a name or a table is claimed
            twice; names the file and what to do.
    """
    projections: list[Projection] = []
    owners = {table.name: ADMISSION_PROJECTION for table in ADMISSION_TABLES}
    owners |= {"checkpoint": _HOST, PARKINGS_TABLE: _HOST}
    names = {ADMISSION_PROJECTION: _HOST, DECODE_STAGE: _HOST}
    for part in _parts("fold"):
        projection = _projection_of(part)
        name = projection.name
        if name in names:
            raise DiscoveryError(f"{names[name]} and {part.file} both have a projection called {name}", hint=_RENAME)
        names[name] = part.file
        for table in (*(table.name for table in projection.tables), *getattr(projection, "scratch", ())):
            if table in owners:
                owner = owners[table]
                raise DiscoveryError(
                    f"{owner} ({names.get(owner, owner)}) and {name} ({part.file}) both claim the table {table}",
                    hint=_RENAME,
                )
            owners[table] = name
        projections.append(projection)
    return tuple(projections)


def discover_reactors() -> dict[str, Callable[..., Any]]:
    """Name → factory, from the ``REACTORS`` of every ``reactor.py`` and ``*_reactor.py`` of a family.

    Raises:
        DiscoveryError: If a module cannot be imported, has no ``REACTORS``, or names a factory that cannot be called.
    """
    factories: dict[str, Callable[..., Any]] = {}
    for part in _parts("reactor"):
        named = getattr(part.module, "REACTORS", None)
        if not isinstance(named, dict) or not all(callable(factory) for factory in named.values()):
            raise DiscoveryError(
                f"{part.file} exposes no REACTORS", hint="name each factory in REACTORS, by the name of its reactor"
            )
        if twice := [name for name in named if name in factories]:
            raise DiscoveryError(f"{part.file} and another file both have a reactor called {twice[0]}", hint=_RENAME)
        factories.update(named)
    return dict(sorted(factories.items()))
