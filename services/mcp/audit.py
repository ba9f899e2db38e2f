"""Records every call of a tool as one control entry, in the background.

Invariants: a call does not wait for its record. Every call is recorded, with any arguments: in the workspace that it
names if the token allows that, else in the token's workspace. Text that is already in the journal is not repeated: the
record names the receipt or the sequence instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAllowed
from ...schemas.core.ids import is_id
from ...schemas.core.principal import Principal, Role
from ...schemas.operate.events import MOST_BYTES, ToolCalled
from ..desk import Caller
from ..endings import end_task
from ..journal.intake.recorder import Recorder
from ..parts import Part

# Data of a tool call: its caller and its result.


@dataclass(frozen=True, slots=True)
class ToolConnection:
    """The caller of tools, and its tools.

    Attributes:
        principal: The binding of the token, or the agent for whom an OWNER or ADMIN connects (``acting_as``).
        toolsets: Names of the sets.
        workspace_id: The workspace of all calls, for a token of all workspaces.
        call_id: The id that a proxy gave the call, so that a resent call writes once.
        notes: Whether the instructions of a session contain the agent's remembered notes.
    """

    principal: Principal
    toolsets: tuple[str, ...]
    workspace_id: str | None = None
    call_id: str | None = None
    notes: bool = True


def acting_as(
    principal: Principal, agent_id: str | None, crew_id: str | None, workspace_id: str | None, *, leads: bool
) -> Principal:
    """The principal of an agent that an OWNER or ADMIN connects; for other tokens the token's own principal.

    Raises:
        NotAllowed: If a token of an agent names another agent or crew.
        InvalidQuery: If an id is not valid, or a crew or LEAD is named without an agent or crew.
    """
    if agent_id is None:
        if crew_id is not None or leads:
            raise InvalidQuery(
                "crew_id and role need an agent_id", hint="name the agent that connects", field="agent_id"
            )
        return principal
    if not principal.role.administers:
        if agent_id != principal.agent_id or crew_id not in (None, principal.crew_id):
            raise NotAllowed("the token is for another agent", hint="leave agent_id and crew_id out", field="agent_id")
        return principal
    if not is_id(agent_id) or not (crew_id is None or is_id(crew_id)):
        raise InvalidQuery("agent_id or crew_id is not valid", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="agent_id")
    if leads and crew_id is None:
        raise InvalidQuery("a LEAD needs a crew", hint="name crew_id", field="crew_id")
    return Principal(
        token_id=principal.token_id,
        role=Role.LEAD if leads else Role.AGENT,
        workspace_id=principal.workspace(workspace_id),
        crew_id=crew_id,
        agent_id=agent_id,
        expires_ms=principal.expires_ms,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call: text for the model, the same as JSON, and whether it is an error."""

    text: str
    structured: dict[str, Any]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call that ended.

    Attributes:
        workspace_id: The workspace that the call named, by an argument or by its URL; None if it named none.
    """

    connection: ToolConnection
    workspace_id: str | None
    tool: str
    arguments: Mapping[str, Any]
    outcome: Outcome
    took_ms: float


QUEUE: Final = 1_000
"""Maximum number of calls that wait to be recorded; further calls are counted as not recorded."""
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
            except Exception as error:  # a call that cannot be recorded must not stop the recording of others
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
    except CrewJournalError:  # the call was refused for the same reason; it is recorded in the token's workspace
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
