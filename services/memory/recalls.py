"""The operations recall, render and recall_brief of a node."""

from __future__ import annotations

from typing import Final

from ...schemas.operations import recall as ops
from ..desk import Caller
from ..node import Answers, Node
from ..query.render import RenderService


class Recalls:
    """The use-cases; they find workspace and scope themselves, from the token."""

    def __init__(self, node: Node) -> None:
        self._recall = node.recall
        self._rendering = RenderService(node.recall)

    async def recall(self, caller: Caller, request: ops.RecallRequest) -> ops.RecallAnswer:
        """Raises as ``RecallService.recall``."""
        return await self._recall.recall(caller.principal, request)

    async def render(self, caller: Caller, request: ops.RenderRequest) -> ops.RenderAnswer:
        """Raises as ``RenderService.render``."""
        return await self._rendering.render(caller.principal, request)

    async def brief(self, caller: Caller, request: ops.BriefRequest) -> ops.BriefAnswer:
        """Raises as ``RenderService.brief``."""
        return await self._rendering.brief(caller.principal, request)


ANSWERS: Final[Answers] = (
    (ops.RECALL, Recalls.recall),
    (ops.RENDER, Recalls.render),
    (ops.RECALL_BRIEF, Recalls.brief),
)
