"""The stream and the views of a node, as an erasure needs them (``services/erasure``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ...schemas.core.subjects import JOURNAL_STREAM
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import stream_head
from ..operate.letters import delete_message
from ..operate.status import LongOperations
from .views import NodeViews

_LIVE = ("", ".wal")
"""Suffixes of the files of the live views."""


class ErasedStream:
    """Reads and deletes messages, and folds the views again.

    Args:
        client: A connection to the broker.
        views: The views of the node.
        operations: Long operations, of which one runs at a time.
    """

    def __init__(self, client: BrokerConnection, views: NodeViews, operations: LongOperations) -> None:
        self._client = client
        self._messages = client.jetstream()
        self._views = views
        self._operations = operations

    def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[Any]]:
        """The messages of JOURNAL in order."""
        return self._views.source(first_seq, last_seq)

    async def last_seq(self) -> int:
        """The last sequence of JOURNAL."""
        return await stream_head(self._client)

    async def delete(self, seq: int) -> None:
        """Delete a message with its bytes, unless it is gone."""
        await delete_message(self._messages, JOURNAL_STREAM, seq)

    async def delete_letters(self, sequences: frozenset[int]) -> int:
        """Delete the dead letters of these messages; returns how many there were."""
        return await self._views.desk.erase(sequences)

    async def rebuild(self) -> None:
        """Fold all views into a new file, which replaces the old one, and delete other files with views."""
        async for _ in self._operations.rebuild(None):
            pass
        await asyncio.to_thread(_delete_others, self._views.store.path)


def _delete_others(path: Path) -> None:
    """Delete views files that were put aside: each holds what was folded then."""
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file() and file.name not in {path.name + suffix for suffix in _LIVE}:
            file.unlink(missing_ok=True)
