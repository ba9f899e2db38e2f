"""Converts errors of all layers to problem+json (RFC 9457).

Invariant: a body never contains a stack trace, a path, a query or text of an entry; the log has the details under the
same ``trace_id``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...schemas.core.errors import CrewJournalError, NotFound, OverBudget
from ..problem import problem, problem_of, unexpected_problem

PROBLEM_TYPE: Final = "application/problem+json"
_RETRY_AFTER_S: Final = 1

log = structlog.get_logger(__name__)


def problem_response(
    status: int, title: str, detail: str, hint: str, trace_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A problem that is not in our error tree."""
    return Response(orjson.dumps(problem(status, title, detail, hint, trace_id)), status, headers, PROBLEM_TYPE)


def error_response(error: CrewJournalError, trace_id: str) -> Response:
    """An error of our error tree as an answer."""
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        wait_s = math.ceil(error.retry_after_s) if isinstance(error, OverBudget) else _RETRY_AFTER_S
        headers["Retry-After"] = str(wait_s)
    return Response(orjson.dumps(problem_of(error, trace_id)), error.status, headers, PROBLEM_TYPE)


def unexpected_response(trace_id: str) -> Response:
    """An unexpected exception as an answer without internal details."""
    return Response(
        orjson.dumps(unexpected_problem(trace_id)), HTTPStatus.INTERNAL_SERVER_ERROR, media_type=PROBLEM_TYPE
    )


def trace_id_of(request: Request) -> str:
    """The id under which this request is logged."""
    return str(getattr(request.state, "trace_id", ""))


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, CrewJournalError)
    trace_id = trace_id_of(request)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("http.failed", trace_id=trace_id, error=type(error).__name__, status=error.status)
    return error_response(error, trace_id)


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    trace_id = trace_id_of(request)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(NotFound("no such route", hint="GET /openapi.json lists them"), trace_id)
    status = HTTPStatus(error.status_code)
    headers, hint = error.headers, "GET /openapi.json describes every route"
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods(request))
        headers, hint = {"Allow": allowed}, f"use {allowed}"
    return problem_response(status, status.phrase, status.description or status.phrase, hint, trace_id, headers)


def _methods(request: Request) -> list[str]:
    """All methods of the path; the framework names only the methods of the first matching route."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"]):
            methods |= route.methods or set()
    return sorted(methods)


EXCEPTION_HANDLERS: Final = {CrewJournalError: _ours, HTTPException: _framework}
"""Every exception is answered with a problem; any other exception reaches the edge."""
