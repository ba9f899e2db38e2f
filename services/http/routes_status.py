"""How the node is doing: for people (``/v1/status``), supervisors (``/healthz``, ``/readyz``) and Prometheus.

Invariant: what needs no token names no workspace, agent or entry.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from crew_journal.services.http.auth import Asker, services_of
from crew_journal.services.http.bodies import answer
from crew_journal.services.http.docs_page import render_docs
from crew_journal.services.http.metrics import METRICS_TYPE, HttpMetrics
from crew_journal.services.http.openapi import WORKSPACE, parameters, problems
from crew_journal.services.http.params import named_workspace

_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"description": "Not ready, with the reasons"}}


def status_routes() -> APIRouter:
    """The routes about the node."""
    router = APIRouter(tags=["status"])

    @router.get(
        "/v1/status",
        summary="The node and the token's workspace",
        responses=problems(),
        openapi_extra=parameters(WORKSPACE),
        response_class=Response,
    )
    async def status(request: Request, principal: Asker) -> Response:
        """Figures of the token's workspace and whether the node is ready; the node's own for an OWNER of all workspaces."""
        workspace = principal.workspace_or_all(named_workspace(request))
        owns_the_node = principal.role.administers and principal.workspace_id is None
        body = await services_of(request).status.status(workspace_id=workspace, node=owns_the_node)
        return answer(dict(body))

    @router.get("/healthz", summary="Whether the process lives", response_class=Response)
    async def healthz() -> Response:
        """Always ok while the process serves."""
        return answer({"status": "ok"})

    @router.get("/readyz", summary="Whether it can serve", responses=_NOT_READY, response_class=Response)
    async def readyz(request: Request) -> Response:
        """503 with every reason if it cannot."""
        reasons = list(await services_of(request).status.not_ready())
        ready = not reasons
        return answer({"ready": ready, "reasons": reasons}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    @router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
    async def metrics(request: Request) -> Response:
        """Text format 0.0.4."""
        services = services_of(request)
        shown: HttpMetrics = request.app.state.metrics
        text = shown.render(await services.status.gauges(), services.tail.watchers)
        return Response(text, media_type=METRICS_TYPE)

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(render_docs(request.app.openapi()))

    return router
