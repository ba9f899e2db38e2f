"""Tables about entries: importance, relations, sweeps, health and receipts."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from .table import Hot, Int32, Ms, Seq, Table

IMPORTANCE_PROJECTION: Final = "importance"
RELATIONS_PROJECTION: Final = "relations"
SWEEPS_PROJECTION: Final = "sweeps"
HEALTH_PROJECTION: Final = "health"
RECEIPTS_PROJECTION: Final = "receipts"

MISSING_IMPORTANCE: Final = 0.5
"""Importance of an entry that has a vector but no row of importance, which happens only while that view is behind."""


class ImportanceRow(NamedTuple):
    """An entry that has had a vector, was referenced or got another priority."""

    key: Seq  # hash of workspace and entry
    workspace_id: str
    entry_id: str
    entry_seq: Seq | None = None  # with what follows from it NULL while there is no vector
    entry_type: str | None = None
    severity: str | None = None
    priority: str | None = None  # live
    indexed_at: Ms | None = None  # its first vector of any model
    base: float | None = None  # of the live priority: where the next decay starts
    importance_score: Annotated[float, Hot("float32", MISSING_IMPORTANCE)] | None = None  # as of the last decay
    reference_count: int = 0
    last_referenced_at: Ms | None = None


class DecayRow(NamedTuple):
    """The last decay of a workspace."""

    workspace_id: str
    due_ms: Ms
    decayed: int  # rows that it went over
    seq: Seq  # its tick


class RelationRow(NamedTuple):
    """A relation of two entries: one row per workspace, pair and relation."""

    workspace_id: str
    src_entry_id: str  # of a symmetric relation the newer entry
    dst_entry_id: str
    relation: str  # similar, contradicts (both symmetric), supports (rule to evidence) or supersedes (newer to older)
    weight: float  # cosine of similar, confidence of a proposed contradicts or supersedes, else 1.0 or as asserted
    state: str  # derived, proposed, asserted or retracted (the edge does not count)
    src_seq: Seq
    dst_seq: Seq | None  # NULL where the event did not say (evidence of a rule)
    crew_id: str | None  # that of both entries if a reactor found them, else the assertion's
    reason: str
    created_at: Ms  # the broker's time of the edge's first event
    seq: Seq  # of the event that made the row what it is
    authority: Annotated[int, "UTINYINT"]  # whose word that is (``rules/relations``): a reactor, an agent, an operator
    since_ms: Ms | None = None  # of supersedes: the time from which the newer entry holds, if its text names one
    key: Seq = 0  # hash of its name, once it is known


class SweepRow(NamedTuple):
    """The last tick and the last finish of a sweep, NULL if it never happened."""

    workspace_id: str
    sweep: str
    due_ms: Ms | None = None  # what the tick says
    tick_seq: Seq | None = None
    ticked_ms: Ms | None = None  # the broker's time of it
    finished_due_ms: Ms | None = None
    finished_seq: Seq | None = None
    finished_ms: Ms | None = None
    counts: str | None = None  # JSON text
    error: str | None = None


class HealthRow(NamedTuple):
    """The health of the memory of a workspace (crew NULL) or crew on a day."""

    workspace_id: str
    crew_id: str | None
    snapshot_date: str
    measured_at: Ms
    freshness: float | None
    coverage: float | None
    coherence: float | None
    efficiency: float | None
    reachability: float | None
    score: float | None
    band: str | None
    legacy_freshness: float | None
    legacy_coverage: float | None
    legacy_coherence: float | None
    legacy_efficiency: float | None
    legacy_reachability: float | None
    legacy_score: float | None
    reasons: str  # JSON list
    next_step: str
    counts: str  # JSON object
    model: str | None
    rules: Int32
    seq: Seq


class ReceiptRow(NamedTuple):
    """A recall that was answered: who asked, which hits were returned, and which of them reached a prompt."""

    key: Seq  # hash of workspace and receipt
    workspace_id: str
    receipt: str  # the id of its entry
    ts_ms: Ms
    published_ms: Ms
    asked_by: str | None  # id of the token
    agent_id: str | None  # the asker
    crew_id: str | None
    scope: str
    of_agent_id: str | None  # whose memories were searched
    of_crew_id: str | None
    query: str
    recipe: str
    model: str | None
    mode: str | None
    floor: float | None
    mean_cosine: float | None
    hits: str  # JSON list of objects: entry_id, score, confidence
    rendered: bool
    used: str | None  # JSON list of entry ids; NULL while it is not known to be used
    used_ms: Ms | None
    seq: Seq


IMPORTANCE: Final = Table(
    "memory_importance",
    ImportanceRow,
    IMPORTANCE_PROJECTION,
    key=("key", "workspace_id", "entry_id"),
    document="entry_seq",
)
DECAYS: Final = Table("memory_decays", DecayRow, IMPORTANCE_PROJECTION, key=("workspace_id",))
RELATIONS: Final = Table(
    "memory_relations",
    RelationRow,
    RELATIONS_PROJECTION,
    key=("key",),
)
SWEEPS: Final = Table("memory_sweeps", SweepRow, SWEEPS_PROJECTION, key=("workspace_id", "sweep"))
HEALTH_SNAPSHOTS: Final = Table(
    "memory_health_snapshots", HealthRow, HEALTH_PROJECTION, key=("workspace_id", "crew_id", "snapshot_date")
)
RECEIPTS: Final = Table("memory_receipts", ReceiptRow, RECEIPTS_PROJECTION, key=("key", "workspace_id", "receipt"))
