"""The use-case that shows the nodes of a journal."""

from __future__ import annotations

from typing import Final

from ...schemas.cluster.operations import CLUSTER, ClusterAnswer, ClusterRequest
from ..desk import Caller
from ..node import Answers, Node
from .membership import Members


class ClusterShown:
    """Shows the nodes."""

    def __init__(self, node: Node) -> None:
        self._ownership = node.ownership

    async def nodes(self, _caller: Caller, _asked: ClusterRequest) -> ClusterAnswer:
        """The nodes; none if this one runs alone."""
        if isinstance(self._ownership, Members):
            return self._ownership.shown()
        return ClusterAnswer(node=None, assigned_seq=0, nodes=())


ANSWERS: Final[Answers] = ((CLUSTER, ClusterShown.nodes),)
