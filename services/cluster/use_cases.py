"""The use-cases that show the nodes of a journal and take slots from one."""

from __future__ import annotations

from typing import Final

from ...schemas.cluster.operations import CLUSTER, DRAIN_NODE, ClusterAnswer, ClusterRequest, DrainNodeRequest
from ...schemas.core.errors import NotFound
from ..desk import Caller
from ..node import Answers, Node
from .routing import RoutedOwnership


class Cluster:
    """Shows and drains the nodes."""

    def __init__(self, node: Node) -> None:
        self._ownership = node.ownership

    async def nodes(self, _caller: Caller, asked: ClusterRequest) -> ClusterAnswer:
        """The nodes; none if this one runs alone."""
        if isinstance(self._ownership, RoutedOwnership):
            return self._ownership.shown(asked.workspace_id)
        return ClusterAnswer(node=None, assigned_seq=0, nodes=())

    async def drain(self, _caller: Caller, asked: DrainNodeRequest) -> ClusterAnswer:
        """The nodes, once the slots have moved.

        Raises:
            NotFound: If no node has this name, or this node runs alone.
        """
        if not isinstance(self._ownership, RoutedOwnership):
            raise NotFound("this node runs alone", hint="start nodes with `up --node NAME`")
        await self._ownership.drain(asked.node, undo=asked.undo)
        return self._ownership.shown()


ANSWERS: Final[Answers] = ((CLUSTER, Cluster.nodes), (DRAIN_NODE, Cluster.drain))
