"""Request bodies in, answers out: bounded, through orjson.

Invariant: a body is refused as soon as it is known to be too large, before it is in memory; malformed JSON is a 400 that
names the place and quotes nothing.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError

from crew_journal.schemas.entry import problems_of
from crew_journal.schemas.errors import EntryTooLarge, FieldProblem, InvalidEntry, InvalidQuery

_M = TypeVar("_M", bound=BaseModel)


class Nothing(BaseModel):
    """The body of a route that takes none: what is asked stands in the query string, and a field here would be lost."""

    model_config = ConfigDict(extra="forbid")


class InvalidBody(InvalidEntry):
    """A body that is no entry breaks its own rules."""

    title = "The request body is not valid"


async def read_json(request: Request, limit: int) -> Any:
    """The JSON value of the body.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        InvalidQuery: If it is no JSON.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidQuery(
            f"the body is no JSON: line {error.lineno}, column {error.colno}",
            hint="send UTF-8 JSON; NaN, comments and trailing commas are none",
            field="body",
        ) from None


async def read_model(request: Request, model: type[_M], limit: int, *, optional: bool = False) -> _M:
    """The body as a model; an empty one counts as ``{}`` if ``optional``.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        InvalidQuery: If it is no JSON.
        InvalidBody: Naming every offending field.
    """
    empty = (
        optional and request.headers.get("content-length") in (None, "0") and "transfer-encoding" not in request.headers
    )
    value = {} if empty else await read_json(request, limit)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidBody(_body_problems(error, model)) from None


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
_BOUNDS: Final = ("greater_than", "less_than")


def _body_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """What is wrong with a body that is no entry; each problem says what to send instead."""
    known = ", ".join(model.model_fields)
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
            fix = problem.fix or next((fix for begin, fix in _FIXES if kind.startswith(begin)), "")
            if kind in ("literal_error", "enum"):
                fix = f"use {item['ctx']['expected']}"
            elif kind.startswith(_BOUNDS):
                fix = f"send a number {problem.problem.removeprefix('Input should be ')}"
            found.append(FieldProblem(problem.field, problem.problem, fix))
    return tuple(found)


def answer(body: Any, status: int = HTTPStatus.OK) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def _too_large(limit: int) -> EntryTooLarge:
    return EntryTooLarge(f"the body has more than {limit} bytes", hint="send smaller batches")
