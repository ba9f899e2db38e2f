"""Turns validation errors of a request (not of an entry) into a list of problems.

Invariant: each problem names its field and a fix, and never quotes a submitted value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from .entry import problems_of
from .errors import FieldProblem
from .grants import SPEAKER_PATTERN, TYPE_PATTERN

_FIXES: Final = (
    ("string_type", "send a string"),
    ("string_too_short", "send at least one character"),
    ("string_too_long", "send fewer characters"),
    ("string_pattern", "use 1 to 64 of A-Z a-z 0-9 _ - (not just _)"),
    ("int_", "send an integer"),
    ("float_", "send a number"),
    ("finite_", "send a finite number"),
    ("bool_", "send true or false"),
    ("dict_", "send a JSON object"),
    ("tuple_", "send a JSON array"),
    ("list_", "send a JSON array"),
)
"""Prefix of pydantic's error type → fix, for fields that declare no fix themselves."""
_PATTERNS: Final = {
    TYPE_PATTERN: "name entry types such as keeper.decision, or a prefix with .* such as keeper.* for all types below it",
    SPEAKER_PATTERN: "name actor types (agent, user, system, keeper, sidecar, orchestrator) or one actor, like user:maria",
}
"""Pattern → fix, for all patterns except the pattern of an id."""
_BOUNDS: Final = ("greater_than", "less_than")


def body_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """All problems that pydantic found in a request.

    Args:
        error: The error that pydantic raised.
        model: The request model. A field's ``x-fix`` overrides the default fix of its error type.
    """
    known = ", ".join(model.model_fields)
    fixes = {
        name: str(field.json_schema_extra["x-fix"])
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "x-fix" in field.json_schema_extra
    }
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    problems = []
    for item, problem in zip(error.errors(include_input=False, include_url=False), problems_of(error), strict=True):
        kind = item["type"]
        if not item["loc"] and kind in ("model_type", "model_attributes_type"):
            problems.append(FieldProblem("body", "must be a JSON object", f"send an object with {known}"))
        elif kind == "extra_forbidden":
            instead = (
                f"known fields: {known}" if known else "the body has no fields; use parameters of the query string"
            )
            problems.append(FieldProblem(problem.field, "no such field", f"leave it out; {instead}"))
        elif kind == "missing":
            problems.append(FieldProblem(problem.field, problem.problem, problem.fix or f"add {problem.field}"))
        elif kind == "string_too_short" and item["ctx"]["min_length"] == 1 and problem.field in required:
            fix = fixes.get(problem.field) or "send at least one character"
            problems.append(FieldProblem(problem.field, "is required and must not be blank", fix))
        else:
            fix = fixes.get(problem.field) or problem.fix or _by_kind(kind, item.get("ctx", {}), problem.problem)
            problems.append(FieldProblem(problem.field, problem.problem, fix))
    return tuple(problems)


def _by_kind(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in ("literal_error", "enum"):
        return f"use {context['expected']}"
    if kind.startswith(_BOUNDS):
        return f"send a number {message.removeprefix('Input should be ')}"
    if (fix := _PATTERNS.get(context.get("pattern", ""))) is not None:
        return fix
    return next((fix for begin, fix in _FIXES if kind.startswith(begin)), "")
