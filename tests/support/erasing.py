"""Erasures on the lower half of a node: its stream and views as ``services/runtime/erasing`` gives them to a whole node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any

from support.memory_node import WORKSPACE, MemoryNode
from support.stack import DEADLINE_S
from support.views import MEMORY_MB

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.consumers.host.rebuild import rebuild
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.schemas.entries.events import ErasureCompleted
from crew_journal.services.erasure.use_cases import Erasures
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.operate.letters import delete_message


class NodeStream:
    """The stream and the views of a ``MemoryNode``, with the times at which its entries were received."""

    def __init__(self, node: MemoryNode) -> None:
        self._node = node

    async def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[Any]]:
        """The messages in order."""
        async for messages in replay(self._node.client, first_seq, last_seq):
            yield [self._received(message) for message in messages]

    def _received(self, message: RawMessage) -> RawMessage:
        entry_id = (message.headers or {}).get(h.ENTRY_ID, "")
        return replace(message, published_ms=self._node.received.get(entry_id, message.published_ms))

    async def last_seq(self) -> int:
        """The last sequence."""
        return await stream_head(self._node.client)

    def loss(self) -> str | None:
        """Nothing is lost."""
        return None

    async def delete(self, seq: int) -> None:
        """Delete a message."""
        await delete_message(self._node.client.jetstream(), JOURNAL_STREAM, seq)

    async def letters(self, sequences: Collection[int], *, delete: bool) -> int:
        """Its parkings fail the test."""
        return 0

    async def files(self, workspace_id: str, *, delete: bool) -> Mapping[str, int]:
        """It has no other files."""
        return {}

    async def rebuild(self) -> None:
        """Fold all views again."""
        await rebuild(self._node.host, self.read, memory_mb=MEMORY_MB)


async def erase(node: MemoryNode, *ids: str) -> dict[str, Any]:
    """Erase entries; the dry run's answer, once the erasure is completed."""
    erasures = Erasures(node.shared, NodeStream(node))
    await erasures.start()
    try:
        planned = await erasures.erase(WORKSPACE, "asked", ids, dry_run=True)
        await erasures.erase(WORKSPACE, "asked", ids)
        async with asyncio.timeout(DEADLINE_S):
            while not node.entries(ErasureCompleted.ENTRY_TYPE):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        await erasures.stop()
    return planned.model_dump()
