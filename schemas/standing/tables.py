"""Tables that decide which entries count now, and how much: retractions, priorities, importance, ``valid_at``."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from ..core.table import Default, Hot, Ms, Seq, Table

STANDINGS_PROJECTION: Final = "standings"
NO_VALID_MS: Final = -(2**63)
"""Hot value of an entry without ``valid_at``."""


class RetractionRow(NamedTuple):
    """A retraction of an entry or document, with history."""

    workspace_id: str
    kind: str  # ``TargetKind``
    target_id: str
    stale: bool
    superseded_by: str | None
    reason: str
    actor_type: str
    actor_id: str | None
    made_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None  # the restoration


class SupersessionRow(NamedTuple):
    """An entry that names another entry in ``supersedes``; ``services/index/standings`` decides whether that is valid."""

    workspace_id: str
    target_id: str
    by_id: str
    by_seq: Seq
    by_agent: str | None
    by_ms: Ms  # ``valid_at`` of the superseding entry, else its ``ts``
    by_actor: Annotated[str, Default("''")]  # type and id (``schemas/entries/rules``)
    by_operator: Annotated[bool, Default("false")]


class LivePriorityRow(NamedTuple):
    """The priority that an operator gave an entry, with history."""

    workspace_id: str
    entry_id: str
    priority: str
    since_seq: Seq
    until_seq: Seq | None = None


class ValidityRow(NamedTuple):
    """``valid_at`` of an entry that has one."""

    workspace_id: str
    entry_seq: Seq
    valid_ms: Annotated[Ms, Hot("int64", NO_VALID_MS)]


RETRACTIONS: Final = Table(
    "retractions", RetractionRow, STANDINGS_PROJECTION, key=("workspace_id", "kind", "target_id")
)
SUPERSESSIONS: Final = Table(
    "supersessions",
    SupersessionRow,
    STANDINGS_PROJECTION,
    key=("workspace_id", "target_id", "by_id"),
    document="by_seq",
)
LIVE_PRIORITIES: Final = Table(
    "live_priorities", LivePriorityRow, STANDINGS_PROJECTION, key=("workspace_id", "entry_id")
)
VALIDITIES: Final = Table(
    "validities", ValidityRow, STANDINGS_PROJECTION, key=("workspace_id", "entry_seq"), document="entry_seq"
)


# Tables about entries: importance, relations, sweeps, health and receipts.


IMPORTANCE_PROJECTION: Final = "importance"

MISSING_IMPORTANCE: Final = 0.5
"""Importance of an entry with a vector but without a row of importance, which exists only while that view is behind."""


class ImportanceRow(NamedTuple):
    """An entry that has had a vector, was referenced or got another priority."""

    key: Seq  # hash of workspace and entry
    workspace_id: str
    entry_id: str
    entry_seq: Seq | None = None  # NULL, like the columns that depend on it, while there is no vector
    entry_type: str | None = None
    severity: str | None = None
    priority: str | None = None  # live
    indexed_at: Ms | None = None  # time of its first vector of any model
    base: float | None = None  # of the live priority: where the next decay starts
    importance_score: Annotated[float, Hot("float32", MISSING_IMPORTANCE)] | None = None  # as of the last decay
    reference_count: int = 0
    last_referenced_at: Ms | None = None


class DecayRow(NamedTuple):
    """The last decay of a workspace."""

    workspace_id: str
    due_ms: Ms
    decayed: int  # number of processed rows
    seq: Seq  # sequence of its tick


IMPORTANCE: Final = Table(
    "memory_importance",
    ImportanceRow,
    IMPORTANCE_PROJECTION,
    key=("key", "workspace_id", "entry_id"),
    document="entry_seq",
)
DECAYS: Final = Table("memory_decays", DecayRow, IMPORTANCE_PROJECTION, key=("workspace_id",))
