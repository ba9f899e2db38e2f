"""How the node is doing: for people (``/v1/status``), supervisors (``/healthz``, ``/readyz``) and Prometheus.

Invariant: what needs no token names no workspace, agent or entry.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...schemas.principal import Principal
from .bodies import answer
from .docs_page import POLICY, render_docs
from .metrics import METRICS_TYPE, HttpMetrics
from .openapi import ANY_OBJECT, WORKSPACE, known_names, parameters
from .params import Params
from .route import RouteDescription, services_of

_STATUS: Final = known_names(WORKSPACE)
_TEXT: Final[dict[str, Any]] = {
    "200": {"description": "Text format 0.0.4.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
_READY: Final = {**ANY_OBJECT, "503": {**ANY_OBJECT["200"], "description": "Not ready, with the reasons"}}


async def status(request: Request, principal: Principal) -> Response:
    """Figures of a workspace, or of the node."""
    workspace = principal.workspace_or_all(Params(request, _STATUS).text("workspace_id"))
    administers = principal.role.administers
    owns_the_node = administers and principal.workspace_id is None
    body = await services_of(request).status.status(workspace_id=workspace, node=owns_the_node, counts=administers)
    return answer(body)


async def healthz(_request: Request) -> Response:
    """Always ok while the process serves."""
    return answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """503 with every reason if it cannot serve."""
    reasons = services_of(request).status.not_ready()
    ready = not reasons
    return answer({"ready": ready, "reasons": reasons}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    services = services_of(request)
    http_metrics: HttpMetrics = request.app.state.metrics
    text = http_metrics.render(await services.status.gauges(), services.tail.watchers)
    return Response(text, media_type=METRICS_TYPE)


async def docs(request: Request) -> Response:
    """Every route on one page, with a form for each."""
    return HTMLResponse(render_docs(request.app.openapi()), headers={"Content-Security-Policy": POLICY})


async def openapi(request: Request) -> Response:
    """The description of every route."""
    return answer(request.app.openapi())


STATUS_ROUTES: Final = (
    RouteDescription(
        route="GET /v1/status",
        name="status",
        tag="status",
        summary="The node and the token's workspace",
        description="Whether the node is ready; for OWNER and ADMIN figures of the token's workspace; for an OWNER of all "
        "workspaces those of the node.",
        serve=status,
        answers=ANY_OBJECT,
        extra=parameters(WORKSPACE),
    ),
    RouteDescription(
        route="GET /healthz",
        name="healthz",
        tag="status",
        summary="Whether the process runs",
        open=healthz,
        answers=ANY_OBJECT,
    ),
    RouteDescription(
        route="GET /readyz",
        name="readyz",
        tag="status",
        summary="Whether it can serve",
        open=readyz,
        answers=_READY,
    ),
    RouteDescription(
        route="GET /metrics",
        name="metrics",
        tag="status",
        summary="Figures for Prometheus",
        open=metrics,
        answers=_TEXT,
    ),
)
HIDDEN_ROUTES: Final = (
    RouteDescription(route="GET /docs", name="docs", tag="status", summary="Every route on one page", open=docs),
    RouteDescription(route="GET /openapi.json", name="openapi", tag="status", summary="This description", open=openapi),
)
"""Not in the description."""
