"""``memory_toolset``: the memory as tools of Pydantic AI.

The tools are those of the Model Context Protocol (``schemas.toolsets``): names, descriptions and arguments are the
same. Invariant: after an error that the model can correct, the model is asked to retry; an unavailable memory does not
end a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import FunctionToolset, ModelRetry, Tool

from ....schemas.core.errors import CrewJournalError, Unavailable
from ....schemas.core.operation import Operation
from ....schemas.operations import ALL
from ....schemas.toolsets import DEFAULT_TOOLSETS, TOOLSETS, input_schema, tools_of
from ....schemas.toolsets import Tool as Declared
from ..aio import AsyncCrewJournal
from .called_tools import consequence

_OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {operation.name: operation for operation in ALL}


def memory_toolset(
    journal: AsyncCrewJournal,
    toolsets: Sequence[str] = DEFAULT_TOOLSETS,
    *,
    agent_id: str | None = None,
    crew_id: str | None = None,
    workspace_id: str | None = None,
) -> FunctionToolset[Any]:
    """The memory as tools.

    Args:
        journal: The client.
        toolsets: ``core``, ``crew``, ``operator``.
        agent_id: The agent whose memory it is, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.

    Raises:
        InvalidQuery: If a toolset does not exist.
    """
    own = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
    calls = _Calls(journal, {name: value for name, value in own.items() if value is not None})
    tools = []
    for declared in tools_of(toolsets):
        toolset = next(name for name in toolsets if declared in TOOLSETS[name])
        operation = _OPERATIONS[declared.operation]
        schema = input_schema(declared.name, toolset, operation)
        tools.append(Tool.from_schema(calls.of(declared, operation), declared.name, declared.description, schema))
    return FunctionToolset(tools)


class _Calls:
    """Calls operations for one caller; its reads include its own writes."""

    def __init__(self, journal: AsyncCrewJournal, own: dict[str, str]) -> None:
        self._journal = journal
        self._own = own
        self._seq: int | None = None

    def of(self, tool: Declared, operation: Operation[Any, Any]) -> Callable[..., Awaitable[Any]]:
        """The function behind a tool."""

        async def call(**arguments: Any) -> Any:
            return await self._call(tool, operation, arguments)

        return call

    async def _call(self, tool: Declared, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        known = operation.request.model_fields
        given = {name: value for name, value in self._own.items() if name in known} | arguments | dict(tool.fixed)
        if self._seq is not None and "min_seq" in known:
            given["min_seq"] = self._seq
        try:
            request = operation.request.model_validate(given)
            answer = await getattr(self._journal, operation.name)(**request.model_dump(exclude_unset=True))
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in error.errors())
            raise ModelRetry("; ".join(wrong)) from None
        except Unavailable as error:
            return f"The memory is not available: {error.message}. {consequence(operation)}"
        except CrewJournalError as error:
            raise ModelRetry(f"{error.message}. Fix: {error.hint}" if error.hint else error.message) from None
        short = {"exclude": {tool.text}, "exclude_none": True} if tool.text else {}
        shown = {name: value for name, value in answer.model_dump(mode="json", **short).items() if value is not None}
        self._seq = max(shown.get("seq") or 0, self._seq or 0) or None
        return shown
