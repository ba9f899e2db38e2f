"""The HTTP routes of all operations: one loop over their declarations.

Invariant: a field has the same name and meaning in path, query string and body. Path fields come from the path; the
others come from the body of a POST or PUT, or from the query string, in which text is converted to the field's type. A
field that is given in two places is refused, because one of them would be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import cache, partial
from http import HTTPStatus
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...schemas.api import Problem
from ...schemas.catalogue import entry_json_schema
from ...schemas.core.errors import FieldProblem, InvalidQuery, InvalidRequest
from ...schemas.core.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, MAX_BATCH
from ...schemas.core.operation import Effect, Operation, plain_types
from ...schemas.core.operation import Request as AskedFor
from ...schemas.core.principal import Principal
from ...schemas.operations import ALL
from ..desk import for_effect
from ..entries.filters import FILTER_PARAMETERS, LIST_PARAMETERS
from .bodies import answer, read_fields
from .route import RouteDescription, services_of

if TYPE_CHECKING:
    from .route import Description


# The OpenAPI description of the routes.
#
# Invariant: names come from the code that parses them (``FILTER_PARAMETERS``, the entry's model), so that the
# description follows the code; a fuzzing test compares every answer with it.


JsonSchema = dict[str, Any]

_TEXT: Final[JsonSchema] = {"type": "string"}
_SEQ: Final[JsonSchema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}

PAGING: Final = {
    "cursor": ("next_cursor of the previous page.", _TEXT),
    "after_seq": ("The entries after this sequence in the order of the journal, instead of the newest first.", _SEQ),
    "limit": (
        "Entries of a page.",
        {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX, "default": LIST_LIMIT_DEFAULT},
    ),
}
COMMON: Final = {
    "workspace_id": ("The workspace, for a token of all; default if absent.", _TEXT),
    "min_seq": ("Wait until the views have passed this sequence.", _SEQ),
}
AS_OF: Final = {
    "as_of": ("As of this sequence or time: from the journal up to there, without what was erased since.", _TEXT),
}
ARCHIVE: Final = {
    "include_archive": ("Whether archived entries are included: `true` or `false`.", {"type": "boolean"}),
}
WORKSPACE: Final = {"workspace_id": COMMON["workspace_id"]}
"""``min_seq`` does not apply to routes that read no view or all views."""
LAST_EVENT_ID: Final = {"last_event_id": ("Resume after this sequence, as the header Last-Event-ID does.", _SEQ)}

_PROBLEMS: Final = {
    400: "The request is not valid",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    409: "The id is taken",
    410: "The text of the version was swept",
    413: "Too large",
    421: "Wrong host",
    422: "A field is not valid",
    429: "The token has as many live tails, or bytes of request bodies under way, as it may have",
    500: "An unexpected fault",
    501: "The memory provider of the workspace does not offer this",
    503: "Temporarily unavailable",
    504: "The memory provider did not answer in time",
}
_EVERYWHERE: Final = (400, 401, 403, 421, 500, 503)


def problems(*also: int) -> dict[str, Any]:
    """The problem answers of a route: the common ones and ``also``; 429 wherever 413 is possible."""
    bodies = (429,) if 413 in also else ()
    content = {"application/problem+json": {"schema": _problem_schema()}}
    return {
        str(status): {"description": _PROBLEMS[status], "content": content}
        for status in sorted({*_EVERYWHERE, *also, *bodies})
    }


@cache
def _problem_schema() -> JsonSchema:
    return Problem.model_json_schema(mode="serialization")


def parameters(
    *groups: dict[str, tuple[str, JsonSchema]], filters: bool = False, path: Iterable[str] = ()
) -> dict[str, Any]:
    """A route's ``parameters``: those of the path, the filters, and groups of query parameters."""
    json_schemas: list[JsonSchema] = [parameter(name, "", _TEXT, place="path") for name in path]
    if filters:
        for name, description in FILTER_PARAMETERS.items():
            many = name in LIST_PARAMETERS
            schema: JsonSchema = {"type": "array", "items": _TEXT} if many else _TEXT
            json_schemas.append(parameter(name, description, schema))
    for group in groups:
        json_schemas.extend(parameter(name, description, schema) for name, (description, schema) in group.items())
    return {"parameters": json_schemas}


def parameter(
    name: str, description: str, schema: JsonSchema, *, place: str = "query", required: bool = False
) -> JsonSchema:
    """One parameter of a route; path parameters are always required."""
    rest = {key: part for key, part in schema.items() if key not in ("description", "title")}
    needed = required or place == "path"
    return {"name": name, "in": place, "required": needed, "description": description, "schema": rest}


def json_body(schema: JsonSchema, *, required: bool, example: Any = None) -> dict[str, Any]:
    """A route's ``requestBody`` of JSON, with an example."""
    shown = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {"requestBody": {"required": required, "content": {"application/json": shown}}}


def answered(model: type[BaseModel], status: int = 200) -> dict[str, Any]:
    """``responses`` of a route that answers a model."""
    schema = inlined(model.model_json_schema(mode="serialization"))
    return {str(int(status)): {"description": "Done.", "content": {"application/json": {"schema": schema}}}}


ANY_OBJECT: Final[dict[str, Any]] = {
    "200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
"""``responses`` of a route that answers figures by name."""


def document(routes: Iterable[RouteDescription], *, title: str, version: str, summary: str) -> dict[str, Any]:
    """The whole OpenAPI description."""
    bearer = {"type": "http", "scheme": "bearer", "description": "A token: cj_ and 43 characters."}
    paths: dict[str, Any] = {}
    for route in routes:
        operation_object = {
            "tags": [route.tag],
            "summary": route.summary,
            "description": route.description,
            "operationId": route.name,
            **_made(route.extra),
            "responses": {**_made(route.answers), **problems(*route.errors)},
        }
        if route.open is None:
            operation_object["security"] = [{"HTTPBearer": []}]
        paths.setdefault(route.path, {})[route.method.lower()] = operation_object
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "summary": summary},
        "paths": paths,
        "components": {"securitySchemes": {"HTTPBearer": bearer}},
    }


def _made(described: Description) -> Mapping[str, Any]:
    return described() if callable(described) else described


def submission_schema() -> JsonSchema:
    """What may be posted: one entry or a list of them; the server fills in id, workspace and time."""
    entry = entry_json_schema()
    definitions = entry.pop("$defs", {})
    del entry["$schema"]  # the dialect of OpenAPI 3.1, too
    entry_schema = _inline(entry, definitions)
    return {"anyOf": [entry_schema, {"type": "array", "items": entry_schema, "minItems": 1, "maxItems": MAX_BATCH}]}


def _inline(schema: Any, definitions: dict[str, JsonSchema]) -> Any:
    """The schema with its references resolved, so that it can stand inside a route."""
    if isinstance(schema, list):
        return [_inline(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        target = deepcopy(definitions[reference.rpartition("/")[2]])
        return _inline({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, definitions)
    return {name: _inline(value, definitions) for name, value in schema.items()}


def inlined(schema: JsonSchema) -> JsonSchema:
    """A model's JSON Schema without ``$defs``."""
    rest = dict(schema)
    definitions = rest.pop("$defs", {})
    resolved = _inline(rest, definitions)
    assert isinstance(resolved, dict)
    return resolved


def known_names(*groups: Iterable[str], filters: bool = False) -> frozenset[str]:
    """The query parameters that a route knows."""
    names = {name for group in groups for name in group}
    return frozenset(names | set(FILTER_PARAMETERS) if filters else names)


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
