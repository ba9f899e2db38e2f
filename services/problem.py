"""A fault as the body of an answer (problem+json, RFC 9457), over HTTP or NATS.

Invariant: a body never holds a stack, a path, a query or text of an entry; what happened inside is in the log under the
same ``trace_id``. ``facts`` of a document that would be too large hold its present text for a caller that may write it.
"""

from __future__ import annotations

import math
import traceback
from http import HTTPStatus
from typing import Any, Final

import structlog

from ..schemas.errors import CapExceeded, CrewJournalError, InvalidEntry, OverBudget

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
