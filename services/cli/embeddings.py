"""``embeddings list|add|compare|activate|drop``: a second embedding model beside the first.

Invariant: the journal decides and records; what is filled, refused or forgotten is shown as the journal says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crew_journal.services.cli.compare_models import compare
from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, Model, Reason, Where

app = typer.Typer(help="Embedding models: fill a second one, compare, switch, switch back.", no_args_is_help=True)


@app.command("list")
@grouped
def list_models(
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="Figures of this workspace; of all if left out.")
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """List the models: where recall uses them, how far they are filled, and how the last call ended."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, print_table, say

    with client(where, embedder="auto") as journal:
        report = plain(journal.embedding_models(workspace_id=workspace))
    if json_output:
        emit(report)
        return
    if not report["models"]:
        say("there are no models: start `up` with an embedder, or `embeddings add MODEL`")
        return
    columns = ("model", "state", "active", "vectors", "missing", "refused", "dim", "last call")
    print_table("", columns, [_row(model) for model in report["models"]], right=columns[3:7])


def _row(model: Mapping[str, Any]) -> tuple[object, ...]:
    where = model.get("active_in")
    if where is None:
        active = "yes" if model["active"] else ""
    else:
        active = ", ".join("default" if name == "_system" else name for name in where)
    outcome = model["outcome"] or {}
    ended = outcome.get("message") or ("ok" if outcome.get("last_success") else "-")
    counted = [model["vectors"], "-" if model["missing"] is None else model["missing"], model["refused"]]
    return (model["model"], model["state"], active, *counted, model["dim"] or "-", ended)


@app.command("add")
@grouped
def add(
    model: Model,
    wait: Annotated[bool, typer.Option("--wait", help="Until no vector is missing, with a progress bar.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Fill a further model in the background; recall goes on with the active one. The model is tried out first."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe, say
    from crew_journal.services.cli.vectors import wait_for_model

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


@app.command("activate")
@grouped
def activate(
    model: Model,
    reason: Reason = "",
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="Only there; the default of all if left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also if entries have no vector of it yet.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Let recall use another model, at once. The former one stays filled: activate it again to switch back.

    It is refused while entries have no vector of the model, which recall would not find by meaning.
    """
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe, say

    with client(where, embedder="auto") as journal:
        result = plain(journal.activate_model(model, workspace_id=workspace, reason=reason, force=force))
    if json_output:
        emit(result)
        return
    say(f"recall uses {safe(result['model'])} from here on" if result.get("changed", True) else "it was active already")
    if result.get("missing"):
        say(f"warning: {result['missing']} of {result['embeddable']} entries have no vector of it yet")


app.command("compare")(compare)


@app.command("drop")
@grouped
def drop(
    model: Model,
    reason: Reason = "",
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Forget a model's vectors and fill it no longer. The active model cannot be dropped."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe, say

    with client(where, embedder="auto") as journal:
        result = plain(journal.drop_model(model, reason))
    if json_output:
        emit(result)
    else:
        say(
            f"{safe(result['model'])} is dropped"
            if result["changed"]
            else f"{safe(result['model'])} was dropped before"
        )
