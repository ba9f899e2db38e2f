"""``workspace settings``: what is decided for a whole workspace.

Invariant: a change is an entry of the journal, and printed only after its ack.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .connection import client
from .groups import grouped
from .options import Json, Where, Workspace
from .output import show
from .printers import print_fields

app = typer.Typer(no_args_is_help=True)


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
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the settings of a workspace, or change those that are given."""
    with client(where) as journal:
        if cost_nudge_usd is None:
            found = journal.workspace_settings(workspace_id=workspace)
        else:
            found = journal.configure_workspace(cost_nudge_usd=cost_nudge_usd, workspace_id=workspace)
    show(found, json_output, print_fields)
