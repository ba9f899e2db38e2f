"""The commands of all operations that have one: a loop over their declarations.

Invariant: an argument or option is a field of the request, with its help text; the service checks it. An error names the
option, as the person typed it, and not the field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from ...schemas.operations import ALL
from ...schemas.operations.operation import Operation
from .fields import as_options
from .groups import grouped
from .options import Json, Where
from .printers import PRINTERS, print_fields
from .words import cli_type, is_argument, option_of, words_of

_SHORT: Final = {"--workspace": "-w", "--limit": "-n"}

_WITH_EMBEDDER: Final = frozenset(
    {"sweep", "sweep_embeddings", "reindex", "embedding_models", "activate_model", "drop_model"}
)
"""What needs vectors: if no ``up`` runs, the one that is started for the command embeds."""


def add_commands(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add the command of each operation to ``app``, or to its group (``dlq list``)."""
    for operation in ALL:
        if operation.command is None:
            continue
        group, _, name = operation.command.rpartition(" ")
        (groups[group] if group else app).command(name)(command_of(operation))


def command_of(operation: Operation[Any, Any]) -> Callable[..., None]:
    """An operation as a command for typer."""
    fields = operation.request.model_fields
    embedder = "auto" if operation.name in _WITH_EMBEDDER else None
    arguments = [name for name in fields if is_argument(operation, name)]
    options = [name for name in fields if not is_argument(operation, name)]

    def run(*, where: Where, json_output: Json = False, **given: Any) -> None:
        from .connection import client
        from .output import emit, plain

        with as_options(words_of(operation)), client(where, embedder=embedder) as journal:
            method = getattr(journal, operation.name)
            answer = plain(method(*[given.pop(name) for name in arguments], **given))
        if json_output:
            emit(answer)
        else:
            PRINTERS.get(operation.name, print_fields)(answer)

    parameters = [_parameter(operation, name) for name in (*arguments, *options)]
    own = inspect.signature(run, eval_str=True).parameters
    run.__signature__ = inspect.Signature([*parameters, own["where"], own["json_output"]])  # type: ignore[attr-defined]
    run.__doc__ = (operation.request.__doc__ or "").strip()
    run.__name__ = operation.name
    return grouped(run)


def _parameter(operation: Operation[Any, Any], name: str) -> inspect.Parameter:
    field, word, kind = operation.request.model_fields[name], option_of(operation, name), cli_type(operation, name)
    if is_argument(operation, name):
        declared: Any = Annotated[kind, typer.Argument(metavar=word, help=field.description)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=declared)
    names = [word, _SHORT[word]] if word in _SHORT else [word]
    declared = Annotated[kind, typer.Option(*names, help=field.description)]
    default = inspect.Parameter.empty if field.is_required() else field.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=declared, default=default)
