"""The commands of all operations that have one: a loop over their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from ...schemas.operations import ALL
from ...schemas.operations.operation import Operation
from .commands import Command
from .connection import client
from .options import Json, Where
from .output import show
from .printers import PRINTERS, print_fields
from .request_options import Fields, is_argument

_WITH_EMBEDDER: Final = frozenset(
    {"sweep", "sweep_embeddings", "reindex", "embedding_models", "activate_model", "drop_model"}
)
"""Operations that need vectors: if no ``up`` runs, the runtime that is started for the command embeds."""


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
            answer = getattr(journal, operation.name)(*arguments, **asked)
        show(answer, json_output, PRINTERS.get(operation.name, print_fields))

    text = (operation.request.__doc__ or "").strip()
    return Command(name, callback=run, help=text, parts={"asked": Fields(operation)})
