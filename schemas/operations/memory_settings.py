"""Operations on a workspace's memory documents as a whole: settings, figures, sweep of versions (contract §14, §20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictInt, model_validator

from ..events.memory_documents import ScrubberMode, VerifierMode
from ..views import DOCUMENTS_PROJECTION
from .documents import RETENTION_DAYS_MAX
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace

KEEP_LATEST_DEFAULT: Final = 3
Days = Annotated[StrictInt, Field(ge=1, le=RETENTION_DAYS_MAX)]


class MemoryConfigRequest(Request):
    """Show the settings of the memory documents of a workspace."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ConfigureMemoryRequest(Request):
    """Change the given settings of the memory of a workspace.

    Recorded as `memory.config_updated`. They apply to later writes. `retention_days: null` unsets it: all versions are kept.
    """

    retention_days: Days | None = Field(
        default=None,
        description="Age in days from which the texts of old versions are swept, every day at 04:15 UTC. "
        "By default, all versions are kept.",
    )
    scrubber: ScrubberMode | None = Field(
        default=None,
        description="A text with credentials that is to be stored, in documents, entries, drawers and facts: block refuses "
        "it, redact replaces them, warn stores it and says so, off stores it. By default CREW_JOURNAL_SECRETS decides.",
    )
    verifier: VerifierMode | None = Field(
        default=None, description="off, or cheap: refuse lines that contradict a line of pins.md."
    )
    reset: tuple[Literal["retention_days", "scrubber", "verifier"], ...] = Field(
        default=(), description="Settings to reset to their defaults, before the given ones are set; repeatable."
    )
    workspace_id: Workspace = None

    @model_validator(mode="before")
    @classmethod
    def _unset_null(cls, data: Any) -> Any:
        """``null`` is a value of ``retention_days``: that of a workspace that keeps all versions."""
        if not isinstance(data, Mapping) or "retention_days" not in data or data["retention_days"] is not None:
            return data
        reset = data.get("reset")
        if not isinstance(reset, (list, tuple, type(None))):
            return data  # the field's own check reports it
        return {**data, "reset": [*(reset or ()), "retention_days"]}


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


class MemoryConfigAnswer(Answer):
    """The settings; ``retention_days`` is null if versions are kept."""

    workspace_id: str
    retention_days: int | None
    scrubber: ScrubberMode
    verifier: VerifierMode
    view_seq: int


class TierFigures(Answer):
    """The documents of one tier and owner.

    ``documents`` counts those that are not retracted, ``bytes`` their present texts; ``blocked``: those that the
    injection scanners block. ``swept`` counts the versions whose text is gone, ``version_bytes`` what the other
    versions hold.
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
)
OPERATIONS: Final = (MEMORY_CONFIG, CONFIGURE_MEMORY, MEMORY_STATS, SWEEP_VERSIONS)
