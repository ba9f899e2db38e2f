"""A publisher that fails after so many messages, as a process that is killed between two of them."""

from __future__ import annotations

from collections.abc import Mapping

from support.memory_node import MemoryNode

from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.schemas.core.ports import Published


class Flaky:
    """A publisher that is gone after so many messages, until it is mended."""

    def __init__(self, live: MemoryNode) -> None:
        self._live = live
        self.left = 1_000_000

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> Published:
        if self.left <= 0:
            raise BrokerUnavailable("gone")
        self.left -= 1
        return await self._live.writer.publish(subject, body, headers)
