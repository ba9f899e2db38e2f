"""What crosses HTTP about relations and agents: requests and answers, shared by server and client.

Invariant: answers only ever gain fields, and readers ignore those they do not know; ``refutes`` means ``contradicts``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

from crew_journal.schemas.api import Answer
from crew_journal.schemas.entry import Id, WorkspaceId
from crew_journal.schemas.events.control import Relation

REFUTES = "refutes"
"""What another project calls ``contradicts`` (contract §0 row 2)."""


def _named(relation: Any) -> Any:
    return "contradicts" if relation == REFUTES else relation


RelationName = Annotated[Relation, BeforeValidator(_named, json_schema_input_type=Literal[Relation, "refutes"])]


class RelationRequest(BaseModel):
    """How an entry relates to another one.

    Attributes:
        dst_entry_id: The other entry.
        relation: similar, supports or contradicts (also called refutes).
        weight: How strongly, in (0, 1].
        reason: Why, for people.
        min_seq: Wait until the views have passed this sequence: relate what was just written.
        workspace_id: For tokens of all workspaces.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    dst_entry_id: Id
    relation: RelationName
    weight: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    reason: str = Field(default="", max_length=1_000)
    min_seq: StrictInt | None = Field(default=None, ge=0, le=2**63 - 1)
    workspace_id: WorkspaceId | None = None


class RetractRequest(BaseModel):
    """Which relation of an entry does not hold any more, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dst_entry_id: Id
    relation: RelationName
    reason: str = Field(default="", max_length=1_000)
    min_seq: StrictInt | None = Field(default=None, ge=0, le=2**63 - 1)
    workspace_id: WorkspaceId | None = None


class RelationAnswer(Answer):
    """A relation that was asserted or retracted; ``src`` is the newer entry where the relation is symmetric."""

    src_entry_id: str
    dst_entry_id: str
    relation: str
    state: str
    weight: float
    reason: str
    seq: int


class GraphNode(Answer):
    """An entry of a neighbourhood, ``depth`` hops from the one it is the neighbourhood of."""

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
    """An edge between two entries of a neighbourhood: ids, relation, weight, state, why and since when."""

    src: str
    dst: str
    relation: str
    weight: float
    state: str
    reason: str
    created_at: str


class GraphAnswer(Answer):
    """The neighbourhood of an entry; ``truncated`` if there is more than was asked for."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    truncated: bool
    view_seq: int


class AgentRequest(BaseModel):
    """An agent's settings, whole: what is left out has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    crew_id: Id | None = None
    memory_walk_depth: StrictInt = Field(default=0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    workspace_id: WorkspaceId | None = None


class AgentAnswer(Answer):
    """An agent as it is registered; ``seq`` is that of the registration."""

    agent_id: str
    crew_id: str | None
    memory_walk_depth: int
    settings: dict[str, Any]
    seq: int
