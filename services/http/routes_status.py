"""State of the node: ``/v1/status``, ``/healthz``, ``/readyz``, metrics for Prometheus; and the page ``/docs``.

Invariant: answers that need no token name no workspace, agent or entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import lru_cache
from html import escape
from http import HTTPStatus
from typing import Any, Final

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...schemas.core.entry import WorkspaceId
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.limits import RECALL_K_MAX
from ...schemas.core.operation import Access
from ...schemas.core.principal import Principal
from ..desk import check_access
from ..problem import log_unexpected, problem_of, unexpected_problem
from .bodies import Stream, answer, read_model, trace_id_of
from .operations import ANY_OBJECT, WORKSPACE, inlined, json_body, known_names, parameters
from .route import Params, RouteDescription, services_of

# Answers as lines of JSON: progress records, then a record with ``result`` or ``error``.


# Routes of long operations that answer with lines of JSON: rebuild, salvage, verify, backup, comparison of two models.
#
# Invariant: operations on the whole node need an OWNER of all workspaces; the comparison is limited to one workspace.


NDJSON_TYPE: Final = "application/x-ndjson"
LINES: Final[dict[str, Any]] = {
    "description": "Lines of JSON: progress, then one with result or error.",
    "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
}


def lines(request: Request, records: AsyncIterator[Mapping[str, Any]]) -> Response:
    """Stream the records; any error that ends them is the last line."""
    return Stream(_as_lines(records, trace_id_of(request)), NDJSON_TYPE)


async def _as_lines(records: AsyncIterator[Mapping[str, Any]], trace_id: str) -> AsyncGenerator[bytes]:
    try:
        async for record in records:
            yield orjson.dumps(dict(record)) + b"\n"
    except CrewJournalError as error:
        yield orjson.dumps({"error": problem_of(error, trace_id)}) + b"\n"
    except Exception as error:
        log_unexpected(error, trace_id)
        yield (
            orjson.dumps({"error": unexpected_problem(trace_id)}) + b"\n"
        )  # the answer has begun, so that no status can report the error


log = structlog.get_logger(__name__)


class RebuildRequest(BaseModel):
    """The projections to rebuild (all if absent), and whether the loss of journal entries is accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    projections: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=100)
    accept_loss: bool = Field(default=False, description="Only for all; the old views file is kept.")


class CompareRequest(BaseModel):
    """The two models to compare on the logged queries of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    one: str = Field(min_length=1, max_length=96)
    other: str = Field(min_length=1, max_length=96)
    workspace_id: WorkspaceId | None = None
    queries: int = Field(default=100, ge=1, le=1_000)
    k: int = Field(default=10, ge=1, le=RECALL_K_MAX)
    recipe: str | None = Field(default=None, max_length=64)


async def rebuild(request: Request, principal: Principal) -> Response:
    """Build views beside the live ones, then swap."""
    check_access(Access.NODE_OWNER, principal)
    services = services_of(request)
    body = await read_model(request, RebuildRequest, services.limits.body_bytes)
    log.info("admin.rebuild", token_id=principal.token_id, accept_loss=body.accept_loss)
    records = services.operations.rebuild(body.projections, accept_loss=body.accept_loss, actor=principal.actor)
    return lines(request, records)


async def salvage(request: Request, principal: Principal) -> Response:
    """Stream the lost entries that the views still have."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.salvage", token_id=principal.token_id)
    return lines(request, services_of(request).operations.salvage())


async def backup(request: Request, principal: Principal) -> Response:
    """Stream a backup of the node's streams."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.backup", token_id=principal.token_id)
    return lines(request, services_of(request).operations.backup())


async def verify(request: Request, principal: Principal) -> Response:
    """Compare the live views with a fresh rebuild."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.verify", token_id=principal.token_id)
    return lines(request, services_of(request).operations.verify())


async def embedder(request: Request, principal: Principal) -> Response:
    """The embedder and its last outcome."""
    check_access(Access.ADMINISTRATOR, principal)
    return answer(await services_of(request).status.embedder())


async def compare(request: Request, principal: Principal) -> Response:
    """Compare the results of two models."""
    check_access(Access.ADMINISTRATOR, principal)
    services = services_of(request)
    body = await read_model(request, CompareRequest, services.limits.body_bytes)
    workspace = principal.workspace(body.workspace_id)
    records = await services.models.compare(
        workspace, (body.one, body.other), queries=body.queries, k=body.k, recipe=body.recipe
    )
    return lines(request, records)


ADMIN_ROUTES: Final = (
    RouteDescription(
        route="POST /v1/admin/rebuild",
        name="rebuild",
        tag="admin",
        summary="Rebuild views from the journal",
        description="Builds beside the live views, then swaps. Streams progress as lines of JSON. For an OWNER of all "
        "workspaces.",
        serve=rebuild,
        answers={"200": LINES},
        errors=(413, 422),
        extra=json_body(inlined(RebuildRequest.model_json_schema()), required=False),
    ),
    RouteDescription(
        route="POST /v1/admin/salvage",
        name="salvage",
        tag="admin",
        summary="Entries that the journal has lost and the views still have",
        description="Lines of JSON, each with `entry` (may be imported) or `decision` (the service's own); the last "
        "has counts.",
        serve=salvage,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="POST /v1/admin/backup",
        name="backup",
        tag="admin",
        summary="The streams, as one consistent copy",
        description="Lines of JSON: `stream` with configuration and state, then its bytes as `chunk` (base64); the last "
        "has `result`. `crew-journal backup` writes them to a file. For an OWNER of all workspaces.",
        serve=backup,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="POST /v1/admin/verify",
        name="verify",
        tag="admin",
        summary="Compare the live views with a fresh rebuild",
        description="Streams progress as lines of JSON; the last one has the differing rows, counted and listed.",
        serve=verify,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="GET /v1/admin/embedder",
        name="embedder_status",
        tag="admin",
        summary="The embedder and its last outcome",
        description="Shows the outcome of the last call, not the configuration.",
        serve=embedder,
        answers=ANY_OBJECT,
    ),
    RouteDescription(
        route="POST /v1/admin/embeddings/compare",
        name="compare_models",
        tag="admin",
        summary="How far two models agree on the queries that were asked",
        description="Streams progress as lines of JSON; the last one holds the figures. Nothing is recorded or switched.",
        serve=compare,
        answers={"200": LINES},
        errors=(404, 413, 422),
        extra=json_body(inlined(CompareRequest.model_json_schema()), required=True),
    ),
)


# Figures for Prometheus.
#
# Invariant: labels are bounded and name no tenant: routes as templates, methods and statuses, never ids.


METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds; recall is to take 10 ms, 50 ms at the 99th percentile."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Counts requests and entries, and shows the node's gauges; one registry per application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "crew_journal_http_request_seconds",
            "Time to answer a request.",
            ("route", "method"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._requests = Counter(
            "crew_journal_http_requests", "Requests answered.", ("route", "method", "status"), registry=self.registry
        )
        self._appended = Counter(
            "crew_journal_http_entries_appended", "Entries acked over HTTP.", registry=self.registry
        )
        self._tails = Gauge("crew_journal_http_tails", "Live tails being watched.", registry=self.registry)
        self._node: dict[str, Gauge] = {}
        self._labelled = lru_cache(maxsize=1_024)(self._label)  # prometheus_client takes 50 µs to find them

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """One answered request."""
        known = method if method in _METHODS else "OTHER"
        histogram, counter = self._labelled(route, known, str(status))
        histogram.observe(seconds)
        counter.inc()

    def _label(self, route: str, method: str, status: str) -> tuple[Histogram, Counter]:
        return self._seconds.labels(route, method), self._requests.labels(route, method, status)

    def appended(self, entries: int) -> None:
        """Entries acked."""
        self._appended.inc(entries)

    def render(self, gauges: Mapping[str, float], tails: int) -> bytes:
        """The text that Prometheus reads."""
        self._tails.set(tails)
        for name, value in gauges.items():
            if name not in self._node:
                self._node[name] = Gauge(name, name.replace("_", " "), registry=self.registry)
            self._node[name].set(value)
        return generate_latest(self.registry)


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
