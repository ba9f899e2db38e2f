"""Operations on relations between entries.

Invariant: ``refutes`` means ``contradicts``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StrictInt

from ..core.entry import Id
from ..core.operation import Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..entries.tables import ENTRIES_PROJECTION
from .events import Relation
from .tables import RELATIONS_PROJECTION

GRAPH_DEPTH_MAX: Final = 3
GRAPH_LIMIT_DEFAULT: Final = 50
GRAPH_LIMIT_MAX: Final = 200
"""Maximum number of nodes of one answer; more cannot be read by a person."""
REFUTES = "refutes"
"""Another name of ``contradicts`` (contract §0, row 2)."""


def _canonical_relation(relation: Any) -> Any:
    return "contradicts" if relation == REFUTES else relation


RelationName = Annotated[
    Relation, BeforeValidator(_canonical_relation, json_schema_input_type=Literal[Relation, "refutes"])
]


class RelateRequest(Request):
    """Assert a relation between two entries; it overrides what reactors found.

    An AGENT may assert contradicts and supports, between entries that it may read. ``supersedes`` leads from the entry that
    holds now to the one that it retires.
    """

    entry_id: Id = Field(description="Id of the entry.")
    dst_entry_id: Id = Field(description="Id of the other one.")
    relation: RelationName = Field(description="similar, supports, contradicts (also: refutes) or supersedes.")
    weight: float = Field(
        default=1.0, gt=0.0, le=1.0, allow_inf_nan=False, description="Weight of the relation, above 0 and at most 1."
    )
    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class UnrelateRequest(Request):
    """Retract a relation; no reactor restores it.

    For OWNER and ADMIN, and for the agent that alone asserted it.
    """

    entry_id: Id = Field(description="Id of the entry.")
    dst_entry_id: Id = Field(description="Id of the other one.")
    relation: RelationName = Field(description="similar, supports, contradicts (also: refutes) or supersedes.")
    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class GraphRequest(Request):
    """Show the entries related to an entry, and the relations between them.

    Only entries that the token may read.
    """

    entry_id: str = Field(description="Id of the entry.")
    depth: Annotated[StrictInt, Field(ge=1, le=GRAPH_DEPTH_MAX)] = Field(default=1, description="Hops.")
    relation: RelationName | None = Field(default=None, description="Only this relation.")
    limit: Annotated[StrictInt, Field(ge=1, le=GRAPH_LIMIT_MAX)] = Field(
        default=GRAPH_LIMIT_DEFAULT, description="Most entries."
    )
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class RelationAnswer(Answer):
    """A relation that was asserted or retracted; of a symmetric relation, ``src`` is the newer entry."""

    src_entry_id: str
    dst_entry_id: str
    relation: str
    state: str
    weight: float
    reason: str
    seq: int


class GraphNode(Answer):
    """An entry, ``depth`` hops away from the requested one."""

    id: str
    seq: int
    ts: str
    entry_type: str
    summary: str
    agent_id: str | None
    crew_id: str | None
    actor_type: str
    actor_id: str | None
    depth: int


class GraphEdge(Answer):
    """A relation between two entries: ids, relation, weight, state, reason and time."""

    src: str
    dst: str
    relation: str
    weight: float
    state: str
    reason: str
    created_at: str


class GraphAnswer(Answer):
    """Entries around an entry; ``truncated`` if there are more than ``limit``."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    truncated: bool
    view_seq: int


RELATE: Final = Operation(
    name="relate",
    request=RelateRequest,
    answer=RelationAnswer,
    route="POST /v1/journal/{entry_id}/relations",
    effect=Effect.CREATES,
    views=(ENTRIES_PROJECTION, RELATIONS_PROJECTION),
    errors=(404,),
    command="relate",
    repeatable=False,
)
UNRELATE: Final = Operation(
    name="unrelate",
    request=UnrelateRequest,
    answer=RelationAnswer,
    route="POST /v1/journal/{entry_id}/relations/retract",
    effect=Effect.CHANGES,
    views=(ENTRIES_PROJECTION, RELATIONS_PROJECTION),
    errors=(404,),
    command="unrelate",
    repeatable=False,
)
GRAPH: Final = Operation(
    name="graph",
    request=GraphRequest,
    answer=GraphAnswer,
    route="GET /v1/journal/{entry_id}/graph",
    effect=Effect.READS,
    views=(ENTRIES_PROJECTION, RELATIONS_PROJECTION),
    errors=(404,),
    command="graph",
)
OPERATIONS: Final = (RELATE, UNRELATE, GRAPH)
