"""All commands of ``crew-journal``, from which the index is made; ``lazy`` imports only the command that is used."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from ...schemas.operations import ALL
from . import printers as learning
from .administration import accounts, agents, crews, invite, tokens, trust, untrust, workspaces
from .backing_up import backup, restore, salvage
from .broker import broker
from .bundles import bundles
from .checks import doctor
from .cleaning import clean
from .commands import Command, ValueCompletion
from .completion import journals
from .completion import workspaces as named_workspaces
from .connect import connect
from .connection import down
from .contexts import config, contexts
from .demo import demo
from .embeddings import app as models
from .evaluate import evaluate, provider_parity
from .expectations import run_expectations
from .forgetting import forget
from .importing.command import import_command
from .journal import export, get, list_entries, publish, schema, tail
from .lazy import PACKAGE, start
from .learn import app as learn
from .mcp import mcp
from .memory import memory
from .mirror.command import mirror
from .operate import cluster, dlq, rebuild, status, verify
from .printers import command_of, health, knowledge, layered, operators, palace
from .recall import recall
from .remember import remember
from .run import new_app
from .sidecar import sidecar
from .up import up
from .work import work


def add_commands(app: click.Group, groups: Mapping[str, click.Group]) -> None:
    """Add the command of each operation to ``app``, or to its group (``dlq list``)."""
    for operation in ALL:
        if operation.command is not None:
            group, _, name = operation.command.rpartition(" ")
            (groups[group] if group else app).add_command(command_of(operation, name))


_SHARED_FROM: Final = 4
"""Commands from which the index holds a parameter once for all."""
app = new_app()
COMMANDS: Final[dict[str, Callable[..., int | None]]] = {
    "up": up,
    "down": down,
    "work": work,
    "mcp": mcp,
    "connect": connect,
    "invite": invite,
    "trust": trust,
    "untrust": untrust,
    "demo": demo,
    "publish": publish,
    "import": import_command,
    "list": list_entries,
    "get": get,
    "tail": tail,
    "remember": remember,
    "recall": recall,
    "eval": evaluate,
    "test": run_expectations,
    "schema": schema,
    "export": export,
    "mirror": mirror,
    "sidecar": sidecar,
    "status": status,
    "health": health,
    "doctor": doctor,
    "backup": backup,
    "restore": restore,
    "rebuild": rebuild,
    "verify": verify,
    "salvage": salvage,
    "clean": clean,
    "forget": forget,
    "provider-parity": provider_parity,
}
for name, function in COMMANDS.items():
    app.command(name)(function)
GROUPS: Final = {
    "memory": memory,
    "dlq": dlq,
    "model": models,
    "agent": agents,
    "crew": crews,
    "consolidate": learning.consolidate,
    "proposal": learning.proposals,
    "lesson": learning.lessons,
    "learn": learn,
    "operator": operators,
    "bundle": bundles,
    "token": tokens,
    "account": accounts,
    "workspace": workspaces,
    "fact": knowledge,
    "palace": palace,
    "journal": contexts,
    "config": config,
    "layered": layered,
    "broker": broker,
    "cluster": cluster,
}
add_commands(app, GROUPS)
for name, group in GROUPS.items():
    app.add_command(group, name)


# The index is made of the commands themselves by ``make generate``.


def index_text() -> str:
    """The index as JSON, one command on a line; parameters that many commands share are in a table of their own."""
    records = {path: record_of(command) for path, command in _leaves(app)}
    counted = Counter(_key(each) for record in records.values() for each in record["params"])
    shared: dict[str, Any] = {}
    for record in records.values():
        for place, each in enumerate(record["params"]):
            name = max(each["names"], key=len)
            if counted[_key(each)] >= _SHARED_FROM and shared.setdefault(name, each) == each:
                record["params"][place] = name
    tables = {
        "groups": {name: group.help for name, group in GROUPS.items()},
        "parameters": shared,
        "commands": records,
    }
    return "{" + ",\n".join(f'"{name}": {{\n{_lines(table)}\n}}' for name, table in tables.items()) + "}\n"


def _lines(table: Mapping[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {_key(value)}" for name, value in table.items())


def _key(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _leaves(group: click.Group, start: str = "") -> Iterable[tuple[str, Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{start}{name} ")
        else:
            yield f"{start}{name}", command  # type: ignore[misc]  # all are made by `commands`


def record_of(command: Command) -> dict[str, Any]:
    """What the index holds of a command."""
    command.get_params(click.Context(command))  # makes them
    params = [_record_of_parameter(each) for each in command.params]
    module, attribute = command.source
    return {"from": [module.removeprefix(PACKAGE), attribute], "help": command.help or "", "params": params}


def _record_of_parameter(each: click.Parameter) -> dict[str, Any]:
    record: dict[str, Any] = {"help": getattr(each, "help", None)}
    if isinstance(each, click.Option):
        record["names"] = [
            each.name,
            *(["/".join((*each.opts, *each.secondary_opts))] if each.secondary_opts else each.opts),
        ]
        if each.is_flag:
            record["is_flag"] = True
        if each.show_envvar:
            record["show_envvar"] = True
        if each.multiple:
            record["multiple"] = True
        if isinstance(each.show_default, str):
            record["show_default"] = each.show_default
    else:
        record |= {"argument": True, "names": [each.name], "nargs": each.nargs}
    for name in ("metavar", "envvar"):
        if value := getattr(each, name):
            record[name] = value
    if each.required != isinstance(each, click.Argument):
        record["required"] = each.required
    if isinstance(each.default, str | int | float) or (each.default is None and getattr(each, "is_flag", False)):
        record["default"] = each.default
    if (kind := _record_of_type(each)) != "text":
        record["type"] = kind
    if isinstance(complete := vars(each).get("_custom_shell_complete"), ValueCompletion):
        dynamic: dict[Callable[[str], list[str]], str] = {named_workspaces: "workspaces", journals: "journals"}
        record["values"] = dynamic.get(complete.values) or complete.values("")
    return record


def _record_of_type(each: click.Parameter) -> Any:
    kind = each.type
    if isinstance(kind, click.Choice):
        return ["choice", *kind.choices]
    if isinstance(kind, click.IntRange | click.FloatRange):
        return ["int" if isinstance(kind, click.IntRange) else "float", kind.min, kind.max]
    if isinstance(kind, click.Path):
        return ["path", kind.exists, kind.file_okay, kind.dir_okay]
    return {"integer": "int", "float": "float", "boolean": "flag"}.get(kind.name, "text")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with ``argv``, by default the arguments of the process; returns the exit code."""
    return start(list(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
