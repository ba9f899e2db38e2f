"""All commands of ``crew-journal``, from which the index is made; ``lazy`` imports only the command that is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from ...schemas.operations import ALL
from . import printers as learning
from .administration import agents, crews, tokens, trust, untrust, workspaces
from .backing_up import backup, restore, salvage
from .broker import broker
from .bundles import bundles
from .checks import doctor
from .cleaning import clean
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
from .lazy import lazy_app
from .learn import app as learn
from .mcp import mcp
from .memory import memory
from .mirror.command import mirror
from .operate import cluster, dlq, rebuild, status, verify
from .printers import command_of, health, knowledge, layered, operators, palace
from .recall import recall
from .remember import remember
from .run import new_app, run
from .sidecar import sidecar
from .up import up
from .work import work


def add_commands(app: click.Group, groups: Mapping[str, click.Group]) -> None:
    """Add the command of each operation to ``app``, or to its group (``dlq list``)."""
    for operation in ALL:
        if operation.command is not None:
            group, _, name = operation.command.rpartition(" ")
            (groups[group] if group else app).add_command(command_of(operation, name))


app = new_app()
COMMANDS: Final[dict[str, Callable[..., int | None]]] = {
    "up": up,
    "down": down,
    "work": work,
    "mcp": mcp,
    "connect": connect,
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with ``argv``, by default the arguments of the process; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run(lazy_app(arguments), arguments)


if __name__ == "__main__":
    sys.exit(main())
