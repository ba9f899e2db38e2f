"""What the use-cases of layered memory of a node share: facts and uses in memory, and the settings that apply."""

from __future__ import annotations

from ..node import Node
from .choices import LayeredChoices, kept_choices
from .fact_index import FactIndexes
from .moment import Moments
from .uses import UseCounts


class LayeredState:
    """Followed views and settings.

    Args:
        node: What use-cases share.

    Attributes:
        choices: The settings of each workspace.
        moments: The time of a request.
        indexes: The facts in memory.
        uses: How often entries were used.
    """

    def __init__(self, node: Node) -> None:
        self.choices = kept_choices(LayeredChoices.of(node.settings), node.views)
        self.moments = Moments(node.clock)
        budget_bytes = node.recall.indexes.status.budget_bytes
        self.indexes = FactIndexes(node.views, node.analyzer, budget_bytes=budget_bytes)
        self.uses = UseCounts(node.views)
        for part in (self.choices, self.indexes, self.uses):
            node.ends.callback(part.close)
