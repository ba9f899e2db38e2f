"""The static table of late interaction in a running node: read at start, or computed in the background.

Invariant: a node is ready without it; recall uses it as soon as it is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import structlog

from ...consumers.adapters.minilm_weights import ensure_static_table, find_static_table
from ..endings import end_task
from ..query.hot.token_store import Words

_log = structlog.get_logger(__name__)


class StaticTable:
    """Holds the table.

    Args:
        models_dir: Where MiniLM is installed.
        say: Called with a line about a long step.
    """

    def __init__(self, models_dir: Path, say: Callable[[str], None]) -> None:
        self._models_dir = models_dir
        self._say = say
        self._words: Words | None = None

    def current(self) -> Words | None:
        """(pieces, 6) uint64; None while it is not there."""
        return self._words

    async def start(self, stack: AsyncExitStack, *, compute: bool) -> None:
        """Read it; with ``compute``, make a missing one in the background if the weights are installed."""
        table = await asyncio.to_thread(find_static_table, self._models_dir)
        if table is not None:
            self._words = table.view(np.uint64)
        elif compute:
            task = asyncio.create_task(self._compute(), name="static-table")
            stack.push_async_callback(end_task, task)

    async def _compute(self) -> None:
        try:
            table = await asyncio.to_thread(ensure_static_table, self._models_dir, self._say)
        except Exception:  # recall goes on without it
            _log.exception("static_table_failed")
            return
        if table is not None:
            self._words = table.view(np.uint64)
