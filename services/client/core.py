"""What the client does, without I/O: requests, retries, answers. Both flavours run these steps.

Invariant: only what may be done twice is retried, with growing pauses and a bounded number of times.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from ...schemas.errors import (
    BrokerUnavailable,
    CrewJournalError,
    NotFound,
    Unavailable,
    ViewsBehind,
    ViewsDamaged,
)
from ...schemas.ids import is_id
from .faults import error_of
from .wire import Broken, Params, Pause, Reply, Request, Steps

ATTEMPTS: Final = 5
"""Tries of one request; with the pauses below about 3 seconds, a restart of the service."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
_JITTER: Final = 0.25
"""Share of a pause that is random, so that clients do not come back all at once."""
_ERRORS_FROM: Final = 400

_A = TypeVar("_A", bound=BaseModel)


def pause_before(attempt: int) -> float:
    """Seconds before try number ``attempt`` (from 1): doubling, capped, with jitter."""
    base = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), LAST_PAUSE_S)
    return base * (1 - _JITTER + 2 * _JITTER * random.random())  # spreads load; no secret


def exchange(request: Request) -> Steps[Reply]:
    """Send a request until it is answered.

    Raises:
        CrewJournalError: What the service answered, or Unavailable if it did not.
    """
    attempts = ATTEMPTS if request.repeatable else 1
    for attempt in range(1, attempts + 1):
        outcome = yield request
        if isinstance(outcome, Reply):
            try:
                return checked(outcome)
            except (BrokerUnavailable, ViewsBehind, ViewsDamaged):
                raise  # the service has waited already, or waiting does not help: five times 30 s would look like a hang
            except Unavailable:
                if attempt == attempts:
                    raise
        if attempt < attempts:
            yield Pause(pause_before(attempt))
    reason = outcome.reason if isinstance(outcome, Broken) else "no answer"
    raise Unavailable(f"the service does not answer: {reason}", hint="is `crew-journal up` running, and the URL right?")


def checked(reply: Reply) -> Reply:
    """The reply.

    Raises:
        CrewJournalError: If its status is an error.
    """
    if reply.status < _ERRORS_FROM:
        return reply
    try:
        problem = json.loads(reply.body)
    except ValueError:
        problem = {}
    raise error_of(reply.status, problem if isinstance(problem, dict) else {})


def ask(request: Request, model: type[_A]) -> Steps[_A]:
    """Send a request until it is answered, and read the answer.

    Raises:
        CrewJournalError: What the service answered, also if that is no ``model``.
        Unavailable: If it did not answer.
    """
    reply = yield from exchange(request)
    try:
        return model.model_validate_json(reply.body)
    except ValidationError:
        raise CrewJournalError(
            f"{request.method} {request.path} answered something other than {model.__name__}",
            hint="check that the service is a Crew Journal of the same version",
        ) from None


def ask_json(request: Request) -> Steps[dict[str, Any]]:
    """``ask`` for a JSON object that no model describes."""
    reply = yield from exchange(request)
    return dict(json.loads(reply.body))


def params_of(given: Mapping[str, object]) -> Params:
    """Keyword arguments as query parameters: None is left out, a sequence is repeated."""
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        found.extend((name, str(one)) for one in values)
    return found


def said(given: Mapping[str, object]) -> dict[str, object]:
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
