"""Where an import's batches go: the service as it was found, and as it is found again after a restart.

Invariant: a service that came back on another port is the same service; a request under way keeps the client it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....schemas.errors import CrewJournalError, Unavailable
from ..connection import Target, async_client, resolve
from ..options import Where
from .run import Sent

if TYPE_CHECKING:
    from ...client import AsyncCrewJournal


class Sender:
    """Sends batches to the service, wherever it is at the moment."""

    def __init__(self, there: Target, where: Where) -> None:
        self._there = there
        self._where = where
        self._client: AsyncCrewJournal | None = None
        self._stale: list[AsyncCrewJournal] = []
        self._finding = asyncio.Lock()

    async def send(self, records: Sequence[dict[str, Any]]) -> Sequence[Sent]:
        """One batch, all or nothing."""
        if self._client is None:
            self._client = async_client(self._there)
        try:
            acks = await self._client.append_batch(records)
        except Unavailable:
            await self._look_again()
            raise
        return [
            Sent(ack.seq, ack.duplicate, ack.id, record.get("workspace_id"))
            for record, ack in zip(records, acks, strict=True)
        ]

    async def close(self) -> None:
        """Give the connections back."""
        for client in (self._client, *self._stale):
            if client is not None:
                await client.close()

    async def _look_again(self) -> None:
        """A service that was started anew may have another port."""
        if self._there.local or self._there.data_dir is None:
            return
        async with self._finding:
            try:
                found = await asyncio.to_thread(resolve, self._where)
            except CrewJournalError:
                return
            if found is not None and found != self._there:
                if self._client is not None:
                    self._stale.append(self._client)  # other batches may still be using it
                self._there, self._client = found, None
