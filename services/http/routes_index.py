"""``/v1/admin/embeddings/sweep`` and ``/v1/admin/reindex``: embed what was missed, and judge anew.

Invariant: both are bound to the token's workspace and only publish events; reactors and folds act on them.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.api_admin import ReindexAnswer, SweepAnswer
from crew_journal.schemas.entry import WorkspaceId
from crew_journal.schemas.views import VECTORS_PROJECTION
from crew_journal.services.http.auth import Administrator, administering, services_of
from crew_journal.services.http.bodies import Nothing, answer_model, read_model
from crew_journal.services.http.openapi import WORKSPACE, body_of, parameters, problems
from crew_journal.services.http.params import named_workspace


class ReindexRequest(BaseModel):
    """Whose refused texts are tried again (every model's if absent), and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    workspace_id: WorkspaceId | None = None
    model: str | None = Field(default=None, min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


def index_routes() -> APIRouter:
    """The routes of the indexer."""
    router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(administering)])

    @router.post(
        "/embeddings/sweep",
        summary="Embed what was missed",
        responses={200: {"model": SweepAnswer}, **problems(413, 422)},
        openapi_extra=parameters(WORKSPACE),
        response_class=Response,
    )
    async def sweep(request: Request, principal: Administrator) -> Response:
        """Publishes a tick of the index sweep and answers with the counts of what it did."""
        await read_model(request, Nothing, services_of(request).limits.body_bytes, optional=True)
        workspace = principal.workspace(named_workspace(request))
        report = await services_of(request).sweeps.run(workspace, "index", VECTORS_PROJECTION)
        done = SweepAnswer(
            workspace_id=workspace,
            sweep="index",
            due=report.due,
            seq=report.seq,
            counts=dict(report.counts),
            error=report.error,
        )
        return answer_model(done)

    @router.post(
        "/reindex",
        summary="Judge entries by the current embed policy, try refused texts again",
        responses={200: {"model": ReindexAnswer}, **problems(404, 413, 422)},
        openapi_extra=body_of(ReindexRequest, required=False),
        response_class=Response,
    )
    async def reindex(request: Request, principal: Administrator) -> Response:
        """Recorded as an event; the index sweep follows at once."""
        services = services_of(request)
        asked = await read_model(request, ReindexRequest, services.limits.body_bytes, optional=True)
        workspace = principal.workspace(asked.workspace_id)
        done = await services.reindexing.request(
            workspace, model=asked.model, reason=asked.reason, asker=principal.token_id
        )
        return answer_model(done)

    return router
