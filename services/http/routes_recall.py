"""``POST /v1/recall``.

Invariant: whose memories are searched follows from the token; the body may only narrow it (``services.query.scope``).
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from crew_journal.schemas.errors import InvalidQuery
from crew_journal.services.http.auth import Asker, services_of
from crew_journal.services.http.bodies import read_json
from crew_journal.services.http.openapi import body, inlined, problems
from crew_journal.services.query.requests import RecallRequest, RecallResponse, parse_recall


def recall_routes() -> APIRouter:
    """The routes of recall."""
    router = APIRouter(prefix="/v1/recall", tags=["recall"])

    @router.post(
        "",
        summary="Recall what bears on a question",
        responses={200: {"model": RecallResponse}, **problems(404, 413)},
        openapi_extra=body(inlined(RecallRequest.model_json_schema())),
        response_class=Response,
    )
    async def recall(request: Request, principal: Asker) -> Response:
        """Hybrid over the lexical and the dense arm; goes on with the lexical one if the embedder is down."""
        services = services_of(request)
        asked = await read_json(request, services.limits.body_bytes)
        if not isinstance(asked, dict):
            raise InvalidQuery("the body is no JSON object", hint='send {"query": "…"}', field="body")
        found = await services.recall.recall(principal, parse_recall(asked))
        return Response(found.model_dump_json(), media_type="application/json")

    return router
