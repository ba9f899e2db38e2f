"""What the client does without I/O: requests, when to send them again, and answers. Both flavours use it.

Invariant: only what may be done twice is sent again, with growing pauses and a bounded number of times.
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
"""Seconds for one answer; an append may wait 30 for the broker's ack."""
ATTEMPTS: Final = 6
"""Tries of one request; with the pauses below about 3 seconds, a restart of the service."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
LONGEST_RETRY_AFTER_S: Final = 60.0
"""Seconds that the service may ask for with ``Retry-After``; a budget is for a minute."""
_JITTER: Final = 0.25
"""Share of a pause that is random, so that clients do not come back all at once."""
_ERRORS_FROM: Final = 400
_NO_SEGMENT: Final = ("", ".", "..")

_A = TypeVar("_A", bound=BaseModel)
Params = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: Below the service's URL.
        params: Query parameters, repeated ones as several pairs.
        json: The body; None if there is no body.
        repeatable: Whether doing it twice is the same as once.
        headers: Beside the token's.
        content: The body where it is JSON already; None if there is no such body.
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
        operation: What is asked.
        given: Every field, maybe among other names; a field that has its default is not sent.

    Raises:
        NotFound: If a field of the path cannot stand in one, so that nothing can have that name.
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
    """Seconds before try number ``attempt`` (from 1): doubling, capped, with jitter."""
    base = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), LAST_PAUSE_S)
    return base * (1 - _JITTER + 2 * _JITTER * random.random())  # spreads load; no secret


def pause_after(error: Exception, attempt: int, request: HttpRequest) -> float:
    """Seconds to wait after try number ``attempt`` failed.

    Raises:
        Unavailable: If the request is not to be sent again. Where the service has waited itself, or waiting does not help,
            it is not: five times 30 s would look like a hang.
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
    """A JSON object that no model describes."""
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
    """The path below which an entry is; the entry itself is at ``…/entry``, where no route hides the id ``count``.

    Raises:
        NotFound: If no entry can have that id: it would be another path, as ``.`` and the empty one are.
    """
    if not is_id(entry_id):
        raise NotFound(f"no entry {entry_id[:64]}", hint="an id has 1 to 64 of A-Z a-z 0-9 _ - and is not just _")
    return f"/v1/journal/{quote(entry_id, safe='')}"
