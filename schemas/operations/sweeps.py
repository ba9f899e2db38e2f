"""Sweeps and reindexing: what is done again over the whole memory of a workspace."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from .operation import Access, Answer, Effect, Operation, Request, Workspace


class SweepRequest(Request):
    """Run a sweep now, after those that were missed.

    Returns when its tick is folded.
    """

    sweep: Literal["decay", "health", "index"] = Field(description="decay, health or index.")
    workspace_id: Workspace = None


class SweepEmbeddingsRequest(Request):
    """Embed what was missed, and say how many entries that were.

    Publishes a tick of the index sweep and answers with the counts of what it did.
    """

    workspace_id: Workspace = None


class ReindexRequest(Request):
    """Judge entries by the current embed policy and have texts that the model refused tried again.

    Recorded as an event; the index sweep follows at once.
    """

    model: str | None = Field(
        default=None, min_length=1, max_length=96, description="Only texts this model refused; every model's if absent."
    )
    reason: str = Field(default="", max_length=500, description="Why; it is recorded.")
    workspace_id: Workspace = None


class SweepAnswer(Answer):
    """How a sweep on request ended."""

    workspace_id: str
    sweep: str
    due: str
    seq: int
    counts: dict[str, int] = Field(default_factory=dict)
    error: str | None = None


class ReindexAnswer(Answer):
    """A reindex was recorded at ``seq`` and the index sweep is due.

    ``refused`` texts, given up by the model before, are tried again; ``missing`` entries had no vector when it was asked.
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
    command="embeddings sweep",
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
"""In the order of the docs."""
