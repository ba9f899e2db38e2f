"""The HTTP application.

Invariant: every route below ``/v1`` requires a token; every answer, errors included, passes through ``edge.Edge``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from .budget import BodyBudget, OpenRequests
from .edge import Edge
from .metrics import HttpMetrics
from .openapi import document
from .operations import operation_routes
from .ports import AppServices
from .problems import EXCEPTION_HANDLERS
from .route import RouteDescription
from .routes_admin import ADMIN_ROUTES
from .routes_journal import JOURNAL_ROUTES
from .routes_mcp import MCP_ROUTES
from .routes_memory_stores import MEMORY_STORE_ROUTES
from .routes_status import HIDDEN_ROUTES, STATUS_ROUTES

TITLE: Final = "Crew Journal"
API_VERSION: Final = "1"
SUMMARY: Final = "Memory for crews of agents: an append-only journal and recall from it."


class _Router(Router):
    """Looks a path without fields up; comparing it with the patterns of all routes takes a tenth of a short request."""

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
        pages: Routes for people, which are not in the description.
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
