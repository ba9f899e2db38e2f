"""Reading the palace: counts, lists, search, duplicates, the diary, and the layers for prompts.

Invariant: only live drawers are counted, listed, searched and rendered. A search records which drawers it returned, which
counts as access; wake-up and recall do not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...schemas.core.errors import NotFound
from ...schemas.core.timestamps import format_ms
from ...schemas.lineage.events import HeldText, MemoryGiven
from ...schemas.palace import operations as ops
from ...schemas.palace.layers import (
    ESSENTIAL_DRAWERS,
    ChatMessage,
    LayerDrawer,
    WorkspaceIdentity,
    render_context,
    render_recall,
    render_search,
    wake_up,
)
from ...schemas.palace.operations import (
    PALACE_CONTEXT,
    PALACE_RENDER,
    CheckDuplicateAnswer,
    DiaryEntry,
    DiaryReadAnswer,
    DrawerAnswer,
    DrawerHit,
    DrawersAnswer,
    PalaceContextRequest,
    PalaceRenderRequest,
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
from ...schemas.palace.rules import DIARY, agent_slug
from ...schemas.palace.tables import DRAWERS_PROJECTION, DrawerRow
from ...schemas.recall.events import MemorySearched
from ..desk import Caller
from ..node import Answers, Node
from .drawer_index import Drawer, DrawerReader, HotDrawer, shown_text
from .searching import DrawerSearch, RankedDrawer

MOST_DUPLICATES: Final = 5
RECIPE: Final = "palace"
"""Names these searches in ``memory.searched``."""


class PalaceReading:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._drawers = DrawerReader(node.views)
        self._search = node.use(DrawerSearch)
        self._record = node.record_search
        self._views = node.views

    async def status(self, caller: Caller, _asked: ops.PalaceStatusRequest) -> PalaceStatusAnswer:
        """Numbers of drawers."""
        rooms = await self._rooms(caller)
        return PalaceStatusAnswer(total_drawers=sum(room.count for room in rooms), wings=_wings(rooms), rooms=rooms)

    async def wings(self, caller: Caller, _asked: ops.PalaceWingsRequest) -> PalaceWingsAnswer:
        """The wings."""
        return PalaceWingsAnswer(wings=_wings(await self._rooms(caller)))

    async def rooms(self, caller: Caller, request: ops.PalaceRoomsRequest) -> PalaceRoomsAnswer:
        """The rooms, of one wing or all."""
        return PalaceRoomsAnswer(rooms=await self._rooms(caller, request.wing))

    async def taxonomy(self, caller: Caller, _asked: ops.PalaceTaxonomyRequest) -> PalaceTaxonomyAnswer:
        """Wings with their rooms."""
        inside: dict[str, dict[str, int]] = {}
        for room in await self._rooms(caller):
            inside.setdefault(room.wing, {})[room.room] = room.count
        return PalaceTaxonomyAnswer(taxonomy={wing: WingRooms(rooms=rooms) for wing, rooms in inside.items()})

    async def search(self, caller: Caller, request: ops.PalaceSearchRequest) -> PalaceSearchAnswer:
        """Drawers that answer the query, best first."""
        hits_found, receipt = await self._found(caller, request)
        hits = await asyncio.to_thread(_hits, caller, hits_found)
        return PalaceSearchAnswer(results=hits, count=len(hits_found), receipt=receipt)

    async def render(self, caller: Caller, request: PalaceRenderRequest) -> PalaceTextAnswer:
        """Drawers that answer the query as a text."""
        hits, receipt = await self._found(caller, request)
        drawers = [_layer_drawer(hit.drawer, hit.content, hit.drawer.author_text, hit.score) for hit in hits]
        return _text(render_search(request.query, drawers), receipt)

    async def _found(self, caller: Caller, request: ops.PalaceSearchRequest) -> tuple[list[RankedDrawer], str | None]:
        """Hits, best first, and the receipt of the search."""
        hits, model = await self._search.search(
            caller.workspace_id,
            request.query,
            request.limit,
            wing=request.wing,
            room=request.room,
            recipe=request.recipe,
            agent_id=caller.principal.agent_id or "",
            min_seq=request.min_seq or 0,
        )
        return hits, self._recorded(caller, request, hits, model) if hits else None

    async def duplicates(self, caller: Caller, request: ops.CheckDuplicateRequest) -> CheckDuplicateAnswer:
        """Drawers that say almost the same."""
        least = float(request.threshold) if request.threshold > 0 else ops.DUPLICATE_THRESHOLD
        hits_found = await self._search.alike(
            caller.workspace_id, request.content, least, MOST_DUPLICATES, request.min_seq or 0
        )
        hits = await asyncio.to_thread(_hits, caller, hits_found)
        return CheckDuplicateAnswer(duplicates=hits, has_duplicate=bool(hits_found))

    async def get(self, caller: Caller, request: ops.DrawerRequest) -> DrawerAnswer:
        """One drawer.

        Raises:
            NotFound: If there is none, or it was deleted or pruned.
        """
        drawer = await self._drawers.latest(caller.workspace_id, request.drawer_id)
        if drawer is None or not drawer.open:
            raise no_drawer(request.drawer_id)
        return await asyncio.to_thread(drawer.answer, caller)

    async def drawers(self, caller: Caller, request: ops.DrawersRequest) -> DrawersAnswer:
        """Drawers of a place, newest first."""
        rows = await self._drawers.listed(
            caller.workspace_id,
            request.wing,
            request.room,
            agent=request.agent_id,
            source=request.imported_from,
            limit=request.limit,
            offset=request.offset,
        )
        total = await self._drawers.count(
            caller.workspace_id, request.wing, request.room, agent=request.agent_id, source=request.imported_from
        )
        drawers = await asyncio.to_thread(lambda: tuple(drawer.answer(caller) for drawer in rows))
        return DrawersAnswer(drawers=drawers, total=total)

    async def diary(self, caller: Caller, request: ops.DiaryReadRequest) -> DiaryReadAnswer:
        """An agent's diary, newest first."""
        hall = agent_slug(request.agent_name)
        rows = await self._drawers.listed(caller.workspace_id, DIARY, hall=hall, limit=request.last_n)
        entries = await asyncio.to_thread(lambda: tuple(_diary_entry(caller, drawer) for drawer in rows))
        return DiaryReadAnswer(entries=entries, count=len(entries))

    async def wake_up(self, caller: Caller, request: ops.WakeUpRequest) -> PalaceTextAnswer:
        """Identity and essential story."""
        identity, told, receipt = await self._standing(caller, request, "wake_up")
        return _text(wake_up(identity, told), receipt)

    async def context(self, caller: Caller, request: PalaceContextRequest) -> PalaceTextAnswer:
        """Identity, essential story and the newest messages."""
        identity, told, receipt = await self._standing(caller, request, "palace_context")
        memory = wake_up(identity, told) if identity or told else ""
        heard = [
            ChatMessage("User" if message.role == "user" else message.name or "Agent", message.text)
            for message in request.messages
            if not message.silent
        ]
        return _text(render_context(memory, heard), receipt)

    async def _standing(
        self, caller: Caller, request: ops.WakeUpRequest | PalaceContextRequest, prompt: str
    ) -> tuple[WorkspaceIdentity | None, list[LayerDrawer], str | None]:
        """The identity, the most important drawers, and the receipt of the prompt that they are for."""
        important = await self._search.important(
            caller.workspace_id, request.wing, ESSENTIAL_DRAWERS, request.min_seq or 0
        )
        drawers = [_layer_drawer(drawer, text, drawer.author_text) for drawer, text in important]
        receipt = self._gave(caller, prompt, [drawer for drawer, _ in important])
        return await self._drawers.identity(caller.workspace_id), drawers, receipt

    async def recall(self, caller: Caller, request: ops.PalaceRecallRequest) -> PalaceTextAnswer:
        """Drawers of a place as a text."""
        drawers = await self._drawers.listed(caller.workspace_id, request.wing, request.room, limit=request.limit)
        shown = [_layer_drawer(drawer.row, drawer.row.content, drawer.author_text) for drawer in drawers]
        receipt = self._gave(caller, "palace_recall", [drawer.row for drawer in drawers])
        return _text(render_recall(shown, request.wing, request.room), receipt)

    def _gave(self, caller: Caller, prompt: str, drawers: Sequence[DrawerRow | HotDrawer]) -> str | None:
        """Record the drawers in a text for a prompt; returns the receipt."""
        if not drawers:
            return None
        texts = tuple(HeldText(kind="drawer", id=drawer.entry_id, entry_ids=(drawer.entry_id,)) for drawer in drawers)
        view_seq, asked_by = self._views.view_seq(DRAWERS_PROJECTION), caller.principal.token_id
        given = MemoryGiven(prompt=prompt, texts=texts, view_seq=view_seq, asked_by=asked_by)
        return self._record(caller.principal, caller.workspace_id, given)

    async def _rooms(self, caller: Caller, wing: str | None = None) -> tuple[RoomCount, ...]:
        rooms = await self._drawers.rooms(caller.workspace_id, wing)
        return tuple(RoomCount(wing=wing, room=room, count=count) for wing, room, count in rooms)

    def _recorded(
        self, caller: Caller, request: ops.PalaceSearchRequest, hits: list[RankedDrawer], model: str | None
    ) -> str | None:
        entries = tuple(hit.drawer.entry_id for hit in hits)
        searched = MemorySearched(
            query=request.query,
            scope="workspace",
            recipe=RECIPE if request.recipe is ops.PalaceRecipe.DEFAULT else request.recipe.value,
            model=model,
            hit_ids=entries,
            scores=tuple(round(hit.score, 6) for hit in hits),
            rendered=entries,
            asked_by=caller.principal.token_id,
            view_seq=self._views.view_seq(DRAWERS_PROJECTION),
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


def _hits(caller: Caller, hits: list[RankedDrawer]) -> tuple[DrawerHit, ...]:
    return tuple(_hit(caller, hit) for hit in hits)


def _hit(caller: Caller, hit: RankedDrawer) -> DrawerHit:
    drawer = hit.drawer
    text = shown_text(caller, drawer.drawer_id, hit.content)
    return DrawerHit(
        id=drawer.drawer_id,
        wing=drawer.wing,
        room=drawer.room,
        content=text.content,
        quarantined=text.finding,
        memory_type=drawer.memory_type,
        importance=drawer.importance,
        similarity=round(hit.similarity, 4),
        score=round(hit.score, 6),
        filed_at=format_ms(drawer.filed_ms),
        author=drawer.author_text,
    )


def _wings(rooms: tuple[RoomCount, ...]) -> tuple[WingCount, ...]:
    counts: Counter[str] = Counter()
    for room_count in rooms:
        counts[room_count.wing] += room_count.count
    ordered = sorted(counts.items(), key=lambda count: (-count[1], count[0]))
    return tuple(WingCount(wing=wing, count=count) for wing, count in ordered)


def _layer_drawer(row: DrawerRow | HotDrawer, content: str, author: str, score: float = 0.0) -> LayerDrawer:
    return LayerDrawer(
        row.drawer_id, row.room, content, row.importance, row.filed_ms, author, row.source_file, row.wing, score
    )


def _text(text: str, receipt: str | None = None) -> PalaceTextAnswer:
    return PalaceTextAnswer(text=text, chars=len(text), receipt=receipt)


ANSWERS: Final[Answers] = (
    (ops.PALACE_STATUS, PalaceReading.status),
    (ops.PALACE_WINGS, PalaceReading.wings),
    (ops.PALACE_ROOMS, PalaceReading.rooms),
    (ops.PALACE_TAXONOMY, PalaceReading.taxonomy),
    (ops.PALACE_SEARCH, PalaceReading.search),
    (ops.CHECK_DUPLICATE, PalaceReading.duplicates),
    (ops.DRAWERS, PalaceReading.drawers),
    (ops.DRAWER, PalaceReading.get),
    (ops.DIARY_READ, PalaceReading.diary),
    (ops.WAKE_UP, PalaceReading.wake_up),
    (ops.PALACE_RECALL, PalaceReading.recall),
    (PALACE_RENDER, PalaceReading.render),
    (PALACE_CONTEXT, PalaceReading.context),
)
