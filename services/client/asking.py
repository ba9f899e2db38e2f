"""An operation as an HTTP request: the one place where the client reads its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from ...schemas.errors import NotFound
from ...schemas.operations.operation import Operation
from ...schemas.timestamps import format_ts
from .core import ask, params_of
from .wire import Request, Steps

_A = TypeVar("_A", bound=BaseModel)
_NO_SEGMENT = ("", ".", "..")


def ask_operation(operation: Operation[Any, _A], given: Mapping[str, Any]) -> Steps[_A]:
    """Send an operation and read its answer.

    Args:
        operation: What is asked.
        given: Every field; one that has its default is not sent.

    Raises:
        NotFound: If a field of the path cannot stand in one, so that nothing can have that name.
        CrewJournalError: What the service answered.
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
        for name, value in given.items()
        if name not in operation.path_fields and value is not None and value != fields[name].default
    }
    if operation.has_body:
        request = Request(operation.method, path, json=rest, repeatable=operation.repeatable)
    else:
        request = Request(operation.method, path, params_of(rest), repeatable=operation.repeatable)
    return ask(request, operation.answer)
