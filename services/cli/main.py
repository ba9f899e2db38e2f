"""The commands of ``crew-journal`` by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

import typer

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

_LINE: Final = 57
"""Characters of a command's help beside its name in 80 columns."""

app = new_app()
USING: Final = (
    up,
    work,
    mcp,
    connect,
    trust,
    untrust,
    demo,
    publish,
    import_command,
    list_entries,
    get,
    tail,
    recall,
    evaluate,
    schema,
    export,
    mirror,
    sidecar,
)
OPERATING: Final = (status, health, doctor, backup, restore, rebuild, verify, salvage, clean, provider_parity)
RENAMED: Final = {
    "import_command": "import",
    "list_entries": "list",
    "evaluate": "eval",
    "provider_parity": "provider-parity",
}
"""Commands whose names are words of Python, or hold a hyphen."""
for command in (*USING, *OPERATING):
    app.command(RENAMED.get(command.__name__, command.__name__))(command)
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
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
add_commands(app, GROUPS)
embedder.command("activate")(command_of(ACTIVATE_MODEL))  # its name before there was `embeddings`


def short_help(text: str) -> str:
    """What a list of commands shows of a help text: its first sentence, up to a colon or semicolon if it is long."""
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    return sentence if len(sentence) <= _LINE else re.split("[:;] ", sentence, maxsplit=1)[0]


def _shorten(group: typer.Typer) -> None:
    for command in group.registered_commands:  # without a short help, typer cuts the text at the end of the line
        command.short_help = short_help(command.help or (command.callback and command.callback.__doc__) or "")


for group in (app, *GROUPS.values()):
    _shorten(group)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with ``argv``, by default the arguments of the process; returns the exit code."""
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
