"""Ends background tasks.

A copy of ``consumers/endings.py``, because the two packages may not import each other, and ``schemas`` may not use
asyncio.

nats-py waits for answers with ``asyncio.wait_for``, which in Python 3.11 sometimes swallows a cancellation that arrives
together with the answer. A caller that cancels only once could then wait for ever. Invariant: when ``end_task``
returns, the task is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.5
"""Seconds until a task that continues after its cancellation is cancelled again."""


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task repeatedly until it ends; None does nothing.

    Raises:
        Exception: The task's own error, if it failed.
    """
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
