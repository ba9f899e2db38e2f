"""The operation that shows the nodes of a journal."""

from __future__ import annotations

from typing import Final

from ..core.operation import Access, Answer, Effect, Operation, Request


class ClusterRequest(Request):
    """List the nodes of the journal: which are live, for how many slots each decides, and how far its views are.

    A node that runs alone answers with an empty list.
    """


class NodeShown(Answer):
    """A node. ``slots`` of 256; ``lag`` in sequences behind the node that is furthest; ``heard_s`` seconds ago."""

    name: str
    here: bool
    assigned: bool
    slots: int
    http: str | None = None
    version: str | None = None
    view_seq: int | None = None
    lag: int | None = None
    heard_s: float | None = None


class ClusterAnswer(Answer):
    """The nodes by name, and the sequence since which they decide; 0 before the first assignment."""

    node: str | None
    assigned_seq: int
    nodes: tuple[NodeShown, ...]


CLUSTER: Final = Operation(
    name="cluster",
    request=ClusterRequest,
    answer=ClusterAnswer,
    route="GET /v1/cluster",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
    command="cluster status",
)
OPERATIONS: Final = (CLUSTER,)
