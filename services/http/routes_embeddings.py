"""``/v1/admin/embeddings``: the embedding models of the node, filled, compared, switched and dropped.

Invariant: what costs or changes every workspace (add, drop, the default) needs an OWNER of all; an ADMIN sees and switches
its own workspace.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.entry import WorkspaceId
from crew_journal.schemas.settings import RECALL_K_MAX
from crew_journal.services.http.auth import Administrator, administering, services_of
from crew_journal.services.http.bodies import read_model
from crew_journal.services.http.lines import LINES, lines
from crew_journal.services.http.openapi import body_of, problems


class CompareRequest(BaseModel):
    """Which two models to compare on the logged queries of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    one: str = Field(min_length=1, max_length=96)
    other: str = Field(min_length=1, max_length=96)
    workspace_id: WorkspaceId | None = None
    queries: int = Field(default=100, ge=1, le=1_000)
    k: int = Field(default=10, ge=1, le=RECALL_K_MAX)
    recipe: str | None = Field(default=None, max_length=64)


def embedding_routes() -> APIRouter:
    """The routes of the embedding models."""
    router = APIRouter(prefix="/v1/admin/embeddings", tags=["admin"], dependencies=[Depends(administering)])

    @router.post(
        "/compare",
        summary="How far two models agree on the queries that were asked",
        responses={200: LINES, **problems(404, 413, 422, 503)},
        openapi_extra=body_of(CompareRequest),
        response_class=Response,
    )
    async def compare(request: Request, principal: Administrator) -> Response:
        """Lines of JSON tell how far it is; the last holds the figures. Nothing is recorded or switched."""
        services = services_of(request)
        asked = await read_model(request, CompareRequest, services.limits.body_bytes)
        workspace = principal.workspace(asked.workspace_id)
        records = await services.models.compare(
            workspace, (asked.one, asked.other), queries=asked.queries, k=asked.k, recipe=asked.recipe
        )
        return lines(request, records)

    return router
