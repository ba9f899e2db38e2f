"""``/v1/journal``: append, list, count, get, and the live tail.

Invariant: bodies are parsed and answers written with orjson alone (no model on the hot path); the use-cases decide by
the token what is allowed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ...schemas.api import AppendAnswer, CountAnswer, EntriesAnswer, EntryAnswer
from ...schemas.core.limits import LIST_LIMIT_DEFAULT
from ...schemas.core.principal import Principal
from ..desk import RUN
from ..entries.filters import Cursor, parse_filters
from ..entries.live_tail import Cut, Gap, TailEntry, TailEvent
from ..entries.queries import JournalQueries
from ..journal.intake.append import append_submitted
from ..telemetry import APPEND
from .bodies import Stream, answer, read_json
from .operations import (
    ARCHIVE,
    AS_OF,
    COMMON,
    LAST_EVENT_ID,
    PAGING,
    WORKSPACE,
    answered,
    json_body,
    known_names,
    parameters,
    submission_schema,
)
from .route import Params, RouteDescription, services_of, whole_number
from .routes_status import HttpMetrics

# The live tail as server-sent events (WHATWG HTML, "Server-sent events").


SSE_TYPE: Final = "text/event-stream"
_RETRY_MS: Final = 1_000
"""Milliseconds that a browser waits before it reconnects."""


def frame(event: TailEvent) -> bytes:
    """Encode one event; encoded JSON never contains a line break."""
    if isinstance(event, TailEntry):
        return b"id: %d\nevent: entry\ndata: %s\n\n" % (event.entry.seq, event.entry.to_json())
    if isinstance(event, Gap):
        body = orjson.dumps({"missed": event.missed, "after": event.after, "before": event.before})
        return b"event: gap\ndata: %s\n\n" % body
    if isinstance(event, Cut):
        body = orjson.dumps({"reason": event.reason, "resume_after": event.resume_after})
        return b"id: %d\nevent: cut\ndata: %s\n\n" % (event.resume_after, body)
    return b": still here\n\n"


async def frames(
    events: AsyncGenerator[TailEvent], counts: Callable[[], bool], after: int | None
) -> AsyncGenerator[bytes]:
    """The stream of a tail; ends as soon as the token is no longer valid.

    Args:
        events: The tail.
        counts: Returns whether the caller's token is still valid.
        after: The sequence after which the tail resumes.
    """
    last = after or 0
    async with aclosing(events):
        yield b"retry: %d\n\n" % _RETRY_MS
        async for event in events:
            if not counts():
                yield frame(Cut("revoked", last))
                return
            if isinstance(event, TailEntry):
                last = event.entry.seq
            yield frame(event)


_LIST: Final = known_names(COMMON, AS_OF, PAGING, ARCHIVE, filters=True)
_GET: Final = known_names(COMMON, AS_OF, ARCHIVE)
_STREAM: Final = known_names(("workspace_id",), LAST_EVENT_ID, filters=True)
_STREAM_ANSWER: Final[dict[str, Any]] = {
    "200": {
        "description": "Events entry, gap and cut; the id of each is a sequence.",
        "content": {SSE_TYPE: {"schema": {"type": "string"}}},
    }
}
_EXAMPLE: Final = {"entry_type": "run.completed", "summary": "Nightly restore drill passed in 14 minutes"}


@asynccontextmanager
async def _queries(request: Request, params: Params) -> AsyncIterator[tuple[JournalQueries, int | None]]:
    """The entries of now with ``min_seq``, or those as of the moment that the request names."""
    services, as_of, min_seq = services_of(request), params.text("as_of"), params.whole("min_seq")
    if as_of is None:
        yield services.queries, min_seq
        return
    async with services.desk.at(as_of, "as_of", min_seq) as moment:
        yield moment.queries, None


async def append(request: Request, principal: Principal) -> Response:
    """Append one entry or a list of them."""
    Params(request, frozenset())  # a parameter such as workspace_id would be ignored: entries name theirs
    services = services_of(request)
    submitted = await read_json(request, services.limits.body_bytes)
    if services.telemetry is None:
        receipts = await append_submitted(services.journal, principal, submitted)
    else:
        first = submitted[0] if isinstance(submitted, list) and submitted else submitted
        fields = first if isinstance(first, dict) else {}
        with services.telemetry.operation(APPEND, principal, fields, RUN.get()) as observe:
            receipts = await append_submitted(services.journal, principal, submitted)
            observe(AppendAnswer.model_validate({"entries": receipts}))
    metrics: HttpMetrics = request.app.state.metrics
    metrics.appended(len(receipts))
    return answer({"entries": receipts}, HTTPStatus.CREATED)


async def list_entries(request: Request, principal: Principal) -> Response:
    """A page of entries."""
    params = Params(request, _LIST)
    cursor, limit = params.text("cursor"), params.whole("limit")
    async with _queries(request, params) as (queries, min_seq):
        page = await queries.list(
            principal,
            parse_filters(params.items),
            workspace=params.text("workspace_id"),
            cursor=None if cursor is None else Cursor.parse(cursor),
            after_seq=params.whole("after_seq"),
            limit=LIST_LIMIT_DEFAULT if limit is None else limit,
            min_seq=min_seq,
            include_archive=params.truth("include_archive", absent=False),
        )
    return answer(
        {
            "entries": [entry.record for entry in page.entries],
            "next_cursor": None if page.next_cursor is None else str(page.next_cursor),
            "view_seq": page.view_seq,
        }
    )


async def count(request: Request, principal: Principal) -> Response:
    """The number of entries that pass the filters."""
    params = Params(request, _LIST)
    async with _queries(request, params) as (queries, min_seq):
        counted = await queries.count(
            principal,
            parse_filters(params.items),
            workspace=params.text("workspace_id"),
            min_seq=min_seq,
            include_archive=params.truth("include_archive", absent=False),
        )
    return answer({"count": counted.count, "view_seq": counted.view_seq})


async def stream(request: Request, principal: Principal) -> Response:
    """Entries as they come."""
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
    return Stream(pieces, SSE_TYPE)


async def get(request: Request, principal: Principal) -> Response:
    """One entry."""
    params = Params(request, _GET)
    async with _queries(request, params) as (queries, min_seq):
        stored = await queries.get(
            principal,
            request.path_params["entry_id"],
            workspace=params.text("workspace_id"),
            min_seq=min_seq,
            include_archive=params.truth("include_archive", absent=True),
        )
    return answer({**stored.entry.record, "view_seq": stored.view_seq})


_ONE: Final = (
    "An id that is unknown and one that the token may not see are the same 404. `count` and `stream` are valid ids and "
    "routes as well; `/v1/journal/{entry_id}/entry` finds every id."
)
JOURNAL_ROUTES: Final = (
    RouteDescription(
        route="POST /v1/journal",
        name="append",
        tag="journal",
        summary="Append one entry or a list of them",
        description="All or nothing; returns after the broker's ack. An exact repeat of an id returns the first result. "
        "Whole numbers from -2^63 to 2^64 - 1 are kept exactly; those beyond are refused by their field: send them as text.",
        serve=append,
        answers=partial(answered, AppendAnswer, HTTPStatus.CREATED),
        errors=(409, 413, 422),
        extra=lambda: json_body(submission_schema(), required=True, example=_EXAMPLE),
    ),
    RouteDescription(
        route="GET /v1/journal",
        name="list_entries",
        tag="journal",
        summary="List entries, newest first",
        description="Filters are joined by AND; `next_cursor` is there only if the page is full. "
        "Archived entries are left out unless `include_archive` is true.",
        serve=list_entries,
        answers=partial(answered, EntriesAnswer),
        errors=(404,),
        extra=parameters(COMMON, AS_OF, PAGING, ARCHIVE, filters=True),
    ),
    RouteDescription(
        route="GET /v1/journal/count",
        name="count",
        tag="journal",
        summary="Count entries",
        description="The same filters as the list; `cursor` and `limit` are accepted and ignored.",
        serve=count,
        answers=partial(answered, CountAnswer),
        errors=(404,),
        extra=parameters(COMMON, AS_OF, PAGING, ARCHIVE, filters=True),
    ),
    RouteDescription(
        route="GET /v1/journal/stream",
        name="stream",
        tag="journal",
        summary="Watch entries as they come (server-sent events)",
        description="Begins with the newest 50, or after `Last-Event-ID`; quiet telemetry only if `types` names it.",
        serve=stream,
        answers=_STREAM_ANSWER,
        errors=(429,),
        extra=parameters(WORKSPACE, LAST_EVENT_ID, filters=True),
    ),
    RouteDescription(
        route="GET /v1/journal/{entry_id}",
        name="get_entry",
        tag="journal",
        summary="Get one entry, unless its id is count or stream",
        description=_ONE,
        serve=get,
        answers=partial(answered, EntryAnswer),
        errors=(404,),
        extra=parameters(COMMON, AS_OF, ARCHIVE, path=("entry_id",)),
    ),
    RouteDescription(
        route="GET /v1/journal/{entry_id}/entry",
        name="get",
        tag="journal",
        summary="Get one entry, whatever its id",
        description=_ONE,
        serve=get,
        answers=partial(answered, EntryAnswer),
        errors=(404,),
        extra=parameters(COMMON, AS_OF, ARCHIVE, path=("entry_id",)),
    ),
)
"""``count`` and ``stream`` before ``{entry_id}``: the first route that matches serves."""
