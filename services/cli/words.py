"""The fields of an operation as the words of its command: which are arguments, and how the options are called.

Invariant: pure names, so that the docs and the command line say the same.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final, get_origin

from ...schemas.operations.operation import Operation, plain_types

_REQUIRED_OPTIONS: Final = {"reason": "--reason", "relation": "--as", "role": "--role"}
"""Required, but easier to read as an option than as the last of several arguments."""
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


def cli_type(operation: Operation[Any, Any], name: str) -> Any:
    """The type as which the command line reads a field: text, a number, a flag, or several texts."""
    kinds = _kinds(operation, name)
    if any(get_origin(kind) is tuple for kind in kinds):
        return list[str]
    return next((known for known in (bool, int, float) if known in kinds), str)


def is_object(operation: Operation[Any, Any], name: str) -> bool:
    """Whether a field is a JSON object, which the command line reads as text."""
    return any(get_origin(kind) is dict for kind in _kinds(operation, name))


def _kinds(operation: Operation[Any, Any], name: str) -> list[Any]:
    return [kind for kind in plain_types(operation.request.model_fields[name].annotation) if kind is not NoneType]
