"""The options of a command that are the fields of an operation's request.

Invariant: an argument or option is a field of the request, with its help text; the service checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

import click

from ...schemas.core.operation import Effect, Operation, is_switch, plain_types
from ..times import moment_of
from .commands import Argument, Option, parameter
from .completing import OF_FIELDS, Complete, among
from .options import json_object

_ALIASES: Final = {"workspace_id": "-w", "limit": "-n", "k": "-k", "memory_walk_depth": "--memory-walk-depth"}
"""A second name of an option."""
_REQUIRED_OPTIONS: Final = {
    "reason": "--reason",
    "relation": "--as",
    "role": "--role",
    "mode": "--mode",
    "from_version": "--from-version",
}
"""Required, but easier to read as an option than as the last of several arguments."""
_OPTIONS: Final = {
    "workspace_id": "--workspace",
    "agent_id": "--agent",
    "crew_id": "--crew",
    "memory_enabled": "--memory",
    "memory_budget_chars": "--budget",
    "memory_walk_depth": "--walk-depth",
}
_ARGUMENTS: Final = {"entry_id": "ID", "dst_entry_id": "OTHER_ID", "entry_ids": "[ID]…"}
_LISTED: Final = "entry_ids"
"""The one field that is an argument although it may be absent: ids after the required arguments."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Marks a parameter of a command: it receives the given fields of a request, by name.

    Attributes:
        operation: Whose request.
        without: Fields that are not options of the command.
    """

    operation: Operation[Any, Any]
    without: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The fields that are options."""
        return [name for name in self.operation.request.model_fields if name not in self.without]

    def parameters(self) -> list[click.Parameter]:
        """An argument or option for each field, with the field's help text."""
        return [_of_field(self.operation, name) for name in self.names]

    def take(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of this request's fields; absent fields are left out."""
        return {
            name: _sent(self.operation, name, given[name])
            for name in self.names
            if given[name] not in (None, ()) and (given[name] is not False or _is_switch(self.operation, name))
        }


def _sent(operation: Operation[Any, Any], name: str, value: Any) -> Any:
    """The value of an option as the request takes it."""
    if datetime in _kinds(operation, name):
        return moment_of(value, name)
    if isinstance(value, tuple):
        return [_sent(operation, name, member) for member in value]
    return json_object(value, option_of(operation, name)) if is_object(operation, name) else value


def _of_field(operation: Operation[Any, Any], name: str) -> click.Parameter:
    field, word, kind = operation.request.model_fields[name], option_of(operation, name), cli_type(operation, name)
    more: dict[str, Any] = {"help": field.description, "autocompletion": completion_of(operation, name)}
    if name == "workspace_id" and operation.effect is not Effect.CREATES:
        more["envvar"] = "CREW_JOURNAL_WORKSPACE"
    if is_argument(operation, name):
        return parameter(name, kind if field.is_required() else kind | None, Argument(metavar=word, **more))
    if _is_switch(operation, name):
        return parameter(name, bool | None, Option(f"{word}/--no-{word[2:]}", **more))
    option = Option(word, *([_ALIASES[name]] if name in _ALIASES else []), **more)
    if field.is_required():
        return parameter(name, kind, option)
    default = field.default if isinstance(field.default, int | str) else None
    return parameter(name, kind | None, option, default or None)  # absent fields are not sent


def completion_of(operation: Operation[Any, Any], name: str) -> Complete | None:
    """How a shell completes a field: by its name, or to the values that it may have."""
    values = [
        value
        for kind in plain_types(operation.request.model_fields[name].annotation)
        if get_origin(kind) is Literal
        for value in get_args(kind)
    ]
    return OF_FIELDS.get(name) or (among(lambda: map(str, values)) if values else None)


def is_argument(operation: Operation[Any, Any], name: str) -> bool:
    """Whether a field is an argument of the command; required fields are, with few exceptions."""
    required = operation.request.model_fields[name].is_required()
    return name == _LISTED or (required and name not in _REQUIRED_OPTIONS)


def option_of(operation: Operation[Any, Any], name: str) -> str:
    """How a field is called on the command line: ``PRIORITY`` or ``--min-seq``."""
    if is_argument(operation, name):
        return _ARGUMENTS.get(name, name.removesuffix("_id").upper())
    if operation.request.model_fields[name].is_required():
        return _REQUIRED_OPTIONS[name]
    return _OPTIONS.get(name, "--" + name.replace("_", "-"))


def cli_type(operation: Operation[Any, Any], name: str) -> Any:
    """The type as which the command line reads a field: text, a number, a flag, or several texts or numbers."""
    kinds = _kinds(operation, name)
    for kind in kinds:
        if get_origin(kind) is tuple:
            return list[int] if int in plain_types(get_args(kind)[0]) else list[str]
    return next((known for known in (bool, float, int) if known in kinds), str)


def _is_switch(operation: Operation[Any, Any], name: str) -> bool:
    return is_switch(operation.request.model_fields[name].annotation)


def is_object(operation: Operation[Any, Any], name: str) -> bool:
    """Whether a field is a JSON object, or several, which the command line reads as text."""
    kinds = _kinds(operation, name)
    inner = [inner_type for kind in kinds if get_origin(kind) is tuple for inner_type in plain_types(get_args(kind)[0])]
    return any(get_origin(kind) is dict or hasattr(kind, "model_fields") for kind in (*kinds, *inner))


def _kinds(operation: Operation[Any, Any], name: str) -> list[Any]:
    return [kind for kind in plain_types(operation.request.model_fields[name].annotation) if kind is not NoneType]
