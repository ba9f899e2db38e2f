"""Reads request bodies and writes answers, with size limits, by orjson.

Invariant: a body that is too large, or exceeds the number of allowed bodies, is refused before it is in memory; JSON
that the journal cannot store is refused by the rules of ``services/problem``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson
import structlog
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from ...schemas.core.errors import (
    BodiesFull,
    CrewJournalError,
    EntryTooLarge,
    InvalidEntry,
    InvalidRequest,
    NotFound,
    OverBudget,
    Overloaded,
    TooManyBodies,
)
from ...schemas.core.operation import body_problems
from ..problem import parse_json, problem, problem_of, unexpected_problem

# Limits for requests in progress: bytes of bodies for the node and for each token, number of agents' requests.
#
# A body may have 32 MiB, and only this module limits how many bodies are in memory at once.
#
# Invariants: a body counts from its arrival until its request is answered. Small bodies never count, so that ordinary
# appends and recalls continue while large requests are refused. A request's share is always released at its end.


SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this size in bytes do not count; uvicorn reads that much ahead of the application anyway. 200 usual
entries.
"""


class BodyBudget:
    """Counts the bytes held by each token; used on the event loop.

    Args:
        node_bytes: The limit for all tokens; half of it is the limit for one token.
    """

    def __init__(self, node_bytes: int) -> None:
        self._node_bytes = node_bytes
        self._held = 0
        self._by_token: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    def change(self, token_id: str, by: int) -> None:
        """Hold ``by`` more bytes for a token, or fewer if it is negative.

        Raises:
            TooManyBodies: If the token's limit would be exceeded.
            BodiesFull: If the node's limit would be exceeded.
        """
        if by > 0 and self._by_token[token_id] + by > self._node_bytes // 2:
            raise TooManyBodies(
                f"the request bodies of this token already take {self._node_bytes // 2 >> 20} MiB",
                hint="send fewer large requests at once, or smaller ones (CREW_JOURNAL_BODIES_MB)",
            )
        if by > 0 and self._held + by > self._node_bytes:
            raise BodiesFull(
                f"the request bodies of all tokens already take {self._node_bytes >> 20} MiB",
                hint=f"try again later; bodies up to {SMALL_BYTES >> 10} KiB are always accepted",
            )
        self._held += by
        self._by_token[token_id] += by
        if not self._by_token[token_id]:
            del self._by_token[token_id]


class OpenRequests:
    """Counts the open requests of agents; used on the event loop.

    Args:
        per_token: The limit of a token; 0 for no limit.
        in_all: The limit of all tokens together.
    """

    def __init__(self, per_token: int, in_all: int) -> None:
        self._per_token = per_token
        self._in_all = in_all
        self._open = 0
        self._by_token: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """The number of open requests of agents."""
        return self._open

    def enter(self, token_id: str) -> None:
        """Count one more.

        Raises:
            OverBudget: If the token's limit is reached.
            Overloaded: If the limit of all tokens is reached.
        """
        if self._per_token and self._by_token[token_id] >= self._per_token:
            raise OverBudget(
                f"{self._per_token} requests of this token are open, its maximum; streams count",
                hint="close some, or wait for answers; an operator may raise CREW_JOURNAL_TOKEN_REQUESTS",
                budget="open requests",
                setting="CREW_JOURNAL_TOKEN_REQUESTS",
            )
        if self._open >= self._in_all:
            raise Overloaded(
                f"{self._open} requests of agents are open; the other connections are reserved",
                hint="try again later (CREW_JOURNAL_HTTP_CONNECTIONS)",
            )
        self._open += 1
        self._by_token[token_id] += 1

    def leave(self, token_id: str) -> None:
        """Count one less."""
        self._open -= 1
        self._by_token[token_id] -= 1
        if not self._by_token[token_id]:
            del self._by_token[token_id]


@dataclass(slots=True)
class Share:
    """One request's share of the budgets; ``requests`` is None if the request is not limited."""

    budget: BodyBudget
    token_id: str
    requests: OpenRequests | None = None
    size: int = 0

    def end(self) -> None:
        """Release the share."""
        self.hold(0)
        if self.requests is not None:
            self.requests.leave(self.token_id)
            self.requests = None

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes in all, nothing for a small body; raises as ``BodyBudget.change``."""
        counted = size if size > SMALL_BYTES else 0
        if counted != self.size:
            self.budget.change(self.token_id, counted - self.size)
            self.size = counted


_M = TypeVar("_M", bound=BaseModel)
READ_LIMITS: Final = 2
"""A body of up to this many times the limit is read and dropped before it is refused: a client that reads only after it
has sent all, such as Python's ``http.client``, would otherwise get a connection reset instead of the 413.
"""


async def read_json(request: Request, limit: int) -> Any:
    """The JSON value of the body.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        TooManyBodies: If the token's requests have reached their limit of bytes.
        BodiesFull: If all requests together have reached the limit of bytes.
        InvalidQuery: If it is not JSON.
        InvalidEntry: Names each field with an integer of more than 64 bits.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        if int(declared) <= READ_LIMITS * limit and "expect" not in request.headers:
            async for _ in request.stream():
                pass
        raise _too_large(limit)
    body = bytearray()
    share: Share | None = getattr(request.state, "share", None)
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
        if share is not None:
            share.hold(len(body))
    return parse_json(body)


async def read_fields(request: Request, limit: int) -> Any:
    """The fields of a request: the JSON value of the body, ``{}`` if there is no body.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        InvalidQuery: If it is not JSON.
        InvalidRequest: Names each field with an integer of more than 64 bits.
    """
    if request.headers.get("content-length") in (None, "0") and "transfer-encoding" not in request.headers:
        return {}
    try:
        return await read_json(request, limit)
    except InvalidEntry as error:
        raise InvalidRequest(error.problems) from None


async def read_model(request: Request, model: type[_M], limit: int) -> _M:
    """The body as a model; raises as ``read_fields``, and ``InvalidRequest`` naming every offending field."""
    try:
        return model.model_validate(await read_fields(request, limit))
    except ValidationError as error:
        raise InvalidRequest(body_problems(error, model)) from None


def answer(body: Any, status: int = HTTPStatus.OK) -> Response:
    """A JSON answer, of a model or of JSON values; four times as fast as pydantic writes a model."""
    return Response(orjson.dumps(body, _values), status, media_type="application/json")


_LEFT_OUT: Final[dict[type[Any], list[tuple[str, Callable[[Any], bool]]]]] = {}
"""Class of a model → its fields that are left out if a rule says so."""


def _values(model: Any) -> dict[str, Any]:
    """The fields of a model, without those that are left out if they have no value (``exclude_if``)."""
    values: dict[str, Any] = vars(model)
    kind = type(model)
    if (left_out := _LEFT_OUT.get(kind)) is None:
        fields = getattr(kind, "model_fields", {})
        left_out = _LEFT_OUT[kind] = [(name, rule) for name, field in fields.items() if (rule := field.exclude_if)]
    if left_out:
        absent = {name for name, is_absent in left_out if is_absent(values[name])}
        return {name: value for name, value in values.items() if name not in absent}
    return values


def _too_large(limit: int) -> EntryTooLarge:
    return EntryTooLarge(f"the body has more than {limit} bytes", hint="send smaller batches")


# Streamed answers: server-sent events and lines of JSON.


class Stream(StreamingResponse):
    """Sends what ``pieces`` yields until it ends or the client leaves."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        """Send all, then close the generator."""
        async with aclosing(self._pieces):
            await super().stream_response(send)


# Converts errors of all layers to problem+json (RFC 9457).
#
# Invariant: a body never contains a stack trace, a path, a query or text of an entry; the log has the details under the
# same ``trace_id``.


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
