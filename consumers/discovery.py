"""Finds every projection and reactor: a file in ``consumers/views`` or ``consumers/reactors`` is all it takes.

Invariant: names and tables are owned once; the order is that of the module names, the same everywhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from crew_journal.consumers import reactors, views
from crew_journal.consumers.host.admission import ADMISSION_TABLE
from crew_journal.consumers.host.leniency import PARKINGS_TABLE
from crew_journal.consumers.projection import Projection
from crew_journal.schemas.errors import CrewJournalError
from crew_journal.schemas.views import ADMISSION_PROJECTION


class DiscoveryError(CrewJournalError):
    """Two parts claim one name or table, or a module exposes nothing."""

    title = "The parts do not fit together"


def _modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def discover_projections() -> tuple[Projection, ...]:
    """A new instance of the ``PROJECTION`` class of every module in ``consumers/views``.

    Raises:
        DiscoveryError: If a module has none, or a name or a table is claimed twice.
    """
    found: list[Projection] = []
    owners = {ADMISSION_TABLE: ADMISSION_PROJECTION, "checkpoint": "the host", PARKINGS_TABLE: "the host"}
    names = {ADMISSION_PROJECTION, "decode"}
    for module in _modules(views):
        made = getattr(module, "PROJECTION", None)
        if made is None:
            raise DiscoveryError(f"{module.__name__} exposes no PROJECTION", hint="name the class in PROJECTION")
        projection = made()
        if projection.name in names:
            raise DiscoveryError(f"two projections are called {projection.name}", hint="rename one")
        names.add(projection.name)
        for table in (*projection.tables, *getattr(projection, "scratch", ())):
            if table in owners:
                raise DiscoveryError(f"{projection.name} and {owners[table]} both claim the table {table}")
            owners[table] = projection.name
        found.append(projection)
    return tuple(found)


def discover_reactors() -> dict[str, Callable[..., Any]]:
    """Module name → the ``REACTOR`` factory of every module in ``consumers/reactors`` that has one."""
    factories = {module.__name__.rpartition(".")[2]: getattr(module, "REACTOR", None) for module in _modules(reactors)}
    return {name: factory for name, factory in factories.items() if factory is not None}
