"""The OpenAPI description of the routes.

Invariant: names come from the code that parses them (``FILTER_PARAMETERS``, the entry's model), so that the description
follows the code; a fuzzing test compares every answer with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from ...schemas.api import Problem
from ...schemas.core.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, MAX_BATCH
from ...schemas.export import entry_json_schema
from ..entries.filters import FILTER_PARAMETERS, LIST_PARAMETERS

if TYPE_CHECKING:
    from .route import Description, RouteDescription

JsonSchema = dict[str, Any]

_TEXT: Final[JsonSchema] = {"type": "string"}
_SEQ: Final[JsonSchema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}

PAGING: Final = {
    "cursor": ("next_cursor of the previous page.", _TEXT),
    "limit": (
        "Entries of a page.",
        {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX, "default": LIST_LIMIT_DEFAULT},
    ),
}
COMMON: Final = {
    "workspace_id": ("The workspace, for a token of all; default if absent.", _TEXT),
    "min_seq": ("Wait until the views have passed this sequence.", _SEQ),
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
    content = {"application/problem+json": {"schema": Problem.model_json_schema(mode="serialization")}}
    return {
        str(status): {"description": _PROBLEMS[status], "content": content}
        for status in sorted({*_EVERYWHERE, *also, *bodies})
    }


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
