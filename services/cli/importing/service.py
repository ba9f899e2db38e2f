"""The service as an import sees it: where its batches go, what it still holds of them, and when they can be found.

Invariant: a service that came back on another port is the same service. An import resumes only from what the journal proves:
a journal that was restored from an older copy, emptied or replaced lost its end, and with it the entry with the highest
sequence that was acked. Whenever this entry is not found, sending everything again is right: an entry counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ....schemas.api import Receipt
from ....schemas.errors import CrewJournalError, NotFound, Unavailable, ViewsBehind
from .. import connection
from ..connection import Target, async_client
from ..options import Where
from .sources.found import without_conversation
from .state import ImportState

if TYPE_CHECKING:
    from ...client import AsyncCrewJournal, CrewJournal

VIEWS_WAIT_S: Final = 30.0
"""Seconds to wait for the views after an import: at 10,000 entries/s a lag of 300,000."""


class Sender:
    """Sends batches to the service, and finds it again after a restart."""

    def __init__(self, there: Target, where: Where) -> None:
        self._there = there
        self._where = where
        self._clients: list[AsyncCrewJournal] = []  # the last one is used; requests may be under way with the others
        self._finding = asyncio.Lock()

    async def send(self, records: Sequence[dict[str, Any]]) -> Sequence[Receipt]:
        """One batch, all or nothing."""
        if not self._clients:
            self._clients.append(async_client(self._there))
        try:
            return await self._clients[-1].append_batch(records)
        except Unavailable:
            await self._find_again()
            raise

    async def held(self, record: dict[str, Any]) -> Receipt | None:
        """Where the journal holds an entry with all fields of ``record``, None if it does not.

        The conversation of an imported turn may have another title there: people rename conversations.
        """
        try:
            entry = await self._clients[-1].get(record["id"], workspace_id=record.get("workspace_id"))
        except NotFound:
            return None  # the views may be behind; then it counts as taken
        stored, wanted = without_conversation(entry.model_dump(mode="json")), without_conversation(record)
        same = all(stored.get(name) == value for name, value in wanted.items())
        return Receipt(id=entry.id, seq=entry.seq, duplicate=True) if same else None

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    async def _find_again(self) -> None:
        async with self._finding:
            target = await asyncio.to_thread(find_again, self._there, self._where)
            if target != self._there:
                self._there = target
                self._clients.append(async_client(target))


def find_again(there: Target, where: Where) -> Target:
    """The service after a restart, which may have given it another port; ``there`` if it does not run at the moment."""
    if there.local or there.data_dir is None:
        return there
    try:
        return connection.resolve(where) or there
    except CrewJournalError:
        return there


def still_held(journal: CrewJournal, state: ImportState) -> bool:
    """Whether the last entry that was acked is where it was acked; if the views are behind, waits for them some seconds.

    Raises:
        CrewJournalError: If the token may not ask.
    """
    if not state.last_id:
        return False
    for min_seq in (None, state.last_seq):
        try:
            entry = journal.get(state.last_id, workspace_id=state.last_workspace, min_seq=min_seq)
        except NotFound:
            continue  # the views may be behind
        except Unavailable:
            break
        return entry.seq == state.last_seq
    return False


def views_behind(journal: CrewJournal, seq: int, *, wait_s: float = VIEWS_WAIT_S) -> int | None:
    """Wait at most ``wait_s`` seconds until the views have passed the sequence ``seq``, so that what was sent can be found.

    Returns:
        By how many sequences they are still behind, 0 if they are not; None if the service does not answer.
    """
    until = time.monotonic() + wait_s
    try:
        while True:
            try:
                journal.count(min_seq=seq)
            except ViewsBehind:
                if time.monotonic() >= until:
                    return max(0, seq - journal.count().view_seq)
            else:
                return 0
    except CrewJournalError:
        return None
