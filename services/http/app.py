"""The HTTP application, put together: one factory, no global.

Invariant: every route below ``/v1`` asks for a token; every answer, errors included, passes the edge.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from crew_journal.services.http.budget import BodyBudget
from crew_journal.services.http.edge import Edge
from crew_journal.services.http.metrics import HttpMetrics
from crew_journal.services.http.openapi import paths_of
from crew_journal.services.http.operations import operation_routes
from crew_journal.services.http.ports import AppServices
from crew_journal.services.http.problems import install_handlers
from crew_journal.services.http.routes_admin import admin_routes
from crew_journal.services.http.routes_embeddings import embedding_routes
from crew_journal.services.http.routes_journal import journal_routes
from crew_journal.services.http.routes_status import status_routes

TITLE: Final = "Crew Journal"
API_VERSION: Final = "1"


def create_app(services: AppServices) -> FastAPI:
    """The application over these use-cases; it opens and closes nothing itself."""
    app = FastAPI(
        title=TITLE,
        version=API_VERSION,
        summary="Memory for crews of agents: an append-only journal and recall from it.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.services = services
    app.state.metrics = HttpMetrics()
    app.state.bodies = BodyBudget(services.limits.bodies_bytes)
    app.state.routes = []
    for router in (
        journal_routes(),
        status_routes(),
        admin_routes(),
        embedding_routes(),
    ):
        app.include_router(router)
        app.state.routes += router.routes
    described = operation_routes()
    routes = [route.for_starlette() for route in described]
    app.router.routes += routes
    app.state.routes += routes
    document = app.openapi()
    document["paths"] |= paths_of(described)
    install_handlers(app)
    app.add_middleware(Edge, hosts=services.limits.hosts, metrics=app.state.metrics)
    return app
