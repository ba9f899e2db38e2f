"""Background tasks end, whatever swallows a cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crew_journal.schemas.endings import end_task


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
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


async def test_what_a_task_failed_with_is_told() -> None:
    async def work() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(work())
    await asyncio.wait({task})
    with pytest.raises(ValueError, match="broken"):
        await end_task(task)
