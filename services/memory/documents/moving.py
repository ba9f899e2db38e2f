"""Moves the text of a document to another one.

Invariant: the copy names the writes that its text was made of, and the person whose data it is, so that erasure reaches it;
writes that arrive during the move are moved, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from ....schemas.errors import DocumentConflict
from ...desk import Caller
from .addressing import Address
from .drafts import replacement, retraction
from .journal_store import JournalStore

_ATTEMPTS: Final = 3
"""How often a text is moved that others write at the same time."""


async def move(store: JournalStore, caller: Caller, source: Address, target: Address) -> int:
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
        copy = replace(
            replacement(target, row.content, seq),
            data_subject_id=person,
            derived_from=causes,
            reason=f"renamed from {source.label}",
        )
        seq = (await store.write(caller, copy)).seq
        try:
            return (await store.retract(caller, retraction(source, f"renamed to {target.label}", row.seq))).seq
        except DocumentConflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError
