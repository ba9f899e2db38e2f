"""``context`` and ``config``: the journals that a person works with, and where each setting comes from.

Invariant: a token or password is never printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import click

from . import configuration
from .commands import Argument, CommandGroup, Option
from .configuration import CONTEXT_VARIABLE, CliContext, config_file, load, save
from .options import Json
from .output import print_table, say, show

contexts = CommandGroup(help="Contexts: journals by name, and which one commands use.")
config = CommandGroup(help="The configuration file.")
_HIDDEN: Final = "(set)"


def _names() -> list[str]:
    return sorted(load().contexts)


Name = Annotated[str, Argument(metavar="NAME", help="Name of the context.", autocompletion=_names)]


@contexts.command("add")
def add(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the context; an existing one is replaced.")],
    url: Annotated[str | None, Option("--url", help="HTTP address of a running service.")] = None,
    token: Annotated[str | None, Option("--token", help="Token to send; stored in the file.")] = None,
    data_dir: Annotated[Path | None, Option("--data-dir", file_okay=False, help="A data directory.")] = None,
    workspace: Annotated[str | None, Option("--workspace", "-w", help="Workspace that commands use.")] = None,
    json_output: Json = False,
) -> None:
    """Add a context: a service with its token, or a data directory. The first one is used at once."""
    if (url is None) == (data_dir is None):
        raise click.BadParameter("give either --url or --data-dir", param_hint="--url")
    if url is not None and not (token or "").strip():
        raise click.BadParameter("is needed with --url", param_hint="--token")
    configuration = load()
    folder = None if data_dir is None else str(data_dir.absolute())
    configuration.contexts[name] = CliContext(url and url.rstrip("/"), token and token.strip(), folder, workspace)
    configuration.context = configuration.context or name
    save(configuration)
    _show(json_output)


@contexts.command("use")
def use(name: Name, json_output: Json = False) -> None:
    """Let commands use a context from now on."""
    configuration = load()
    configuration.named(name)
    configuration.context = name
    save(configuration)
    _show(json_output)


@contexts.command("remove")
def remove(name: Name, json_output: Json = False) -> None:
    """Remove a context; the journal itself is not touched."""
    configuration = load()
    configuration.named(name)
    del configuration.contexts[name]
    configuration.context = None if configuration.context == name else configuration.context
    save(configuration)
    _show(json_output)


@contexts.command("list")
def list_contexts(json_output: Json = False) -> None:
    """List the contexts; the one in use has a star."""
    _show(json_output)


def _show(json_output: bool) -> None:
    configuration = load()
    used = os.environ.get(CONTEXT_VARIABLE) or configuration.context
    rows = [
        {
            "name": name,
            "used": name == used,
            "url": context.url,
            "data_dir": context.data_dir,
            "workspace": context.workspace,
            "token": _HIDDEN if context.token else None,
        }
        for name, context in sorted(configuration.contexts.items())
    ]
    show({"file": str(config_file()), "contexts": rows}, json_output, _print_contexts)


def _print_contexts(answer: Mapping[str, Any]) -> None:
    rows = [
        ("*" if context["used"] else "", context["name"], context["workspace"], context["url"] or context["data_dir"])
        for context in answer["contexts"]
    ]
    empty = "there are no contexts: `crew-journal context add NAME --url URL --token TOKEN` adds one"
    print_table(("", "name", "workspace", "journal"), rows, empty=empty)


@config.command("show")
def show_configuration(json_output: Json = False) -> None:
    """Show every setting, its value, and where the value comes from."""
    from ...schemas.settings import CLIENT_SETTINGS, NODE_SETTINGS, Settings, environment_of

    values = Settings().model_dump() | environment_of(CLIENT_SETTINGS)
    rows = []
    for setting in (*NODE_SETTINGS, *CLIENT_SETTINGS):
        value = values.get(setting.name)
        origin = "environment" if environment_of([setting]) else "default"
        shown = None if value is None else _HIDDEN if setting.secret else str(value)
        rows.append(
            {
                "name": setting.name,
                "value": shown,
                "from": configuration.origins.get(setting.variables[0], origin),
                "meaning": setting.help,
            }
        )
    path = config_file()
    show({"file": str(path), "exists": path.exists(), "settings": rows}, json_output, _print_configuration)


def _print_configuration(answer: Mapping[str, Any]) -> None:
    print_table(
        ("setting", "from", "value"),
        [(setting["name"], setting["from"], setting["value"]) for setting in answer["settings"]],
    )
    say(f"file: {answer['file']}{'' if answer['exists'] else ' (it does not exist)'}")
