"""How a background task is ended.

``consumers/endings.py`` says the same: the two may not import each other, and ``schemas`` knows no event loop.

Why: nats-py waits for answers with ``asyncio.wait_for``, which in Python 3.11 sometimes swallows a cancellation that arrives
together with the answer. A caller that cancels once and then waits would wait for ever. Invariant: when ``end_task``
returns, the task is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.5
"""Seconds until a task that goes on after its cancellation is cancelled again."""


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, if there is one, until it ends.

    Raises:
        Exception: What the task raised, if it failed instead.
    """
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
