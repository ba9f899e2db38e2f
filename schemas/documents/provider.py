"""The port of a memory provider: Retain, Recall, Forget, Health (seed 2, contract §18).

Invariant: requests and results are flat, and only gain fields. Every method may be called concurrently. A provider
raises only ``errors.NotAllowed`` and subclasses of ``errors.DocumentError`` and ``errors.Unavailable``
(``UpstreamTimeout``, ``BackendFailed``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

RECALL_LIMIT_MAX: Final = 20
"""Maximum number of hits of one recall."""
SNIPPET_CHARS: Final = 500
"""Maximum number of characters of a snippet."""
HEALTH_DEADLINE_S: Final = 1.0
"""Seconds after which ``health`` answers that it timed out."""
HEALTH_TIMEOUT_MESSAGE: Final = "health check timeout"


class _Flat(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Scoped(_Flat):
    """A request; it may name only the workspace, agent and crew to which the provider is bound."""

    workspace_id: str
    agent_id: str | None = None
    crew_id: str | None = None


class RetainRequest(_Scoped):
    """Persist content.

    Attributes:
        tier: ``AGENT``, ``CREW``, ``PERSONA``, ``WORKSPACE``, ``pins``, ``daily``, ``peers`` or ``topics``.
        key: A date for ``daily``, a slug for ``peers``, a name for ``topics``; none elsewhere.
        mode: ``replace`` or ``append``; required, there is no default.
        write_id: Id of the write; a repeated write with the same id counts once.
        scope: ``agent``, ``crew`` or ``workspace``; None for the default of the tier.
        expected_sha256: For replace: SHA-256 of the text to replace (of the empty text if there is no document); None
            to replace any text that the scanners do not block.
    """

    tier: str
    key: str | None = None
    content: str
    mode: str
    write_id: str | None = None
    scope: str | None = None
    expected_sha256: str | None = None


class RetainResult(_Flat):
    """A persisted write: ``id`` is the label for ``forget`` (``daily/2026-05-21.md``), ``bytes`` the document's size."""

    id: str
    bytes: int


class SnippetsRequest(_Scoped):
    """Search snippets.

    Attributes:
        tier: None for all tiers that the scope may read.
        limit: Advisory; at most 20 hits are returned.
        scope: ``agent``, ``crew`` or ``both``.
    """

    tier: str | None = None
    query: str
    limit: int = 10
    scope: str = "both"


class RecallSnippet(_Flat):
    """A hit: label of its document, excerpt of at most 500 characters, first line, score from 0 to 1, scope."""

    source: str
    snippet: str
    line: int | None = None
    score: float = 1.0
    scope: str = "agent"


class RecallResult(_Flat):
    """Hits, best first; ``quarantined`` are labels of blocked documents, for operators; their text is in no hit."""

    hits: tuple[RecallSnippet, ...] = ()
    quarantined: tuple[str, ...] = ()


class ForgetRequest(_Scoped):
    """Forget a document by ``id`` or a person by ``data_subject_id``; exactly one of the two."""

    id: str | None = None
    data_subject_id: str | None = None
    scope: str | None = None


class ForgetResult(_Flat):
    """How many items were removed; 0 if they were absent. ``cascades``: whether data derived from them was removed, too."""

    removed: int
    cascades: bool = False


class ReadRequest(_Scoped):
    """Read a document whole; fields as in ``RetainRequest``."""

    tier: str
    key: str | None = None
    scope: str | None = None


class ReadResult(_Flat):
    """A document: ``content`` is empty if it was never written, or if ``finding`` (category/pattern) blocks it.

    ``sha256`` and ``bytes`` describe the text even if it is blocked; None if the provider does not report them.
    """

    id: str
    content: str
    finding: str | None = None
    sha256: str | None = None
    bytes: int | None = None


class LabelsRequest(_Scoped):
    """List the documents of one scope: ``agent``, ``crew`` or ``workspace``."""

    scope: str


class LabelsResult(_Flat):
    """The ids of documents that have a text, sorted."""

    ids: tuple[str, ...] = ()


class HealthStatus(_Flat):
    """Whether the provider works; ``message`` only if it does not."""

    ok: bool
    message: str | None = None
    checked_at: datetime


class ProviderScope(_Scoped):
    """The caller to which a provider is bound; a request that names another caller is a ``ScopeMismatch``."""

    role: str = Field(default="AGENT", description="AGENT, LEAD, ADMIN or OWNER: decides what may be written.")


@runtime_checkable
class MemoryProvider(Protocol):
    """A backend of memory documents, bound to one scope."""

    async def retain(self, request: RetainRequest) -> RetainResult:
        """Persist content; returns once it is durable."""
        ...

    async def recall(self, request: SnippetsRequest) -> RecallResult:
        """Search snippets."""
        ...

    async def forget(self, request: ForgetRequest) -> ForgetResult:
        """Forget a document or a person; ``removed`` is 0 if there is none."""
        ...

    async def health(self) -> HealthStatus:
        """Whether it works; never raises, and answers within ``HEALTH_DEADLINE_S``."""
        ...


ProviderFactory = Callable[[ProviderScope], MemoryProvider]
"""Creates a provider that is bound to a scope; ``module:factory`` names such a callable."""


@runtime_checkable
class DocumentReader(Protocol):
    """Optional methods of a provider: whole documents.

    Without these methods there is no prompt block, and reading is refused.
    """

    async def read(self, request: ReadRequest) -> ReadResult:
        """Read a document; one that was never written is empty."""
        ...

    async def labels(self, request: LabelsRequest) -> LabelsResult:
        """List the documents of a scope."""
        ...
