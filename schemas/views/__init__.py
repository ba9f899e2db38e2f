"""The read contract between projections and queries: the tables of every view, a module a family.

Invariant: queries name tables through here and columns as the row types declare them; a change is a new version of the
projection that owns the table. ``doc`` and ``seq`` are stream sequences everywhere. Tables of the host's own, which no view
holds: ``checkpoint(projection, version, seq)``, ``parkings(projection, version, strikes)`` (``consumers/host/leniency``)
and ``folded_stream(stream, made)`` (``consumers/host/provenance``).
"""

from __future__ import annotations

from typing import Any, Final

from . import journal, memory, models, workspaces
from .journal import (
    ADMISSION_PROJECTION,
    EMBED_POLICIES,
    ENTRIES,
    ENTRIES_PROJECTION,
    FULLTEXT_PROJECTION,
    POSTINGS,
    POSTINGS_TAIL,
    TURNS,
    TURNS_PROJECTION,
)
from .memory import (
    DECAYS,
    HEALTH_PROJECTION,
    HEALTH_SNAPSHOTS,
    IMPORTANCE,
    IMPORTANCE_PROJECTION,
    RELATIONS,
    RELATIONS_PROJECTION,
    SWEEPS,
    SWEEPS_PROJECTION,
)
from .models import (
    ACTIVATIONS_PROJECTION,
    EMBEDDING_MODELS,
    EMBEDDINGS,
    TOKEN_BITS,
    TOKEN_BITS_PROJECTION,
    VECTORS_PROJECTION,
    ModelState,
)
from .table import Table
from .workspaces import AGENTS, AGENTS_PROJECTION, CREWS, NUDGES_OFFERED, NUDGES_PROJECTION, WORKSPACE_SETTINGS

__all__ = [
    "ACTIVATIONS_PROJECTION",
    "ADMISSION_PROJECTION",
    "AGENTS",
    "AGENTS_PROJECTION",
    "BEFORE_VIEWS",
    "CREWS",
    "DECAYS",
    "DECODE_STAGE",
    "EMBEDDINGS",
    "EMBEDDING_MODELS",
    "EMBED_POLICIES",
    "ENTRIES",
    "ENTRIES_PROJECTION",
    "ENTRY_COLUMNS",
    "FULLTEXT_PROJECTION",
    "HEALTH_PROJECTION",
    "HEALTH_SNAPSHOTS",
    "IMPORTANCE",
    "IMPORTANCE_PROJECTION",
    "NUDGES_OFFERED",
    "NUDGES_PROJECTION",
    "POSTINGS",
    "POSTINGS_TAIL",
    "RELATIONS",
    "RELATIONS_PROJECTION",
    "SWEEPS",
    "SWEEPS_PROJECTION",
    "TABLES",
    "TOKEN_BITS",
    "TOKEN_BITS_PROJECTION",
    "TURNS",
    "TURNS_PROJECTION",
    "VECTORS_PROJECTION",
    "WORKSPACE_SETTINGS",
    "ModelState",
    "Table",
]

TABLES: Final[tuple[Table[Any], ...]] = (*journal.TABLES, *models.TABLES, *memory.TABLES, *workspaces.TABLES)

DECODE_STAGE: Final = "decode"
BEFORE_VIEWS: Final = (DECODE_STAGE, ADMISSION_PROJECTION)
"""Who refuses a message for all views: what these park is in none of them."""

ENTRY_COLUMNS: Final = (
    "seq",
    "id",
    "workspace_id",
    "crew_id",
    "agent_id",
    "mission_id",
    "trace_id",
    "span_id",
    "ts_ms",
    "entry_type",
    "severity",
    "priority",
    "actor_type",
    "actor_id",
    "summary",
    "payload",
    "refs",
    "data_subject_id",
    "supersedes",
    "valid_ms",
    "schema_version",
)
"""What a reader gets of an entry; ``payload``, ``refs`` and ``supersedes`` are JSON text."""
