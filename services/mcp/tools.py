"""Lists and calls tools for one caller.

Invariant: a tool call runs its operation at the desk, so that role, workspace and validation are the same as for HTTP
and the command line. An error that a model can correct is returned as a result that is marked as an error and says what
to do, never as a protocol error.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...schemas.context.operations import MEMORY_BLOCK
from ...schemas.core.errors import CrewJournalError, DocumentError, InvalidQuery, NotAllowed
from ...schemas.core.ids import uuid7_hex
from ...schemas.core.operation import Effect, Operation
from ...schemas.core.principal import Principal
from ...schemas.operations import ALL
from ...schemas.prompt.assembler import REMEMBERED as REMEMBERED_MARKER
from ...schemas.toolsets import NARRATION, NARRATION_CHARS, TOOLSETS, Tool, called, input_schema, tools_of
from ..desk import Desk, check_access
from ..lineage.notices import Notices
from ..problem import log_unexpected
from .audit import Audit, Call, Outcome, ToolConnection

_OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {operation.name: operation for operation in ALL}
_WRITE_IDS: Final = ("entry_id", "write_id")
"""Fields with which an operation that creates something writes once, even if it is resent."""
VIEW_SEQ: Final = "view_seq"
"""Field of an answer that a model has no use for."""
CALLERS_KEPT: Final = 1_000
"""Maximum number of callers whose last write is remembered; the caller with the oldest write is forgotten first."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as it is listed."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    reads: bool
    destroys: bool
    repeatable: bool


class Tools:
    """Lists and calls.

    Args:
        desk: Answers operations.
        audit: Records calls.
        notices: Tells a run about memories that no longer count.
        can_write: Whether writes can be durable now; without it only tools that read are listed.
    """

    def __init__(self, desk: Desk, audit: Audit, notices: Notices, can_write: Callable[[], bool]) -> None:
        self._desk = desk
        self._audit = audit
        self._notices = notices
        self._can_write = can_write
        self._written: OrderedDict[str, int] = OrderedDict()

    async def recorded(self) -> None:
        """Wait until every call so far is recorded."""
        await self._audit.recorded()

    def listed(self, connection: ToolConnection) -> Sequence[ListedTool]:
        """The tools that the token may call and that can work now."""
        writes = self._can_write()
        tools = []
        for tool, operation in self._tools(connection):
            if _permitted(operation, connection.principal) and (writes or operation.effect is Effect.READS):
                tools.append(_described(tool, operation, connection))
        return tools

    async def notes(self, connection: ToolConnection) -> str:
        """The remembered notes of an agent's memory block, with their markers; empty for another caller or without any."""
        principal = connection.principal
        if not connection.notes or principal.agent_id is None or MEMORY_BLOCK.name not in self._desk.bound:
            return ""
        try:
            block = await self._desk.run(MEMORY_BLOCK, principal, {"max_chars": 0})
        except CrewJournalError:
            return ""  # a session may begin without notes; its calls report the error
        begin, end = f"[{REMEMBERED_MARKER}]\n", f"[END {REMEMBERED_MARKER}]\n"
        _, marker, rest = block.text.partition(begin)
        inner, closed, _ = rest.partition(end)
        return f"{marker}{inner}{closed}"

    async def call(self, connection: ToolConnection, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool; a failure is an outcome, too."""
        began = time.perf_counter()
        tool: Tool | None = None
        try:
            tool, operation = self._tool(connection, name)
            raw = _fields(tool, operation, connection, arguments, self._written.get(_caller(connection), 0))
            answer = await self._desk.run(operation, connection.principal, raw)
            dumped = answer.model_dump(mode="json", exclude_none=tool.text is not None)
            shown = {key: value for key, value in dumped.items() if value is not None}
            self._note(connection, shown.get("seq"))
            if tool.text is None:
                text = json.dumps(shown, ensure_ascii=False)
            else:
                text = str(shown.pop(tool.text))
                shown.pop(VIEW_SEQ, None)
            outcome = Outcome(text, shown)
        except CrewJournalError as error:
            outcome = _refused(error)
        except Exception as error:
            trace_id = uuid7_hex()
            log_unexpected(error, trace_id)
            outcome = Outcome(f"The memory failed unexpectedly (trace {trace_id}).", {"trace_id": trace_id}, True)
        if self._notices.waiting(connection.principal):
            outcome = await self._noticed(connection, outcome)
        took_ms = (time.perf_counter() - began) * 1_000
        named = arguments.get("workspace_id")
        workspace = named if isinstance(named, str) else connection.workspace_id
        self._audit.record(Call(connection, workspace, tool.name if tool else name[:64], arguments, outcome, took_ms))
        return outcome

    async def _noticed(self, connection: ToolConnection, outcome: Outcome) -> Outcome:
        """The outcome with the waiting notices of the run, by ids alone."""
        principal = connection.principal
        try:
            waiting = await self._notices.take(principal, connection.workspace_id or principal.workspace(None))
        except CrewJournalError:
            return outcome  # they are returned with a later call
        if not waiting:
            return outcome
        lines = "".join(
            f"\n- {notice.id}: {notice.why}" + (f" by {notice.by}" if notice.by else "") for notice in waiting
        )
        notices = [notice.model_dump(mode="json", exclude_none=True) for notice in waiting]
        return replace(
            outcome,
            text=f"{outcome.text}\n\nMemories that you were given earlier no longer count:{lines}",
            structured={**outcome.structured, "notices": notices},
        )

    def _note(self, connection: ToolConnection, seq: Any) -> None:
        """Remember the sequence of a caller's last write, so that its next call sees it."""
        if isinstance(seq, int):
            caller = _caller(connection)
            self._written[caller] = max(seq, self._written.pop(caller, 0))
            if len(self._written) > CALLERS_KEPT:
                self._written.popitem(last=False)

    def _tools(self, connection: ToolConnection) -> list[tuple[Tool, Operation[Any, Any]]]:
        bound = self._desk.bound
        tools = tools_of(connection.toolsets)
        return [(tool, _OPERATIONS[tool.operation]) for tool in tools if tool.operation in bound]

    def _tool(self, connection: ToolConnection, name: str) -> tuple[Tool, Operation[Any, Any]]:
        known = {tool.name: (tool, operation) for tool, operation in self._tools(connection)}
        wanted = called(name)
        if wanted not in known:
            raise InvalidQuery(f"no tool {name[:64]!r}", hint=f"call one of {', '.join(known)}", field="name")
        return known[wanted]


def _caller(connection: ToolConnection) -> str:
    return f"{connection.principal.token_id}/{connection.principal.agent_id}/{connection.workspace_id}"


def _permitted(operation: Operation[Any, Any], principal: Principal) -> bool:
    try:
        check_access(operation.access, principal)
    except NotAllowed:
        return False
    return True


def _described(tool: Tool, operation: Operation[Any, Any], connection: ToolConnection) -> ListedTool:
    toolset = next(name for name in connection.toolsets if tool in TOOLSETS[name])
    return ListedTool(
        tool.name,
        tool.description,
        input_schema(tool.name, toolset, operation),
        reads=operation.effect is Effect.READS,
        destroys=operation.effect is Effect.DESTROYS,
        repeatable=operation.repeatable,
    )


def _fields(
    tool: Tool, operation: Operation[Any, Any], connection: ToolConnection, arguments: Mapping[str, Any], written: int
) -> dict[str, Any]:
    """The request's fields: the arguments, fields that the tool sets, and ``min_seq`` of the caller's own writes.

    Raises:
        InvalidQuery: If the tool has no such argument.
    """
    offered = tool.fields if tool.fields is not None else tuple(operation.request.model_fields)
    narration = arguments.get(NARRATION) if tool.narrated else None
    if narration is not None and (not isinstance(narration, str) or len(narration) > NARRATION_CHARS):
        hint = f"send a text of at most {NARRATION_CHARS} characters, or leave it out"
        raise InvalidQuery(f"{NARRATION} is not a short text", hint=hint, field=NARRATION)
    if tool.narrated:
        fields = operation.request.model_fields
        arguments = {
            name: value
            for name, value in arguments.items()
            if name != NARRATION and not (value == "" and name in fields and not fields[name].is_required())
        }
    for given in arguments:
        if given not in offered or given in tool.fixed:
            known = ", ".join(name for name in offered if name not in tool.fixed) or "none"
            raise InvalidQuery(f"{tool.name} has no argument {given[:64]!r}", hint=f"known are {known}", field=given)
    raw = {**arguments, **tool.fixed}
    workspace = connection.workspace_id if "workspace_id" in operation.request.model_fields else None
    if workspace is not None and raw.setdefault("workspace_id", workspace) != workspace:
        raise InvalidQuery(
            f"the connection is for workspace {workspace}, the call names another",
            hint="leave workspace_id out, or connect to the other workspace",
            field="workspace_id",
        )
    for name in _WRITE_IDS if connection.call_id is not None and operation.effect is Effect.CREATES else ():
        if name in operation.request.model_fields and name not in operation.path_fields:
            raw.setdefault(name, f"m_{connection.call_id}")
    if written and "min_seq" in operation.request.model_fields:
        raw["min_seq"] = written
    return raw


def _refused(error: CrewJournalError) -> Outcome:
    shown: dict[str, Any] = {"error": type(error).__name__, "detail": error.message, "fix": error.hint}
    if error.field:
        shown["field"] = error.field
    if isinstance(error, DocumentError):
        shown |= getattr(error, "facts", {})
    text = f"{error.title}: {error.message}." + (f" Fix: {error.hint}." if error.hint else "")
    if current := shown.get("current_entries"):
        text += f"\nCurrent entries:\n{current}"
    return Outcome(text, shown, is_error=True)
