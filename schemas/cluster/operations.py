"""The operations that show the nodes of a journal and take slots from one."""

from __future__ import annotations

from typing import Final

from pydantic import Field, StrictBool

from ..core.entry import Id
from ..core.operation import Access, Answer, Effect, Operation, Request, Workspace


class ClusterRequest(Request):
    """List the nodes of the journal: which are live, for how many slots each decides, and how far its views are.

    A node that runs alone answers with an empty list. With a workspace, also which node owns it.
    """

    workspace_id: Workspace = None


class DrainNodeRequest(Request):
    """Take its slots from a node, so that it can be stopped without a pause; return when the others have them.

    The node goes on answering requests and passes on what it no longer owns. It gets slots again with `--undo`, and when it
    is started again.
    """

    node: Id = Field(description="Its name.")
    undo: StrictBool = Field(default=False, description="Let it have slots again.")


class NodeShown(Answer):
    """A node. ``slots`` of 256; ``lag`` in sequences behind the node that is furthest; ``heard_s`` seconds ago."""

    name: str
    here: bool
    assigned: bool
    drained: bool = False
    slots: int
    http: str | None = None
    version: str | None = None
    view_seq: int | None = None
    lag: int | None = None
    heard_s: float | None = None


class ClusterAnswer(Answer):
    """The nodes by name, and the sequence since which they decide; 0 before the first assignment.

    ``slot`` and ``owner`` are those of the workspace that was asked for.
    """

    node: str | None
    assigned_seq: int
    nodes: tuple[NodeShown, ...]
    slot: int | None = None
    owner: str | None = None


CLUSTER: Final = Operation(
    name="cluster",
    request=ClusterRequest,
    answer=ClusterAnswer,
    route="GET /v1/cluster",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
    command="cluster status",
)
DRAIN_NODE: Final = Operation(
    name="drain_node",
    request=DrainNodeRequest,
    answer=ClusterAnswer,
    route="POST /v1/cluster/{node}/drain",
    effect=Effect.CHANGES,
    access=Access.NODE_OWNER,
    errors=(404,),
    command="cluster drain",
    decided="anywhere",
)
OPERATIONS: Final = (CLUSTER, DRAIN_NODE)
