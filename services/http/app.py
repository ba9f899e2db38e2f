"""The HTTP application.

Invariant: every route below ``/v1`` requires a token; every answer, errors included, passes through ``Edge``.
"""

from __future__ import annotations

import ipaddress
import random
import re
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...schemas.core.errors import InvalidQuery, NotAuthenticated
from ...schemas.core.ids import is_id
from ...schemas.toolsets import DEFAULT_TOOLSETS, tools_of
from ..mcp.server import PATH, ToolConnection, acting_as
from ..problem import log_unexpected
from .bodies import (
    EXCEPTION_HANDLERS,
    BodyBudget,
    OpenRequests,
    answer,
    error_response,
    problem_response,
    trace_id_of,
    unexpected_response,
)
from .operations import document, operation_routes
from .route import AppServices, RouteDescription, principal_of, services_of
from .routes_journal import JOURNAL_ROUTES
from .routes_memory_stores import MEMORY_STORE_ROUTES
from .routes_status import ADMIN_ROUTES, HIDDEN_ROUTES, STATUS_ROUTES, HttpMetrics

# The route of the Model Context Protocol, and the metadata about its tokens (RFC 9728).
#
# ``GET`` is answered with 405, which the protocol requires of a server that sends no messages by itself; an open, empty
# stream would only occupy a connection.


METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
CALL_ID: Final = "Crew-Call-Id"
"""Header of a proxy that may resend a call (``services/client/mcp_proxy``)."""
_CALL_ID_CHARS: Final = 60
PARAMETERS: Final = ("tools", "agent_id", "crew_id", "role", "workspace_id", "notes")
"""Query parameters: toolsets, the agent that an OWNER or ADMIN connects, its workspace, and whether a session gets the
agent's notes.
"""


class McpEndpoint:
    """ASGI endpoint: checks the token, the toolsets and the agent for which the caller acts, then serves the protocol."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        try:
            connection = _connection(request)
        except NotAuthenticated as error:
            refused = error_response(error, trace_id_of(request))
            refused.headers["WWW-Authenticate"] = f'Bearer resource_metadata="{_base(request)}{METADATA_PATH}{PATH}"'
            await refused(scope, receive, send)
            return
        await services_of(request).mcp.serve(connection, scope, receive, send)


def _connection(request: Request) -> ToolConnection:
    principal = principal_of(request)
    params = request.query_params
    for name in params:
        if name not in PARAMETERS:
            raise InvalidQuery(
                f"no parameter {name[:64]!r} here", hint=f"known are {', '.join(PARAMETERS)}", field=name
            )
    toolsets = tuple(dict.fromkeys((params.get("tools") or ",".join(DEFAULT_TOOLSETS)).split(",")))
    tools_of(toolsets)
    agent, crew, workspace = (params.get(name) or None for name in ("agent_id", "crew_id", "workspace_id"))
    role = params.get("role") or "agent"
    if role not in ("agent", "lead"):
        raise InvalidQuery("role is not valid", hint="use agent or lead", field="role")
    notes = params.get("notes") or "true"
    if notes not in ("true", "false"):
        raise InvalidQuery("notes is not valid", hint="use true or false", field="notes")
    if workspace is not None:
        principal.workspace(workspace)  # refused here, so that no call of the connection can use another workspace
    caller = acting_as(principal, agent, crew, workspace, leads=role == "lead")
    call_id = request.headers.get(CALL_ID)
    return ToolConnection(
        caller,
        toolsets,
        workspace if principal.role.administers else None,
        call_id if call_id is not None and is_id(call_id) and len(call_id) <= _CALL_ID_CHARS else None,
        notes=notes == "true",
    )


async def metadata(request: Request) -> Response:
    """Metadata for clients that have no token yet."""
    about = {
        "resource": _base(request) + PATH,
        "resource_name": "Crew Journal",
        "authorization_servers": [],
        "bearer_methods_supported": ["header"],
    }
    return answer(about)


def _base(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}"


MCP_ROUTES: Final = (
    Route(PATH, McpEndpoint(), methods=["POST", "DELETE"], name="mcp"),
    Route(METADATA_PATH, metadata, methods=["GET"], name="mcp_metadata"),
    Route(METADATA_PATH + PATH, metadata, methods=["GET"], name="mcp_metadata_of_path"),
)


# The outermost layer of every request: trace id, Host check, security headers, metrics, and the last error handler.


_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z", re.ASCII)
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]+)(:[0-9]*)?\Z", re.ASCII)
_CLIENT_LEFT: Final = 499
"""Status in the metrics for a request whose client disconnected before the answer; nginx uses the same number."""
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
"""Headers of all answers: an answer is private to a token and must not be cached, framed, sniffed or executed. Pages
set their own policy.
"""
_SECURITY_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class Edge:
    """ASGI middleware.

    Args:
        app: The wrapped application.
        hosts: Accepted host names besides addresses, lower case, without port; None accepts any.
        metrics: Counts requests.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, metrics: HttpMetrics) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(hosts)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        trace_id = _trace_id(headers)
        scope.setdefault("state", {})["trace_id"] = trace_id
        began = time.perf_counter()
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                added = [pair for pair in _SECURITY_HEADERS if pair[0] not in own]
                message["headers"] = [*message["headers"], (b"x-trace-id", trace_id.encode()), *added]
            await send(message)

        try:
            if self._hosts is not None and not _is_accepted(headers.get("host", ""), self._hosts):
                refusal = problem_response(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "Wrong host",
                    "the Host header does not name this service",
                    "use the address the service listens on, or allow the name in CREW_JOURNAL_HTTP_HOSTS",
                    trace_id,
                )
                await refusal(scope, receive, send_marked)
            else:
                await self._app(scope, receive, send_marked)
        except ClientDisconnect:
            status = status or _CLIENT_LEFT  # the client disconnected; this is not an error of the service
        except Exception as error:
            log_unexpected(error, trace_id)
            if status:
                raise  # the answer has begun, so that the only choice is to close the connection
            await unexpected_response(trace_id)(scope, receive, send_marked)
        finally:
            if (share := scope["state"].get("share")) is not None:
                share.end()
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.observe(route, scope["method"], status, time.perf_counter() - began)


def _trace_id(headers: Headers) -> str:
    match = _TRACEPARENT.match(headers.get("traceparent", ""))
    return (
        match[1] if match else f"{random.getrandbits(128) | 1:032x}"
    )  # a system call takes 40 µs while other threads are busy


def _is_accepted(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header is an address or an accepted name; only names can be used for DNS rebinding."""
    match = _HOST.match(host)
    if match is None:
        return False
    name = match[1]
    if name.lower() in names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


TITLE: Final = "Crew Journal"
API_VERSION: Final = "1"
SUMMARY: Final = "Memory for crews of agents: an append-only journal and recall from it."


class _Router(Router):
    """Finds a path without fields in a dict; matching the patterns of all routes takes a tenth of a short request."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        super().__init__(routes)
        fixed = [route for route in routes if isinstance(route, Route) and "{" not in route.path]
        self._fixed = {(method, route.path): route for route in reversed(fixed) for method in route.methods or ()}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = self._fixed.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await super().app(scope, receive, send)
            return
        _, matched = route.matches(scope)
        scope.update(matched)
        await route.handle(scope, receive, send)


class App(Starlette):
    """The application on top of ``services``; it opens and closes nothing itself.

    Args:
        services: Every use-case.
        pages: Routes for people, which are not part of the OpenAPI description.
    """

    def __init__(self, services: AppServices, pages: Sequence[BaseRoute] = ()) -> None:
        self._described: tuple[RouteDescription, ...] = (
            *JOURNAL_ROUTES,
            *operation_routes(),
            *ADMIN_ROUTES,
            *STATUS_ROUTES,
        )
        metrics = HttpMetrics()
        super().__init__(
            routes=[
                *(route.for_starlette() for route in (*self._described, *HIDDEN_ROUTES)),
                *MCP_ROUTES,
                *MEMORY_STORE_ROUTES,
                *pages,
            ],
            middleware=[Middleware(Edge, hosts=services.limits.hosts, metrics=metrics)],
            exception_handlers=EXCEPTION_HANDLERS,
        )
        self.router = _Router(self.routes)
        self.state.services = services
        self.state.metrics = metrics
        self.state.bodies = BodyBudget(services.limits.bodies_bytes)
        self.state.requests = OpenRequests(services.limits.token_requests, services.limits.agent_requests)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description of every route."""
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(self._described, title=TITLE, version=API_VERSION, summary=SUMMARY)
