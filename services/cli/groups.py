"""Options declared once: a dataclass of options that several commands share, or the fields of an operation's request.

Why: typer reads one option per parameter, so each command would repeat them.
Invariant: an option of a group reads, parses and fails as one that the command declares itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from typer import Argument, Option

from ...schemas.operations.operation import Effect, Operation, is_switch, plain_types
from ..times import moment_of
from .completing import OF_FIELDS, Complete, among
from .options import json_object

_R = TypeVar("_R")
_SHORT: Final = {"--workspace": "-w", "--limit": "-n", "--k": "-k"}
_REQUIRED_OPTIONS: Final = {
    "reason": "--reason",
    "relation": "--as",
    "role": "--role",
    "mode": "--mode",
    "from_version": "--from-version",
}
"""Required, but easier to read as an option than as the last of several arguments."""
_OPTIONS: Final = {"workspace_id": "--workspace", "agent_id": "--agent", "crew_id": "--crew"}
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

    def parameters(self) -> Iterator[inspect.Parameter]:
        """An argument or option for each field, with the field's help text."""
        names = [name for name in self.operation.request.model_fields if name not in self.without]
        for name in sorted(names, key=lambda name: not is_argument(self.operation, name)):
            yield _of_field(self.operation, name)

    def take(self, given: dict[str, Any]) -> dict[str, Any]:
        """Move the fields of this request out of ``given``; those that were not given are left out."""
        taken = {one.name: given.pop(one.name) for one in self.parameters()}
        found = {
            name: value
            for name, value in taken.items()
            if value not in (None, []) and (value is not False or _is_switch(self.operation, name))
        }
        for name in found:
            if datetime in _kinds(self.operation, name):
                found[name] = moment_of(found[name], name)
            if is_object(self.operation, name):
                word, given_value = option_of(self.operation, name), found[name]
                several = isinstance(given_value, list)
                found[name] = (
                    [json_object(one, word) for one in given_value] if several else json_object(given_value, word)
                )
        return found


@dataclass(frozen=True, slots=True)
class _Shared:
    """The options that are the fields of a dataclass."""

    kind: type[Any]

    def parameters(self) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(self.kind, include_extras=True)
        for part in fields(self.kind):
            default = inspect.Parameter.empty if part.default is MISSING else part.default
            yield _keyword(part.name, hints[part.name], default)

    def take(self, given: dict[str, Any]) -> Any:
        return self.kind(**{part.name: given.pop(part.name) for part in fields(self.kind)})


def grouped(command: Callable[..., _R]) -> Callable[..., _R]:
    """The command for typer: a parameter that is a dataclass, or annotated with :class:`Fields`, stands as its options."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Fields | _Shared] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        marks = [mark for mark in get_args(kind)[1:] if isinstance(mark, Fields)]
        if marks or (isinstance(kind, type) and is_dataclass(kind)):
            groups[name] = marks[0] if marks else _Shared(kind)
            options += groups[name].parameters()
        else:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> _R:
        taken = {name: group.take(given) for name, group in groups.items()}
        return command(**taken, **given)

    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _of_field(operation: Operation[Any, Any], name: str) -> inspect.Parameter:
    field, word, kind = operation.request.model_fields[name], option_of(operation, name), cli_type(operation, name)
    more: dict[str, Any] = {"help": field.description, "autocompletion": completion_of(operation, name)}
    if name == "workspace_id" and operation.effect is not Effect.CREATES:
        more["envvar"] = "CREW_JOURNAL_WORKSPACE"
    if is_argument(operation, name):
        argument = Argument(metavar=word, **more)
        if not field.is_required():
            return _keyword(name, Annotated[kind | None, argument], None)
        return _keyword(name, Annotated[kind, argument])
    if _is_switch(operation, name):
        return _keyword(name, Annotated[bool | None, Option(f"{word}/--no-{word[2:]}", **more)], None)
    names = [word, _SHORT[word]] if word in _SHORT else [word]
    if field.is_required():
        return _keyword(name, Annotated[kind, Option(*names, **more)])
    default = field.default if kind is bool or isinstance(field.default, (int, str)) else None
    if kind is not bool and not default:  # so that an option that is not given is not sent
        kind, default = kind | None, None
    return _keyword(name, Annotated[kind, Option(*names, **more)], default)


def completion_of(operation: Operation[Any, Any], name: str) -> Complete | None:
    """How a shell completes a field: by its name, or to the values that it may have."""
    values = [
        value
        for kind in plain_types(operation.request.model_fields[name].annotation)
        if get_origin(kind) is Literal
        for value in get_args(kind)
    ]
    return OF_FIELDS.get(name) or (among(lambda: map(str, values)) if values else None)


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def is_argument(operation: Operation[Any, Any], name: str) -> bool:
    """Whether a field is an argument of the command: a required one is, with few exceptions."""
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
    inner = [one for kind in kinds if get_origin(kind) is tuple for one in plain_types(get_args(kind)[0])]
    return any(get_origin(kind) is dict or hasattr(kind, "model_fields") for kind in (*kinds, *inner))


def _kinds(operation: Operation[Any, Any], name: str) -> list[Any]:
    return [kind for kind in plain_types(operation.request.model_fields[name].annotation) if kind is not NoneType]
