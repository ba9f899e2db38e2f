"""Moves the text of a document to another one.

Invariant: the copy names the writes that its text was made of, and the person whose data it is, so that erasure reaches it;
writes that arrive during the move are moved, too.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ....schemas.errors import DocumentConflict
from ....schemas.events.documents import DocumentAction
from ...desk import Caller
from .addressing import DocumentAddress
from .drafts import Draft
from .journal_store import JournalStore

_ATTEMPTS: Final = 3
"""How often a text is moved that others write at the same time."""


async def move(store: JournalStore, caller: Caller, source: DocumentAddress, target: DocumentAddress) -> int:
    """Write the text of ``source`` to ``target`` and retract ``source``; the sequence of the last write.

    Raises:
        DocumentConflict: If ``target`` was written meanwhile, or ``source`` again and again.
        CrewJournalError: As ``JournalStore.write``.
    """
    there = await store.present(target)
    seq = there.seq if there else 0
    for attempt in range(1, _ATTEMPTS + 1):
        row = await store.present(source)
        if row is None or row.retracted:
            return seq
        causes, person = await asyncio.to_thread(store.reading.history.causes, source, row.base_seq, row.seq)
        copy = Draft(
            address=target,
            content=row.content,
            expected_seq=seq,
            data_subject_id=person,
            derived_from=causes,
            reason=f"renamed from {source.label}",
        )
        seq = (await store.write(caller, copy)).seq
        reason = f"renamed to {target.label}"
        gone = Draft(address=source, action=DocumentAction.RETRACT, expected_seq=row.seq, reason=reason)
        try:
            return (await store.retract(caller, gone)).seq
        except DocumentConflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError
