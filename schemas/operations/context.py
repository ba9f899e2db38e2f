"""The operation that assembles a whole prompt context from all layers of memory, within a budget of tokens."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from ..events.facts import MAX_NAME
from ..limits import RECALL_QUERY_MAX_CHARS
from ..rules.context.budget import Phase
from ..rules.evidence_words import ConfidenceWord
from ..views import (
    AGENTS_PROJECTION,
    DOCUMENTS_PROJECTION,
    DRAWERS_PROJECTION,
    ENTRIES_PROJECTION,
    FACTS_PROJECTION,
    FULLTEXT_PROJECTION,
    IMPORTANCE_PROJECTION,
)
from .documents import OF_PROVIDERS, ForAgent, ForCrew
from .layered import FactConflict, RunId, SalienceParts
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace

TEXT_MAX_CHARS: Final = 200_000
MESSAGES_MAX: Final = 1_000
TOOLS_MAX: Final = 500
BUDGET_MAX: Final = 2_000_000


class ConversationMessage(BaseModel):
    """A message: ``role`` user, assistant or tool (an observation)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    role: Literal["user", "assistant", "system", "tool"] = Field(description="Who says it; tool for an observation.")
    content: Annotated[str, Field(max_length=TEXT_MAX_CHARS)] = Field(description="The text.")


class ContextRequest(Request):
    """Assemble the context of a prompt within a budget of tokens, with the cost of each part and what was left out.

    Facts, recalled entries (mode search), drawers, memory documents, procedures and the run's working memory compete by
    salience; weaker ones, marked, fill what these leave. The same request with the same `now` at the same `view_seq`
    gives the same bytes (`record` false).
    """

    prompt: Annotated[str, Field(min_length=1, max_length=TEXT_MAX_CHARS)] = Field(description="The user's prompt.")
    query: Annotated[str, Field(min_length=1, max_length=RECALL_QUERY_MAX_CHARS)] | None = Field(
        default=None, description="The query for the search of memory; the beginning of the prompt if absent."
    )
    system: Annotated[str, Field(max_length=TEXT_MAX_CHARS)] = Field(
        default="", description="System and safety instructions; never cut."
    )
    tools: tuple[dict[str, Any], ...] = Field(
        default=(), max_length=TOOLS_MAX, description="Schemas of tools, the most useful first."
    )
    conversation: tuple[ConversationMessage, ...] = Field(
        default=(), max_length=MESSAGES_MAX, description="Earlier messages, oldest first: role and content."
    )
    run_id: RunId = None
    step: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="The step of the run, from 0; with max_steps it gives the phase."
    )
    max_steps: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Maximum number of steps of the run."
    )
    phase: Phase | None = Field(default=None, description="planning, executing or reviewing.")
    budget_tokens: Annotated[StrictInt, Field(ge=1, le=BUDGET_MAX)] | None = Field(
        default=None, description="Tokens of the whole context; the setting of the workspace or the node if absent."
    )
    system_tokens: Annotated[StrictInt, Field(ge=0, le=BUDGET_MAX)] | None = Field(
        default=None,
        description="Tokens reserved for the system's text; the setting of the workspace or the node if absent, and of a "
        "budget that is smaller than the setting's the same share.",
    )
    namespace: Annotated[str, Field(max_length=MAX_NAME)] | None = Field(
        default=None, description="Only facts of this namespace; facts of all namespaces if absent."
    )
    now: str | None = Field(default=None, description="RFC 3339 time as of which it is assembled; now if absent.")
    record: StrictBool = Field(
        default=True, description="Record the memories in the context, so that they count as used."
    )
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ContextItem(Answer):
    """A memory in the context, with its salience and the parts of it.

    ``certainty`` says how surely it is about the query: sure, likely or weak; null where that is not known. ``since``,
    ``until`` and ``contradicted_by`` are what the text says beside it: since when it holds if that is not its date,
    until when it held, and what contradicts it.
    """

    id: str
    kind: str
    source: str
    salience: float
    parts: SalienceParts | None
    certainty: ConfidenceWord | None = None
    since: str | None = None
    until: str | None = None
    contradicted_by: str | None = None


class ContextDrop(Answer):
    """A part that was dropped, shortened, masked or compressed, and the reason."""

    part: str
    name: str
    action: str
    reason: str
    tokens: int
    kind: str | None
    salience: float | None


class ContextAnswer(Answer):
    """The context.

    ``memory`` is the text of the memories, ``items`` those in it, in order. ``tokens`` has the tokens of each part, their
    ``total``, what is ``reserved`` of the system's, and the ``budget``; ``allocation`` what each part was given.
    ``conflicts`` are those with a fact in the context; ``stale`` the ids of its facts that are stale or need a
    refresh. ``tokenizer`` says what counted. ``recall_confidence`` and ``degraded`` are those of the recall.
    """

    system: str
    memory: str
    prompt: str
    tools: tuple[dict[str, Any], ...]
    conversation: tuple[ConversationMessage, ...]
    items: tuple[ContextItem, ...]
    drops: tuple[ContextDrop, ...]
    tokens: dict[str, int]
    allocation: dict[str, int]
    phase: Phase
    tokenizer: str
    conflicts: tuple[FactConflict, ...]
    stale: tuple[str, ...]
    recall_confidence: float | None
    degraded: str | None
    now: str
    receipt: str | None
    view_seq: int


CONTEXT_ASSEMBLE: Final = Operation(
    name="context_assemble",
    request=ContextRequest,
    answer=ContextAnswer,
    route="POST /v1/context",
    effect=Effect.READS,
    views=(
        ENTRIES_PROJECTION,
        FULLTEXT_PROJECTION,
        IMPORTANCE_PROJECTION,
        FACTS_PROJECTION,
        DRAWERS_PROJECTION,
        DOCUMENTS_PROJECTION,
        AGENTS_PROJECTION,
    ),
    errors=(404, *OF_PROVIDERS),
    command="assemble",
)
OPERATIONS: Final = (CONTEXT_ASSEMBLE,)
