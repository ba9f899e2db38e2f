"""``CalledTools``: the memory's tools for frameworks that call tools with a name and arguments, in a thread.

The tools are those of the Model Context Protocol (``schemas.toolsets``). Invariant: a call returns an answer or raises
``ToolFailed``, whose text tells the model what to correct, or that the memory is not available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from ....schemas.core.errors import CrewJournalError, Unavailable
from ....schemas.core.operation import Effect, Operation
from ....schemas.operations import ALL
from ....schemas.toolsets import DEFAULT_TOOLSETS, TOOLSETS, Tool, input_schema, tools_of
from ..generated_sync import CrewJournal

_OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {operation.name: operation for operation in ALL}


def consequence(operation: Operation[Any, Any]) -> str:
    """The text for a model after the service did not answer; a write may be stored although its answer was lost."""
    done = "Nothing was read" if operation.effect is Effect.READS else "It may or may not be stored"
    return f"{done}. Go on without it and say so."


class ToolFailed(Exception):
    """A call failed; the text says what to correct."""


class CalledTools:
    """Calls tools for one caller; its reads include its own writes.

    Args:
        toolsets: ``core``, ``crew``, ``operator``, ``palace``.
        own: Values of fields, such as ``agent_id``, for every request that has these fields.

    Raises:
        InvalidQuery: If a toolset does not exist, or two share a tool.
    """

    def __init__(self, toolsets: Sequence[str] = DEFAULT_TOOLSETS, own: Mapping[str, Any] | None = None) -> None:
        self._own = {name: value for name, value in (own or {}).items() if value is not None}
        self._seq: int | None = None
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools_of(toolsets)}
        self._toolsets = {name: toolset for toolset in toolsets for name in (tool.name for tool in TOOLSETS[toolset])}

    def operation(self, name: str) -> Operation[Any, Any]:
        """The operation behind a tool."""
        return _OPERATIONS[self.tools[name].operation]

    def schema(self, name: str) -> dict[str, Any]:
        """The JSON Schema of a tool's arguments."""
        return input_schema(name, self._toolsets[name], self.operation(name))

    def call(self, journal: CrewJournal, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool by a client.

        Raises:
            ToolFailed: If an argument is wrong, or the memory refuses or does not answer.
        """
        tool, operation = self.tools[name], self.operation(name)
        known = operation.request.model_fields
        given = {key: value for key, value in self._own.items() if key in known} | dict(arguments) | dict(tool.fixed)
        if self._seq is not None and "min_seq" in known:
            given["min_seq"] = self._seq
        try:
            request = operation.request.model_validate(given)
            answer = getattr(journal, operation.name)(**request.model_dump(exclude_unset=True))
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in error.errors())
            raise ToolFailed("; ".join(wrong)) from None
        except Unavailable as error:
            raise ToolFailed(f"The memory is not available: {error.message}. {consequence(operation)}") from None
        except CrewJournalError as error:
            raise ToolFailed(f"{error.message}. Fix: {error.hint}" if error.hint else error.message) from None
        short = {"exclude": {tool.text}, "exclude_none": True} if tool.text else {}
        shown = {key: value for key, value in answer.model_dump(mode="json", **short).items() if value is not None}
        self._seq = max(shown.get("seq") or 0, self._seq or 0) or None
        return shown
