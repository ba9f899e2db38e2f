"""``/v1/admin/embeddings``: the embedding models of the node, filled, compared, switched and dropped.

Invariant: what costs or changes every workspace (add, drop, the default) needs an OWNER of all; an ADMIN sees and switches
its own workspace.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from crew_journal.schemas.entry import WorkspaceId
from crew_journal.schemas.principal import Principal
from crew_journal.schemas.settings import RECALL_K_MAX
from crew_journal.services.http.auth import Administrator, NodeOwner, administering, services_of
from crew_journal.services.http.bodies import answer, read_model
from crew_journal.services.http.lines import LINES, lines
from crew_journal.services.http.openapi import WORKSPACE, body_of, parameters, problems
from crew_journal.services.http.params import named_workspace


class AddRequest(BaseModel):
    """Which model to fill."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str = Field(min_length=1, max_length=96)


class ActivateRequest(BaseModel):
    """Which model recall is to use, in one workspace or (absent, OWNER of all) by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str = Field(min_length=1, max_length=96)
    workspace_id: WorkspaceId | None = None
    reason: str = Field(default="", max_length=500)
    force: StrictBool = Field(default=False, description="Also if entries have no vector of it yet.")


class DropRequest(BaseModel):
    """Which model to forget."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str = Field(min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


class CompareRequest(BaseModel):
    """Which two models to compare on the logged queries of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    one: str = Field(min_length=1, max_length=96)
    other: str = Field(min_length=1, max_length=96)
    workspace_id: WorkspaceId | None = None
    queries: int = Field(default=100, ge=1, le=1_000)
    k: int = Field(default=10, ge=1, le=RECALL_K_MAX)
    recipe: str | None = Field(default=None, max_length=64)


async def activated(request: Request, principal: Principal) -> Response:
    """Make a model the active one, as the body of the request says."""
    services = services_of(request)
    asked = await read_model(request, ActivateRequest, services.limits.body_bytes)
    workspace = principal.workspace_or_all(asked.workspace_id)
    done = await services.models.activate(workspace, asked.model, asked.reason, force=asked.force)
    return answer(dict(done))


def embedding_routes() -> APIRouter:
    """The routes of the embedding models."""
    router = APIRouter(prefix="/v1/admin/embeddings", tags=["admin"], dependencies=[Depends(administering)])

    @router.get(
        "",
        summary="The embedding models, and how far each is filled",
        responses=problems(),
        openapi_extra=parameters(WORKSPACE),
        response_class=Response,
    )
    async def list_models(request: Request, principal: Administrator) -> Response:
        """Figures of the token's workspace; of all for a token of all that names none."""
        workspace = principal.workspace_or_all(named_workspace(request))
        return answer(dict(await services_of(request).models.list(workspace)))

    @router.post(
        "",
        summary="Fill a further model in the background",
        responses=problems(404, 413, 422, 503),
        openapi_extra=body_of(AddRequest),
        response_class=Response,
    )
    async def add(request: Request, _principal: NodeOwner) -> Response:
        """It is tried out first; recall goes on with the active one."""
        services = services_of(request)
        asked = await read_model(request, AddRequest, services.limits.body_bytes)
        return answer(dict(await services.models.add(asked.model)))

    @router.post(
        "/activate",
        summary="Let recall use a model",
        responses=problems(404, 409, 413, 422),
        openapi_extra=body_of(ActivateRequest),
        response_class=Response,
    )
    async def activate(request: Request, principal: Administrator) -> Response:
        """At once, and recorded; the former model stays filled. 409 if entries lack a vector of the new, unless forced."""
        return await activated(request, principal)

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

    @router.post(
        "/drop",
        summary="Forget a model's vectors",
        responses=problems(404, 409, 413, 422),
        openapi_extra=body_of(DropRequest),
        response_class=Response,
    )
    async def drop(request: Request, _principal: NodeOwner) -> Response:
        """The active model cannot be dropped; one that is added again is filled from the beginning."""
        services = services_of(request)
        asked = await read_model(request, DropRequest, services.limits.body_bytes)
        return answer(dict(await services.models.drop(asked.model, asked.reason)))

    return router
