"""Tells a run, once, that memories which it was given no longer count.

Invariants: what is waiting is known in memory, so that a call without notices pays a look into a dict; a notice is recorded
as given before it is returned, with an id derived from the run and the notices, so that neither a restart nor another node
gives it again; a memory whose end is not valid, or was undone, makes no notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

import structlog

from ...schemas.core.errors import EntryConflict
from ...schemas.core.ids import derived_id, message_id
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.principal import Principal
from ...schemas.facts.events import FactAsserted
from ...schemas.lineage.events import MOST_HELD, NoticesGiven
from ...schemas.lineage.operations import NOTICES, Notice, NoticesAnswer, NoticesRequest
from ...schemas.lineage.rules import Why, holder_of
from ...schemas.lineage.tables import ENDINGS, LINEAGE_PROJECTION, NoticeRow
from ...schemas.lineage.tables import NOTICES as NOTICE_ROWS
from ...schemas.palace.events import DrawerFiled
from ...schemas.standing.operations import State
from ..desk import RUN, Caller
from ..entries.rows import JOURNAL_SOURCE, SELECT_LIST, StoredEntry, add_marks
from ..node import Answers, Node
from ..parts import Part
from ..recall.receipts import ReceiptLog

_WAITING: Final = f"SELECT {NOTICE_ROWS.names} FROM {NOTICE_ROWS} WHERE told_seq IS NULL"
_OF_RUN: Final = f"""SELECT {NOTICE_ROWS.names} FROM {NOTICE_ROWS}
    WHERE workspace_id = ? AND holder = ? AND run = ? ORDER BY seq, entry_id, why"""
_ENTRIES: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE}
    WHERE workspace_id = ? AND id IN (SELECT unnest(?::VARCHAR[]))"""
_ALWAYS: Final = frozenset((Why.ENDED, Why.DELETED, Why.ERASED))
"""Ends that are decisions and need no second look."""
_OWN_RULES: Final = frozenset((DrawerFiled.ENTRY_TYPE, FactAsserted.ENTRY_TYPE))
"""Entries of drawers and facts, whose end is decided by their own events."""
_log = structlog.get_logger(__name__)

_Holder = tuple[str, str]
"""A holder and a run of it; empty for prompts without a run."""


class Notices(Part):
    """The notices of a node; used on the event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views: ViewReader = node.views
        self._log = node.use(ReceiptLog)
        self._waiting: dict[_Holder, dict[str, set[tuple[str, str]]]] = {}
        self._generation = -1
        self._loading = asyncio.Lock()
        self._given = 0
        node.ends.callback(node.views.subscribe(self._follow))

    async def start(self) -> None:
        """Read what is waiting."""
        await self._load()

    def figures(self) -> Mapping[str, Any]:
        """Runs with waiting notices, and notices given since the start."""
        return {"waiting_runs": len(self._waiting), "given": self._given}

    def waiting(self, principal: Principal) -> int:
        """How many notices may wait for the run of this request; 0 is certain while the views are not replaced."""
        if not self._waiting:
            return 0
        of_run = self._waiting.get(_holder(principal))
        if of_run is None:
            return 0
        workspace_id = principal.workspace_id
        return sum(len(ids) for ws, ids in of_run.items() if workspace_id in (None, ws))

    async def answer(self, caller: Caller, request: NoticesRequest) -> NoticesAnswer:
        """The notices of the caller's run.

        Raises:
            BrokerUnavailable: If it cannot be recorded that they are given; then they are given at the next call.
        """
        view_seq = self._views.view_seq(LINEAGE_PROJECTION)
        fresh = await self.take(caller.principal, caller.workspace_id)
        if request.again:
            rows = await asyncio.to_thread(self._rows, caller.workspace_id, _holder(caller.principal))
            known = {notice.id: notice for notice in fresh}
            told = [_shown(row) for row in rows if row.told_seq is not None and row.entry_id not in known]
            fresh = sorted([*told, *fresh], key=lambda notice: notice.seq)
        return NoticesAnswer(notices=tuple(fresh), run=RUN.get(), view_seq=view_seq)

    async def take(self, principal: Principal, workspace_id: str) -> list[Notice]:
        """The waiting notices of a run in a workspace, which are then given; raises as ``answer``."""
        if self._generation != self._views.generation:
            await self._load()
        holder = _holder(principal)
        taken = self._waiting.get(holder, {}).pop(workspace_id, None)
        if not taken:
            return []
        try:
            valid = await asyncio.to_thread(self._valid, workspace_id, holder)
            if valid and not await self._record(principal, workspace_id, holder, valid):
                return []  # another node gave them
        except BaseException:
            self._waiting.setdefault(holder, {}).setdefault(workspace_id, set()).update(taken)
            raise
        self._given += len(valid)
        return [_shown(row) for row in valid]

    async def _record(
        self, principal: Principal, workspace_id: str, holder: _Holder, rows: Collection[NoticeRow]
    ) -> bool:
        """Record that notices are given; returns whether that is new."""
        until_seq = max(row.seq for row in rows)
        ids = tuple(sorted({row.entry_id for row in rows}))
        name = message_id(workspace_id, "\x00".join((*holder, *(f"{row.entry_id}\x00{row.why}" for row in rows))))
        try:
            decided = await self._node.decide(
                None,
                NoticesGiven(holder=holder[0], run=holder[1], until_seq=until_seq, entry_ids=ids),
                f"{len(rows)} {'notice' if len(rows) == 1 else 'notices'} given",
                LINEAGE_PROJECTION,
                workspace_id=workspace_id,
                entry_id=derived_id("notices", 1, name, until_seq),
                agent_id=principal.agent_id,
                crew_id=principal.crew_id,
                trace_id=holder[1] or None,
            )
        except EntryConflict:
            return False
        return not decided.duplicate

    def _valid(self, workspace_id: str, holder: _Holder) -> list[NoticeRow]:
        """The oldest notices that were not given and whose memories do not count now; blocking."""
        rows = [row for row in self._rows(workspace_id, holder) if row.told_seq is None][:MOST_HELD]
        judged = [row.near or row.entry_id for row in rows if row.why not in _ALWAYS]
        found = self._views.rows(_ENTRIES, [workspace_id, judged]) if judged else []
        entries = [StoredEntry.of_row(row) for row in found]
        add_marks(self._views, entries)
        counts = {
            entry.id
            for entry in entries
            if entry.record["entry_type"] not in _OWN_RULES
            and (entry.record["standing"] is None or entry.record["standing"]["state"] == State.DISPUTED)
        }
        return [row for row in rows if row.why in _ALWAYS or (row.near or row.entry_id) not in counts]

    def _rows(self, workspace_id: str, holder: _Holder) -> list[NoticeRow]:
        return [NoticeRow(*row) for row in self._views.rows(_OF_RUN, [workspace_id, *holder])]

    async def _load(self) -> None:
        async with self._loading:
            self._generation = self._views.generation
            self._waiting = {}  # commits from here on are added to what is read
            for values in await asyncio.to_thread(self._views.rows, _WAITING):
                self._take_over(NoticeRow(*values))

    def _follow(self, batch: CommittedBatch) -> None:
        if ENDINGS.name in batch.changes:
            self._log.hurry_all()  # receipts that are on their way may name what ended
        if (changes := batch.changes.get(NOTICE_ROWS.name)) is not None:
            for row in changes.rows(NoticeRow):
                self._take_over(row)

    def _take_over(self, row: NoticeRow) -> None:
        of_run = self._waiting.setdefault((row.holder, row.run), {})
        waiting = of_run.setdefault(row.workspace_id, set())
        if row.told_seq is None:
            waiting.add((row.entry_id, row.why))
        else:
            waiting.discard((row.entry_id, row.why))
        if not waiting:
            del of_run[row.workspace_id]
            if not of_run:
                del self._waiting[row.holder, row.run]


def _holder(principal: Principal) -> _Holder:
    return holder_of(principal.agent_id, principal.token_id), RUN.get() or ""


def _shown(row: NoticeRow) -> Notice:
    return Notice(id=row.entry_id, why=Why(row.why), by=row.by_id, near=row.near, seq=row.seq)


ANSWERS: Final[Answers] = ((NOTICES, Notices.answer),)
