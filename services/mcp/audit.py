"""Records every call of a tool as one control entry, in the background.

Invariants: a call does not wait for its record. Every call is recorded, whatever its arguments hold: in the workspace that
it named if the token is for that, else in the token's own. Text that is in the journal already is not repeated: the record
names the receipt or the sequence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import structlog

from ...schemas.errors import CrewJournalError
from ...schemas.events.tools import MOST_BYTES, ToolCalled
from ..desk import Caller
from ..endings import end_task
from ..journal.intake.recorder import Recorder
from ..parts import Part
from .calls import Call

QUEUE: Final = 1_000
"""Calls that wait to be recorded; beyond it they are counted as not recorded."""
_log = structlog.get_logger(__name__)


class Audit(Part):
    """Records calls.

    Args:
        journal: Records decisions.
    """

    def __init__(self, journal: Recorder) -> None:
        self._journal = journal
        self._queue: asyncio.Queue[Call] = asyncio.Queue(QUEUE)
        self._task: asyncio.Task[None] | None = None
        self._recorded = 0
        self._missed = 0

    async def start(self) -> None:
        """Begin to record."""
        self._task = asyncio.create_task(self._run(), name="tool-audit")

    async def stop(self) -> None:
        """Record the pending calls, for a bounded time, and end."""
        try:
            async with asyncio.timeout(5.0):
                await self.recorded()
        except TimeoutError:
            _log.warning("tool_audit.unrecorded", calls=self._queue.qsize())
        await end_task(self._task)

    def figures(self) -> dict[str, int]:
        """Calls recorded and not recorded since the start."""
        return {"recorded": self._recorded, "waiting": self._queue.qsize(), "not_recorded": self._missed}

    async def recorded(self) -> None:
        """Wait until every call so far is recorded."""
        await self._queue.join()

    def record(self, call: Call) -> None:
        """Record a call later."""
        try:
            self._queue.put_nowait(call)
        except asyncio.QueueFull:
            self._missed += 1

    async def _run(self) -> None:
        while True:
            call = await self._queue.get()
            try:
                await self._write(call)
                self._recorded += 1
            except Exception as error:  # one call that cannot be recorded does not end the recording of the others
                self._missed += 1
                _log.warning("tool_audit.failed", error=type(error).__name__)
            finally:
                self._queue.task_done()

    async def _write(self, call: Call) -> None:
        caller = _caller(call)
        structured = call.outcome.structured
        seq, receipt = structured.get("seq"), structured.get("receipt")
        stored = isinstance(seq, int) and not call.outcome.is_error
        tool = _storable(call.tool)
        called = ToolCalled(
            tool=tool,
            input="(in the journal)" if stored or receipt else _bounded(_as_json(call.arguments)),
            output=f"(receipt {receipt})" if receipt else _bounded(call.outcome.text),
            is_error=call.outcome.is_error,
            duration_ms=round(call.took_ms, 1),
            seq=seq if stored else None,
            receipt=receipt if isinstance(receipt, str) else None,
        )
        await self._journal.record(
            caller.workspace_id,
            called,
            summary=f"tool {tool} " + ("failed" if call.outcome.is_error else "was called"),
            **caller.author_fields,
        )


def _caller(call: Call) -> Caller:
    principal = call.connection.principal
    try:
        return Caller.of(principal, call.workspace_id)
    except CrewJournalError:  # the call was refused for the same reason; its record is the token's own
        return Caller.of(principal)


def _as_json(arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return json.dumps({"omitted": "arguments that are too deep, or not JSON"})


def _storable(text: str) -> str:
    """The text with a question mark in place of each lone surrogate, which UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


def _bounded(text: str) -> str:
    whole = _storable(text)
    size = len(whole.encode())
    return whole if size <= MOST_BYTES else json.dumps({"omitted_bytes": size})
