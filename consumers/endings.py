"""Ends background tasks.

``services/parts.py`` has the same function, because the two packages may not import each other, and ``schemas`` may
not use asyncio.

``asyncio.wait_for`` of Python 3.11, which nats-py uses, sometimes swallows a cancellation that arrives together with
the answer; a caller that cancels only once could then wait for ever. Invariant: when ``end_task`` returns, the task is
done.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.5
"""Seconds until a task that continues after its cancellation is cancelled again."""


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task repeatedly until it ends.

    Raises:
        Exception: The task's own error, if it failed.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
