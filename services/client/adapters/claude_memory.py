"""Anthropic's memory tool over a Crew Journal: ``CrewJournalMemoryTool`` and ``AsyncCrewJournalMemoryTool``.

Needs the package ``anthropic`` (``pip install crew-journal[claude]``), which is imported with this module.
Invariant: answers and errors are those of the operation ``memory_file``; an error is a ``ToolError``, which the model reads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from ....schemas.core.errors import CrewJournalError
from ....schemas.documents.operations import MemoryFileAnswer
from .. import AsyncCrewJournal, CrewJournal


@dataclass(frozen=True, slots=True)
class _ToolOwner:
    """The owner of the memory, if the token does not determine it."""

    agent_id: str | None
    crew_id: str | None
    workspace_id: str | None

    def fields(self, command: BetaMemoryTool20250818Command) -> dict[str, Any]:
        """The arguments of ``memory_file``; unknown fields from the model are dropped."""
        given = command.model_dump(exclude_none=True)
        return {**asdict(self), **{name: given[name] for name in type(command).model_fields if name in given}}


class CrewJournalMemoryTool(BetaAbstractMemoryTool):
    """The memory tool, for ``client.beta.messages.run_tools(tools=[CrewJournalMemoryTool(journal)], …)``.

    Args:
        journal: The client; the tool does not close it.
        agent_id: The agent, for a token of OWNER or ADMIN.
        crew_id: Its crew, likewise.
        workspace_id: The workspace, for a token of all workspaces.
        cache_control: As in ``BetaAbstractMemoryTool``.
    """

    def __init__(
        self,
        journal: CrewJournal,
        *,
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._journal = journal
        self._owner = _ToolOwner(agent_id, crew_id, workspace_id)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """View a folder or file."""
        return self._run(command)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return self._run(command)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that is in a file exactly once."""
        return self._run(command)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines."""
        return self._run(command)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or folder; it can be restored."""
        return self._run(command)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or folder."""
        return self._run(command)

    def _run(self, command: BetaMemoryTool20250818Command) -> str:
        try:
            return _text(self._journal.memory_file(**self._owner.fields(command)))
        except CrewJournalError as error:
            raise _tool_error(error) from error


class AsyncCrewJournalMemoryTool(BetaAsyncAbstractMemoryTool):
    """``CrewJournalMemoryTool`` for ``AsyncAnthropic`` and ``AsyncCrewJournal``."""

    def __init__(
        self,
        journal: AsyncCrewJournal,
        *,
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._journal = journal
        self._owner = _ToolOwner(agent_id, crew_id, workspace_id)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """View a folder or file."""
        return await self._run(command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return await self._run(command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that is in a file exactly once."""
        return await self._run(command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines."""
        return await self._run(command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or folder; it can be restored."""
        return await self._run(command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or folder."""
        return await self._run(command)

    async def _run(self, command: BetaMemoryTool20250818Command) -> str:
        try:
            return _text(await self._journal.memory_file(**self._owner.fields(command)))
        except CrewJournalError as error:
            raise _tool_error(error) from error


def _text(answer: MemoryFileAnswer) -> str:
    return answer.text if answer.warning is None else f"{answer.text}\n{answer.warning}"


def _tool_error(error: CrewJournalError) -> ToolError:
    return ToolError(f"{error.message}. {error.hint}" if error.hint else error.message)
