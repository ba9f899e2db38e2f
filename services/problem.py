"""Faults as bodies of answers (problem+json, RFC 9457), and the JSON of requests as values, over HTTP or NATS.

Invariant: a body never holds a stack, a path, a query or text of an entry; what happened inside is in the log under the
same ``trace_id``. ``facts`` of a document that would be too large contain its current text for a caller that may write
it.
"""

from __future__ import annotations

import json
import math
import traceback
from http import HTTPStatus
from typing import Any, Final

import orjson
import structlog
from pydantic_core import from_json

from ..schemas.core.errors import CapExceeded, CrewJournalError, FieldProblem, InvalidEntry, InvalidQuery, OverBudget

_MAX_PROBLEMS: Final = 200
"""Offending fields listed in one answer; a batch of 1,000 broken entries needs no more to be understood."""

log = structlog.get_logger(__name__)


def problem_of(error: CrewJournalError, trace_id: str) -> dict[str, Any]:
    """The body of one of our errors."""
    body: dict[str, Any] = {
        **(error.facts if isinstance(error, CapExceeded) else {}),
        "type": "about:blank",
        "code": type(error).__name__,
        "title": error.title,
        "status": error.status,
        "detail": error.message,
        "hint": error.hint,
        "trace_id": trace_id,
    }
    if error.field is not None:
        body["field"] = error.field
    if isinstance(error, OverBudget):
        body |= {"budget": error.budget, "setting": error.setting, "retry_after_s": math.ceil(error.retry_after_s)}
    if isinstance(error, InvalidEntry):
        body["problems"] = [problem.as_dict() for problem in error.problems[:_MAX_PROBLEMS]]
    return body


def problem(status: int, title: str, detail: str, hint: str, trace_id: str) -> dict[str, Any]:
    """A body for an error outside of our error tree."""
    return {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "hint": hint,
        "trace_id": trace_id,
    }


def unexpected_problem(trace_id: str) -> dict[str, Any]:
    """The body of an answer to a request that failed for a fault of ours."""
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Crew Journal failed",
        "an unexpected fault; it is in the log",
        f"look for trace_id {trace_id} in the service's log and report it",
        trace_id,
    )


def log_unexpected(error: Exception, trace_id: str) -> None:
    """Log where it happened; no message and no locals: they may hold entries."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("request.unexpected", trace_id=trace_id, error=type(error).__name__, frames=frames)


# JSON that is submitted, over HTTP or NATS, as a value.


_DIGITS_AS_ZERO: Final = bytes(ord("0") if chr(code).isdigit() and code < 128 else code for code in range(256))
_BEYOND_UNSIGNED: Final = b"0" * len(str(2**64))
_NUMBER_FIX: Final = "send it as text, or a whole number from -2^63 to 2^64 - 1"
_BEYOND_SIGNED: Final = b"-" + b"0" * len(str(2**63))


def parse_json(body: bytes | bytearray) -> Any:
    """The JSON value of a body.

    Raises:
        InvalidQuery: If it is not valid JSON.
        InvalidEntry: Naming each field that holds a number that the journal cannot keep.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "infinity" in error.msg:  # a number that no double holds, like 1e400
            _refuse_large_numbers(body)
        raise InvalidQuery(
            f"the body is not valid JSON: line {error.lineno}, column {error.colno}",
            hint="send UTF-8 JSON without NaN, comments and trailing commas",
            field="body",
        ) from None
    if _may_exceed_64_bits(body):
        _refuse_large_numbers(body)
    return value


def _may_exceed_64_bits(body: bytes | bytearray) -> bool:
    """Whether there is a run of digits as long as an integer beyond 64 bits; texts may have one, too.

    Costs 0.7 ns a byte, half of what reading the body does.
    """
    shape = body.translate(_DIGITS_AS_ZERO)
    return _BEYOND_UNSIGNED in shape or _BEYOND_SIGNED in shape


def _refuse_large_numbers(body: bytes | bytearray) -> None:
    """Parse the body again with numbers of any size, and name the fields with a number that is too large."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        detail = "the body is nested too deeply, or holds a number of thousands of digits"
        hint = "flatten it to 190 levels at most; send such numbers as text"
        raise InvalidQuery(detail, hint=hint, field="body") from None
    parts = [(f"entries[{i}].", part) for i, part in enumerate(value)] if isinstance(value, list) else [("", value)]
    problems = tuple(
        FieldProblem(f"{prefix}{name if name.isascii() and name.isprintable() else 'entry'}", problem, _NUMBER_FIX)
        for prefix, part in parts
        for name, field in (part.items() if isinstance(part, dict) else [("value", part)])
        if (problem := _number_problem(field)) is not None
    )
    if problems:
        raise InvalidEntry(problems)


def _number_problem(value: Any) -> str | None:
    try:
        json.dumps(value, allow_nan=False)
        orjson.dumps(value)
    except ValueError:
        return "holds a number beyond 1.8e308"
    except TypeError:
        return "holds an integer of more than 64 bits"
    return None
