"""What is wrong with a request that is no entry, and what to send instead.

Invariant: each problem names its field and a fix, and quotes nothing of what was sent.
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
    ("int_", "send a whole number"),
    ("float_", "send a number"),
    ("finite_", "send a finite number"),
    ("bool_", "send true or false"),
    ("dict_", "send a JSON object"),
    ("tuple_", "send a JSON array"),
    ("list_", "send a JSON array"),
)
"""What to send, by the beginning of pydantic's error type, where a field has no fix of its own."""
_PATTERNS: Final = {
    TYPE_PATTERN: "name entry types, like keeper.decision, or a word and .* for all below it, like keeper.*",
    SPEAKER_PATTERN: "name actor types (agent, user, system, keeper, sidecar, orchestrator) or one actor, like user:maria",
}
"""What to send where the pattern is not that of an id."""
_BOUNDS: Final = ("greater_than", "less_than")


def body_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """Every problem of a request.

    Args:
        error: What validation said.
        model: Of the request; a field's ``x-fix`` says what to send in it, where that says more than its type.
    """
    known = ", ".join(model.model_fields)
    own = {
        name: str(field.json_schema_extra["x-fix"])
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "x-fix" in field.json_schema_extra
    }
    found = []
    for item, problem in zip(error.errors(include_input=False, include_url=False), problems_of(error), strict=True):
        kind = item["type"]
        if not item["loc"] and kind in ("model_type", "model_attributes_type"):
            found.append(FieldProblem("body", "must be a JSON object", f"send an object with {known}"))
        elif kind == "extra_forbidden":
            instead = f"there are {known}" if known else "there are none; see the parameters of the query string"
            found.append(FieldProblem(problem.field, "no such field", f"leave it out; {instead}"))
        elif kind == "missing":
            found.append(FieldProblem(problem.field, problem.problem, problem.fix or f"add {problem.field}"))
        else:
            fix = own.get(problem.field) or problem.fix or _by_kind(kind, item.get("ctx", {}), problem.problem)
            found.append(FieldProblem(problem.field, problem.problem, fix))
    return tuple(found)


def _by_kind(kind: str, context: Mapping[str, Any], said: str) -> str:
    if kind in ("literal_error", "enum"):
        return f"use {context['expected']}"
    if kind.startswith(_BOUNDS):
        return f"send a number {said.removeprefix('Input should be ')}"
    if (fix := _PATTERNS.get(context.get("pattern", ""))) is not None:
        return fix
    return next((fix for begin, fix in _FIXES if kind.startswith(begin)), "")
