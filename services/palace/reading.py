"""Reading the palace: counts, lists, search, duplicates, the diary, and the layers for prompts.

Invariant: only live drawers are counted, listed, searched and rendered. A search records which drawers it returned, which
counts as access; wake-up and recall do not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from ...schemas.errors import NotFound
from ...schemas.events.memory import MemorySearched
from ...schemas.operations.palace import (
    DUPLICATE_THRESHOLD,
    CheckDuplicateRequest,
    DiaryReadRequest,
    DrawerRequest,
    DrawersRequest,
    PalaceRecallRequest,
    PalaceRecipe,
    PalaceRoomsRequest,
    PalaceSearchRequest,
    PalaceStatusRequest,
    PalaceTaxonomyRequest,
    PalaceWingsRequest,
    WakeUpRequest,
)
from ...schemas.operations.palace_answers import (
    CheckDuplicateAnswer,
    DiaryEntry,
    DiaryReadAnswer,
    DrawerAnswer,
    DrawerHit,
    DrawersAnswer,
    PalaceRoomsAnswer,
    PalaceSearchAnswer,
    PalaceStatusAnswer,
    PalaceTaxonomyAnswer,
    PalaceTextAnswer,
    PalaceWingsAnswer,
    RoomCount,
    WingCount,
    WingRooms,
)
from ...schemas.operations.palace_context import PalaceContextRequest, PalaceRenderRequest
from ...schemas.rules.palace.layers import (
    ESSENTIAL_DRAWERS,
    ChatMessage,
    FoundDrawer,
    LayerDrawer,
    WorkspaceIdentity,
    render_context,
    render_recall,
    render_search,
    wake_up,
)
from ...schemas.rules.palace.places import DIARY, agent_slug
from ...schemas.timestamps import format_ms
from ..desk import Caller
from ..query.chunks.documents import RecordSearch
from .ranking import Ranked
from .rows import Drawer, DrawerReader, shown_text
from .searching import DrawerSearch

MOST_DUPLICATES: Final = 5
RECIPE: Final = "palace"
"""Names these searches in ``memory.searched``."""


class PalaceReading:
    """The use-cases.

    Args:
        drawers: Reads drawers.
        search: Searches them.
        record: Records searches that found something.
    """

    def __init__(self, drawers: DrawerReader, search: DrawerSearch, record: RecordSearch) -> None:
        self._drawers = drawers
        self._search = search
        self._record = record

    async def status(self, caller: Caller, _asked: PalaceStatusRequest) -> PalaceStatusAnswer:
        """Numbers of drawers."""
        rooms = await self._rooms(caller)
        return PalaceStatusAnswer(total_drawers=sum(one.count for one in rooms), wings=_wings(rooms), rooms=rooms)

    async def wings(self, caller: Caller, _asked: PalaceWingsRequest) -> PalaceWingsAnswer:
        """The wings."""
        return PalaceWingsAnswer(wings=_wings(await self._rooms(caller)))

    async def rooms(self, caller: Caller, asked: PalaceRoomsRequest) -> PalaceRoomsAnswer:
        """The rooms, of one wing or all."""
        return PalaceRoomsAnswer(rooms=await self._rooms(caller, asked.wing))

    async def taxonomy(self, caller: Caller, _asked: PalaceTaxonomyRequest) -> PalaceTaxonomyAnswer:
        """Wings with their rooms."""
        inside: dict[str, dict[str, int]] = {}
        for one in await self._rooms(caller):
            inside.setdefault(one.wing, {})[one.room] = one.count
        return PalaceTaxonomyAnswer(taxonomy={wing: WingRooms(rooms=rooms) for wing, rooms in inside.items()})

    async def search(self, caller: Caller, asked: PalaceSearchRequest) -> PalaceSearchAnswer:
        """Drawers that answer the query, best first."""
        found, receipt = await self._found(caller, asked)
        hits = await asyncio.to_thread(_hits, caller, found)
        return PalaceSearchAnswer(results=hits, count=len(found), receipt=receipt)

    async def render(self, caller: Caller, asked: PalaceRenderRequest) -> PalaceTextAnswer:
        """Drawers that answer the query as a text."""
        found, receipt = await self._found(caller, asked)
        shown = [
            FoundDrawer(
                one.drawer.drawer_id,
                one.drawer.wing,
                one.drawer.room,
                one.content,
                one.score,
                one.drawer.author_text,
                one.drawer.source_file,
            )
            for one in found
        ]
        return _text(render_search(asked.query, shown), receipt)

    async def _found(self, caller: Caller, asked: PalaceSearchRequest) -> tuple[list[Ranked], str | None]:
        """Hits, best first, and the receipt of the search."""
        found, model = await self._search.search(
            caller.workspace_id,
            asked.query,
            asked.limit,
            wing=asked.wing,
            room=asked.room,
            recipe=asked.recipe,
            agent_id=caller.principal.agent_id or "",
            min_seq=asked.min_seq or 0,
        )
        return found, self._recorded(caller, asked, found, model) if found else None

    async def duplicates(self, caller: Caller, asked: CheckDuplicateRequest) -> CheckDuplicateAnswer:
        """Drawers that say almost the same."""
        least = float(asked.threshold) if asked.threshold > 0 else DUPLICATE_THRESHOLD
        found = await self._search.alike(caller.workspace_id, asked.content, least, MOST_DUPLICATES, asked.min_seq or 0)
        hits = await asyncio.to_thread(_hits, caller, found)
        return CheckDuplicateAnswer(duplicates=hits, has_duplicate=bool(found))

    async def get(self, caller: Caller, asked: DrawerRequest) -> DrawerAnswer:
        """One drawer.

        Raises:
            NotFound: If there is none, or it was deleted or pruned.
        """
        found = await self._drawers.latest(caller.workspace_id, asked.drawer_id)
        if found is None or not found.open:
            raise no_drawer(asked.drawer_id)
        return await asyncio.to_thread(found.answer, caller)

    async def drawers(self, caller: Caller, asked: DrawersRequest) -> DrawersAnswer:
        """Drawers of a place, newest first."""
        found = await self._drawers.listed(
            caller.workspace_id,
            asked.wing,
            asked.room,
            agent=asked.agent_id,
            source=asked.imported_from,
            limit=asked.limit,
            offset=asked.offset,
        )
        total = await self._drawers.count(
            caller.workspace_id, asked.wing, asked.room, agent=asked.agent_id, source=asked.imported_from
        )
        drawers = await asyncio.to_thread(lambda: tuple(one.answer(caller) for one in found))
        return DrawersAnswer(drawers=drawers, total=total)

    async def diary(self, caller: Caller, asked: DiaryReadRequest) -> DiaryReadAnswer:
        """An agent's diary, newest first."""
        hall = agent_slug(asked.agent_name)
        found = await self._drawers.listed(caller.workspace_id, DIARY, hall=hall, limit=asked.last_n)
        entries = await asyncio.to_thread(lambda: tuple(_diary_entry(caller, one) for one in found))
        return DiaryReadAnswer(entries=entries, count=len(entries))

    async def wake_up(self, caller: Caller, asked: WakeUpRequest) -> PalaceTextAnswer:
        """Identity and essential story."""
        identity, told = await self._standing(caller, asked)
        return _text(wake_up(identity, told))

    async def context(self, caller: Caller, asked: PalaceContextRequest) -> PalaceTextAnswer:
        """Identity, essential story and the newest messages."""
        identity, told = await self._standing(caller, asked)
        memory = wake_up(identity, told) if identity or told else ""
        heard = [
            ChatMessage("User" if one.role == "user" else one.name or "Agent", one.text)
            for one in asked.messages
            if not one.silent
        ]
        return _text(render_context(memory, heard))

    async def _standing(
        self, caller: Caller, asked: WakeUpRequest | PalaceContextRequest
    ) -> tuple[WorkspaceIdentity | None, list[LayerDrawer]]:
        """The identity, and the most important drawers."""
        found = await self._search.important(caller.workspace_id, asked.wing, ESSENTIAL_DRAWERS, asked.min_seq or 0)
        told = [
            LayerDrawer(one.drawer_id, one.room, text, one.importance, one.filed_ms, one.author_text, one.source_file)
            for one, text in found
        ]
        return await self._drawers.identity(caller.workspace_id), told

    async def recall(self, caller: Caller, asked: PalaceRecallRequest) -> PalaceTextAnswer:
        """Drawers of a place as a text."""
        found = await self._drawers.listed(caller.workspace_id, asked.wing, asked.room, limit=asked.limit)
        return _text(render_recall([_told(one) for one in found], asked.wing, asked.room))

    async def _rooms(self, caller: Caller, wing: str | None = None) -> tuple[RoomCount, ...]:
        rooms = await self._drawers.rooms(caller.workspace_id, wing)
        return tuple(RoomCount(wing=one, room=room, count=count) for one, room, count in rooms)

    def _recorded(
        self, caller: Caller, asked: PalaceSearchRequest, found: list[Ranked], model: str | None
    ) -> str | None:
        entries = tuple(one.drawer.entry_id for one in found)
        searched = MemorySearched(
            query=asked.query,
            scope="workspace",
            recipe=RECIPE if asked.recipe is PalaceRecipe.DEFAULT else asked.recipe.value,
            model=model,
            hit_ids=entries,
            scores=tuple(round(one.score, 6) for one in found),
            rendered=entries,
            asked_by=caller.principal.token_id,
        )
        return self._record(caller.principal, caller.workspace_id, searched)


def no_drawer(drawer_id: str) -> NotFound:
    """There is no such drawer."""
    return NotFound(f"no drawer {drawer_id[:320]}", hint="take the id from a search or from the list of drawers")


def _diary_entry(caller: Caller, drawer: Drawer) -> DiaryEntry:
    row = drawer.row
    text = shown_text(caller, row.drawer_id, row.content)
    return DiaryEntry(
        id=row.drawer_id,
        content=text.content,
        hall=row.hall,
        filed_at=format_ms(row.filed_ms),
        author=drawer.author_text,
        quarantined=text.finding,
    )


def _hits(caller: Caller, found: list[Ranked]) -> tuple[DrawerHit, ...]:
    return tuple(_hit(caller, one) for one in found)


def _hit(caller: Caller, found: Ranked) -> DrawerHit:
    drawer = found.drawer
    text = shown_text(caller, drawer.drawer_id, found.content)
    return DrawerHit(
        id=drawer.drawer_id,
        wing=drawer.wing,
        room=drawer.room,
        content=text.content,
        quarantined=text.finding,
        memory_type=drawer.memory_type,
        importance=drawer.importance,
        similarity=round(found.similarity, 4),
        score=round(found.score, 6),
        filed_at=format_ms(drawer.filed_ms),
        author=drawer.author_text,
    )


def _wings(rooms: tuple[RoomCount, ...]) -> tuple[WingCount, ...]:
    counts: Counter[str] = Counter()
    for one in rooms:
        counts[one.wing] += one.count
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(WingCount(wing=wing, count=count) for wing, count in ordered)


def _told(drawer: Drawer) -> LayerDrawer:
    row = drawer.row
    return LayerDrawer(
        row.drawer_id, row.room, row.content, row.importance, row.filed_ms, drawer.author_text, row.source_file
    )


def _text(text: str, receipt: str | None = None) -> PalaceTextAnswer:
    return PalaceTextAnswer(text=text, chars=len(text), receipt=receipt)
