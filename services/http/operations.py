"""The HTTP routes of all operations: one loop over their declarations.

Invariant: a field has the same name and meaning in path, query string and body. Path fields come from the path; the
others come from the body of a POST or PUT, or from the query string, in which text is converted to the field's type. A
field that is given in two places is refused, because one of them would be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from types import NoneType
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...schemas.core.errors import FieldProblem, InvalidQuery, InvalidRequest
from ...schemas.core.operation import Effect, Operation, plain_types
from ...schemas.core.operation import Request as AskedFor
from ...schemas.core.principal import Principal
from ...schemas.operations import ALL
from ..desk import for_effect
from .bodies import answer, read_fields
from .openapi import answered, inlined, json_body, parameter
from .route import RouteDescription, services_of

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)
_STATUSES: Final = {Effect.CREATES: HTTPStatus.CREATED, Effect.STARTS: HTTPStatus.ACCEPTED}
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def operation_routes() -> list[RouteDescription]:
    """A route for each operation."""
    return [_route(operation) for operation in ALL]


def _route(operation: Operation[Any, Any]) -> RouteDescription:
    async def serve(request: Request, principal: Principal) -> Response:
        services = services_of(request)
        raw = await given(request, operation, services.limits.body_bytes)
        answered_with = await services.desk.run(operation, principal, raw)
        return answer(answered_with, answered_with.http_status or _status(operation))

    return RouteDescription(
        route=operation.route,
        name=operation.name,
        tag=_tag(operation.path),
        summary=operation.summary,
        description=_description(operation),
        serve=serve,
        answers=partial(answered, operation.answer, _status(operation)),
        errors=operation.errors
        + ((413, 422) if operation.has_body and operation.effect is not Effect.READS else (413,)),
        extra=partial(_described_fields, operation),
    )


def _status(operation: Operation[Any, Any]) -> HTTPStatus:
    return _STATUSES.get(operation.effect, HTTPStatus.OK)


def _tag(path: str) -> str:
    return path.removeprefix("/v1/").partition("/")[0]


def _description(operation: Operation[Any, Any]) -> str:
    rest = (operation.request.__doc__ or "").partition("\n")[2]
    text = " ".join(rest.split())
    return f"{text} For: {operation.access.value}.".strip()


async def given(request: Request, operation: Operation[Any, Any], limit: int) -> dict[str, Any]:
    """The fields of a request, from path, query string and body.

    Raises:
        InvalidQuery: If a parameter is unknown or given twice, or the body is not a JSON object.
        EntryTooLarge: If the body has more than ``limit`` bytes.
    """
    kinds = readers(operation.request)
    raw: dict[str, Any] = await _body(request, operation, limit) if operation.has_body else {}
    for name, value in request.path_params.items():
        if name in raw:
            raise _twice(name)
        raw[name] = kinds[name](value)
    for name in dict.fromkeys(request.query_params):
        if name not in kinds or name in request.path_params:
            known = ", ".join(sorted(set(kinds) - set(request.path_params)))
            raise InvalidQuery(f"no parameter {name[:64]!r} here", hint=f"known are {known or 'none'}", field=name[:64])
        values = [value.strip() for value in request.query_params.getlist(name)]
        if len(values) > 1 or name in raw:
            raise _twice(name)
        if values[0] or name == "workspace_id":  # an empty workspace is refused, not `default`
            raw[name] = kinds[name](values[0])
    return raw


def _twice(name: str) -> InvalidQuery:
    return InvalidQuery(f"{name} is given more than once", hint="give it once", field=name)


async def _body(request: Request, operation: Operation[Any, Any], limit: int) -> dict[str, Any]:
    try:
        value = await read_fields(request, limit)
        if isinstance(value, dict):
            return value
        known = ", ".join(operation.request.model_fields)
        raise InvalidRequest((FieldProblem("body", "is not a JSON object", f"send an object with {known}"),))
    except InvalidRequest as error:
        raise for_effect(error, operation) from None


def readers(model: type[AskedFor]) -> Mapping[str, Callable[[str], Any]]:
    """Field → function that converts its text; an invalid text stays unchanged, and validation reports it."""
    readers_of_model = _KINDS.get(model)
    if readers_of_model is None:
        readers_of_model = _KINDS[model] = {
            name: _reader(field.annotation) for name, field in model.model_fields.items()
        }
    return readers_of_model


_KINDS: Final[dict[type[AskedFor], Mapping[str, Callable[[str], Any]]]] = {}


def _reader(annotation: Any) -> Callable[[str], Any]:
    kinds = [kind for kind in plain_types(annotation) if kind is not NoneType]
    if bool in kinds:
        return lambda text: _TRUTH.get(text.lower(), text)
    if int in kinds:
        return lambda text: int(text) if _WHOLE.match(text) else text
    return lambda text: text


def _described_fields(operation: Operation[Any, Any]) -> dict[str, Any]:
    schema = inlined(operation.request.model_json_schema())
    properties: dict[str, Any] = schema["properties"]
    required = set(schema.get("required", ()))
    in_path = [
        parameter(name, properties[name].get("description", ""), properties[name], place="path")
        for name in operation.path_fields
    ]
    rest = {name: part for name, part in properties.items() if name not in operation.path_fields}
    if not operation.has_body:
        in_query = [
            parameter(name, part.get("description", ""), part, required=name in required) for name, part in rest.items()
        ]
        return {"parameters": in_path + in_query}
    body = {**schema, "properties": rest}
    if missing := required - set(operation.path_fields):
        body["required"] = sorted(missing)
    else:
        body.pop("required", None)
    examples = {name: part["examples"][0] for name, part in rest.items() if part.get("examples")}
    return {"parameters": in_path, **json_body(body, required=bool(missing), example=examples or None)}
