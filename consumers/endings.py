"""How a background task is ended.

``services/endings.py`` has the same function: the two may not import each other, and ``schemas`` has no event loop.

Why: ``asyncio.wait_for`` of Python 3.11, which nats-py uses, sometimes swallows a cancellation that arrives together with
the answer; a caller that cancels once then never returns. Invariant: when ``end_task`` returns, the task is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.5
"""Seconds until a task that goes on after its cancellation is cancelled again."""


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends.

    Raises:
        Exception: What the task raised, if it failed instead.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
