"""``/v1/journal``: append, list, count, get, and the live tail.

Invariant: bodies are parsed and answers written with orjson alone (no model on the hot path); what is allowed is decided
by the use-cases, from the token.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from crew_journal.schemas.api import AppendAnswer, CountAnswer, EntriesAnswer, EntryAnswer
from crew_journal.services.http.auth import Asker, services_of
from crew_journal.services.http.bodies import answer, read_json
from crew_journal.services.http.metrics import HttpMetrics
from crew_journal.services.http.openapi import (
    COMMON,
    LAST_EVENT_ID,
    PAGING,
    WORKSPACE,
    body,
    known_names,
    parameters,
    problems,
    submission_schema,
)
from crew_journal.services.http.params import Params, whole_number
from crew_journal.services.http.sse import SSE_TYPE, frames
from crew_journal.services.http.streaming import BoundedStream
from crew_journal.services.journal.submitted import append_submitted
from crew_journal.services.query.entries.filters import parse_filters

_LIST: Final = known_names(COMMON, PAGING, filters=True)
_COUNT: Final = known_names(COMMON, PAGING, filters=True)
_GET: Final = known_names(COMMON)
_STREAM: Final = known_names(("workspace_id",), LAST_EVENT_ID, filters=True)
_STREAM_ANSWER: Final[dict[str, Any]] = {
    "description": "Events entry, gap and cut; the id of each is a sequence.",
    "content": {SSE_TYPE: {"schema": {"type": "string"}}},
}


def journal_routes() -> APIRouter:
    """The routes of the journal."""
    router = APIRouter(prefix="/v1/journal", tags=["journal"])

    @router.post(
        "",
        status_code=HTTPStatus.CREATED,
        summary="Append one entry or a list of them",
        responses={201: {"model": AppendAnswer}, **problems(409, 413, 422)},
        openapi_extra=body(submission_schema()),
        response_class=Response,
    )
    async def append(request: Request, principal: Asker) -> Response:
        """All or nothing; returns after the broker's ack. An exact repeat of an id returns the first result.

        Whole numbers from -2^63 to 2^64 - 1 are kept exactly, those beyond are refused by their field: send them as text.
        """
        services = services_of(request)
        submitted = await read_json(request, services.limits.body_bytes)
        receipts = await append_submitted(services.journal, principal, submitted)
        metrics: HttpMetrics = request.app.state.metrics
        metrics.appended(len(receipts))
        return answer({"entries": receipts}, HTTPStatus.CREATED)

    @router.get(
        "",
        summary="List entries, newest first",
        responses={200: {"model": EntriesAnswer}, **problems()},
        openapi_extra=parameters(COMMON, PAGING, filters=True),
        response_class=Response,
    )
    async def list_entries(request: Request, principal: Asker) -> Response:
        """Filters are joined by AND; ``next_cursor`` is there only if the page is full."""
        params = Params(request, _LIST)
        page = await services_of(request).queries.list(
            principal,
            parse_filters(params.items),
            workspace=params.text("workspace_id"),
            cursor=params.cursor,
            limit=params.limit,
            min_seq=params.whole("min_seq"),
        )
        return answer(
            {
                "entries": [entry.record for entry in page.entries],
                "next_cursor": None if page.next_cursor is None else str(page.next_cursor),
                "view_seq": page.view_seq,
            }
        )

    @router.get(
        "/count",
        summary="Count entries",
        responses={200: {"model": CountAnswer}, **problems()},
        openapi_extra=parameters(COMMON, PAGING, filters=True),
        response_class=Response,
    )
    async def count(request: Request, principal: Asker) -> Response:
        """The same filters as the list; ``cursor`` and ``limit`` are accepted and do not count."""
        params = Params(request, _COUNT)
        counted = await services_of(request).queries.count(
            principal,
            parse_filters(params.items),
            workspace=params.text("workspace_id"),
            min_seq=params.whole("min_seq"),
        )
        return answer({"count": counted.count, "view_seq": counted.view_seq})

    @router.get(
        "/stream",
        summary="Watch entries as they come (server-sent events)",
        responses={200: _STREAM_ANSWER, **problems(429)},
        openapi_extra=parameters(WORKSPACE, LAST_EVENT_ID, filters=True),
        response_class=Response,
    )
    async def stream(request: Request, principal: Asker) -> Response:
        """Begins with the newest 50, or after ``Last-Event-ID``; quiet telemetry only if ``types`` names it."""
        params = Params(request, _STREAM)
        services = services_of(request)
        resume = request.headers.get("last-event-id", "").strip()
        after = whole_number("Last-Event-ID", resume) if resume else params.whole("last_event_id")
        workspace = principal.workspace(params.text("workspace_id"))
        services.tail.admit(principal)
        await services.tail.resumes(after)
        events = services.tail.watch(
            principal,
            parse_filters(params.items),
            workspace=workspace,
            after=after,
            heartbeat_s=services.limits.heartbeat_s,
        )
        pieces = frames(events, lambda: services.tokens.counts(principal.token_id), after)
        return BoundedStream(pieces, SSE_TYPE, services.limits.send_timeout_s)

    @router.get(
        "/{entry_id}",
        summary="Get one entry, unless its id is count or stream",
        responses={200: {"model": EntryAnswer}, **problems(404)},
        openapi_extra=parameters(COMMON),
        response_class=Response,
    )
    @router.get(
        "/{entry_id}/entry",
        summary="Get one entry, whatever its id",
        responses={200: {"model": EntryAnswer}, **problems(404)},
        openapi_extra=parameters(COMMON),
        response_class=Response,
    )
    async def get(request: Request, principal: Asker, entry_id: str) -> Response:
        """An id that is unknown and one that the token may not see are the same 404.

        ``count`` and ``stream`` are valid ids and routes as well: no route stands beside ``{entry_id}/…``, so no id is
        hidden there. The client asks there only.
        """
        params = Params(request, _GET)
        found = await services_of(request).queries.get(
            principal, entry_id, workspace=params.text("workspace_id"), min_seq=params.whole("min_seq")
        )
        return answer({**found.entry.record, "view_seq": found.view_seq})

    return router
