"""The commands of ``crew-journal`` by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from ...schemas.operations.embeddings import ACTIVATE_MODEL
from . import learning
from .administration import tokens, workspaces
from .agents import agents, crews
from .backing_up import backup, restore
from .broker import broker
from .bundles import bundles
from .checks import doctor
from .cleaning import clean
from .connect import connect
from .contexts import config, contexts
from .demo import demo
from .embeddings import app as embeddings
from .embeddings import embedder
from .evaluate import evaluate
from .exporting import export
from .health import health
from .importing.command import import_command
from .journal import get, list_entries, tail
from .knowledge import knowledge
from .mcp import mcp
from .memory import memory
from .mirror.command import mirror
from .operate import dlq, rebuild, status, verify
from .operations import add_commands, command_of
from .operators import operators
from .palace import layered, palace
from .provider_parity import provider_parity
from .publishing import publish, schema
from .recall import recall
from .run import new_app, run
from .salvaging import salvage
from .sidecar.command import sidecar
from .trusting import trust, untrust
from .up import up
from .work import work

app = new_app()
COMMANDS: Final[dict[str, Callable[..., int | None]]] = {
    "up": up,
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
    "recall": recall,
    "eval": evaluate,
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
