"""The operation on memory documents as files, with the commands of Anthropic's memory tool (docs/files.md)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StrictInt

from ..views import AGENTS_PROJECTION, DOCUMENTS_PROJECTION
from .documents import ForAgent, ForCrew
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace

PATH_CHARS: Final = 1_024
"""Maximum length of a path in characters; an error repeats the path. Keys of documents are shorter."""
FileCommand = Literal["view", "create", "str_replace", "insert", "delete", "rename"]


class MemoryFileRequest(Request):
    """View, create, edit, delete or rename a memory document as a file below /memories.

    `/memories/AGENT.md`, `/memories/daily/<date>.md`, `/memories/crew/CREW.md` and the like are the documents of
    these names; every other path is a file of the agent. Deleted files can be restored.
    """

    command: FileCommand = Field(description="view, create, str_replace, insert, delete or rename.")
    path: str | None = Field(
        default=None,
        max_length=PATH_CHARS,
        description="The file, such as /memories/notes/a.md; for view and delete also a folder.",
    )
    view_range: Annotated[tuple[StrictInt, ...], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="For view: first and last line, from 1; -1 for the end."
    )
    file_text: str | None = Field(default=None, description="For create: the text of the new file.")
    old_str: str | None = Field(default=None, description="For str_replace: text that is in the file exactly once.")
    new_str: str | None = Field(default=None, description="For str_replace: the text in its place.")
    insert_line: StrictInt | None = Field(
        default=None, description="For insert: the line after which to insert; 0 for the start."
    )
    insert_text: str | None = Field(default=None, description="For insert: the lines.")
    old_path: str | None = Field(default=None, max_length=PATH_CHARS, description="For rename: the file or folder.")
    new_path: str | None = Field(default=None, max_length=PATH_CHARS, description="For rename: its new path.")
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class MemoryFileAnswer(Answer):
    """``text`` is in the words of Anthropic's memory tool; ``seq`` is that of the last write, null for view."""

    text: str
    seq: int | None = None
    warning: str | None = None


MEMORY_FILE: Final = Operation(
    name="memory_file",
    request=MemoryFileRequest,
    answer=MemoryFileAnswer,
    route="POST /v1/memory/file",
    effect=Effect.CHANGES,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(409, 413),
    command="memory file",
    repeatable=False,
)
OPERATIONS: Final = (MEMORY_FILE,)
