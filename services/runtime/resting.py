"""An idle node returns freed memory to the system: 200 to 300 MiB after folding 100,000 entries or loading their hot index.

Invariant: never beside work: the process must have used next to no CPU since the last look, and it is done on the views'
writer thread, so between commits and not on the event loop. It is worth it only after the process has grown.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from ...schemas.settings import GIVE_BACK_GROWTH_BYTES, REST_CPU_SHARE, REST_LOOK_S

_STATM: Final = Path("/proc/self/statm")

_log = structlog.get_logger(__name__)


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not say (it is Linux's ``/proc``)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Resting:
    """Checks regularly whether the node is idle and has memory to return.

    Args:
        give_back: Returns freed memory to the system.
        resident: Bytes of the process in memory, None if unknown; then nothing is ever given back.
        cpu: CPU seconds the process has used.
        clock: Seconds, steady.
    """

    def __init__(
        self,
        give_back: Callable[[], Awaitable[None]],
        *,
        resident: Callable[[], int | None] = resident_bytes,
        cpu: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._give_back = give_back
        self._resident = resident
        self._cpu = cpu
        self._clock = clock
        self._left = 0  # bytes that remained the last time, which the process needs
        self._at, self._used = clock(), cpu()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(REST_LOOK_S)
            await self.look()

    async def look(self) -> bool:
        """Return memory if the node has been idle since the last look and has grown; whether it did."""
        if not self._rested():
            return False
        resident = self._resident()
        if resident is None or resident - self._left < GIVE_BACK_GROWTH_BYTES:
            return False
        try:
            await self._give_back()
        except Exception as error:  # the memory stays; tried again after more growth
            _log.warning("memory_not_given_back", error=type(error).__name__)
        self._left = self._resident() or resident
        self._rested()  # the CPU of giving back does not count as work
        _log.debug("memory_given_back", before=resident, after=self._left)
        return True

    def _rested(self) -> bool:
        at, used = self._clock(), self._cpu()
        share = (used - self._used) / max(at - self._at, 1e-9)
        self._at, self._used = at, used
        return share < REST_CPU_SHARE
