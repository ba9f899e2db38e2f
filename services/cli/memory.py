"""``priority`` and ``sweep``: what operators do to importance.

Invariant: the service decides who may; the answer is printed as it came.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, MinSeq, Reason, Where, Workspace


@grouped
def priority(
    entry_id: Annotated[str, typer.Argument(help="The entry.")],
    wanted: Annotated[str, typer.Argument(metavar="PRIORITY", help="normal, high, pin or permanent.")],
    reason: Reason,
    workspace: Workspace = None,
    min_seq: MinSeq = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Set an entry's live priority; it counts from the next decay on (`sweep decay` runs one now)."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe

    with client(where) as journal:
        done = plain(journal.set_priority(entry_id, wanted, reason, min_seq=min_seq, workspace_id=workspace))
    if json_output:
        emit(done)
    elif done["changed"]:
        print(f"{safe(done['entry_id'])}: {done['previous_priority']} -> {done['priority']}")
    else:
        print(f"{safe(done['entry_id'])}: was {done['priority']} already")


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
