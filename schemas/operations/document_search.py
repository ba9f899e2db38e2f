"""Operations that search memory documents, alone or together with the journal (seed 3, contract §16).

Invariant: the token decides whose documents are searched; an operator names agent and crew.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictInt, field_validator

from ..entry import Id
from ..limits import RECALL_QUERY_MAX_CHARS
from ..rules.tiers import WRITABLE
from ..views import DOCUMENTS_PROJECTION
from .documents import OF_PROVIDERS, ForAgent, ForCrew, TierName
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace

SEARCH_LIMIT_DEFAULT: Final = 10
SEARCH_LIMIT_MAX: Final = 50
SNIPPET_CHARS: Final = 300
"""Maximum number of characters of a snippet, without the three dots."""
FileScope = Literal["agent", "crew", "both"]

Query = Annotated[
    str,
    Field(
        min_length=1,
        max_length=RECALL_QUERY_MAX_CHARS,
        description="A question or words. Quotes and operators are read as blanks.",
        json_schema_extra={"x-fix": f"send 1 to {RECALL_QUERY_MAX_CHARS} characters that are not all blank"},
    ),
]
Limit = Annotated[
    StrictInt,
    Field(
        description=f"Maximum number of hits, up to {SEARCH_LIMIT_MAX}; a value below 1 counts as {SEARCH_LIMIT_DEFAULT}.",
        json_schema_extra={"x-fix": f"send an integer, 1 to {SEARCH_LIMIT_MAX}"},
    ),
]
Scope = Annotated[
    FileScope,
    Field(
        description="`agent`: the agent's own documents, `crew`: its crew's, or `both`. OWNER and ADMIN name the agent in "
        "agent_id and the crew in crew_id; the crew of a named agent is not looked up."
    ),
]


class _SearchRequest(Request):
    """Base class of searches."""

    query: Query
    limit: Limit = SEARCH_LIMIT_DEFAULT

    @field_validator("query")
    @classmethod
    def _has_text(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must not be blank")
        return query

    @property
    def hits_wanted(self) -> int:
        """``limit`` within its bounds."""
        return min(self.limit, SEARCH_LIMIT_MAX) if self.limit >= 1 else SEARCH_LIMIT_DEFAULT


class DocumentSearchRequest(_SearchRequest):
    """Search memory documents, best first.

    Finds chunks of documents by words, and by meaning if an embedding model is active. With `both`, chunks of agent and
    crew are ranked together. Without a crew, `crew` is answered with 503 and `both` searches the agent's documents.
    """

    scope: Scope = "agent"
    tier: TierName | None = Field(default=None, description="Only documents of this tier.")
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("tier")
    @classmethod
    def _is_tier(cls, tier: str | None) -> str | None:
        if tier is not None and tier not in WRITABLE:
            raise ValueError(f"no documents of a tier {tier!r} are searched; use one of {', '.join(WRITABLE)}")
        return tier


class DocumentHit(Answer):
    """A chunk of a document.

    ``file`` is the label of the document, ``line`` the first line of the chunk, ``heading`` the headings above it,
    ``source`` the kind of its owner. Scores are negative, lowest for the best hit, and comparable within one answer
    only.
    """

    file: str
    snippet: str
    score: float
    source: Literal["agent", "crew", "workspace"]
    line: int
    heading: str


class DocumentSearchAnswer(Answer):
    """Hits, best first, and how many; ``quarantined``: documents that the scanners block (for operators), never in a hit."""

    results: tuple[DocumentHit, ...]
    count: int
    quarantined: tuple[str, ...] = ()
    model: str | None = None
    view_seq: int


class DocumentIndexRequest(Request):
    """Show the state of the search index of memory documents."""

    scope: Scope = "agent"
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ReindexDocumentsRequest(DocumentIndexRequest):
    """Load the search index of memory documents again; returns its state.

    The index follows every write, so this is normally not needed.
    """


class DocumentIndexAnswer(Answer):
    """The state of the index: documents and chunks in scope, their size, the time of the last write, readiness."""

    total_files: int
    total_chunks: int
    indexed_at: str | None
    total_size_kb: int
    search_ready: bool
    view_seq: int


class SearchMemoryRequest(_SearchRequest):
    """Search memory documents and the journal together.

    The two lists have no hit in common, so they are interleaved: the best document, the best entry, and so on. Each
    hit names its origin. `own` searches the agent's documents and entries; `crew_shared` its crew's, too, for a LEAD;
    an AGENT gets the documents of its crew and its own entries; `workspace` searches everything.
    """

    scope: Literal["own", "crew_shared", "workspace"] | None = Field(
        default=None, description="own, crew_shared or workspace. If absent, the token's role decides."
    )
    agent_id: ForAgent = None
    crew_id: Id | None = Field(default=None, description="The crew; AGENT and LEAD may name their own only.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("scope", "agent_id", "crew_id", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        return None if value == "" else value


class MemoryHit(Answer):
    """A hit of either list: ``document`` with the fields of ``DocumentHit``, or ``entry`` with those of the entry.

    ``score`` is ``1 / (60 + rank)`` in the list of its origin: scores of documents and entries cannot be compared.
    """

    origin: Literal["document", "entry"]
    score: float
    snippet: str
    source: str
    file: str | None = None
    line: int | None = None
    heading: str | None = None
    entry_id: str | None = None
    entry_type: str | None = None
    ts: str | None = None
    agent_id: str | None = None
    crew_id: str | None = None
    confidence: float | None = None


class SearchMemoryAnswer(Answer):
    """Hits, documents and entries in turn; ``scope`` is that of the entries, ``degraded`` as in ``recall``."""

    results: tuple[MemoryHit, ...]
    count: int
    scope: str
    model: str | None
    degraded: str | None
    quarantined: tuple[str, ...] = ()
    receipt: str | None
    view_seq: int


DOCUMENT_SEARCH: Final = Operation(
    name="document_search",
    request=DocumentSearchRequest,
    answer=DocumentSearchAnswer,
    route="POST /memory/search",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION,),
    errors=OF_PROVIDERS,
)
DOCUMENT_INDEX: Final = Operation(
    name="document_index",
    request=DocumentIndexRequest,
    answer=DocumentIndexAnswer,
    route="GET /memory/status",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION,),
    errors=OF_PROVIDERS,
    needs_journal="the state of the search index",
)
DOCUMENT_REINDEX: Final = Operation(
    name="document_reindex",
    request=ReindexDocumentsRequest,
    answer=DocumentIndexAnswer,
    route="POST /memory/reindex",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION,),
    errors=OF_PROVIDERS,
    needs_journal="loading the search index",
)
SEARCH_MEMORY: Final = Operation(
    name="search_memory",
    request=SearchMemoryRequest,
    answer=SearchMemoryAnswer,
    route="POST /v1/memory/search",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION,),
    errors=(404, *OF_PROVIDERS),
    needs_journal="searching documents and entries",
)
OPERATIONS: Final = (DOCUMENT_SEARCH, DOCUMENT_INDEX, DOCUMENT_REINDEX, SEARCH_MEMORY)
