"""Operations on memory documents: read, write, versions (contract §14)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StrictInt, StringConstraints

from ..entry import Id, Name
from ..rules.tiers import WRITABLE
from ..views import AGENTS_PROJECTION, DOCUMENTS_PROJECTION
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace

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
    as_of: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Any sequence: the document as it was right after this sequence."
    )


class WriteDocumentRequest(DocumentRequest):
    """Write a memory document; returns once the write is durable and can be read.

    An append is one message and never conflicts. A replace may name the version that it replaces.
    """

    mode: str = Field(description="`replace` (content is the whole text) or `append` (content is the added text).")
    content: str = Field(description="The text.")
    write_id: Id | None = Field(default=None, description="The write's own id; the same id again writes nothing.")
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
    write_id: Id | None = Field(default=None, description="The write's own id; the same id again writes nothing.")
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
    workspace_id: Workspace = None


class DocumentVersionsRequest(DocumentRequest):
    """List the versions of a memory document, newest first."""

    limit: Annotated[StrictInt, Field(ge=1, le=VERSIONS_MAX)] = Field(
        default=VERSIONS_DEFAULT, description="Most versions."
    )


class DiffDocumentRequest(DocumentRequest):
    """Show what changed between two versions of a memory document, as a unified diff."""

    from_version: Annotated[StrictInt, Field(ge=0)] = Field(description="Sequence of the older version; 0 for none.")
    to_version: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Sequence of the newer version; the present one if absent."
    )


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

    ``bytes_written`` is the size of this write, ``bytes`` that of the document. From 80 % of the cap on,
    ``current_entries`` is the document's text, and ``warning`` asks to shorten it. ``duplicate``: the write id was
    known, nothing was written.
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
OPERATIONS: Final = (
    DOCUMENT_READ,
    DOCUMENT_WRITE,
    APPEND_DAILY,
    DOCUMENTS,
    DOCUMENT_VERSIONS,
    DOCUMENT_DIFF,
    DOCUMENT_RESTORE,
    DOCUMENT_RETRACT,
)
