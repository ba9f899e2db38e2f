"""``agent create|update|get``: what is registered of an agent.

Invariant: a registration is whole, so an update reads what there is, changes what was named and registers all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .groups import grouped
from .options import Json, Where, Workspace, json_object
from .printers import print_agent

app = typer.Typer(help="Agents and their settings.", no_args_is_help=True)

AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="Id of the agent.")]
Crew = Annotated[str | None, typer.Option("--crew", help="Its crew.")]
WalkDepth = Annotated[
    int | None,
    typer.Option(
        "--memory-walk-depth",
        min=0,
        max=1,
        help="Number of hops along similar edges that its recalls add by default (0).",
    ),
]
Settings = Annotated[str | None, typer.Option("--settings", help="Further settings, a JSON object.")]


@app.command("create")
@grouped
def create(
    agent_id: AgentId,
    crew: Crew = None,
    memory_walk_depth: WalkDepth = None,
    settings: Settings = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Register an agent that is not registered yet."""
    from ...schemas.errors import EntryConflict, NotFound
    from .connection import client
    from .output import plain

    with client(where) as journal:
        try:
            journal.agent(agent_id, workspace_id=workspace)
        except NotFound:
            depth, more = memory_walk_depth or 0, json_object(settings, "--settings") or {}
            made = journal.register_agent(
                agent_id, crew_id=crew, memory_walk_depth=depth, settings=more, workspace_id=workspace
            )
            _report(plain(made), json_output)
            return
    raise EntryConflict(f"the agent {agent_id} is registered already", hint="use `crew-journal agent update`")


@app.command("update")
@grouped
def update(
    agent_id: AgentId,
    crew: Crew = None,
    memory_walk_depth: WalkDepth = None,
    settings: Settings = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Change the given settings of an agent and keep the others."""
    from .connection import client
    from .output import plain

    with client(where) as journal:
        known = journal.agent(agent_id, workspace_id=workspace)
        more = json_object(settings, "--settings")
        made = journal.register_agent(
            agent_id,
            crew_id=crew or known.crew_id,
            memory_walk_depth=known.memory_walk_depth if memory_walk_depth is None else memory_walk_depth,
            settings=known.settings if more is None else more,
            workspace_id=workspace,
        )
        _report(plain(made), json_output)


def _report(agent: Mapping[str, Any], json_output: bool) -> None:
    from .output import emit

    if json_output:
        emit(agent)
    else:
        print_agent(agent)
