"""``reindex`` and ``embeddings sweep``: have entries judged anew, and embed what was missed.

Invariant: the commands only ask; what is embedded is told by the sweep itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, Reason, Where, Workspace


@grouped
def reindex(
    model: Annotated[
        str | None, typer.Option("--model", help="Only texts this model refused; every model's if left out.")
    ] = None,
    reason: Reason = "",
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Judge entries by the current embed policy and have texts that the model refused tried again."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain

    with client(where, embedder="auto") as journal:
        done = plain(journal.reindex(model=model, reason=reason, workspace_id=workspace))
    if json_output:
        emit(done)
        return
    print(
        f"reindex by policy {done['policy']} recorded at {done['seq']}: {done['refused']} refused texts are tried again, "
        f"{done['missing']} entries had no vector (crew-journal status shows how far it is)"
    )


@grouped
def sweep(
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Embed what was missed, and say how many entries that were."""
    from crew_journal.schemas.errors import Unavailable
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe

    with client(where, embedder="auto") as journal:
        done = plain(journal.sweep_embeddings(workspace_id=workspace))
    if json_output:
        emit(done)
    else:
        print(", ".join(f"{safe(name)} {count}" for name, count in done["counts"].items()))
    if done["error"]:
        raise Unavailable(f"the sweep broke off: {done['error']}", hint="`crew-journal embedder status` says more")
