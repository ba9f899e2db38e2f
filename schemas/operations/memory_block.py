"""The operation that builds the memory block of a prompt (contract §15)."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StrictInt

from ..entry import Id, Name
from ..limits import RECALL_QUERY_MAX_CHARS
from ..recorded_settings import MEMORY_BUDGET_MAX, REMEMBERED_TOKENS_MAX
from ..views import (
    AGENTS_PROJECTION,
    DOCUMENTS_PROJECTION,
    ENTRIES_PROJECTION,
    LEARNING_PROJECTION,
    OPERATORS_PROJECTION,
    RELATIONS_PROJECTION,
    STANDINGS_PROJECTION,
)
from .documents import OF_PROVIDERS, ForAgent, ForCrew
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace


class MemoryBlockRequest(Request):
    """Build the memory block for an agent's prompt: its memory, its crew's, the workspace's, pins, remembered notes.

    Text that the injection scanners block is replaced by a notice. The text is empty if the agent's memory is off.
    """

    agent_id: ForAgent = None
    crew_id: ForCrew = None
    max_chars: Annotated[StrictInt, Field(ge=0, le=MEMORY_BUDGET_MAX)] | None = Field(
        default=None,
        description="Budget of the memories in characters; that of the agent's registration if absent, else 15,000. "
        "Persona, peer context, notice and instructions do not count toward it.",
    )
    remembered_tokens: Annotated[StrictInt, Field(ge=0, le=REMEMBERED_TOKENS_MAX)] | None = Field(
        default=None,
        description="Budget of remembered notes in tokens, 0 for none; the setting of the workspace if absent, else 1,000. "
        "They do not count toward max_chars.",
    )
    query: (
        Annotated[str, Field(min_length=1, max_length=RECALL_QUERY_MAX_CHARS, description="What the session is about.")]
        | None
    ) = Field(default=None, description="Subject of the session; if not all topics fit, they are ranked by it.")
    opener: Name | None = Field(
        default=None,
        description="The person who opened the session; the block contains their operator model and peer card if the token "
        "speaks for the person, or the session was opened by the person.",
    )
    session: Id | None = Field(
        default=None, description="The session (trace_id): shows that the opener opened it with the agent."
    )
    as_of: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Any sequence: the block as it was right after this sequence."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class SectionShown(Answer):
    """A section of the block: characters of it in the text (0 if there was no room), whether it was cut or blocked."""

    block: str
    name: str
    label: str
    chars: int
    cut: bool
    blocked: bool


class MemoryBlockAnswer(Answer):
    """The block. ``usage`` has the budget, the characters used of it (``total``) and those of each block.

    ``opener_verified`` says whether what is known about the opener was included; null if none was named.
    """

    text: str
    memory_enabled: bool
    sections: tuple[SectionShown, ...]
    usage: dict[str, int]
    opener_verified: bool | None = None
    view_seq: int


MEMORY_BLOCK: Final = Operation(
    name="memory_block",
    request=MemoryBlockRequest,
    answer=MemoryBlockAnswer,
    route="GET /v1/memory/block",
    effect=Effect.READS,
    views=(
        DOCUMENTS_PROJECTION,
        AGENTS_PROJECTION,
        LEARNING_PROJECTION,
        STANDINGS_PROJECTION,
        OPERATORS_PROJECTION,
        ENTRIES_PROJECTION,
        RELATIONS_PROJECTION,
    ),
    errors=(410, *OF_PROVIDERS),
)
OPERATIONS: Final = (MEMORY_BLOCK,)
