"""Implements ``Finder``: one function for each kind of text that reactors search."""

from __future__ import annotations

from ...schemas.core.ports import DRAWER_KIND, ENTRY_KIND, NearQuery, NearText
from ..node import Node
from ..palace.near import NearDrawers
from ..palace.searching import DrawerSearch
from ..recall.similar import NearEntries


class NodeFinder:
    """The nearest texts of a node."""

    def __init__(self, node: Node) -> None:
        self._of = {
            ENTRY_KIND: NearEntries(node.views, node.recall.indexes).nearest,
            DRAWER_KIND: NearDrawers(node.use(DrawerSearch)).nearest,
        }

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """See ``Finder.nearest``."""
        return await self._of[query.kind](query)
