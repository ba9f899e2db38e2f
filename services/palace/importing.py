"""Imports drawers of another store under the ids that they have there.

Invariant: of one drawer and text at most one filing is recorded, however often it is imported. A drawer that was moved,
classified, merged or superseded here stays as it is while its text is the same.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from ...schemas.errors import EntryConflict
from ...schemas.events.drawers import MOST_DRAWERS, DrawerDeleted, DrawerFiled
from ...schemas.operations.palace_answers import ImportDrawersAnswer, ImportedDrawerAnswer
from ...schemas.operations.palace_filing import IMPORT_DRAWERS, ImportDrawersRequest, ImportedDrawer
from ...schemas.rules.palace.classifier import classify
from ...schemas.rules.palace.texts import is_noise
from ...schemas.timestamps import parse_ts, to_ms
from ...schemas.views.drawers import DRAWERS_PROJECTION
from ..desk import Caller
from ..node import Answers, Node
from . import filing
from .rows import Drawer, DrawerReader


class PalaceImport:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._drawers = DrawerReader(node.views)
        self._one_at_a_time = node.use(filing.PalaceFiling).one_at_a_time

    async def run(self, caller: Caller, request: ImportDrawersRequest) -> ImportDrawersAnswer:
        """File drawers, or answer the outcome of each without filing.

        Raises:
            BrokerUnavailable: If one could not be recorded; those before it are.
        """
        outcomes: dict[str, ImportedDrawerAnswer] = {}
        seq = None
        async with self._one_at_a_time:
            left = max(0, MOST_DRAWERS - await self._drawers.count(caller.workspace_id))
            for drawer in request.drawers:
                content = await filing.without_secrets(self._node, caller, drawer.content, "drawers")
                stored_drawer = drawer if content == drawer.content else drawer.model_copy(update={"content": content})
                known = await self._drawers.latest(caller.workspace_id, stored_drawer.drawer_id)
                outcome = _outcome(stored_drawer, known, request.restore)
                if stored_drawer.drawer_id in outcomes:
                    outcome = "unchanged"
                elif outcome == "added" and not left:
                    outcome = "no_room"
                left -= outcome == "added"
                if outcome in ("added", "replaced") and not request.dry_run:
                    seq = await self._file(caller, stored_drawer, known, request.imported_from, outcome == "replaced")
                answer = ImportedDrawerAnswer(drawer_id=stored_drawer.drawer_id, outcome=outcome)
                outcomes.setdefault(stored_drawer.drawer_id, answer)
            if seq is not None:
                await self._node.shows(seq, DRAWERS_PROJECTION)
        return ImportDrawersAnswer(drawers=tuple(outcomes.values()), room_left=left, seq=seq)

    async def _file(
        self, caller: Caller, drawer: ImportedDrawer, known: Drawer | None, source: str, replace: bool
    ) -> int | None:
        if replace:
            gone = DrawerDeleted(drawer_id=drawer.drawer_id)
            removed = await self._node.decide(caller, gone, f"{drawer.drawer_id} is replaced", **caller.author_fields)
            assert known is not None
            known = dataclasses.replace(known, row=known.row._replace(until_seq=removed.seq))
        filed = _filed(caller, drawer, source)
        try:
            entry_id = filing.filing_id(caller, filed, known)
            summary = f"{drawer.drawer_id} is imported"
            decided = await self._node.decide(caller, filed, summary, entry_id=entry_id, **caller.author_fields)
        except EntryConflict:  # another node was first
            return None
        return decided.seq


def _outcome(drawer: ImportedDrawer, known: Drawer | None, restore: bool) -> str:
    if is_noise(drawer.content):
        return "noise"
    if known is None:
        return "added"
    same = known.row.content == drawer.content
    if known.open:
        return "unchanged" if same else "replaced"
    return "deleted_here" if same and not restore else "added"


def _filed(caller: Caller, drawer: ImportedDrawer, source: str) -> DrawerFiled:
    classified = classify(drawer.content, filing.LEAST_CONFIDENCE)
    return DrawerFiled(
        drawer_id=drawer.drawer_id,
        wing=drawer.wing,
        room=drawer.room,
        hall=drawer.hall,
        content=drawer.content,
        memory_type=drawer.memory_type or classified.memory_type,
        importance=classified.importance if drawer.importance is None else drawer.importance,
        added_by=drawer.added_by or caller.acts_as[1],
        source_file=drawer.source_file,
        filed_ms=None if drawer.filed_at is None else to_ms(parse_ts(drawer.filed_at)),
        imported_from=source,
    )


ANSWERS: Final[Answers] = ((IMPORT_DRAWERS, PalaceImport.run),)
