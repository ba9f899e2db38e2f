"""The operations used and receipt: what a recall showed to whom, and what of it reached a prompt.

Invariants: a receipt is read from the view, so every node knows it, also after a restart; it counts once, because the
report of its use has an id derived from it; it is shown to, and used by, its asker and operators only.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Final

from ...schemas.errors import BrokerUnavailable, EntryConflict, InvalidQuery, NotFound
from ...schemas.events.memory import MemoryReferenced, ReferencedEntry
from ...schemas.ids import derived_id, message_id
from ...schemas.operations import recall as ops
from ...schemas.principal import Principal
from ...schemas.timestamps import format_ms
from ...schemas.views import RECEIPTS
from ...schemas.views.memory import ReceiptRow
from ..desk import Caller
from ..node import Answers, Node
from .receipt_log import PREFIX, ReceiptLog

ARRIVAL_S: Final = 5.0
"""Seconds to wait for a receipt that is still on its way to the view; usually 0.1."""
YOUNG_S: Final = 30.0
"""Seconds since its making within which a receipt may still be on its way, clocks of other nodes included."""
_HEX_MS: Final = 12
"""Hex digits of the milliseconds in a UUIDv7."""
_SELECT: Final = (
    f"SELECT {RECEIPTS.names} FROM {RECEIPTS} WHERE receipt = ? AND (?::VARCHAR IS NULL OR workspace_id = ?)"
)


class Receipts:
    """Shows receipts, and records their use."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._log = node.use(ReceiptLog)

    async def used(self, caller: Caller, request: ops.UsedRequest) -> ops.UsedAnswer:
        """Count the hits of a receipt, or some of them, as having reached a prompt; once.

        Raises:
            NotFound: If there is no such receipt, or none for this token.
            InvalidQuery: If it does not hold one of the entries.
            BrokerUnavailable: If it, or its use, cannot be stored now.
        """
        row = await self._find(caller.principal, request.receipt)
        if row.used is not None:
            return ops.UsedAnswer(receipt=row.receipt, counted=0, already=True)
        held = {str(hit["entry_id"]) for hit in json.loads(row.hits)}
        chosen = held if request.entry_ids is None else set(request.entry_ids)
        if foreign := sorted(chosen - held):
            raise InvalidQuery(
                f"the receipt does not hold {foreign[0][:64]}", hint="name hits of that recall", field="entry_ids"
            )
        already = False
        if chosen:
            entries = tuple(ReferencedEntry(entry_id=entry_id, count=1) for entry_id in sorted(chosen))
            try:
                decided = await self._node.decide(
                    None,
                    MemoryReferenced(entries=entries, receipt=row.receipt),
                    f"{len(chosen)} {'memory' if len(chosen) == 1 else 'memories'} reached a prompt",
                    workspace_id=row.workspace_id,
                    entry_id=derived_id("used", 1, message_id(row.workspace_id, row.receipt)),
                )
                already = decided.duplicate
            except EntryConflict:  # other hits of it were reported first
                already = True
        return ops.UsedAnswer(receipt=row.receipt, counted=0 if already else len(chosen), already=already)

    async def show(self, caller: Caller, request: ops.ReceiptRequest) -> ops.ReceiptAnswer:
        """What a recall showed to whom; raises as ``used``."""
        row = await self._find(caller.principal, request.receipt)
        used = None if row.used is None else set(json.loads(row.used))
        return ops.ReceiptAnswer(
            receipt=row.receipt,
            workspace_id=row.workspace_id,
            ts=format_ms(row.ts_ms),
            asked_by=row.asked_by,
            agent_id=row.agent_id,
            crew_id=row.crew_id,
            scope=row.scope,
            of_agent_id=row.of_agent_id,
            of_crew_id=row.of_crew_id,
            query=row.query,
            recipe=row.recipe,
            model=row.model,
            mode=row.mode,
            floor=row.floor,
            hits=[
                ops.ShownHit(**hit, used=None if used is None else hit["entry_id"] in used)
                for hit in json.loads(row.hits)
            ],
            rendered=row.rendered,
            used_at=None if row.used_ms is None else format_ms(row.used_ms),
        )

    async def _find(self, principal: Principal, receipt: str) -> ReceiptRow:
        row = await asyncio.to_thread(self._read, principal, receipt)
        if row is None and _is_young(receipt):
            row = await self._arrival(principal, receipt)
        if row is not None and _is_for(row, principal):
            return row
        raise NotFound(
            f"no receipt {receipt[:64]}",
            hint="a receipt is for the agent that recalled, and for OWNER and ADMIN: recall again with this token",
        )

    async def _arrival(self, principal: Principal, receipt: str) -> ReceiptRow | None:
        """The row once it is folded; None if that takes too long.

        Raises:
            BrokerUnavailable: If this node cannot publish it.
        """
        committed = asyncio.Event()
        unsubscribe = self._views.subscribe(lambda _batch: committed.set())
        self._log.hurry(receipt)
        try:
            async with asyncio.timeout(ARRIVAL_S):
                while (row := await asyncio.to_thread(self._read, principal, receipt)) is None:
                    await committed.wait()
                    committed.clear()
        except TimeoutError:
            if self._log.hurry(receipt):
                raise BrokerUnavailable(
                    "the receipt is not stored yet", hint="try again; see crew-journal status"
                ) from None
            return None
        finally:
            unsubscribe()
        return row

    def _read(self, principal: Principal, receipt: str) -> ReceiptRow | None:
        workspace_id = principal.workspace_id
        rows = self._views.rows(_SELECT, [receipt, workspace_id, workspace_id])
        return ReceiptRow(*rows[0]) if rows else None


def _is_young(receipt: str) -> bool:
    try:
        made_ms = int(receipt.removeprefix(PREFIX)[:_HEX_MS], 16)
    except ValueError:
        return False
    return receipt.startswith(PREFIX) and abs(time.time() - made_ms / 1_000) < YOUNG_S


def _is_for(row: ReceiptRow, principal: Principal) -> bool:
    return principal.role.administers or (row.agent_id is not None and row.agent_id == principal.agent_id)


ANSWERS: Final[Answers] = ((ops.USED, Receipts.used), (ops.RECEIPT, Receipts.show))
