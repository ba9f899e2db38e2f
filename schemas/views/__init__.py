"""The read contract between projections and queries: the tables of every view, one module per family.

Invariant: queries name tables through here and columns as the row types declare them; a change is a new version of
the projection that owns the table. ``doc`` and ``seq`` are stream sequences everywhere. Tables of the host that
belong to no view: ``checkpoint(projection, version, seq)``, ``parkings(projection, version, strikes)``
(``consumers/host/leniency``) and ``folded_stream(stream, made)`` (``consumers/host/provenance``).
"""

from __future__ import annotations

from typing import Final

from . import documents, drawers, facts, journal, learning, memory, models, operators, standings, tunnels, workspaces
from .documents import *  # noqa: F403
from .drawers import *  # noqa: F403
from .facts import *  # noqa: F403
from .journal import *  # noqa: F403  # the tables of every family are the names of this package
from .journal import ADMISSION_PROJECTION, EntryRow
from .learning import *  # noqa: F403
from .memory import *  # noqa: F403
from .models import *  # noqa: F403
from .operators import *  # noqa: F403
from .standings import *  # noqa: F403
from .table import Table as Table
from .table import Tables
from .tunnels import *  # noqa: F403
from .workspaces import *  # noqa: F403

TABLES: Final[Tables] = tuple(
    table
    for family in (
        journal,
        models,
        memory,
        standings,
        workspaces,
        documents,
        drawers,
        facts,
        learning,
        operators,
        tunnels,
    )
    for table in vars(family).values()
    if isinstance(table, Table)
)

DECODE_STAGE: Final = "decode"
BEFORE_VIEWS: Final = (DECODE_STAGE, ADMISSION_PROJECTION)
"""Names of the two steps that refuse a message for all views; a message that one of them parks is in no view."""

ENTRY_COLUMNS: Final = EntryRow._fields[: EntryRow._fields.index("schema_version") + 1]
"""The columns of an entry that readers get; ``payload``, ``refs`` and ``supersedes`` are JSON text."""
