"""The configuration file: settings, and contexts that name the journals a person works with.

Invariant: options override the environment, the environment overrides the active context, and the context overrides the
file's settings. A context does not apply to a command that names its journal, so that its token is not sent to another
service.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...schemas.core.errors import InvalidQuery, NotFound
from ..client.find import (
    CONFIG_VARIABLE,
    CONTEXT_VARIABLE,
    DATA_DIR_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    config_file,
    read_config,
)
from ..data_dir import write_private

PREFIX: Final = "CREW_JOURNAL_"
_JOURNAL_OPTION: Final = "--journal"
_NAMING_OPTIONS: Final = ("--url", "--data-dir")
_NAMING_VARIABLES: Final = (URL_VARIABLE, DATA_DIR_VARIABLE)
"""Variables that name a journal; if such a variable or an option above is given, no context applies."""

origins: dict[str, str] = {}
"""Variable → origin of its value, for variables that the running command got from the file."""


@dataclass(frozen=True, slots=True)
class CliContext:
    """A journal: a service by its address, or a data directory; and the workspace to work in."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    data_dir: str | None = None
    workspace: str | None = None


@dataclass(slots=True)
class Configuration:
    """The content of the file; every part is optional."""

    context: str | None = None
    contexts: dict[str, CliContext] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def named(self, name: str) -> CliContext:
        """The context of that name.

        Raises:
            NotFound: If the file has no context of that name.
        """
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFound(
                f"there is no context {name}", hint=f"there are: {known}; `crew-journal journal add` makes one"
            )
        return self.contexts[name]


def load() -> Configuration:
    """Read the file; empty if there is none.

    Raises:
        InvalidQuery: If the file is not valid; names the problem.
    """
    path, read = config_file(), read_config()
    try:
        contexts = {name: CliContext(**fields) for name, fields in read.pop("contexts", {}).items()}
        configuration = Configuration(contexts=contexts, **read)
    except (TypeError, AttributeError) as error:
        raise InvalidQuery(f"{path}: {error}", hint="it has `context`, [settings] and [contexts.NAME]") from None
    if configuration.settings:
        from ...schemas.settings import Settings

        for name in configuration.settings.keys() - Settings.model_fields.keys():
            raise InvalidQuery(f"{path}: there is no setting {name}", hint="`crew-journal config show` lists all")
    return configuration


def save(configuration: Configuration) -> None:
    """Write the file, readable for its owner only; comments in it are lost."""
    lines = [f"context = {_toml(configuration.context)}"] if configuration.context else []
    tables: dict[str, Mapping[str, Any]] = {"settings": configuration.settings} if configuration.settings else {}
    tables |= {f"contexts.{_toml(name)}": asdict(context) for name, context in configuration.contexts.items()}
    for name, fields in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in fields.items() if value is not None)]
    write_private(config_file(), "\n".join(lines).lstrip("\n") + "\n")


def environment_elsewhere() -> dict[str, str]:
    """The environment for a command that runs in another folder: its relative paths of ours become absolute."""
    from ...schemas.settings import Settings

    paths = [name for name, field in Settings.model_fields.items() if field.annotation in (Path, Path | None)]
    environment = dict(os.environ)
    for name in (CONFIG_VARIABLE, *(f"{PREFIX}{name.upper()}" for name in paths)):
        if environment.get(name):
            environment[name] = str(Path(environment[name]).absolute())
    return environment


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def configured(arguments: Sequence[str]) -> Iterator[None]:
    """Add the file's settings to the environment while a command runs.

    A data directory that the command names counts before the address in the environment, which is left out with its token.
    """
    added = _additions(arguments)
    names_folder = DATA_DIR_VARIABLE in added if _value_of(_JOURNAL_OPTION, arguments) else _names_folder(arguments)
    left_out = {URL_VARIABLE, TOKEN_VARIABLE} - set(added) if names_folder and URL_VARIABLE in os.environ else set()
    former = {name: os.environ[name] for name in (*added, *left_out) if name in os.environ}
    for name in left_out:
        os.environ.pop(name, None)
    os.environ.update(added)
    try:
        yield
    finally:
        origins.clear()
        for name in added:
            os.environ.pop(name, None)
        os.environ.update(former)


def _names_folder(arguments: Sequence[str]) -> bool:
    return _value_of("--data-dir", arguments) is not None and _value_of("--url", arguments) is None


def _additions(arguments: Sequence[str]) -> dict[str, str]:
    configuration = load()
    given: dict[str, tuple[str, str]] = {}
    for name, value in configuration.settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        given[f"{PREFIX}{name.upper()}"] = text, "[settings] of the file"
    asked = _value_of(_JOURNAL_OPTION, arguments)  # a context that the command names counts before the environment
    chosen = asked or os.environ.get(CONTEXT_VARIABLE) or configuration.context
    named = not asked and (
        any(os.environ.get(name) for name in _NAMING_VARIABLES)
        or any(_value_of(option, arguments) is not None for option in _NAMING_OPTIONS)
    )
    of_context: set[str] = set()
    if chosen and not named and arguments[:1] not in (["context"], ["journal"]):
        for name, value in asdict(configuration.named(chosen)).items():
            if value is not None:
                given[f"{PREFIX}{name.upper()}"] = value, f"context {chosen}"
                of_context.add(f"{PREFIX}{name.upper()}")
    added = {name: value for name, value in given.items() if name not in os.environ or (asked and name in of_context)}
    origins.update({name: given[name][1] for name in added})
    return {name: value for name, (value, _) in added.items()}


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """The value of an option, empty if it is the last argument; None if it is not given."""
    for place, argument in enumerate(arguments):
        if argument == option:
            return arguments[place + 1] if place + 1 < len(arguments) else ""
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None
