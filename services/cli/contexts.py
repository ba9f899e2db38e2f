"""``context`` and ``config``: the journals that a person works with, and where each setting comes from.

Invariant: a token or password is never printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import click

from ...schemas.core.errors import NotAllowed
from ..client.find import CONTEXT_VARIABLE, Place, config_file, places
from . import configuration
from .commands import Argument, CommandGroup, Option
from .completion import journals
from .configuration import CliContext, load
from .configuration import save as write
from .options import Json
from .output import print_folded, print_table, say, show

contexts = CommandGroup(help="Contexts: journals by name, and which one commands use.")
config = CommandGroup(help="The configuration file.")
_HIDDEN: Final = "(set)"


Name = Annotated[str, Argument(metavar="NAME", help="Name of the context.", autocompletion=journals)]


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
    write(configuration)
    _show(json_output)


def context_of(url: str, token: str, workspace: str | None, *, save: bool = False) -> str:
    """The name of the context of a service; if there is none, that of a new one, which is added with ``save``."""
    configuration = load()
    wanted = CliContext(url.rstrip("/"), token, None, workspace)
    for name, context in configuration.contexts.items():
        if context == wanted:
            return name
    name = urlsplit(url).netloc.replace(":", "-")
    if save:
        configuration.contexts[name] = wanted
        write(configuration)
    return name


@contexts.command("use")
def use(name: Name, json_output: Json = False) -> None:
    """Let commands use a context from now on."""
    configuration = load()
    configuration.named(name)
    configuration.context = name
    write(configuration)
    _show(json_output)


@contexts.command("remove")
def remove(name: Name, json_output: Json = False) -> None:
    """Remove a context; the journal itself is not touched."""
    configuration = load()
    configuration.named(name)
    del configuration.contexts[name]
    configuration.context = None if configuration.context == name else configuration.context
    write(configuration)
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
    empty = (
        "no journal has a name, so commands use your own one (`crew-journal config show`): "
        "`crew-journal journal add NAME --url URL --token TOKEN` names another"
    )
    print_table(("", "name", "workspace", "journal"), rows, empty=empty)


@config.command("show")
def show_configuration(
    every: Annotated[bool, Option("--all", help="Print all settings, not only those that are set.")] = False,
    json_output: Json = False,
) -> None:
    """Show which journal commands use here and why, every setting that is set, and where its value comes from."""
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
    own = {name: value for name, value in os.environ.items() if name not in configuration.origins}
    answer = {
        "journal": _explained(list(places(environment=own))),
        "file": str(path),
        "exists": path.exists(),
        "settings": rows,
    }
    show(answer, json_output, partial(_print_configuration, every=every))


def _explained(candidates: Sequence[Place]) -> list[dict[str, Any]]:
    """Each place where a journal is looked for: whether it is used, and why it is not."""
    rows, used = [], None
    for place in candidates:
        why = place.absent
        if not why and used is not None:
            why = f"{used} comes first"
        elif not why:
            used = place.origin
            try:
                place.check()
            except NotAllowed as error:  # commands end with this error; no other journal is used instead
                why = f"{error.message}: {error.hint}"
        where = place.url or (None if place.data_dir is None else str(place.data_dir.absolute()))
        rows.append({"place": place.origin, "journal": where, "used": not why, "why_not": why or None})
    return rows


def _print_configuration(answer: Mapping[str, Any], *, every: bool) -> None:
    print("which journal is used here: the first of these places that has one")
    for row in answer["journal"]:
        mark = "*" if row["used"] else " "
        where = " ".join(filter(None, (row["journal"], f"({row['why_not']})" if row["why_not"] else "")))
        print_folded(where, f"{mark} {row['place']:<22}  ")
    chosen = [setting for setting in answer["settings"] if every or setting["from"] != "default"]
    print()
    print_table(
        ("setting", "from", "value"),
        [(setting["name"], setting["from"], setting["value"]) for setting in chosen],
        empty="all settings have their defaults: --all lists them",
    )
    say(f"file: {answer['file']}{'' if answer['exists'] else ' (it does not exist)'}")
