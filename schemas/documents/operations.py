"""Operations on memory documents (contract §14): read, write, versions, files, search, settings, bundles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_validator,
    model_validator,
)

from ..access.tables import AGENTS_PROJECTION
from ..core.entry import Id, Name
from ..core.limits import RECALL_QUERY_MAX_CHARS
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..core.recorded_settings import NULLABLE_MEMORY_SETTINGS, RETENTION_DAYS_MAX, MemorySettings, changes_of
from ..learning.tables import LEARNING_PROJECTION
from .bundles import MAX_FILES
from .rules import WRITABLE
from .tables import DOCUMENTS_PROJECTION

VERSIONS_DEFAULT: Final = 20
VERSIONS_MAX: Final = 1_000
OF_PROVIDERS: Final = (422, 501, 504)
"""Statuses of memory providers: an invalid tier or key, a request that only the journal can answer, no answer in time."""

TierName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=32,
        description=f"{', '.join(WRITABLE)}; for reading also users and lessons. Case matters.",
    ),
]
DocumentKey = Annotated[
    str | None,
    Field(
        description="For daily a date (today in UTC if absent), for peers and users a slug, for topics and procedures "
        "a name, for files a path; other tiers have no key."
    ),
]
ScopeName = Annotated[
    Literal["agent", "crew", "workspace"] | None,
    Field(description="Owner of the document: the agent, its crew or the workspace; the default depends on the tier."),
]
ForAgent = Annotated[Id | None, Field(description="The agent whose memory it is, for OWNER and ADMIN.")]
ForCrew = Annotated[Id | None, Field(description="The crew whose memory it is, for OWNER and ADMIN.")]


class DocumentRequest(Request):
    """Base class of requests about one document."""

    tier: TierName
    key: DocumentKey = None
    scope: ScopeName = None
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ReadDocumentRequest(DocumentRequest):
    """Read a memory document.

    A document that was never written has an empty content. Content that the injection scanners block is replaced by a
    notice for AGENT and LEAD tokens.
    """

    version: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Sequence of a write: the document as it was after that write."
    )
    as_of: AsOf = None


class WriteDocumentRequest(DocumentRequest):
    """Write a memory document; returns once the write is durable and can be read.

    An append is one message and never conflicts. A replace may name the version that it replaces.
    """

    mode: str = Field(description="`replace` (content is the whole text) or `append` (content is the added text).")
    content: str = Field(description="The text.")
    write_id: Id | None = Field(
        default=None, description="Id of the write; a second write with the same id is ignored."
    )
    expected_seq: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="For replace: the `seq` of the version that it replaces, 0 for none; 409 if it has changed.",
    )
    expected_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None,
        description="For replace: the `sha256` of the text that it replaces; 409 if it has changed. The providers disk and "
        "http need it to replace a document that the scanners block.",
    )
    data_subject_id: Name | None = Field(default=None, description="The person whose personal data this is.")
    derived_from: tuple[Id, ...] = Field(
        default=(), max_length=1_000, description="Ids of the entries and writes from which the content was made."
    )
    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")
    source: Literal["api", "mirror"] | None = Field(
        default=None, description="`mirror` if the content comes from a file; a daily log may then have 100,000 bytes."
    )


class AppendDailyRequest(Request):
    """Append a line with the present time to today's daily log (UTC)."""

    entry: str = Field(description="The note, one line; line breaks become blanks.")
    scope: Literal["agent", "crew"] = Field(
        default="agent", description="Whether to append to the agent's log or to its crew's."
    )
    write_id: Id | None = Field(
        default=None, description="Id of the write; a second write with the same id is ignored."
    )
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    workspace_id: Workspace = None


class DocumentsRequest(Request):
    """List the memory documents that the token may read, with their sizes."""

    tier: Annotated[TierName | None, Field(description="Only documents of this tier.")] = None
    scope: ScopeName = None
    agent_id: ForAgent = None
    crew_id: ForCrew = None
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class DocumentVersionsRequest(DocumentRequest):
    """List the versions of a memory document, newest first."""

    limit: Annotated[StrictInt, Field(ge=1, le=VERSIONS_MAX)] = Field(
        default=VERSIONS_DEFAULT, description="Most versions."
    )
    as_of: AsOf = None


class DiffDocumentRequest(DocumentRequest):
    """Show what changed between two versions of a memory document, as a unified diff."""

    from_version: Annotated[StrictInt, Field(ge=0)] = Field(description="Sequence of the older version; 0 for none.")
    to_version: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Sequence of the newer version; the present one if absent."
    )
    as_of: AsOf = None


class RestoreDocumentRequest(DocumentRequest):
    """Restore a version of a memory document, or the last text of a retracted one, as a new version."""

    version: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Sequence of the version; the last one with a text if absent."
    )
    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")


class RetractDocumentRequest(DocumentRequest):
    """Retract a memory document: it reads as empty and is not found by search; restoring it undoes this."""

    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")


class Finding(Answer):
    """A finding of the injection scanners in a document: category and pattern, never the text."""

    category: str
    pattern: str


class DocumentAnswer(Answer):
    """A document, or a version of it.

    ``id`` is its label (``daily/2026-05-14.md``), ``owner`` its owner (``a-<agent>``, ``c-<crew>``, ``w``). ``seq``
    is 0 and ``content`` empty if it was never written; ``usage`` is ``<bytes> of <cap> bytes, <percent>%``.
    """

    id: str
    tier: str
    key: str | None
    owner: str
    content: str
    bytes: int
    cap_bytes: int | None
    usage: str | None
    sha256: str
    seq: int
    updated_at: str | None
    retracted: bool = False
    quarantined: Finding | None = None
    view_seq: int


class DocumentWrittenAnswer(Answer):
    """A durable write.

    ``bytes_written`` is the size of this write, ``bytes`` the size of the document. From 80 % of the cap on,
    ``current_entries`` is the document's text, and ``warning`` asks to shorten it. ``duplicate``: the write id was
    already used, and nothing was written.
    """

    id: str
    tier: str
    key: str | None
    owner: str
    write_id: str
    seq: int
    bytes_written: int
    bytes: int
    cap_bytes: int
    cap_pct: int
    search_index_updated: bool
    duplicate: bool = False
    usage: str | None = None
    current_entries: str | None = None
    warning: str | None = None


class DocumentShown(Answer):
    """A document in a list."""

    id: str
    tier: str
    key: str | None
    owner: str
    bytes: int
    cap_bytes: int | None
    seq: int
    updated_at: str
    writes: int
    retracted: bool
    quarantined: Finding | None


class DocumentsAnswer(Answer):
    """Documents, by owner and label; the bytes of all of them."""

    documents: tuple[DocumentShown, ...]
    bytes: int
    view_seq: int


class VersionShown(Answer):
    """A version; ``gone`` if its text was swept."""

    seq: int
    write_id: str
    action: str
    sha256: str
    parent_sha256: str | None
    bytes: int
    source: str
    actor_type: str
    actor_id: str | None
    reason: str
    at: str
    gone: bool


class DocumentVersionsAnswer(Answer):
    """Versions, newest first; ``history`` says ``recorded`` or, for a document never written, ``unrecorded``."""

    id: str
    owner: str
    versions: tuple[VersionShown, ...]
    history: Literal["recorded", "unrecorded"]
    view_seq: int


class DocumentDiffAnswer(Answer):
    """A unified diff; empty if nothing changed."""

    id: str
    owner: str
    from_version: int
    to_version: int
    diff: str


DOCUMENT_READ: Final = Operation(
    name="document_read",
    request=ReadDocumentRequest,
    answer=DocumentAnswer,
    route="GET /v1/memory/document",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(404, 410, *OF_PROVIDERS),
    command="memory read",
)
DOCUMENT_WRITE: Final = Operation(
    name="document_write",
    request=WriteDocumentRequest,
    answer=DocumentWrittenAnswer,
    route="POST /memory/write",
    effect=Effect.CREATES,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(409, 413, *OF_PROVIDERS),
    repeatable=False,
)
APPEND_DAILY: Final = Operation(
    name="append_daily",
    request=AppendDailyRequest,
    answer=DocumentWrittenAnswer,
    route="POST /v1/memory/daily",
    effect=Effect.CREATES,
    errors=(409, 413, *OF_PROVIDERS),
    command="memory note",
    repeatable=False,
)
DOCUMENTS: Final = Operation(
    name="documents",
    request=DocumentsRequest,
    answer=DocumentsAnswer,
    route="GET /v1/memory/documents",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=OF_PROVIDERS,
    command="memory list",
    needs_journal="a list of documents",
)
DOCUMENT_VERSIONS: Final = Operation(
    name="document_versions",
    request=DocumentVersionsRequest,
    answer=DocumentVersionsAnswer,
    route="GET /v1/memory/document/versions",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=OF_PROVIDERS,
    command="memory versions",
    needs_journal="versions",
)
DOCUMENT_DIFF: Final = Operation(
    name="document_diff",
    request=DiffDocumentRequest,
    answer=DocumentDiffAnswer,
    route="GET /v1/memory/document/diff",
    effect=Effect.READS,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(404, 410, *OF_PROVIDERS),
    command="memory diff",
    needs_journal="a diff of versions",
)
DOCUMENT_RESTORE: Final = Operation(
    name="document_restore",
    request=RestoreDocumentRequest,
    answer=DocumentWrittenAnswer,
    route="POST /v1/memory/document/restore",
    effect=Effect.CHANGES,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(404, 409, 410, *OF_PROVIDERS),
    command="memory restore",
    repeatable=False,
    needs_journal="restoring a version",
)
DOCUMENT_RETRACT: Final = Operation(
    name="document_retract",
    request=RetractDocumentRequest,
    answer=DocumentWrittenAnswer,
    route="POST /v1/memory/document/retract",
    effect=Effect.CHANGES,
    views=(DOCUMENTS_PROJECTION, AGENTS_PROJECTION),
    errors=(404, 409, *OF_PROVIDERS),
    command="memory retract",
)


# The operation on memory documents as files, with the commands of Anthropic's memory tool (docs/files.md).


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
    """``text`` is worded like Anthropic's memory tool; ``seq`` is the sequence of the last write, null for view."""

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


# Operations that search memory documents, alone or together with the journal (seed 3, contract §16).


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
    as_of: AsOf = None
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
    as_of: AsOf = None
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

    As `recall` with kinds entries and documents: one list, the likeliest hit first. Each hit names its origin. `own`
    searches the agent's documents and entries; `crew_shared` its crew's, too, for a LEAD; an AGENT gets the documents
    of its crew and its own entries; `workspace` searches everything.
    """

    scope: Literal["own", "crew_shared", "workspace"] | None = Field(
        default=None, description="own, crew_shared or workspace. If absent, the token's role decides."
    )
    agent_id: ForAgent = None
    crew_id: Id | None = Field(default=None, description="The crew; AGENT and LEAD may name their own only.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None

    @field_validator("scope", "agent_id", "crew_id", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        return None if value == "" else value


class MemoryHit(Answer):
    """A hit of either list: ``document`` with the fields of ``DocumentHit``, or ``entry`` with those of the entry.

    ``score`` is ``1 / (60 + rank)`` among the hits of its origin; ``confidence`` can be compared between origins.
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
    """Hits, best first; ``scope`` is the scope of the entries, ``degraded`` is as in ``recall``."""

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
    decided="index",
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
    decided="index",
)


# Operations on a workspace's memory documents as a whole: settings, figures, sweep of versions (contract §14, §20).


KEEP_LATEST_DEFAULT: Final = 3
Days = Annotated[StrictInt, Field(ge=1, le=RETENTION_DAYS_MAX)]


class MemoryConfigRequest(Request):
    """Show the settings of the memory documents of a workspace."""

    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


if TYPE_CHECKING:  # mypy accepts no computed base and no computed Literal
    _MemoryChanges = Request
    MemorySettingName = str
else:
    _MemoryChanges = changes_of(MemorySettings, Request)
    MemorySettingName = Literal[*MemorySettings.model_fields]


class ConfigureMemoryRequest(_MemoryChanges):
    """Change the given settings of the memory of a workspace.

    Recorded as `memory.config_updated`. They apply to later writes. `retention: null` and `retention_days: null` unset
    these: everything is kept.
    """

    NULLABLE: ClassVar = NULLABLE_MEMORY_SETTINGS
    reset: tuple[MemorySettingName, ...] = Field(
        default=(), description="Settings to reset to their defaults, before the given ones are set; repeatable."
    )
    workspace_id: Workspace = None

    @model_validator(mode="before")
    @classmethod
    def _unset_null(cls, data: Any) -> Any:
        """``null`` is a value of a retention: that of a workspace that keeps everything."""
        if not isinstance(data, Mapping):
            return data
        unset = [name for name in cls.NULLABLE if name in data and data[name] is None]
        reset = data.get("reset")
        if not unset or not isinstance(reset, (list, tuple, type(None))):
            return data  # a wrong ``reset`` is reported by the field's own check
        return {**data, "reset": [*(reset or ()), *unset]}


class MemoryStatsRequest(Request):
    """Count the memory documents of a workspace and their versions, by owner and tier."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class SweepVersionsRequest(Request):
    """Remove the texts of old versions of memory documents from the views; present texts stay.

    A version is swept if it was written before the given age and is not among the newest of its document. Recorded as
    `memory.versions_swept`. The journal itself keeps the writes.
    """

    older_than_days: Days | None = Field(
        default=None, description="Age of the versions; the retention_days of the workspace if absent."
    )
    keep_latest: Annotated[StrictInt, Field(ge=0, le=1_000)] = Field(
        default=KEEP_LATEST_DEFAULT,
        description="Number of versions of each document that are kept, however old they are.",
    )
    workspace_id: Workspace = None


class MemoryConfigAnswer(MemorySettings, Answer):
    """The settings; ``retention_days`` is null if versions are kept."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    workspace_id: str
    view_seq: int


class TierFigures(Answer):
    """The documents of one tier and owner.

    ``documents`` counts documents that are not retracted, ``bytes`` the bytes of their current texts, ``blocked``
    documents that the injection scanners block. ``swept`` counts versions without a text, ``version_bytes`` the bytes
    of the other versions.
    """

    owner: str
    tier: str
    documents: int
    retracted: int
    blocked: int
    bytes: int
    versions: int
    swept: int
    version_bytes: int
    updated_at: str


class MemoryStatsAnswer(Answer):
    """Figures by owner and tier, and their sums."""

    workspace_id: str
    tiers: tuple[TierFigures, ...]
    documents: int
    bytes: int
    versions: int
    version_bytes: int
    view_seq: int


class VersionsSweptAnswer(Answer):
    """The sweep was recorded at ``seq``; ``swept`` counts the versions that lost their text."""

    workspace_id: str
    before: str
    keep_latest: int
    swept: int
    seq: int


MEMORY_CONFIG: Final = Operation(
    name="memory_config",
    request=MemoryConfigRequest,
    answer=MemoryConfigAnswer,
    route="GET /v1/memory/config",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(DOCUMENTS_PROJECTION,),
    errors=(404,),
    command="memory config",
)
CONFIGURE_MEMORY: Final = Operation(
    name="configure_memory",
    request=ConfigureMemoryRequest,
    answer=MemoryConfigAnswer,
    route="PUT /v1/memory/config",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    command="memory configure",
)
MEMORY_STATS: Final = Operation(
    name="memory_stats",
    request=MemoryStatsRequest,
    answer=MemoryStatsAnswer,
    route="GET /v1/memory/stats",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(DOCUMENTS_PROJECTION,),
    errors=(404, 501),
    command="memory stats",
    needs_journal="figures of documents",
)
SWEEP_VERSIONS: Final = Operation(
    name="sweep_versions",
    request=SweepVersionsRequest,
    answer=VersionsSweptAnswer,
    route="POST /v1/memory/versions/sweep",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(501,),
    command="memory versions-sweep",
    repeatable=False,
    needs_journal="a sweep of versions",
)


# Operations on bundles: export and import the memory of an agent and its crew as plain files.


BundleFormat = Literal["okf", "crewship", "nanoclaw", "openclaw"]


class BundleText(BaseModel):
    """A file of a bundle: its path and its text."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")
    path: str = Field(min_length=1, max_length=1_000, description="Path within the bundle.")
    content: str = Field(description="The text.")


class ExportBundleRequest(Request):
    """Export the memory documents of an agent, of a crew, or of both as a bundle of plain files.

    Documents that the injection scanners block, operator models and peer cards are left out.
    """

    agent_id: Id | None = Field(default=None, description="The agent.")
    crew_id: Id | None = Field(default=None, description="The crew.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ImportBundleRequest(Request):
    """Plan the import of a bundle; with ``apply``, write it.

    Each document is replaced, not merged. A refused document does not prevent the others from being written.
    """

    documents: Annotated[
        tuple[BundleText, ...], Field(min_length=1, max_length=MAX_FILES, description="The files of the bundle.")
    ]
    agent_id: Id | None = Field(default=None, description="The agent that gets documents of an agent.")
    crew_id: Id | None = Field(
        default=None, description="The crew that gets documents of a crew; if absent, these are skipped."
    )
    apply: StrictBool = Field(default=False, description="Write the documents; otherwise the answer is only the plan.")
    format: BundleFormat | None = Field(
        default=None, description="okf, crewship, nanoclaw or openclaw; recognised by the files if absent."
    )
    group: Name | None = Field(default=None, description="For nanoclaw: the group to import, if there are several.")
    person: Name | None = Field(default=None, description="The person that a card (USER.md) is about.")
    workspace_id: Workspace = None


class SkippedShown(Answer):
    """A file that was left out of the bundle, and the reason."""

    path: str
    detail: str


class BundleAnswer(Answer):
    """A bundle: the manifest, then the files sorted by path."""

    format: str
    documents: tuple[BundleText, ...]
    skipped: tuple[SkippedShown, ...]
    view_seq: int


class ImportedShown(Answer):
    """The result for a file.

    ``status``: ``planned``, ``unchanged`` (the document has this text already), ``written``, ``skipped`` (cannot be
    imported), ``rejected`` (refused by a check) or ``failed``. ``kind`` and ``detail`` give the reason.
    """

    path: str
    owner: str | None
    id: str | None
    status: Literal["planned", "unchanged", "written", "skipped", "rejected", "failed"]
    kind: str | None
    detail: str
    bytes: int
    replaces_bytes: int


class ImportBundleAnswer(Answer):
    """The result, or the planned result, for each file, by path; ``counts`` by status."""

    format: str
    applied: bool
    results: tuple[ImportedShown, ...]
    counts: dict[str, int]


EXPORT_BUNDLE: Final = Operation(
    name="export_bundle",
    request=ExportBundleRequest,
    answer=BundleAnswer,
    route="GET /v1/bundle",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(DOCUMENTS_PROJECTION, LEARNING_PROJECTION),
    errors=(501,),
    needs_journal="a bundle",
)
IMPORT_BUNDLE: Final = Operation(
    name="import_bundle",
    request=ImportBundleRequest,
    answer=ImportBundleAnswer,
    route="POST /v1/bundle",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(501,),
    needs_journal="a bundle",
)

OPERATIONS: Final = (
    DOCUMENT_READ,
    DOCUMENT_WRITE,
    APPEND_DAILY,
    DOCUMENTS,
    DOCUMENT_VERSIONS,
    DOCUMENT_DIFF,
    DOCUMENT_RESTORE,
    DOCUMENT_RETRACT,
    MEMORY_FILE,
    DOCUMENT_SEARCH,
    DOCUMENT_INDEX,
    DOCUMENT_REINDEX,
    SEARCH_MEMORY,
    MEMORY_CONFIG,
    CONFIGURE_MEMORY,
    MEMORY_STATS,
    SWEEP_VERSIONS,
    EXPORT_BUNDLE,
    IMPORT_BUNDLE,
)
