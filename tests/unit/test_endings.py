"""Background tasks end, whatever swallows a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from crew_journal.consumers import endings as of_consumers
from crew_journal.services import parts as of_services

BOTH = pytest.mark.parametrize("end_task", [of_consumers.end_task, of_services.end_task], ids=["consumers", "services"])
EndTask = Callable[[asyncio.Task[Any]], Awaitable[None]]


@BOTH
async def test_a_task_that_swallows_a_cancellation_ends(end_task: EndTask) -> None:
    swallowed = asyncio.Event()

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await end_task(task)
    assert swallowed.is_set()
    assert task.cancelled()


@BOTH
async def test_the_error_of_a_failed_task_is_reported(end_task: EndTask) -> None:
    async def work() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(work())
    await asyncio.wait({task})
    with pytest.raises(ValueError, match="broken"):
        await end_task(task)
