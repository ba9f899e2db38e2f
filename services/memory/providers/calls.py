"""Calls of any provider: bounded in time, and failing with named errors alone."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable
from typing import Final, TypeVar

import structlog

from ....schemas.errors import BackendFailed, CrewJournalError, UpstreamTimeout

CALL_S: Final = 30.0
"""Seconds for one call; the client of the HTTP provider gives up after 10."""
_R = TypeVar("_R")
_log = structlog.get_logger(__name__)


async def answered(call: Awaitable[_R]) -> _R:
    """The answer to a call.

    Raises:
        UpstreamTimeout: If it takes too long.
        BackendFailed: If it fails with an error that is not named.
        CrewJournalError: As the provider.
    """
    try:
        async with asyncio.timeout(CALL_S):
            return await call
    except TimeoutError:
        raise UpstreamTimeout(
            f"the memory provider did not answer within {CALL_S:.0f} s", hint="see memory_provider in `status`"
        ) from None
    except CrewJournalError:
        raise
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.error("provider.failed", error=type(error).__name__, frames=frames)  # the message may hold memory text
        raise BackendFailed(
            f"the memory provider failed: {type(error).__name__}", hint="the log says where: provider.failed"
        ) from None
