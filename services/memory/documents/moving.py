"""Moves the text of a document to another one.

Invariant: the copy names the writes that its text was made of, and the person whose data it is, so that erasure reaches it;
writes that arrive during the move are moved, too.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ....schemas.errors import DocumentConflict
from ....schemas.events.documents import DocumentAction
from ....schemas.ports import ViewReader
from ....schemas.views.documents import DocumentRow
from ...desk import Caller
from .addressing import Address
from .drafts import Draft, mint_write_id, retraction
from .history import History
from .journal_store import JournalStore
from .present import SELECT_ONE

_ATTEMPTS: Final = 3
"""How often a text is moved that others write at the same time."""


class Moving:
    """Moves.

    Args:
        views: The views of documents.
        store: Where the documents are.
    """

    def __init__(self, views: ViewReader, store: JournalStore) -> None:
        self._views = views
        self._store = store
        self._history = History(views)

    async def row(self, address: Address) -> DocumentRow | None:
        """The document as it is now; None if it was never written."""
        rows = await asyncio.to_thread(self._views.rows, SELECT_ONE, address.values)
        return DocumentRow(*rows[0]) if rows else None

    async def move(self, caller: Caller, source: Address, target: Address) -> int:
        """Write the text of ``source`` to ``target`` and retract ``source``; the sequence of the last write.

        Raises:
            DocumentConflict: If ``target`` was written meanwhile, or ``source`` again and again.
            CrewJournalError: As ``JournalStore.write``.
        """
        there = await self.row(target)
        seq = there.seq if there else 0
        for attempt in range(1, _ATTEMPTS + 1):
            row = await self.row(source)
            if row is None or row.retracted:
                return seq
            causes, person = await asyncio.to_thread(self._history.causes, source, row.base_seq, row.seq)
            copy = Draft(
                address=target,
                action=DocumentAction.REPLACE,
                content=row.content,
                source="api",
                write_id=mint_write_id(),
                expected_seq=seq,
                data_subject_id=person,
                derived_from=causes,
                reason=f"renamed from {source.label}",
            )
            seq = (await self._store.write(caller, copy)).seq
            gone = retraction(source, f"renamed to {target.label}", row.seq)
            try:
                return (await self._store.retract(caller, gone)).seq
            except DocumentConflict:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError
