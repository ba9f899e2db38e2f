"""``/v1/journal/{id}/relations`` and ``/graph``, ``/v1/agents``: how entries relate, and whose recall walks along it.

Invariant: what may be related, retracted or shown is decided by the use-cases, from the token.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, get_args

from fastapi import APIRouter, Request, Response

from crew_journal.schemas.api_relations import (
    REFUTES,
    AgentAnswer,
    AgentRequest,
    GraphAnswer,
    RelationAnswer,
    RelationRequest,
    RetractRequest,
)
from crew_journal.schemas.errors import InvalidQuery
from crew_journal.schemas.events.control import Relation
from crew_journal.schemas.rules.relations import CONTRADICTS
from crew_journal.services.http.auth import Asker, services_of
from crew_journal.services.http.bodies import answer_model, read_model
from crew_journal.services.http.openapi import COMMON, body_of, known_names, parameters, problems
from crew_journal.services.http.params import Params
from crew_journal.services.query.entries.graph import DEPTH_MAX, LIMIT_DEFAULT, LIMIT_MAX, GraphRequest

_NAMES: Final = (*get_args(Relation), REFUTES)
_GRAPH: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "depth": ("Hops.", {"type": "integer", "minimum": 1, "maximum": DEPTH_MAX, "default": 1}),
    "relation": ("Only edges of this relation.", {"type": "string", "enum": list(_NAMES)}),
    "limit": ("Most nodes.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}),
}
_GRAPH_NAMES: Final = known_names(COMMON, _GRAPH)
_AGENT_NAMES: Final = known_names(COMMON)


def relation_routes() -> APIRouter:
    """The routes of relations."""
    router = APIRouter(prefix="/v1/journal/{entry_id}", tags=["relations"])

    @router.post(
        "/relations",
        status_code=HTTPStatus.CREATED,
        summary="Say how an entry relates to another one",
        responses={201: {"model": RelationAnswer}, **problems(404, 413, 422)},
        openapi_extra=body_of(RelationRequest),
        response_class=Response,
    )
    async def relate(request: Request, principal: Asker, entry_id: str) -> Response:
        """Outweighs what reactors find. AGENT: contradicts and supports, among entries it may read."""
        services = services_of(request)
        asked = await read_model(request, RelationRequest, services.limits.body_bytes)
        return answer_model(await services.relations.relate(principal, entry_id, asked), HTTPStatus.CREATED)

    @router.post(
        "/relations/retract",
        summary="Say that a relation does not hold any more",
        responses={200: {"model": RelationAnswer}, **problems(404, 413, 422)},
        openapi_extra=body_of(RetractRequest),
        response_class=Response,
    )
    async def retract(request: Request, principal: Asker, entry_id: str) -> Response:
        """For OWNER, ADMIN and whoever asserted it; a reactor does not bring it back, an assertion does."""
        services = services_of(request)
        asked = await read_model(request, RetractRequest, services.limits.body_bytes)
        return answer_model(await services.relations.retract(principal, entry_id, asked))

    @router.get(
        "/graph",
        summary="The neighbourhood of an entry",
        responses={200: {"model": GraphAnswer}, **problems(404)},
        openapi_extra=parameters(COMMON, _GRAPH),
        response_class=Response,
    )
    async def graph(request: Request, principal: Asker, entry_id: str) -> Response:
        """Entries within some hops that the token may read, and the edges between them."""
        params = Params(request, _GRAPH_NAMES)
        depth, limit = params.whole("depth"), params.whole("limit")
        asked = GraphRequest(
            1 if depth is None else depth, _relation(params.text("relation")), LIMIT_DEFAULT if limit is None else limit
        )
        found = await services_of(request).graph.graph(
            principal, entry_id, asked, workspace=params.text("workspace_id"), min_seq=params.whole("min_seq")
        )
        return answer_model(found)

    return router


def agent_routes() -> APIRouter:
    """The routes of agents."""
    router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["agents"])

    @router.put(
        "",
        summary="Register an agent's settings",
        responses={200: {"model": AgentAnswer}, **problems(413, 422)},
        openapi_extra=body_of(AgentRequest),
        response_class=Response,
    )
    async def register(request: Request, principal: Asker, agent_id: str) -> Response:
        """For OWNER and ADMIN. Whole: what is left out has its default."""
        services = services_of(request)
        asked = await read_model(request, AgentRequest, services.limits.body_bytes)
        return answer_model(await services.agents.register(principal, agent_id, asked))

    @router.get(
        "",
        summary="Get an agent's settings",
        responses={200: {"model": AgentAnswer}, **problems(404)},
        openapi_extra=parameters(COMMON),
        response_class=Response,
    )
    async def get(request: Request, principal: Asker, agent_id: str) -> Response:
        """OWNER and ADMIN any agent's, others their own."""
        params = Params(request, _AGENT_NAMES)
        found = await services_of(request).agents.get(
            principal, agent_id, workspace=params.text("workspace_id"), min_seq=params.whole("min_seq")
        )
        return answer_model(found)

    return router


def _relation(name: str | None) -> str | None:
    if name is not None and name not in _NAMES:
        raise InvalidQuery("no such relation", hint=f"use {', '.join(_NAMES)}", field="relation")
    return CONTRADICTS if name == REFUTES else name
