"""The parts of the client without I/O: requests, rules for resending, and answers. Both clients use them.

Invariant: only repeatable requests are resent, with growing pauses and a limited number of times.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from ...schemas.core.errors import (
    BrokerUnavailable,
    CrewJournalError,
    EntryTooLarge,
    NotFound,
    OverBudget,
    Unavailable,
    ViewsBehind,
    ViewsDamaged,
)
from ...schemas.core.faults import error_of
from ...schemas.core.ids import is_id
from ...schemas.core.limits import MAX_BATCH_BYTES
from ...schemas.core.operation import Operation
from ...schemas.core.timestamps import format_ts

TIMEOUT_S: Final = 40.0
"""Seconds for one answer; an append may wait 30 s for the broker's ack."""
ATTEMPTS: Final = 6
"""Attempts of one request; with the pauses below about 3 s, the time of a restart of the service."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
LONGEST_RETRY_AFTER_S: Final = 60.0
"""Maximum seconds of ``Retry-After`` that the client waits; a budget covers a minute."""
_JITTER: Final = 0.25
"""Random share of a pause, so that clients do not all return at once."""
_ERRORS_FROM: Final = 400
_NO_SEGMENT: Final = ("", ".", "..")

_A = TypeVar("_A", bound=BaseModel)
Params = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: Path below the service's URL.
        params: Query parameters; a repeated parameter has several pairs.
        json: The body; None if there is no body.
        repeatable: Whether the request is idempotent.
        headers: Headers in addition to the token.
        content: The body as encoded JSON; None if there is no such body.
    """

    method: str
    path: str
    params: Params = ()
    json: Any = None
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of httpx's ``request`` and ``stream``.

        Raises:
            EntryTooLarge: If the body has more bytes than the service accepts.
        """
        content = self.content
        if content is None and self.json is not None:
            content = json.dumps(self.json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if content is not None and len(content) > MAX_BATCH_BYTES:
            raise EntryTooLarge(f"the body has {len(content)} of {MAX_BATCH_BYTES} bytes", hint="send less at once")
        typed = {} if content is None else {"Content-Type": "application/json"}
        return {
            "method": self.method,
            "url": self.path,
            "params": list(self.params),
            "content": content,
            "headers": {**self.headers, **typed},
        }

    def answer_of(self, body: bytes, model: type[_A]) -> _A:
        """The answer.

        Raises:
            CrewJournalError: If the body is not a ``model``.
        """
        try:
            return model.model_validate_json(body)
        except ValidationError:
            raise CrewJournalError(
                f"{self.method} {self.path} answered something other than {model.__name__}",
                hint="check that the service is a Crew Journal of the same version",
            ) from None


def request_of(operation: Operation[Any, Any], given: Mapping[str, Any]) -> HttpRequest:
    """An operation as a request.

    Args:
        operation: The operation.
        given: The fields, possibly with other names, which are ignored; fields with their default value are not sent.

    Raises:
        NotFound: If a path field has a value that cannot be part of a path, so that no such object exists.
    """
    fields = operation.request.model_fields
    path = operation.path
    for name in operation.path_fields:
        value = str(given[name])
        if value in _NO_SEGMENT:
            raise NotFound(f"nothing has the {name} {value!r}", hint="check the id", field=name)
        path = path.replace("{" + name + "}", quote(value, safe=""))
    rest = {
        name: format_ts(value) if isinstance(value, datetime) else value
        for name in fields
        if name not in operation.path_fields and (value := given[name]) is not None and value != fields[name].default
    }
    if operation.has_body:
        return HttpRequest(operation.method, path, json=rest, repeatable=operation.repeatable)
    return HttpRequest(operation.method, path, params_of(rest), repeatable=operation.repeatable)


def pause_before(attempt: int) -> float:
    """Seconds before attempt number ``attempt`` (from 1): doubling, capped, with jitter."""
    base = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), LAST_PAUSE_S)
    return base * (1 - _JITTER + 2 * _JITTER * random.random())  # spreads load; not used for secrets


def pause_after(error: Exception, attempt: int, request: HttpRequest) -> float:
    """Seconds to wait after attempt number ``attempt`` failed.

    Raises:
        Unavailable: If the request must not be resent. This includes errors after which waiting does not help or the
            service has already waited, because five times 30 s would look like a hang.
    """
    if isinstance(error, OverBudget) and request.repeatable and attempt < ATTEMPTS:
        return min(error.retry_after_s, LONGEST_RETRY_AFTER_S) + pause_before(1)
    waited = isinstance(error, BrokerUnavailable | ViewsBehind | ViewsDamaged)
    if request.repeatable and attempt < ATTEMPTS and not waited:
        return pause_before(attempt)
    if isinstance(error, Unavailable):
        raise error
    raise Unavailable(
        f"the service does not answer: {type(error).__name__}",
        hint="check that `crew-journal up` runs and that the URL is right",
    ) from None


def checked(status: int, body: bytes) -> bytes:
    """The body of an answer.

    Raises:
        CrewJournalError: If the status is an error.
    """
    if status < _ERRORS_FROM:
        return body
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    raise error_of(status, problem if isinstance(problem, dict) else {})


def object_of(body: bytes) -> dict[str, Any]:
    """Parse a JSON object that has no model."""
    return dict(json.loads(body))


def params_of(given: Mapping[str, object]) -> Params:
    """Keyword arguments as query parameters: None is left out, a sequence is repeated."""
    params: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        params.extend((name, str(value).lower() if isinstance(value, bool) else str(value)) for value in values)
    return params


def present(given: Mapping[str, object]) -> dict[str, object]:
    """Keyword arguments as the fields of a body: None is left out."""
    return {name: value for name, value in given.items() if value is not None}


def entry_path(entry_id: str) -> str:
    """The path of an entry's routes.

    The entry itself is at ``…/entry``, so that the route ``count`` does not hide the id ``count``.

    Raises:
        NotFound: If no entry can have that id, because it would change the path, like ``.`` and the empty id.
    """
    if not is_id(entry_id):
        raise NotFound(f"no entry {entry_id[:64]}", hint="an id has 1 to 64 of A-Z a-z 0-9 _ - and is not just _")
    return f"/v1/journal/{quote(entry_id, safe='')}"
