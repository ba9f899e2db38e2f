"""The fields of an operation as the words of its command: which are arguments, and how the options are called.

Invariant: pure names, so that the docs, the command line and its errors say the same.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final, get_origin

from ...schemas.operations.operation import Operation, plain_types

_REQUIRED_OPTIONS: Final = {"reason": "--reason", "relation": "--as"}
"""Required, but the last of three: an option reads better than another argument."""
_OPTIONS: Final = {"workspace_id": "--workspace", "agent_id": "--agent", "crew_id": "--crew"}
_ARGUMENTS: Final = {"entry_id": "ID", "dst_entry_id": "OTHER_ID"}


def is_argument(operation: Operation[Any, Any], name: str) -> bool:
    """Whether a field is an argument of the command: a required one is, with few exceptions."""
    return operation.request.model_fields[name].is_required() and name not in _REQUIRED_OPTIONS


def option_of(operation: Operation[Any, Any], name: str) -> str:
    """How a field is called on the command line: ``PRIORITY`` or ``--min-seq``."""
    if is_argument(operation, name):
        return _ARGUMENTS.get(name, name.removesuffix("_id").upper())
    if operation.request.model_fields[name].is_required():
        return _REQUIRED_OPTIONS[name]
    return _OPTIONS.get(name, "--" + name.replace("_", "-"))


def words_of(operation: Operation[Any, Any]) -> dict[str, str]:
    """Each field of the request and how it is called on the command line."""
    return {name: option_of(operation, name) for name in operation.request.model_fields}


def cli_type(operation: Operation[Any, Any], name: str) -> Any:
    """The type as which the command line reads a field: text, a number, a flag, or several texts."""
    annotation = operation.request.model_fields[name].annotation
    kinds = [kind for kind in plain_types(annotation) if kind is not NoneType]
    optional = NoneType in plain_types(annotation)
    kind: Any = next((known for known in (bool, int, float) if known in kinds), str)
    if any(get_origin(part) is tuple for part in kinds):
        kind = list[str]
    return kind | None if optional else kind
