"""Files, moves, deletes, restores and imports drawers on request; writes the diary and the identity.

Invariants: a write returns once the views show it. The author of a drawer comes from the token and is recorded in the
entry; ``services/desk`` decides who may change a drawer; a diary belongs to its agent. If the same text is filed
twice at the same place, only one filing is recorded, because the entry's id is derived from the drawer's id and the
sequence of its last removal.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

from ...schemas.core.errors import EntryConflict, FieldProblem, InvalidRequest, NotAllowed, PalaceFull
from ...schemas.core.ids import derived_id, mint_entry_id, sealed
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.palace import operations as ops
from ...schemas.palace.events import (
    CONTENT_CHARS,
    MOST_DRAWERS,
    PLACE_CHARS,
    DrawerDeleted,
    DrawerFiled,
    DrawerRestored,
    DrawerState,
    DrawerUpdated,
    PalaceIdentitySet,
    PalaceIngestAsked,
    PipelineTier,
)
from ...schemas.palace.exchanges import classify
from ...schemas.palace.operations import (
    IMPORT_DRAWERS,
    AddDrawerAnswer,
    DeleteDrawerAnswer,
    DiaryWriteAnswer,
    DrawerAnswer,
    ImportDrawersAnswer,
    ImportDrawersRequest,
    ImportedDrawer,
    ImportedDrawerAnswer,
    InfoAnswer,
)
from ...schemas.palace.rules import DIARY, GENERAL_ROOM, agent_slug, drawer_id, is_noise
from ...schemas.palace.tables import DRAWERS_PROJECTION, DrawerRow
from ..desk import Author, Caller, check_may_change
from ..journal.intake.secrets import storable
from ..node import Answers, Node
from .drawer_index import Drawer, DrawerReader
from .reading import no_drawer

LEAST_CONFIDENCE: Final = 0.5
"""Minimum confidence of the classifier; below it, a drawer gets the type ``general``."""
USER_WING: Final = "user"
"""Wing of a drawer that is filed without one."""
_ID_NAME: Final = "palace_filing"
_ID_VERSION: Final = 1


class PalaceFiling:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._drawers = DrawerReader(node.views)
        self.one_at_a_time = asyncio.Lock()

    async def add(self, caller: Caller, request: ops.AddDrawerRequest) -> AddDrawerAnswer:
        """File a text; if it is already filed, the drawer does not change.

        Raises:
            InvalidRequest: If the text is noise.
            NotAllowed: If ``added_by`` names another author, and the caller is neither OWNER nor ADMIN.
            PalaceFull: If the workspace has the maximum number of drawers.
            BrokerUnavailable: If the change could not be recorded.
        """
        if is_noise(request.content):
            raise _noise("content")
        _check_own_name(caller, request.added_by, "added_by")
        content = await without_secrets(self._node, caller, request.content, "content")
        classified = classify(content, LEAST_CONFIDENCE)
        filed = DrawerFiled(
            drawer_id=drawer_id(request.wing, request.room, content),
            wing=request.wing,
            room=request.room,
            content=content,
            memory_type=classified.memory_type,
            importance=classified.importance,
            added_by=request.added_by or caller.acts_as[1],
            added_by_agent=caller.principal.agent_id or "",
            source_file=request.source_file or "",
        )
        try:
            return await self._file(caller, filed)
        except EntryConflict:  # another node recorded it first, with another name or place
            return _answer(filed, "already filed")

    async def put(self, caller: Caller, request: ops.PutDrawerRequest) -> AddDrawerAnswer:
        """File a text under the caller's own id.

        Raises:
            EntryConflict: If another text is filed under this id.
            PalaceFull: If the workspace has the maximum number of drawers.
            BrokerUnavailable: If the change could not be recorded.
        """
        wing, _, room = (request.category or USER_WING).partition("/")
        filed = DrawerFiled(
            drawer_id=request.drawer_id,
            wing=_part(wing) or USER_WING,
            room=_part(room) or GENERAL_ROOM,
            content=await without_secrets(self._node, caller, request.content, "content"),
            memory_type="preference",
            added_by="mobile",
            added_by_agent=caller.principal.agent_id or "",
        )
        return await self._file(caller, filed)

    async def write_diary(self, caller: Caller, request: ops.DiaryWriteRequest) -> DiaryWriteAnswer:
        """Write into a diary; the same text written twice gives two entries.

        Raises:
            NotAllowed: If it is another agent's diary, and the caller is neither OWNER nor ADMIN.
            PalaceFull: If the workspace has the maximum number of drawers.
            BrokerUnavailable: If the change could not be recorded.
        """
        _check_own_name(caller, request.agent_name, "agent_name")
        hall, room, entry_id = agent_slug(request.agent_name), request.topic or DIARY, mint_entry_id()
        filed = DrawerFiled(
            drawer_id=drawer_id(DIARY, room, f"{entry_id}/{request.entry}"),
            wing=DIARY,
            room=room,
            hall=hall,
            content=request.entry,
            memory_type=DIARY,
            added_by=request.agent_name,
            added_by_agent=caller.principal.agent_id or "",
            pipeline_tier=PipelineTier.HEURISTIC,
            state=DrawerState.PROCESSED,
        )
        async with self.one_at_a_time:
            await self._check_room(caller)
            seq = await self._record(caller, filed, "is filed", filed.drawer_id, entry_id)
        return DiaryWriteAnswer(drawer_id=filed.drawer_id, info=f"written into the diary of {hall}", seq=seq)

    async def delete(self, caller: Caller, request: ops.DeleteDrawerRequest) -> DeleteDrawerAnswer:
        """Delete a drawer; ``deleted`` is false if there is none.

        Raises:
            NotAllowed: If the caller may not change it.
        """
        known = await self._drawers.latest(caller.workspace_id, request.drawer_id)
        if known is None or not known.open:
            return DeleteDrawerAnswer(deleted=False, info=f"there is no drawer {request.drawer_id}")
        _check_author(caller, known)
        seq = await self._record(caller, DrawerDeleted(drawer_id=request.drawer_id), "is deleted", request.drawer_id)
        return DeleteDrawerAnswer(deleted=True, info="deleted; it can be restored", seq=seq)

    async def restore(self, caller: Caller, request: ops.RestoreDrawerRequest) -> DrawerAnswer:
        """Restore a drawer; if its classification had failed, it is classified again.

        Raises:
            NotFound: If no such drawer was ever filed.
            NotAllowed: If the caller may not change it, or if an OWNER or ADMIN deleted it and the caller is not OWNER
                or ADMIN.
            PalaceFull: If the workspace has the maximum number of drawers.
        """
        async with self.one_at_a_time:
            known = await self._drawers.latest(caller.workspace_id, request.drawer_id)
            if known is None:
                raise no_drawer(request.drawer_id)
            _check_author(caller, known)
            if not known.open:
                deletion = f"the deletion of drawer {request.drawer_id}"
                check_may_change(caller, Author(known.row.removed_by, None), deletion, shared=True)
            failed = known.open and known.row.state == DrawerState.FAILED
            if not known.live or failed:
                if not known.live:
                    await self._check_room(caller)
                restored = DrawerRestored(drawer_id=request.drawer_id)
                await self._record(caller, restored, "is restored", request.drawer_id)
        return await self._shown(caller, request.drawer_id)

    async def update(self, caller: Caller, request: ops.UpdateDrawerRequest) -> DrawerAnswer:
        """Move a drawer, or set its type or importance.

        Raises:
            InvalidRequest: If the request changes nothing.
            NotFound: If there is no such drawer.
            NotAllowed: If the caller may not change it, or the drawer would be moved into another agent's diary.
        """
        given = request.model_dump(exclude={"workspace_id"}, exclude_none=True)
        if len(given) == 1:
            raise InvalidRequest((FieldProblem("wing", "nothing to change", "give at least one field"),))
        known = await self._drawers.latest(caller.workspace_id, request.drawer_id)
        if known is None or not known.open:
            raise no_drawer(request.drawer_id)
        _check_author(caller, known)
        if (request.wing or known.row.wing) == DIARY:
            _check_own_name(caller, known.row.hall if request.hall is None else request.hall, "hall")
        await self._record(caller, DrawerUpdated.model_validate(given), "is updated", request.drawer_id)
        return await self._shown(caller, request.drawer_id)

    async def set_identity(self, caller: Caller, request: ops.SetIdentityRequest) -> InfoAnswer:
        """Set the identity of the workspace."""
        seq = await self._record(caller, PalaceIdentitySet(content=request.content), "is set", "the identity")
        return InfoAnswer(info="the identity is set", seq=seq)

    async def ingest(self, caller: Caller, request: ops.PalaceIngestRequest) -> InfoAnswer:
        """Request that chat entries that are not filed yet are filed."""
        seq = await self._record(caller, PalaceIngestAsked(since_seq=request.since_seq), "is asked for", "an ingestion")
        return InfoAnswer(info="the reactor palace_ingest files what is not filed yet", seq=seq)

    async def _file(self, caller: Caller, filed: DrawerFiled) -> AddDrawerAnswer:
        """File a drawer unless it is live; raises as ``put``."""
        async with self.one_at_a_time:
            known = await self._drawers.latest(caller.workspace_id, filed.drawer_id)
            if known is not None and known.live:
                if known.row.content != filed.content:
                    raise EntryConflict(
                        f"another text is filed under {filed.drawer_id}",
                        hint="use another drawer_id, or delete that drawer first",
                    )
                return _answer(known.row, f"already filed in {known.row.wing}/{known.row.room}")
            await self._check_room(caller)
            name = filed.drawer_id
            try:
                seq = await self._record(caller, filed, "is filed", name, filing_id(caller, filed, known))
            except EntryConflict as conflict:
                if not conflict.erased:
                    raise
                seq = await self._record(caller, filed, "is filed", name, mint_entry_id())
        return _answer(filed, f"filed in {filed.wing}/{filed.room}", seq)

    async def _check_room(self, caller: Caller) -> None:
        if await self._drawers.count(caller.workspace_id) >= MOST_DRAWERS:
            raise PalaceFull(
                f"the workspace has {MOST_DRAWERS} drawers, the most that it may have",
                hint="delete drawers that are no longer needed",
            )

    async def _shown(self, caller: Caller, name: str) -> DrawerAnswer:
        known = await self._drawers.latest(caller.workspace_id, name)
        if known is None:
            raise no_drawer(name)
        return await asyncio.to_thread(known.answer, caller)

    async def _record(
        self, caller: Caller, payload: ControlPayload, what: str, name: str, entry_id: str | None = None
    ) -> int:
        decided = await self._node.decide(
            caller, payload, f"{name} {what}", DRAWERS_PROJECTION, entry_id=entry_id, **caller.author_fields
        )
        return decided.seq


async def without_secrets(node: Node, caller: Caller, text: str, field: str) -> str:
    """Treat the credentials in a text before an id is derived from it.

    Raises:
        InvalidRequest: If the text has credentials and the workspace refuses credentials.
    """
    return await storable(node.journal, caller.workspace_id, text, field, CONTENT_CHARS)


def filing_id(caller: Caller, filed: DrawerFiled, known: Drawer | None) -> str:
    """The id of the entry that files a drawer; the same until the drawer is removed, so that repeats are recorded once.

    It is sealed, because the drawer's id follows from the text.
    """
    removed_at = 0 if known is None else known.row.until_seq or known.row.since_seq
    return derived_id(_ID_NAME, _ID_VERSION, sealed(f"{caller.workspace_id}/{filed.drawer_id}/{removed_at}"))


def _answer(filed: DrawerFiled | DrawerRow, info: str, seq: int | None = None) -> AddDrawerAnswer:
    return AddDrawerAnswer(
        drawer_id=filed.drawer_id, memory_type=filed.memory_type, info=info, added=seq is not None, seq=seq
    )


def _part(category: str) -> str:
    if len(category.strip()) > PLACE_CHARS:
        fix = f"give wing and room at most {PLACE_CHARS} characters each"
        raise InvalidRequest((FieldProblem("category", "has a wing or room that is too long", fix),))
    return category.strip()


def _check_author(caller: Caller, known: Drawer) -> None:
    check_may_change(caller, known.author, f"drawer {known.row.drawer_id}")


def _check_own_name(caller: Caller, name: str | None, field: str) -> None:
    """Refuse a name other than the token's agent; OWNER and ADMIN may use any name."""
    own = caller.principal.agent_id
    if name is None or caller.administers or own is None or agent_slug(name) == agent_slug(own):
        return
    raise NotAllowed(
        f"the token is for agent {own}, {field} names another",
        hint=f"use {own}, or leave {field} out" if field == "added_by" else f"use {own}",
        field=field,
    )


def _noise(field: str) -> InvalidRequest:
    fix = "file a text that says something, of at least 10 characters"
    return InvalidRequest((FieldProblem(field, "is too short, or only a greeting, thanks or the like", fix),))


# Imports drawers of another store with their ids.


class PalaceImport:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._drawers = DrawerReader(node.views)
        self._one_at_a_time = node.use(PalaceFiling).one_at_a_time

    async def run(self, caller: Caller, request: ImportDrawersRequest) -> ImportDrawersAnswer:
        """File drawers, or only report the result for each drawer.

        Raises:
            BrokerUnavailable: If a drawer could not be recorded; the drawers before it are recorded.
        """
        outcomes: dict[str, ImportedDrawerAnswer] = {}
        seq = None
        async with self._one_at_a_time:
            left = max(0, MOST_DRAWERS - await self._drawers.count(caller.workspace_id))
            for drawer in request.drawers:
                content = await without_secrets(self._node, caller, drawer.content, "drawers")
                stored_drawer = drawer if content == drawer.content else drawer.model_copy(update={"content": content})
                known = await self._drawers.latest(caller.workspace_id, stored_drawer.drawer_id)
                outcome = _outcome(stored_drawer, known, request.restore)
                if stored_drawer.drawer_id in outcomes:
                    outcome = "unchanged"
                elif outcome == "added" and not left:
                    outcome = "no_room"
                left -= outcome == "added"
                if outcome in ("added", "replaced") and not request.dry_run:
                    filed = await self._file(caller, stored_drawer, known, request.imported_from, outcome == "replaced")
                    seq = seq if filed is None else filed
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
            entry_id = filing_id(caller, filed, known)
            summary = f"{drawer.drawer_id} is imported"
            decided = await self._node.decide(caller, filed, summary, entry_id=entry_id, **caller.author_fields)
        except EntryConflict as conflict:
            if not conflict.erased:
                return None  # another node recorded it first
            decided = await self._node.decide(caller, filed, summary, **caller.author_fields)
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
    classified = classify(drawer.content, LEAST_CONFIDENCE)
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


ANSWERS: Final[Answers] = (
    (ops.ADD_DRAWER, PalaceFiling.add),
    (ops.PUT_DRAWER, PalaceFiling.put),
    (ops.UPDATE_DRAWER, PalaceFiling.update),
    (ops.DELETE_DRAWER, PalaceFiling.delete),
    (ops.RESTORE_DRAWER, PalaceFiling.restore),
    (ops.SET_IDENTITY, PalaceFiling.set_identity),
    (ops.DIARY_WRITE, PalaceFiling.write_diary),
    (ops.PALACE_INGEST, PalaceFiling.ingest),
    (IMPORT_DRAWERS, PalaceImport.run),
)
