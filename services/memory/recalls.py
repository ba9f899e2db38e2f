"""The operations recall, render and recall_brief of a node."""

from __future__ import annotations

from typing import Final

from ...schemas.operations.recall import (
    RECALL,
    RECALL_BRIEF,
    RENDER,
    BriefAnswer,
    BriefRequest,
    RecallAnswer,
    RecallRequest,
    RenderAnswer,
    RenderRequest,
)
from ..desk import Caller
from ..node import Answers, Node
from ..query.render import RenderService


class Recalls:
    """The use-cases; they find workspace and scope themselves, from the token.

    Args:
        node: What use-cases share.
    """

    def __init__(self, node: Node) -> None:
        self._recall = node.recall
        self._rendering = RenderService(node.recall)

    async def recall(self, caller: Caller, asked: RecallRequest) -> RecallAnswer:
        """Raises as ``RecallService.recall``."""
        return await self._recall.recall(caller.principal, asked)

    async def render(self, caller: Caller, asked: RenderRequest) -> RenderAnswer:
        """Raises as ``RenderService.render``."""
        return await self._rendering.render(caller.principal, asked)

    async def brief(self, caller: Caller, asked: BriefRequest) -> BriefAnswer:
        """Raises as ``RenderService.brief``."""
        return await self._rendering.brief(caller.principal, asked)


ANSWERS: Final[Answers] = ((RECALL, Recalls.recall), (RENDER, Recalls.render), (RECALL_BRIEF, Recalls.brief))
