"""The options that several commands share, so that one name means one thing everywhere.

Invariant: no module that ``main`` imports needs httpx, duckdb, rich or a library of that weight, so that ``--help`` and
shell completion answer at once. Commands import such libraries when they run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import click

from ...schemas.core.operation import MOMENT_HINT, Operation, is_switch, plain_types
from ..client.find import data_dir_of
from ..printable import moment_of, past_moment_of
from .commands import Argument, Option, parameter
from .completion import journals, workspaces

if TYPE_CHECKING:
    from ...schemas.settings import Settings


# Completion of values in a shell: recipes, views, roles. The index holds them.


Complete = Callable[[str], list[str]]


def among(values: Callable[[], Iterable[str]]) -> Complete:
    """Completes to the ``values`` that begin with the typed text."""

    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(value for value in values() if value.startswith(incomplete))
        except Exception:  # a message would be read as a completion
            return []

    return complete


def _recipes() -> Iterable[str]:
    from ..recall.recipes import RECIPES

    return RECIPES


def _views() -> Iterable[str]:
    from ...consumers.discovery import discover_projections

    return [projection.name for projection in discover_projections()]


def _roles() -> Iterable[str]:
    from ...schemas.core.principal import Role

    return [role.value for role in Role]


complete_recipe: Final = among(_recipes)
complete_view: Final = among(_views)
complete_role: Final = among(_roles)
OF_FIELDS: Final[dict[str, Complete]] = {
    "recipe": complete_recipe,
    "projection": complete_view,
    "workspace_id": workspaces,
}
"""By the name of a request's field."""


DataDir = Annotated[
    Path | None,
    Option(
        "--data-dir",
        envvar="CREW_JOURNAL_DATA_DIR",
        file_okay=False,
        help="Data directory; a running `up` is found in it. [default: your own journal; see `config show`]",
    ),
]
Workspace = Annotated[
    str | None,
    Option(
        "--workspace",
        "-w",
        envvar="CREW_JOURNAL_WORKSPACE",
        help="Workspace, for a token of all workspaces (default: `default`).",
        autocompletion=workspaces,
    ),
]
Json = Annotated[bool, Option("--json", help="JSON on stdout; a failure is JSON on stderr.")]
Embedder = Annotated[
    str | None,
    Option("--embedder", envvar="CREW_JOURNAL_EMBEDDER", help="auto, openai, ollama, minilm or none. [default: auto]"),
]
AsOf = Annotated[
    str | None,
    Option("--as-of", metavar="SEQ|TIME", help="As of this sequence or time: from the journal up to there."),
]
MinSeq = Annotated[
    int | None, Option("--min-seq", min=0, help="Wait until the views have passed this sequence: read your own writes.")
]


@dataclass(frozen=True, slots=True)
class Where:
    """The journal of a command: a data directory, or a service at an address.

    Attributes:
        data_dir: Used if there is no address; None for the data directory of the current folder (see ``folder``).
        url: The address.
        token: The token to send; surrounding blanks (a file's line break) do not count.
        journal: The context that names the journal; ``configuration.configured`` has applied it already.
    """

    data_dir: DataDir = None
    url: Annotated[
        str | None, Option("--url", envvar="CREW_JOURNAL_URL", help="HTTP address of a running service.")
    ] = None
    token: Annotated[
        str | None,
        Option(
            "--token",
            envvar="CREW_JOURNAL_TOKEN",
            help="Token to send; by default the owner's token of the data directory.",
        ),
    ] = field(default=None, repr=False)

    journal: Annotated[
        str | None,
        Option(
            "--journal",
            envvar="CREW_JOURNAL_CONTEXT",
            help="Name of the journal; see `journal list`.",
            autocompletion=journals,
        ),
    ] = None

    @property
    def folder(self) -> Path:
        """The data directory.

        Raises:
            NotAllowed: If it was not named, but found in the current folder, and is not trusted.
        """
        return data_dir_of(self.data_dir)

    @property
    def bearer(self) -> str | None:
        """The token, None if there is none."""
        return (self.token or "").strip() or None


def json_value(text: str | bytes, option: str) -> Any:
    """The JSON of an option or of stdin.

    Raises:
        click.BadParameter: If it is not JSON, naming the option.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from None
    except RecursionError:
        raise click.BadParameter("is nested too deeply", param_hint=option) from None


def json_object(text: str, option: str) -> dict[str, Any]:
    """The value of an option that takes a JSON object.

    Raises:
        click.BadParameter: If it is not a JSON object, naming the option.
    """
    value = json_value(text, option)
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint=option)
    return value


def settings_from(**given: Any) -> Settings:
    """Settings of the environment, overridden by the options that were given.

    Raises:
        click.BadParameter: If a value is not valid, naming the option.
    """
    from pydantic import ValidationError

    from ...schemas.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = "--" + str((first["loc"] or ("setting",))[0]).replace("_", "-")
        raise click.BadParameter(first["msg"].removeprefix("Value error, "), param_hint=option) from None


# The options of a command that are the fields of an operation's request.
#
# Invariant: an argument or option is a field of the request, with its help text; the service checks it.


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
_ARGUMENTS: Final = {"entry_id": "ID", "dst_entry_id": "OTHER_ID", "entry_ids": "[ID]…", "until": "[UNTIL]"}
_AFTER_REQUIRED: Final = ("entry_ids", "until")
"""Fields that are arguments although they may be absent: they stand after the required arguments."""


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


def past_or_now(as_of: str | None) -> str | None:
    """The value of ``--as-of`` as an operation takes it; None for now."""
    return None if as_of is None else past_moment_of(as_of)


def _sent(operation: Operation[Any, Any], name: str, value: Any) -> Any:
    """The value of an option as the request takes it."""
    if datetime in _kinds(operation, name):
        return moment_of(value, name)
    if operation.request.model_fields[name].json_schema_extra == MOMENT_HINT:
        return past_moment_of(value)
    if isinstance(value, tuple):
        return [_sent(operation, name, member) for member in value]
    return json_object(value, option_of(operation, name)) if is_object(operation, name) else value


def _of_field(operation: Operation[Any, Any], name: str) -> click.Parameter:
    field, word, kind = operation.request.model_fields[name], option_of(operation, name), cli_type(operation, name)
    more: dict[str, Any] = {"help": field.description, "autocompletion": completion_of(operation, name)}
    if name == "workspace_id":
        more["envvar"] = "CREW_JOURNAL_WORKSPACE"
    if is_argument(operation, name):
        return parameter(name, kind if field.is_required() else kind | None, Argument(metavar=word, **more))
    if _is_switch(operation, name):
        return parameter(name, bool | None, Option(f"{word}/--no-{word[2:]}", **more))
    option = Option(word, *([_ALIASES[name]] if name in _ALIASES else []), **more)
    if field.is_required():
        return parameter(name, kind, option)
    default = field.default.value if isinstance(field.default, Enum) else field.default
    default = default if isinstance(default, int | str) else None
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
    return name in _AFTER_REQUIRED or (required and name not in _REQUIRED_OPTIONS)


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
