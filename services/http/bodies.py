"""Request bodies in, answers out: bounded, through orjson.

Invariant: a body is refused as soon as it is known to be too large, or one too many, before it is in memory; what is no JSON
that the journal can keep is refused as ``services.json_body`` says.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from ...schemas.body_problems import body_problems
from ...schemas.errors import EntryTooLarge, InvalidEntry, InvalidRequest
from ..json_body import parse_json
from .budget import Share

_M = TypeVar("_M", bound=BaseModel)


async def read_json(request: Request, limit: int) -> Any:
    """The JSON value of the body.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        TooManyBodies: If the token's requests hold as many bytes as they may.
        BodiesFull: If all requests do.
        InvalidQuery: If it is no JSON.
        InvalidEntry: Naming each field that holds an integer of more than 64 bits.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    share: Share | None = getattr(request.state, "share", None)
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
        if share is not None:
            share.hold(len(body))
    return parse_json(body)


async def read_model(request: Request, model: type[_M], limit: int, *, optional: bool = False) -> _M:
    """The body as a model; an empty one counts as ``{}`` if ``optional``.

    Raises:
        EntryTooLarge: If it has more than ``limit`` bytes.
        InvalidQuery: If it is no JSON.
        InvalidRequest: Naming every offending field.
    """
    empty = (
        optional and request.headers.get("content-length") in (None, "0") and "transfer-encoding" not in request.headers
    )
    try:
        value = {} if empty else await read_json(request, limit)
    except InvalidEntry as error:
        raise InvalidRequest(error.problems) from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(body_problems(error, model)) from None


def answer(body: Any, status: int = HTTPStatus.OK) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def answer_model(found: BaseModel, status: int = HTTPStatus.OK) -> Response:
    """A model as a JSON answer."""
    return Response(found.model_dump_json(), status, media_type="application/json")


def _too_large(limit: int) -> EntryTooLarge:
    return EntryTooLarge(f"the body has more than {limit} bytes", hint="send smaller batches")
