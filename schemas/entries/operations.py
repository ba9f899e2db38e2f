"""Operations of agents on the journal itself: publish an entry, and search the agent's own conversations."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StrictInt, StringConstraints, field_validator

from ..core.entry import MAX_SUMMARY, MAX_SUPERSEDED, Id, Name, Severity, Timestamp
from ..core.operation import Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from .tables import ENTRIES_PROJECTION

TURNS_DEFAULT: Final = 10
TURNS_MAX: Final = 50


class PublishEntryRequest(Request):
    """Publish one entry to the journal.

    The token decides workspace, crew, agent and actor. POST /v1/journal takes lists and every field.
    """

    entry_type: str = Field(
        description="The type, such as crew.action or run.completed; lower case, dots between words."
    )
    summary: str = Field(min_length=1, max_length=MAX_SUMMARY, description="What happened, one line.")
    payload: dict[str, Any] = Field(default_factory=dict, description="Further facts, a JSON object.")
    refs: dict[str, Any] = Field(default_factory=dict, description="What it refers to, a JSON object.")
    severity: Severity = Field(default=Severity.INFO, description="info, notice, warn or error.")
    trace_id: Id | None = Field(default=None, description="The run or session.")
    mission_id: Id | None = Field(default=None, description="The mission.")
    supersedes: tuple[Id, ...] = Field(
        default=(), max_length=MAX_SUPERSEDED, description="Ids of entries that no longer count because of this one."
    )
    entry_id: Id | None = Field(
        default=None, description="Id of the entry; sending the same id and content again stores nothing."
    )
    agent_id: Id | None = Field(default=None, description="The agent whose entry it is, for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The agent's crew, for OWNER and ADMIN.")
    workspace_id: Workspace = None


class PublishEntryAnswer(Answer):
    """The entry; if it was stored before, ``duplicate`` is true and ``seq`` is the earlier sequence."""

    entry_id: str
    seq: int
    duplicate: bool


class ConversationSearchRequest(Request):
    """Search an agent's own conversations, best turns first."""

    query: str = Field(min_length=1, max_length=4_000, description="The question, or any text.")
    limit: Annotated[StrictInt, Field(ge=1, le=TURNS_MAX)] = Field(default=TURNS_DEFAULT, description="Most turns.")
    session: Id | None = Field(default=None, description="Only turns of this session (`trace_id`).")
    agent_id: Id | None = Field(
        default=None, description="The agent whose conversations are searched, for OWNER and ADMIN."
    )
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None

    @field_validator("query")
    @classmethod
    def _has_text(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must not be blank")
        return query


class Turn(Answer):
    """A turn of a conversation: when, who, what, in which session."""

    entry_id: str
    ts: str
    speaker: str
    text: str
    session: str | None
    score: float


class ConversationSearchAnswer(Answer):
    """Turns, best first; ``degraded`` as in recall."""

    turns: tuple[Turn, ...]
    degraded: str | None = None
    view_seq: int


PUBLISH_ENTRY: Final = Operation(
    name="publish_entry",
    request=PublishEntryRequest,
    answer=PublishEntryAnswer,
    route="POST /v1/journal/entry",
    effect=Effect.CREATES,
    errors=(409, 413),
    repeatable=False,
    decided="anywhere",
)
CONVERSATION_SEARCH: Final = Operation(
    name="conversation_search",
    request=ConversationSearchRequest,
    answer=ConversationSearchAnswer,
    route="POST /v1/conversation/search",
    effect=Effect.READS,
    views=(ENTRIES_PROJECTION,),
    errors=(404,),
    command="conversation",
)


# The operation remember.


Term = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class RememberRequest(Request):
    """Remember a text, so that recall finds it by its words and by its meaning.

    Recorded as an entry of type `memory.remembered`. Its summary is the text on one line, cut to 2,000 characters; a
    longer text is stored whole in `payload.text`. With a token of all workspaces, the first entry of a workspace
    creates it.
    """

    text: str = Field(min_length=1, description="The text to remember, up to the size of an entry (256 KiB).")
    kind: Term | None = Field(default=None, description="Kind of the text: preference, decision, fact …")
    about: Term | None = Field(default=None, description="The person or thing that it is about.")
    aliases: tuple[Term, ...] = Field(
        default=(), max_length=32, description="Other words by which recall finds the text."
    )
    supersedes: tuple[Id, ...] = Field(
        default=(), max_length=MAX_SUPERSEDED, description="Ids of entries that no longer count because of this one."
    )
    valid_at: Timestamp | None = Field(default=None, description="Time from which it is true, if that is not now.")
    data_subject_id: Name | None = Field(default=None, description="The person whose personal data this is.")
    entry_id: Id | None = Field(
        default=None, description="Id of the entry; sending the same id and text again stores nothing."
    )
    agent_id: Id | None = Field(default=None, description="The agent whose memory it is, for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The agent's crew, for OWNER and ADMIN.")
    workspace_id: Workspace = None

    @field_validator("text")
    @classmethod
    def _has_text(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be blank")
        return text


class RememberAnswer(Answer):
    """The entry; if it was stored before, ``duplicate`` is true and ``seq`` is the earlier sequence.

    ``warnings`` names entries in ``supersedes`` that could not be superseded.
    """

    entry_id: str
    seq: int
    duplicate: bool
    warnings: tuple[str, ...] = ()


REMEMBER: Final = Operation(
    name="remember",
    request=RememberRequest,
    answer=RememberAnswer,
    route="POST /v1/memory/remember",
    effect=Effect.CREATES,
    errors=(409,),
    repeatable=False,
)

OPERATIONS: Final = (
    PUBLISH_ENTRY,
    CONVERSATION_SEARCH,
    REMEMBER,
)
