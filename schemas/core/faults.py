"""problem+json → the error tree of ``schemas.core.errors``, so that callers catch the same errors as the service.

Invariant: every status of 400 or more raises; a status without an error in the tree raises the root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from . import errors as errors_core
from . import errors as errors_memory
from .errors import (
    CapExceeded,
    CrewJournalError,
    EntryConflict,
    EntryTooLarge,
    FieldProblem,
    InvalidEntry,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OverBudget,
    Unavailable,
)

_BY_STATUS: dict[int, type[CrewJournalError]] = {
    400: InvalidQuery,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: EntryConflict,
    413: EntryTooLarge,
    422: InvalidEntry,
    503: Unavailable,
}


_OURS: Final = frozenset({errors_core.__name__, errors_memory.__name__})
"""Modules of the tree; subclasses elsewhere are not known to clients."""
_MEMBERS: Final = frozenset({"type", "code", "title", "status", "detail", "hint", "trace_id", "field"})
"""JSON members that every problem has."""


def error_of(status: int, problem: Mapping[str, Any]) -> CrewJournalError:
    """The error class is chosen by the problem's ``code``, else by its title, else by its status."""
    known = [error_class for error_class in _tree(CrewJournalError) if error_class.__module__ in _OURS]
    kind = {error_class.__name__: error_class for error_class in known}.get(str(problem.get("code")))
    if kind is None:
        kind = {error_class.title: error_class for error_class in known if "title" in vars(error_class)}.get(
            str(problem.get("title"))
        )
    if kind is None or kind.status != status:
        kind = _BY_STATUS.get(status, CrewJournalError)
    detail = str(problem.get("detail") or f"the service answered {status}")
    error: CrewJournalError
    if issubclass(kind, InvalidEntry):
        fields = problem.get("problems") or [{"field": problem.get("field") or "entry", "problem": detail}]
        error = InvalidEntry(
            tuple(FieldProblem(str(f["field"]), str(f["problem"]), str(f.get("fix", ""))) for f in fields)
        )
    elif issubclass(kind, CapExceeded):
        facts = {name: value for name, value in problem.items() if name not in _MEMBERS}
        error = kind(detail, hint=str(problem.get("hint") or ""), field=problem.get("field"), facts=facts)
    elif issubclass(kind, OverBudget):
        error = kind(
            detail,
            hint=str(problem.get("hint") or ""),
            budget=str(problem.get("budget") or ""),
            setting=str(problem.get("setting") or ""),
            retry_after_s=_seconds(problem.get("retry_after_s")),
        )
    else:
        error = kind(detail, hint=str(problem.get("hint") or ""), field=problem.get("field"))
    if problem.get("trace_id"):
        error.add_note(f"trace_id {problem['trace_id']}")
    return error


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < math.inf else 1.0


def _tree(kind: type[CrewJournalError]) -> Iterator[type[CrewJournalError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)
