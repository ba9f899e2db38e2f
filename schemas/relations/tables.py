"""The table of relations between entries."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from ..core.table import Ms, Seq, Table

RELATIONS_PROJECTION: Final = "relations"


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
    authority: Annotated[int, "UTINYINT"]  # whose word that is (``rules``): a reactor, an agent, an operator
    since_ms: Ms | None = None  # of supersedes: the time from which the newer entry holds, if its text names one
    key: Seq = 0  # hash of its name, once it is known


RELATIONS: Final = Table(
    "memory_relations",
    RelationRow,
    RELATIONS_PROJECTION,
    key=("key",),
)
