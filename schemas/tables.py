"""The tables of all views: the read contract between projections and queries.

Invariant: queries use the tables and columns that the row types declare; a change is a new version of the projection
that owns the table. ``doc`` and ``seq`` are stream sequences everywhere. Tables of the host that belong to no view:
``checkpoint(projection, version, seq)``, ``parkings(projection, version, strikes)`` (``consumers/host/faults``) and
``folded_stream(stream, made, journal)`` (``consumers/host/opening``).
"""

from __future__ import annotations

from typing import Final

from .access import tables as access
from .core.table import Table, Tables
from .documents import tables as documents
from .entries import tables as entries
from .erasure import tables as erasure
from .facts import tables as facts
from .health import tables as health
from .learning import tables as learning
from .lineage import tables as lineage
from .models import tables as models
from .operators import tables as operators
from .palace import tables as palace
from .recall import tables as recall
from .relations import tables as relations
from .standing import tables as standing
from .sweeps import tables as sweeps

TABLES: Final[Tables] = tuple(
    table
    for family in (
        access,
        documents,
        entries,
        erasure,
        facts,
        health,
        learning,
        lineage,
        models,
        operators,
        palace,
        recall,
        relations,
        standing,
        sweeps,
    )
    for table in vars(family).values()
    if isinstance(table, Table)
)
