"""The stream and the views of a node, as an erasure needs them (``services/erasure``)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ...schemas.core.subjects import JOURNAL_STREAM
from ..documents.checks import refused_texts
from ..index.cache import HotCache
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import stream_head
from ..journal.watch import GapWatch
from ..operate.letters import delete_message
from ..operate.status import LongOperations
from .views import NodeViews

_LIVE: Final = ("", ".wal", ".tmp")
"""Suffixes of the live views."""
_SCRATCH: Final = (".rebuild", ".verify", ".salvage", ".asof-")
"""Suffixes of views that a long operation folds beside the live ones; a crash leaves them."""


class ErasedStream:
    """Reads and deletes messages, and folds the views again.

    Args:
        client: A connection to the broker.
        views: The views of the node.
        operations: Long operations, of which one runs at a time.
        gap_watch: Knows what the stream has lost.
        indexes: What is in memory of the views.
    """

    def __init__(
        self,
        client: BrokerConnection,
        views: NodeViews,
        operations: LongOperations,
        gap_watch: GapWatch,
        indexes: HotCache,
    ) -> None:
        self._client = client
        self._messages = client.jetstream()
        self._views = views
        self._operations = operations
        self._gap_watch = gap_watch
        self._indexes = indexes

    def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[Any]]:
        """The messages of JOURNAL in order."""
        return self._views.source(first_seq, last_seq)

    async def last_seq(self) -> int:
        """The last sequence of JOURNAL."""
        return await stream_head(self._client)

    def loss(self) -> str | None:
        """A sentence about messages that the stream has lost, None if it has all."""
        return self._gap_watch.loss

    async def delete(self, seq: int) -> None:
        """Delete a message with its bytes, unless it is gone."""
        await delete_message(self._messages, JOURNAL_STREAM, seq)

    async def letters(self, sequences: Collection[int], *, delete: bool) -> int:
        """The number of dead letters of these messages; with ``delete`` they are deleted."""
        return await self._views.desk.erase(frozenset(sequences), delete=delete)

    async def files(self, workspace_id: str, *, delete: bool) -> Mapping[str, int]:
        """Store → number of files that may hold texts of the workspace; with ``delete`` they are deleted."""
        if not delete:
            return await asyncio.to_thread(_files, self._views.store.path, workspace_id, delete=False)
        async with self._operations.alone():
            return await asyncio.to_thread(_files, self._views.store.path, workspace_id, delete=True)

    async def rebuild(self) -> None:
        """Fold all views into a new file, which replaces the old one, and load what was in memory of that one again."""
        async for _ in self._operations.rebuild(None):
            pass
        await self._indexes.renew()


def _files(views: Path, workspace_id: str, *, delete: bool) -> dict[str, int]:
    """Views files that were put aside or left by a crash, and refused texts of the workspace."""
    live = {views.name + suffix for suffix in _LIVE}
    begins = tuple(views.name + suffix for suffix in _SCRATCH)
    aside = [file for file in views.parent.glob(f"{views.name}*") if file.name not in live]
    found = {
        "views files put aside": [file for file in aside if not file.name.startswith(begins)],
        "scratch files": [file for file in aside if file.name.startswith(begins)],
        "refused texts": list(refused_texts(views.parent, workspace_id)),
    }
    for file in chain.from_iterable(found.values()) if delete else ():
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
    return {store: len(files) for store, files in found.items()}
