"""``POST /v1/recall``, ``/render``: the same as text for a prompt, and ``/{receipt}/used``: what of it reached one.

Invariant: whose memories are searched follows from the token; the body may only narrow it (``services.query.hot.scope``).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from crew_journal.schemas.api import UsedAnswer, UsedRequest
from crew_journal.schemas.errors import InvalidEntry, InvalidQuery
from crew_journal.services.http.auth import Asker, services_of
from crew_journal.services.http.bodies import answer, answer_model, read_json, read_model
from crew_journal.services.http.openapi import body_of, problems
from crew_journal.services.query.render_requests import RenderRequest, RenderResponse, parse_render
from crew_journal.services.query.requests import RecallRequest, RecallResponse, parse_recall


def recall_routes() -> APIRouter:
    """The routes of recall."""
    router = APIRouter(prefix="/v1/recall", tags=["recall"])

    @router.post(
        "",
        summary="Recall what bears on a question",
        responses={200: {"model": RecallResponse}, **problems(404, 413)},
        openapi_extra=body_of(RecallRequest),
        response_class=Response,
    )
    async def recall(request: Request, principal: Asker) -> Response:
        """Hybrid over the lexical and the dense arm; goes on with the lexical one if the embedder is down."""
        services = services_of(request)
        asked = await _object(request, services.limits.body_bytes)
        found = await services.recall.recall(principal, parse_recall(asked))
        return answer_model(found)

    @router.post(
        "/render",
        summary="Recall as a block of text for a prompt",
        responses={200: {"model": RenderResponse}, **problems(404, 413)},
        openapi_extra=body_of(RenderRequest),
        response_class=Response,
    )
    async def render(request: Request, principal: Asker) -> Response:
        """Wrapped as untrusted hints, escaped, scanned for injections, whole lines within ``max_chars``."""
        services = services_of(request)
        asked = await _object(request, services.limits.body_bytes)
        rendered = await services.render.render(principal, parse_render(asked))
        return answer_model(rendered)

    @router.post(
        "/{receipt}/used",
        summary="Say which hits of a recall reached a prompt",
        responses={200: {"model": UsedAnswer}, **problems(404, 413, 422)},
        openapi_extra=body_of(UsedRequest, required=False),
        response_class=Response,
    )
    async def used(request: Request, principal: Asker, receipt: str) -> Response:
        """All hits, or those named; a receipt counts once. What is used keeps its importance longer."""
        services = services_of(request)
        asked = await read_model(request, UsedRequest, services.limits.body_bytes, optional=True)
        done = services.references.used(principal, receipt, asked.entry_ids)
        return answer({"receipt": done.receipt, "counted": done.counted, "already": done.already})

    return router


async def _object(request: Request, limit: int) -> dict[str, Any]:
    try:
        asked = await read_json(request, limit)
    except InvalidEntry as error:  # a question is no entry
        first = error.problems[0]
        raise InvalidQuery(f"{first.field}: {first.problem}", hint=first.fix, field=first.field) from None
    if not isinstance(asked, dict):
        raise InvalidQuery("the body is no JSON object", hint='send {"query": "…"}', field="body")
    return asked
