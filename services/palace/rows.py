"""Reads drawers from the views."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import format_ms
from ...schemas.palace.events import DrawerState
from ...schemas.palace.graph import PlaceCount
from ...schemas.palace.layers import WorkspaceIdentity, drawer_author
from ...schemas.palace.operations import DrawerAnswer
from ...schemas.palace.tables import (
    DRAWER_USES,
    DRAWERS,
    IMPORTANCE_NOW,
    LIVE_DRAWER,
    PALACE_IDENTITIES,
    UPKEEP,
    DrawerRow,
)
from ...schemas.prompt.assembler import notice_of
from ...schemas.text.injection import finding_in
from ..authorship import Author
from ..desk import Caller

_COLUMNS: Final = ", ".join(IMPORTANCE_NOW if name == "importance" else f"drawer.{name}" for name in DrawerRow._fields)
_READ: Final = f"""SELECT {_COLUMNS}, coalesce(uses.access_count, 0), uses.last_accessed_ms,
        coalesce(entity_count, 0), coalesce(triple_count, 0), coalesce(rejected, 0)
    FROM {DRAWERS} AS drawer {UPKEEP} LEFT JOIN {DRAWER_USES} AS uses
        ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id"""
_LATEST: Final = f"""{_READ} WHERE drawer.workspace_id = ? AND drawer.drawer_id = ?
    ORDER BY until_seq DESC NULLS FIRST LIMIT 1"""
_PLACE: Final = f"""drawer.workspace_id = $ws AND {LIVE_DRAWER} AND ($wing IS NULL OR wing = $wing)
    AND ($room IS NULL OR room = $room) AND ($hall IS NULL OR hall = $hall)
    AND ($agent IS NULL OR added_by_agent = $agent) AND ($source IS NULL OR imported_from = $source)"""
_LISTED: Final = f"{_READ} WHERE {_PLACE} ORDER BY filed_ms DESC, drawer.entry_id DESC LIMIT $limit OFFSET $offset"
_COUNT: Final = f"SELECT count(*) FROM {DRAWERS} AS drawer WHERE {_PLACE}"
_ROOMS: Final = f"""SELECT wing, room, count(*) FROM {DRAWERS} AS drawer WHERE {_PLACE}
    GROUP BY wing, room ORDER BY count(*) DESC, wing, room"""
_PLACES: Final = (
    f"SELECT wing, room, hall, count(*) FROM {DRAWERS} WHERE workspace_id = ? AND {LIVE_DRAWER} GROUP BY ALL"
)
_IDENTITY: Final = f"""SELECT content, author_agent, author_type, author_name FROM {PALACE_IDENTITIES}
    WHERE workspace_id = ? AND {PRESENT}"""


@dataclass(frozen=True, slots=True)
class Drawer:
    """A drawer, the number of its reads, and the results of the background classification."""

    row: DrawerRow
    access_count: int
    last_accessed_ms: int | None
    entity_count: int
    triple_count: int
    retry_count: int

    @property
    def open(self) -> bool:
        """Whether it is neither deleted nor pruned."""
        return self.row.until_seq is None

    @property
    def live(self) -> bool:
        """Whether it counts."""
        return self.open and self.row.superseded_by is None and self.row.state != DrawerState.MERGED

    @property
    def author(self) -> Author:
        """The author of the drawer."""
        row = self.row
        return Author(row.author_type, row.author_name or None, row.added_by_agent or None, row.author_crew)

    @property
    def author_text(self) -> str:
        """The author's name for an answer."""
        return drawer_author(self.row.added_by_agent, self.row.author_type, self.row.author_name)

    def answer(self, caller: Caller) -> DrawerAnswer:
        """The drawer as an answer to a caller; may scan the text, which takes 0.5 to 2 µs per character."""
        row = self.row
        text = shown_text(caller, row.drawer_id, row.content, row.summary)
        read = None if self.last_accessed_ms is None else format_ms(self.last_accessed_ms)
        given = {name: value for name, value in row._asdict().items() if name in DrawerAnswer.model_fields}
        return DrawerAnswer(
            **{**given, "content": text.content, "summary": text.summary},
            quarantined=text.finding,
            id=row.drawer_id,
            author=self.author_text,
            filed_at=format_ms(row.filed_ms),
            held_until=None if row.held_until_ms is None else format_ms(row.held_until_ms),
            last_accessed_at=read,
            access_count=self.access_count,
            entity_count=self.entity_count,
            triple_count=self.triple_count,
            retry_count=self.retry_count,
            live=self.live,
            seq=row.since_seq,
        )


class DrawerReader:
    """Reads drawers in worker threads.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    async def places(self, workspace_id: str) -> list[PlaceCount]:
        """The places of a workspace that hold live drawers."""
        rows = await self._rows(_PLACES, [workspace_id])
        return [PlaceCount(wing, room, hall or "", drawers) for wing, room, hall, drawers in rows]

    async def latest(self, workspace_id: str, drawer_id: str) -> Drawer | None:
        """The current state of a drawer, or its last state before it was removed."""
        rows = await self._rows(_LATEST, [workspace_id, drawer_id])
        return _drawer(rows[0]) if rows else None

    async def listed(
        self,
        workspace_id: str,
        wing: str | None = None,
        room: str | None = None,
        hall: str | None = None,
        *,
        agent: str | None = None,
        source: str | None = None,
        limit: int,
        offset: int = 0,
    ) -> list[Drawer]:
        """Live drawers of a place, newest first; optionally only those of an agent or a source."""
        params = {**_place(workspace_id, wing, room, hall, agent, source), "limit": limit, "offset": offset}
        return [_drawer(row) for row in await self._rows(_LISTED, params)]

    async def count(
        self,
        workspace_id: str,
        wing: str | None = None,
        room: str | None = None,
        *,
        agent: str | None = None,
        source: str | None = None,
    ) -> int:
        """Number of live drawers of a place."""
        params = _place(workspace_id, wing, room, agent=agent, source=source)
        return int((await self._rows(_COUNT, params))[0][0])

    async def rooms(self, workspace_id: str, wing: str | None = None) -> list[tuple[str, str, int]]:
        """Wing, room and number of live drawers, the largest first."""
        return [(wing, room, int(count)) for wing, room, count in await self._rows(_ROOMS, _place(workspace_id, wing))]

    async def identity(self, workspace_id: str) -> WorkspaceIdentity | None:
        """The identity of a workspace."""
        rows = await self._rows(_IDENTITY, [workspace_id])
        return WorkspaceIdentity(rows[0][0], drawer_author(*rows[0][1:])) if rows else None

    async def _rows(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._views.rows, sql, params)


@dataclass(frozen=True, slots=True)
class ShownText:
    """The text and summary of a drawer that a caller may read, and the scanners' finding."""

    content: str
    summary: str
    finding: str | None


def shown_text(caller: Caller, named: str, content: str, summary: str = "", *, what: str = "drawer") -> ShownText:
    """A drawer's text or a tunnel's label; a notice instead if the scanners block it and the caller is not an operator."""
    finding = _finding(content) or (_finding(summary) if summary else None)
    if finding is None or caller.administers:
        return ShownText(content, summary, finding)
    notice = notice_of(f"{what} {named}", finding)
    return ShownText(notice, notice if summary else "", finding)


_finding: Final = lru_cache(maxsize=4_096)(finding_in)


def _place(
    workspace_id: str,
    wing: str | None = None,
    room: str | None = None,
    hall: str | None = None,
    agent: str | None = None,
    source: str | None = None,
) -> dict[str, Any]:
    return {"ws": workspace_id, "wing": wing, "room": room, "hall": hall, "agent": agent, "source": source}


def _drawer(row: tuple[Any, ...]) -> Drawer:
    width = len(DrawerRow._fields)
    return Drawer(DrawerRow(*row[:width]), *row[width:])
