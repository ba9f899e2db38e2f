"""Options that several commands share are declared once, as a dataclass that a command takes whole.

Why: typer reads one option per parameter, so that a command which talks to a journal would repeat three parameters and put
them together again, and each command with the journal's filters fourteen.
Invariant: an option of a group reads, parses and fails as one that the command declares itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

_R = TypeVar("_R")


def grouped(command: Callable[..., _R]) -> Callable[..., _R]:
    """A command for typer: each parameter that is a dataclass stands as the options that are its fields.

    Args:
        command: Takes such parameters by keyword.

    Returns:
        The same command, called with the options one by one.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            options += _options_of(kind)
        else:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> _R:
        for name, group in groups.items():
            given[name] = group(**{part.name: given.pop(part.name) for part in fields(group) if part.name in given})
        return command(**given)

    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def names_of(group: type[Any]) -> dict[str, str]:
    """Field of a group → the first name of its option."""
    hints = get_type_hints(group, include_extras=True)
    declared = {part.name: hints[part.name].__metadata__ for part in fields(group)}
    return {name: str(option.default) for name, (option,) in declared.items()}  # typer keeps the name as `default`


def _options_of(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for part in fields(group):
        default = inspect.Parameter.empty if part.default is MISSING else part.default
        yield inspect.Parameter(part.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[part.name])
