"""Operations on layered memory: read, write, assemble a prompt context, build a memory block (contract §15)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from ..access.tables import AGENTS_PROJECTION
from ..core.entry import MAX_NAME as MAX_RUN_ID
from ..core.entry import Id
from ..core.entry import Name as EntryName
from ..core.limits import RECALL_QUERY_MAX_CHARS
from ..core.operation import Answer, AsOf, Effect, MinSeq, Operation, Request, Visible, Workspace
from ..core.recorded_settings import MEMORY_BUDGET_MAX, REMEMBERED_TOKENS_MAX
from ..documents.operations import OF_PROVIDERS, ForAgent, ForCrew, ScopeName
from ..documents.tables import DOCUMENTS_PROJECTION
from ..entries.tables import ENTRIES_PROJECTION, FULLTEXT_PROJECTION
from ..facts.events import MAX_FACT_TEXT, MAX_HALF_LIFE_HOURS, MAX_NAME, MAX_REASON, MAX_REFERENCE, FactType
from ..facts.operations import DATE_HINT, Day, Fact, Name
from ..facts.tables import FACTS_PROJECTION
from ..learning.tables import LEARNING_PROJECTION
from ..operators.tables import OPERATORS_PROJECTION
from ..palace.tables import DRAWERS_PROJECTION
from ..recall.evidence import ConfidenceWord
from ..relations.tables import RELATIONS_PROJECTION
from ..standing.tables import IMPORTANCE_PROJECTION, STANDINGS_PROJECTION
from .budget import Phase

# Operations on layered memory: facts and procedures are written and read, episodes and working memory are read.


QUERY_LIMIT: Final = 20
QUERY_LIMIT_MAX: Final = 200
QUERY_MAX_CHARS: Final = 4_000
DEFAULT_PREDICATE: Final = "is"
_FACT_FIELDS: Final = ("subject", "object")
_PROCEDURE_FIELDS: Final = ("name", "content")

Namespace = Annotated[
    str | None,
    Field(max_length=MAX_NAME, description="Namespace of facts; that of the knowledge graph if empty."),
]
RunId = Annotated[
    str | None,
    Field(
        min_length=1, max_length=MAX_RUN_ID, description="A run: trace_id, actor_id or payload.run_id of its entries."
    ),
]


class LayeredWriteRequest(Request):
    """Write a fact or a procedure.

    A fact (`kind` fact) needs `subject` and `object`; it is a fact of the knowledge graph. Writing one that exists
    and has no end verifies it. A procedure (`kind` procedure) needs `name` and `content`, the whole text; each write
    is a version of the document `procedures/<name>.md`.
    """

    kind: Literal["fact", "procedure"] = Field(description="fact or procedure.")
    namespace: Annotated[str, Field(max_length=MAX_NAME)] = Field(
        default="", description="For a fact: facts of different namespaces never contradict each other."
    )
    subject: Name | None = Field(default=None, description="For a fact: what it is about.")
    predicate: Name = Field(default=DEFAULT_PREDICATE, description="For a fact: how subject and object relate.")
    object: Name | None = Field(default=None, description="For a fact: the value, or the other entity.")
    text: Annotated[str, Field(min_length=1, max_length=MAX_FACT_TEXT)] | None = Field(
        default=None, description="For a fact: its wording; subject, predicate and object if absent."
    )
    confidence: float = Field(
        default=1.0, ge=0.0, le=1.0, allow_inf_nan=False, description="For a fact: how certain it is, 0 to 1."
    )
    fact_type: FactType = Field(
        default=FactType.DEFAULT,
        description="For a fact: how fast it goes stale: permanent never, stable in 180 days, default in 30, volatile in 1.",
    )
    half_life_hours: float | None = Field(
        default=None,
        gt=0.0,
        le=MAX_HALF_LIFE_HOURS,
        allow_inf_nan=False,
        description="For a fact: its own half-life, in hours.",
    )
    single_valued: StrictBool = Field(
        default=False, description="For a fact: the subject has one value of the predicate at a time."
    )
    valid_from: Day = Field(
        default=None, description="For a fact: date from which it holds.", json_schema_extra=DATE_HINT
    )
    valid_to: Day = Field(
        default=None, description="For a fact: last date on which it holds.", json_schema_extra=DATE_HINT
    )
    source_drawer_id: str | None = Field(
        default=None, max_length=MAX_REFERENCE, description="For a fact: the drawer that it was taken from."
    )
    source_entry_id: Id | None = Field(default=None, description="For a fact: the entry that it was taken from.")
    name: str | None = Field(default=None, description="For a procedure: its name, such as deploy-checkout.")
    content: str | None = Field(default=None, description="For a procedure: the whole text, Markdown.")
    scope: ScopeName = None
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        needed = _FACT_FIELDS if self.kind == "fact" else _PROCEDURE_FIELDS
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"a {self.kind} needs {' and '.join(missing)}")
        return self


class LayeredReadRequest(Request):
    """Read a fact by its id, a procedure by its name, or the working memory of a run.

    Working memory holds the entries of a run until it ends; it is empty after `run.completed`, `run.failed` or
    `run.cancelled`.
    """

    kind: Literal["fact", "procedure", "working"] = Field(description="fact, procedure or working.")
    name: str = Field(min_length=1, max_length=MAX_NAME, description="The fact's id, the procedure's name, or the run.")
    version: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="For a procedure: the version after the write with this sequence."
    )
    scope: ScopeName = None
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class LayeredQueryRequest(Request):
    """Query memory: episodes by run and type, facts by namespace and text, procedures by name.

    Episodes are newest first, without those older than the time to live, if one is set. Facts are in the order of
    their salience, whose parts are returned; stale ones are included. Procedures are those whose name contains
    `text`.
    """

    kind: Literal["episode", "fact", "procedure"] = Field(description="episode, fact or procedure.")
    text: Annotated[str, Field(min_length=1, max_length=QUERY_MAX_CHARS)] | None = Field(
        default=None, description="A query for facts, or a part of a procedure's name; all if absent."
    )
    namespace: Namespace = None
    run_id: RunId = None
    types: tuple[str, ...] = Field(
        default=(), max_length=50, description="For episodes: entry types, run.completed; repeatable."
    )
    limit: StrictInt = Field(default=QUERY_LIMIT, ge=1, le=QUERY_LIMIT_MAX, description="Most results.")
    now: str | None = Field(default=None, description="RFC 3339 time as of which salience is computed; now if absent.")
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class FactVerifyRequest(Request):
    """Record that a fact was checked and holds; its freshness is 1 again. `kg invalidate` ends one that does not hold."""

    fact_id: Id = Field(description="The fact.")
    confidence: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="New confidence of the fact; unchanged if absent.",
    )
    note: str = Field(default="", max_length=MAX_REASON, description="How it was checked; it is recorded.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class FactVerificationRequest(Request):
    """Ask for a verification of a fact; `layered conflicts` lists it until it is verified."""

    fact_id: Id = Field(description="The fact.")
    note: str = Field(default="", max_length=MAX_REASON, description="The reason; it is recorded.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class FactConflictsRequest(Request):
    """List facts that contradict each other and facts whose verification is requested."""

    namespace: Namespace = None
    now: str | None = Field(default=None, description="RFC 3339 time as of which facts hold; now if absent.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class SalienceParts(Answer):
    """The parts of a salience, each 0 to 1; ``freshness`` is null where there is none."""

    relevance: float
    recency: float
    confidence: float
    usage: float
    freshness: float | None


class LayeredFact(Fact):
    """A fact of layered memory.

    ``state`` is fresh, stale (freshness below .5) or needs_refresh (below .25). ``verification_wanted`` is the time
    since which a verification is requested. ``salience`` and ``parts`` are null where nothing was ranked.
    """

    namespace: str
    text: str
    fact_type: str
    half_life_hours: float | None
    single_valued: bool
    last_verified_at: str | None
    verification_wanted: str | None
    freshness: float
    state: Literal["fresh", "stale", "needs_refresh"]
    uses: int
    salience: float | None = None
    parts: SalienceParts | None = None


class Procedure(Answer):
    """A procedure: the newest version, or the one that was asked for."""

    name: str
    owner: str
    content: str
    seq: int
    updated_at: str | None


class Episode(Answer):
    """An entry of a run."""

    entry_id: str
    ts: str
    entry_type: str
    summary: str
    agent_id: str | None
    run_id: str | None
    payload: dict[str, Any]
    seq: int


class FactConflict(Answer):
    """Two facts that contradict each other: ``values`` of a single-valued predicate, or ``polarity``, a negation."""

    fact_ids: tuple[str, ...]
    texts: tuple[str, ...]
    namespace: str
    subject: str
    kind: Literal["values", "polarity"]


class LayeredWriteAnswer(Answer):
    """The result of a write.

    ``id`` is the fact's id or the procedure's label; ``added`` is false if a known fact was verified. ``conflicts``
    are those of the fact with others that hold now.
    """

    kind: str
    id: str
    added: bool
    seq: int
    conflicts: tuple[FactConflict, ...] = ()
    visible: Visible = True


class LayeredReadAnswer(Answer):
    """The memory that was read, in the field of its kind. ``run_ended`` says that the run has ended."""

    kind: str
    fact: LayeredFact | None = None
    procedure: Procedure | None = None
    working: tuple[Episode, ...] = ()
    run_ended: bool = False
    view_seq: int


class LayeredQueryAnswer(Answer):
    """The memories that were found, in the field of their kind; ``truncated`` if there are more."""

    kind: str
    facts: tuple[LayeredFact, ...] = ()
    episodes: tuple[Episode, ...] = ()
    procedures: tuple[Procedure, ...] = ()
    truncated: bool
    view_seq: int


class FactVerifyAnswer(Answer):
    """The fact as it is now."""

    fact: LayeredFact
    seq: int
    visible: Visible = True


class FactConflictsAnswer(Answer):
    """Conflicts by namespace and subject; facts whose verification is requested, the oldest request first."""

    conflicts: tuple[FactConflict, ...]
    wanted: tuple[LayeredFact, ...]
    view_seq: int


_FACTS: Final = (FACTS_PROJECTION, IMPORTANCE_PROJECTION)
_EVERY: Final = (*_FACTS, ENTRIES_PROJECTION, DOCUMENTS_PROJECTION, AGENTS_PROJECTION)
LAYERED_WRITE: Final = Operation(
    name="layered_write",
    request=LayeredWriteRequest,
    answer=LayeredWriteAnswer,
    route="POST /v1/layered",
    effect=Effect.CREATES,
    views=_EVERY,
    errors=(409, 413, *OF_PROVIDERS),
    command="layered write",
    repeatable=False,
)
LAYERED_READ: Final = Operation(
    name="layered_read",
    request=LayeredReadRequest,
    answer=LayeredReadAnswer,
    route="GET /v1/layered",
    effect=Effect.READS,
    views=_EVERY,
    errors=(404, 410, *OF_PROVIDERS),
    command="layered read",
    decided="index",
)
LAYERED_QUERY: Final = Operation(
    name="layered_query",
    request=LayeredQueryRequest,
    answer=LayeredQueryAnswer,
    route="POST /v1/layered/query",
    effect=Effect.READS,
    views=_EVERY,
    errors=(404, *OF_PROVIDERS),
    command="layered query",
    decided="index",
)
FACT_VERIFY: Final = Operation(
    name="fact_verify",
    request=FactVerifyRequest,
    answer=FactVerifyAnswer,
    route="POST /v1/layered/facts/{fact_id}/verify",
    effect=Effect.CHANGES,
    views=_FACTS,
    errors=(404,),
    command="layered verify",
)
FACT_REQUEST_VERIFICATION: Final = Operation(
    name="fact_request_verification",
    request=FactVerificationRequest,
    answer=FactVerifyAnswer,
    route="POST /v1/layered/facts/{fact_id}/request-verification",
    effect=Effect.CHANGES,
    views=_FACTS,
    errors=(404,),
    command="layered request-verification",
)
FACT_CONFLICTS: Final = Operation(
    name="fact_conflicts",
    request=FactConflictsRequest,
    answer=FactConflictsAnswer,
    route="GET /v1/layered/conflicts",
    effect=Effect.READS,
    views=_FACTS,
    command="layered conflicts",
    decided="index",
)

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
    as_of: AsOf = None
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
    decided="index",
)


# The operation that builds the memory block of a prompt (contract §15).


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
    opener: EntryName | None = Field(
        default=None,
        description="The person who opened the session; the block contains their operator model and peer card if the token "
        "speaks for the person, or the session was opened by the person.",
    )
    session: Id | None = Field(
        default=None, description="The session (trace_id): shows that the opener opened it with the agent."
    )
    as_of: AsOf = None
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

    ``receipt`` names the record of what the block holds; null if nothing is recorded, or if it cannot be stored now.

    ``opener_verified`` says whether what is known about the opener was included; null if none was named.
    """

    text: str
    memory_enabled: bool
    sections: tuple[SectionShown, ...]
    usage: dict[str, int]
    opener_verified: bool | None = None
    receipt: str | None = None
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
    decided="index",
)

OPERATIONS: Final = (
    CONTEXT_ASSEMBLE,
    MEMORY_BLOCK,
    LAYERED_WRITE,
    LAYERED_READ,
    LAYERED_QUERY,
    FACT_VERIFY,
    FACT_REQUEST_VERIFICATION,
    FACT_CONFLICTS,
)
