"""Reads the answer of a chat model: JSON of a requested form, alone or inside a code fence or other text.

Invariant: pure; a text without the form is not an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

_BRACKETS: Final = (("{", "}"), ("[", "]"))

A = TypeVar("A", bound=BaseModel)


def answer_of(text: str, form: type[A]) -> A | None:
    """The answer in a text; None if absent.

    The whole text is tried first, then the text from its first ``{`` to its last ``}``, then from its first ``[`` to its
    last ``]``, the outer one of the two first. A list is accepted where the form has a single field.
    """
    for part in _parts(text):
        try:
            value = json.loads(part)
            if isinstance(value, list) and len(form.model_fields) == 1:
                value = {next(iter(form.model_fields)): value}
            return form.model_validate(value)
        except (ValidationError, ValueError, RecursionError):
            continue
    return None


def closed_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a form as the strict mode of OpenAI wants it: all fields required, no others."""
    closed: dict[str, Any] = _close(form.model_json_schema())
    return closed


def _close(part: Any) -> Any:
    if isinstance(part, list):
        return [_close(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _close(item) for name, item in part.items() if name != "default"}
    if closed.get("type") == "object" and "properties" in closed:
        closed |= {"required": list(closed["properties"]), "additionalProperties": False}
    return closed


def _parts(text: str) -> Iterator[str]:
    yield text
    spans = [(text.find(first), text.rfind(last) + 1) for first, last in _BRACKETS]
    yield from (text[start:end] for start, end in sorted(spans) if 0 <= start < end)
