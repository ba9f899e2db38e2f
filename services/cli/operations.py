"""The commands of all operations that have one: a loop over their declarations.

Invariant: an argument or option is a field of the request, with its help text; the service checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from ...schemas.operations import ALL
from ...schemas.operations.operation import Operation
from .connection import client
from .groups import Fields, grouped, is_argument
from .options import Json, Where
from .output import show
from .printers import PRINTERS, print_fields

_WITH_EMBEDDER: Final = frozenset(
    {"sweep", "sweep_embeddings", "reindex", "embedding_models", "activate_model", "drop_model"}
)
"""Operations that need vectors: if no ``up`` runs, the runtime that is started for the command embeds."""


def add_commands(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add the command of each operation to ``app``, or to its group (``dlq list``)."""
    for operation in ALL:
        if operation.command is not None:
            group, _, name = operation.command.rpartition(" ")
            (groups[group] if group else app).command(name)(command_of(operation))


def command_of(operation: Operation[Any, Any]) -> Callable[..., None]:
    """An operation as a command for typer."""
    embedder = "auto" if operation.name in _WITH_EMBEDDER else None

    def run(asked: dict[str, Any], where: Where, json_output: bool = False) -> None:
        required = {name for name, field in operation.request.model_fields.items() if field.is_required()}
        arguments = [asked.pop(name) for name in list(asked) if name in required and is_argument(operation, name)]
        with client(where, embedder=embedder) as journal:
            answer = getattr(journal, operation.name)(*arguments, **asked)
        show(answer, json_output, PRINTERS.get(operation.name, print_fields))

    run.__annotations__ = {"asked": Annotated[Any, Fields(operation)], "where": Where, "json_output": Json}
    run.__doc__ = (operation.request.__doc__ or "").strip()
    run.__name__ = operation.name
    return grouped(run)
