"""Operations that run a sweep or a reindex over all entries of a workspace."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..core.operation import Access, Answer, Effect, Operation, Request, Visible, Workspace
from .rules import ON_REQUEST, RequestedSweep

_TO_THE_END: Final = [sweep.name for sweep in ON_REQUEST.values() if sweep.on_request == "end"]


class SweepRequest(Request):
    """Run the missed sweeps, then a sweep now."""

    sweep: RequestedSweep = Field(
        description=f"{', '.join(ON_REQUEST)}. Returns when the sweep's event is folded; for "
        f"{', '.join(_TO_THE_END)}, when the sweep has finished."
    )
    workspace_id: Workspace = None


class SweepEmbeddingsRequest(Request):
    """Embed entries that have no vector yet.

    Runs the index sweep and answers with its counts.
    """

    workspace_id: Workspace = None


class ReindexRequest(Request):
    """Apply the current embed policy to all entries and embed refused texts again.

    Recorded as an event; the index sweep follows at once.
    """

    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=96,
        description="Only texts that this model refused; of all models if absent.",
    )
    reason: str = Field(default="", max_length=500, description="The reason; it is recorded.")
    workspace_id: Workspace = None


class SweepAnswer(Answer):
    """Result of a sweep."""

    workspace_id: str
    sweep: str
    due: str
    seq: int
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = None
    visible: Visible = True


class ReindexAnswer(Answer):
    """The reindex was recorded at ``seq`` and the index sweep is due.

    ``refused`` counts texts that the model had refused and that are tried again, ``missing`` the entries without a
    vector at the time of the request.
    """

    workspace_id: str
    policy: int
    model: str | None
    seq: int
    refused: int
    missing: int
    due: str


SWEEP: Final = Operation(
    name="sweep",
    request=SweepRequest,
    answer=SweepAnswer,
    route="POST /v1/admin/sweeps",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    command="sweep",
    repeatable=False,
)
SWEEP_EMBEDDINGS: Final = Operation(
    name="sweep_embeddings",
    request=SweepEmbeddingsRequest,
    answer=SweepAnswer,
    route="POST /v1/admin/embeddings/sweep",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    command="model sweep",
)
REINDEX: Final = Operation(
    name="reindex",
    request=ReindexRequest,
    answer=ReindexAnswer,
    route="POST /v1/admin/reindex",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="reindex",
    repeatable=False,
)
OPERATIONS: Final = (SWEEP, SWEEP_EMBEDDINGS, REINDEX)
