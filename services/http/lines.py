"""Answers as lines of JSON: progress, then one with ``result`` or ``error``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ...schemas.errors import CrewJournalError
from ..problem import log_unexpected, problem_of, unexpected_problem
from .problems import trace_id_of
from .streaming import Stream

NDJSON_TYPE: Final = "application/x-ndjson"
LINES: Final[dict[str, Any]] = {
    "description": "Lines of JSON: progress, then one with result or error.",
    "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
}


def lines(request: Request, records: AsyncIterator[Mapping[str, Any]]) -> Response:
    """The records as they come; an error that ends them, foreseen or not, is the last line."""
    return Stream(_as_lines(records, trace_id_of(request)), NDJSON_TYPE)


async def _as_lines(records: AsyncIterator[Mapping[str, Any]], trace_id: str) -> AsyncGenerator[bytes]:
    try:
        async for record in records:
            yield orjson.dumps(dict(record)) + b"\n"
    except CrewJournalError as error:
        yield orjson.dumps({"error": problem_of(error, trace_id)}) + b"\n"
    except Exception as error:
        log_unexpected(error, trace_id)
        yield orjson.dumps({"error": unexpected_problem(trace_id)}) + b"\n"  # the answer has begun: no status says it
