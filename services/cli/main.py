"""The commands of ``crew-journal`` by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from ...schemas.core.operation import Operation
from ...schemas.models.operations import ACTIVATE_MODEL
from ...schemas.operations import ALL
from . import printers as learning
from .administration import agents, crews, tokens, trust, untrust, workspaces
from .backing_up import backup, restore, salvage
from .broker import broker
from .bundles import bundles
from .checks import doctor
from .cleaning import clean
from .commands import Command
from .connect import connect
from .connection import client, down
from .contexts import config, contexts
from .demo import demo
from .embeddings import app as embeddings
from .embeddings import embedder
from .evaluate import evaluate, provider_parity
from .expectations import run_expectations
from .forgetting import forget
from .importing.command import import_command
from .journal import export, get, list_entries, publish, schema, tail
from .learn import app as learn
from .mcp import mcp
from .memory import memory
from .mirror.command import mirror
from .operate import cluster, dlq, rebuild, status, verify
from .options import Fields, Json, Where, is_argument
from .output import show
from .printers import PRINTERS, health, knowledge, layered, operators, palace, print_fields
from .recall import recall
from .remember import remember
from .run import new_app, run
from .sidecar import sidecar
from .up import up
from .work import work

# The commands of all operations that have one: a loop over their declarations.


_WITH_EMBEDDER: Final = frozenset(
    {"sweep", "sweep_embeddings", "reindex", "embedding_models", "activate_model", "drop_model"}
)
"""Operations that need vectors: if no ``up`` runs, the runtime that is started for the command has an embedder."""


def add_commands(app: click.Group, groups: Mapping[str, click.Group]) -> None:
    """Add the command of each operation to ``app``, or to its group (``dlq list``)."""
    for operation in ALL:
        if operation.command is not None:
            group, _, name = operation.command.rpartition(" ")
            (groups[group] if group else app).add_command(command_of(operation, name))


def command_of(operation: Operation[Any, Any], name: str) -> Command:
    """The command of an operation."""
    embedder = "auto" if operation.name in _WITH_EMBEDDER else None

    def run(asked: dict[str, Any], where: Where, json_output: Json = False) -> None:
        required = {name for name, field in operation.request.model_fields.items() if field.is_required()}
        arguments = [asked.pop(name) for name in list(asked) if name in required and is_argument(operation, name)]
        with client(where, embedder=embedder) as journal:
            answer = getattr(journal, operation.name)(
                *arguments, **{name: value for name, value in asked.items() if value is not None}
            )
        show(answer, json_output, PRINTERS.get(operation.name, print_fields))

    text = (operation.request.__doc__ or "").strip()
    return Command(name, callback=run, help=text, parts={"asked": Fields(operation)})


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
    "embedder": embedder,
    "embeddings": embeddings,
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
    "kg": knowledge,
    "palace": palace,
    "context": contexts,
    "config": config,
    "layered": layered,
    "broker": broker,
    "cluster": cluster,
}
add_commands(app, GROUPS)
for name, group in GROUPS.items():
    app.add_command(group, name)
embedder.add_command(command_of(ACTIVATE_MODEL, "activate"))  # its name before there was `embeddings`


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with ``argv``, by default the arguments of the process; returns the exit code."""
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
