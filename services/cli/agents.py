"""``agent create|update``: what is registered of an agent.

Invariant: a registration is whole, so an update reads what is registered, changes what was given and registers all of it.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...schemas.errors import EntryConflict, NotFound
from ...schemas.operations.relations import REGISTER_AGENT
from .connection import client
from .groups import Fields, grouped
from .options import Json, Where
from .output import show
from .printers import print_agent

app = typer.Typer(help="Agents and their settings.", no_args_is_help=True)


@app.command("create")
@grouped
def create(
    asked: Annotated[dict[str, Any], Fields(REGISTER_AGENT)], *, where: Where, json_output: Json = False
) -> None:
    """Register an agent that is not registered yet."""
    with client(where) as journal:
        try:
            journal.agent(asked["agent_id"], workspace_id=asked.get("workspace_id"))
        except NotFound:
            show(journal.register_agent(**asked), json_output, print_agent)
            return
    raise EntryConflict(f"the agent {asked['agent_id']} is registered already", hint="use `crew-journal agent update`")


@app.command("update")
@grouped
def update(
    asked: Annotated[dict[str, Any], Fields(REGISTER_AGENT)], *, where: Where, json_output: Json = False
) -> None:
    """Change the given settings of an agent and keep the others."""
    with client(where) as journal:
        known = journal.agent(asked["agent_id"], workspace_id=asked.get("workspace_id"))
        show(journal.register_agent(**{**known.model_dump(exclude={"seq"}), **asked}), json_output, print_agent)
