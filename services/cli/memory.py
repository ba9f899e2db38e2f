"""``sweep``: what operators do to importance.

Invariant: the service decides who may; the answer is printed as it came.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, Where, Workspace


@grouped
def run_sweep(
    name: Annotated[str, typer.Argument(metavar="NAME", help="decay, health or index.")],
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Run a sweep now, after those that were missed; returns when its tick is folded."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe

    with client(where, embedder="auto") as journal:
        done = plain(journal.sweep(name, workspace_id=workspace))
    if json_output:
        emit(done)
    else:
        print(f"{safe(done['sweep'])} of {safe(done['workspace_id'])}, due {done['due']}, at sequence {done['seq']}")
