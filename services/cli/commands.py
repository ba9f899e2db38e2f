"""Builds click commands from functions: an annotated parameter becomes an option or argument.

A group of options is one parameter: a dataclass, or the fields of an operation's request (``options.Fields``).
Invariant: a command's parameters are read when the command is used, so that ``--help`` of another command is not slowed
down.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, Union, get_args, get_origin, get_type_hints

import click

_LINE: Final = 57
"""Width of a command's help text next to its name in 80 columns."""


class _Declared:
    """An option or argument in an annotation: names and settings of click, and ``min``, ``max`` and ``autocompletion``."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Option(_Declared):
    """An option: ``Annotated[str | None, Option("--since", help="…")]``."""


class Argument(_Declared):
    """An argument, named in the help by ``metavar``."""


@dataclass(frozen=True, slots=True)
class ValueCompletion:
    """How a shell completes the value of a parameter."""

    values: Callable[[str], list[str]]

    def __call__(self, _context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        """The values that begin with ``incomplete``."""
        return self.values(incomplete)


class OptionGroup(Protocol):
    """A parameter of a function that stands for several options."""

    def parameters(self) -> list[click.Parameter]:
        """The options."""

    def take(self, given: Mapping[str, Any]) -> Any:
        """The value of the function's parameter, of the values of all options."""


class _Single:
    """An option or argument of its own."""

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        self._name, self._annotation, self._default = name, annotation, default

    def parameters(self) -> list[click.Parameter]:
        kind, declared = get_args(self._annotation)
        return [parameter(self._name, kind, declared, self._default)]

    def take(self, given: Mapping[str, Any]) -> Any:
        value = given[self._name]
        return (list(value) or self._default) if isinstance(value, tuple) else value


class _Shared:
    """The options that are the fields of a dataclass."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        hints = get_type_hints(kind, include_extras=True)
        self._parts = {
            field.name: _Single(field.name, hints[field.name], None if field.default is MISSING else field.default)
            for field in fields(kind)
        }

    def parameters(self) -> list[click.Parameter]:
        return [option for part in self._parts.values() for option in part.parameters()]

    def take(self, given: Mapping[str, Any]) -> Any:
        return self._kind(**{name: part.take(given) for name, part in self._parts.items()})


class Command(click.Command):
    """A command that calls a function; ``parts`` are parameters of it that no annotation describes."""

    def __init__(
        self,
        name: str | None,
        *,
        parts: Mapping[str, OptionGroup] | None = None,
        source: tuple[str, str] | None = None,
        **settings: Any,
    ) -> None:
        callback = settings["callback"]
        settings["help"] = inspect.cleandoc(settings.get("help") or callback.__doc__ or "")
        super().__init__(name, short_help=short_help(settings["help"]), **settings)
        self._given = parts or {}
        self.source = source or (callback.__module__, callback.__name__)
        """Module and name of what makes the command."""

    @cached_property
    def _parts(self) -> dict[str, OptionGroup]:
        assert self.callback is not None
        signature = inspect.signature(self.callback, eval_str=True)
        return {name: self._given.get(name) or _part(name, it) for name, it in signature.parameters.items()}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, and ``--help``."""
        if not self.params:
            made = [option for part in self._parts.values() for option in part.parameters()]
            self.params = sorted(made, key=lambda one: one.param_type_name != "argument")
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the values of the command line."""
        assert self.callback is not None
        return ctx.invoke(self.callback, **{name: part.take(ctx.params) for name, part in self._parts.items()})


class CommandGroup(click.Group):
    """Commands below one name."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which they were added."""
        return list(self.commands)


def _part(name: str, parameter: inspect.Parameter) -> OptionGroup:
    annotation = parameter.annotation
    if is_dataclass(annotation):
        return _Shared(annotation)  # type: ignore[arg-type]  # a class, not an instance
    mark = get_args(annotation)[1]
    if isinstance(mark, _Declared):
        return _Single(name, annotation, None if parameter.default is parameter.empty else parameter.default)
    part: OptionGroup = mark
    return part


def parameter(name: str, kind: Any, declared: _Declared, default: Any = None) -> click.Parameter:
    """The click parameter for a type: text, number, path, flag, choice, or a list of these.

    It is required if its type does not include None and there is no default.
    """
    settings, plain = dict(declared.settings), _without_none(kind)
    required = plain is kind and default is None
    several = get_origin(plain) is list
    if several:
        (plain,) = get_args(plain)
    if (complete := settings.pop("autocompletion", None)) is not None:
        settings["shell_complete"] = ValueCompletion(complete)
    if plain is bool:
        settings["is_flag"] = True
    settings["type"] = _click_type(plain, settings)
    if default is not None or plain is bool:  # without a default, an absent flag would be off
        settings["default"] = default
    if isinstance(declared, Argument):
        return click.Argument([name], required=required, nargs=-1 if several else 1, **settings)
    return click.Option(
        [*declared.names, name], required=required, multiple=several, show_envvar="envvar" in settings, **settings
    )


def _click_type(kind: Any, settings: dict[str, Any]) -> click.ParamType[Any] | type[Any]:
    """The click type of a parameter; removes the type's own settings from ``settings``."""
    ends = {name: settings.pop(name) for name in ("min", "max") if name in settings}
    if ends:
        return click.IntRange(**ends) if kind is int else click.FloatRange(**ends)
    if kind is Path:
        checks = {name: settings.pop(name) for name in ("exists", "file_okay", "dir_okay") if name in settings}
        return click.Path(path_type=Path, **checks)
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    read: type[Any] = kind
    return read


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    (plain,) = (member for member in get_args(kind) if member is not NoneType)
    return plain


def short_help(text: str) -> str:
    """The part of a help text for a list of commands: the first sentence, up to a colon or semicolon if it is long."""
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    return sentence if len(sentence) <= _LINE else re.split("[:;] ", sentence, maxsplit=1)[0]
