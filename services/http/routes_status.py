"""State of the node: ``/v1/status``, ``/healthz``, ``/readyz``, metrics for Prometheus; and the page ``/docs``.

Invariant: answers that need no token name no workspace, agent or entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...schemas.core.principal import Principal
from .bodies import answer
from .metrics import METRICS_TYPE, HttpMetrics
from .openapi import ANY_OBJECT, WORKSPACE, known_names, parameters
from .route import Params, RouteDescription, services_of

# ``/docs``: a page with all routes, generated from the OpenAPI description, with a form to send each request.


POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_EXAMPLES: Final[dict[str, Any]] = {
    "string": "",
    "integer": 1,
    "number": 1.0,
    "boolean": False,
    "array": [],
    "object": {},
}


def render_docs(openapi: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = openapi["info"]
    body = "".join(
        _route(path, method, route) for path, methods in openapi["paths"].items() for method, route in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/ui/static/docs.css">'
        '<script src="/ui/static/docs.js" defer></script>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        "<p>Send <code>Authorization: Bearer cj_…</code>. Errors are problem+json. The machine-readable description is "
        "<code>/openapi.json</code>.</p>"
        '<p><label>Token for the requests of this page: <input id="token" type="password" autocomplete="off" '
        'placeholder="cj_…"></label> It stays in this page until you close or reload it.</p>'
        f"{body}</html>"
    )


def _route(path: str, method: str, route: Mapping[str, Any]) -> str:
    rows = "".join(_rows(route))
    table = f"<table><tr><th>parameter<th>in<th>meaning<th>value</tr>{rows}</table>" if rows else ""
    answers = ", ".join(escape(str(status)) for status in route.get("responses", {}))
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p><b>{_marked(route.get('summary', ''))}.</b> "
        f"{_marked(route.get('description', ''))}</p>"
        f'<form data-method="{escape(method.upper())}" data-path="{escape(path)}">{table}'
        f"<p>Answers: {answers} <button>Send</button></p><pre hidden aria-live=polite></pre></form>"
    )


def _rows(route: Mapping[str, Any]) -> Iterator[str]:
    for parameter in route.get("parameters", ()):
        name, place = escape(parameter["name"]), escape(parameter["in"])
        needed = " required" if parameter.get("required") else ""
        yield (
            f"<tr><td>{name}<td>{place}<td>{_marked(parameter.get('description', ''))}"
            f'<td><input name="{name}" data-in="{place}" aria-label="{name}"{needed}></tr>'
        )
    for media, content in route.get("requestBody", {}).get("content", {}).items():
        text = json.dumps(example_of(content), indent=2, ensure_ascii=False)
        yield (
            f"<tr><td>body<td>JSON<td>an example; all fields are in /openapi.json<td>"
            f'<textarea data-in="body" data-type="{escape(media)}" aria-label="body" rows="{text.count(chr(10)) + 1}">'
            f"{escape(text)}</textarea></tr>"
        )


def _marked(text: str) -> str:
    """The escaped text; text between backticks becomes code."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"<code>\2</code>", escape(text))


def example_of(content: Mapping[str, Any]) -> Any:
    """The example of a body, with a value of its type for each required field that lacks an example."""
    schema = content["schema"]
    given = content.get("example")
    if not isinstance(given, dict | None):
        return given
    fields = schema.get("properties", {})
    needed = {name: _value(fields[name]) for name in schema.get("required", ()) if name in fields}
    return {**needed, **(given or {})}


def _value(schema: Mapping[str, Any]) -> Any:
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    if "default" in schema:
        return schema["default"]
    if schema.get("anyOf"):
        return _value(schema["anyOf"][0])
    return _EXAMPLES.get(schema.get("type", ""))


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
    """200 if the node is ready, else 503 with all reasons."""
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
"""Routes that are not in the OpenAPI description."""
