"""``embeddings list|add|compare|activate|drop``: a second embedding model beside the first.

Invariant: the journal decides and records; what is filled, refused or forgotten is shown as the journal says it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .compare_models import compare
from .groups import grouped
from .options import Json, Model, Where

app = typer.Typer(help="Embedding models: fill a second one, compare, switch, switch back.", no_args_is_help=True)


@app.command("add")
@grouped
def add(
    model: Model,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no vector is missing, with a progress bar.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Add a model and compute its vectors in the background; recall continues with the active one. It is tested first."""
    from .connection import client
    from .output import emit, plain, safe, say
    from .vectors import wait_for_model

    with client(where, embedder="auto") as journal:
        result = plain(journal.add_model(model))
        if wait:
            result["filled"] = wait_for_model(journal, result["model"])
    if json_output:
        emit(result)
        return
    name = safe(result["model"])
    say(f"{name} is filled beside the others" if result["changed"] else f"{name} was added before")
    if wait:
        say(f"{result['filled']['vectors']} vectors, {result['filled']['missing']} missing")


app.command("compare")(compare)
