"""``workspace settings``: what is decided for a whole workspace.

Invariant: a change is an entry of the journal, and printed only after its ack.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .groups import grouped
from .options import Json, Where, Workspace

app = typer.Typer(help="Settings of a workspace, for OWNER and ADMIN.", no_args_is_help=True)


@app.callback()
def _workspace() -> None:
    """Settings of a workspace, for OWNER and ADMIN."""


@app.command("settings")
@grouped
def settings(
    cost_nudge_usd: Annotated[
        float | None,
        typer.Option("--cost-nudge-usd", min=0.0, help="US dollars in 24 h above which an agent is nudged."),
    ] = None,
    evidence_floor: Annotated[
        float | None,
        typer.Option(
            "--evidence-floor", min=0.0, max=1.0, help="Confidence below which recall in mode inject leaves out a hit."
        ),
    ] = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the settings of a workspace, or change those that are given."""
    from .connection import client
    from .output import emit, plain, print_pairs

    with client(where) as journal:
        if cost_nudge_usd is None and evidence_floor is None:
            found = plain(journal.workspace_settings(workspace_id=workspace))
        else:
            found = plain(
                journal.configure_workspace(
                    cost_nudge_usd=cost_nudge_usd, evidence_floor=evidence_floor, workspace_id=workspace
                )
            )
    if json_output:
        emit(found)
    else:
        print_pairs(found.items())
