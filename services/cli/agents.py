"""``agent create|update|get``: what is registered of an agent.

Invariant: a registration is whole, so an update reads what there is, changes what was named and registers all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crew_journal.services.cli.options import FALLBACK_DATA_DIR, DataDir, Json, Token, Url, Workspace

app = typer.Typer(help="Agents and their settings.", no_args_is_help=True)

AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="Id of the agent.")]
Crew = Annotated[str | None, typer.Option("--crew", help="Its crew.")]
WalkDepth = Annotated[
    int | None,
    typer.Option(
        "--memory-walk-depth", min=0, max=1, help="Hops along similar edges that its recalls add by default (0)."
    ),
]
Settings = Annotated[str | None, typer.Option("--settings", help="Further settings, a JSON object.")]


@app.command("create")
def create(
    agent_id: AgentId,
    crew: Crew = None,
    memory_walk_depth: WalkDepth = None,
    settings: Settings = None,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """Register an agent that is not registered yet."""
    from crew_journal.schemas.errors import EntryConflict, NotFound
    from crew_journal.services.cli.connection import Where, client
    from crew_journal.services.cli.output import plain

    with client(Where(data_dir, url, token)) as journal:
        try:
            journal.agent(agent_id, workspace_id=workspace)
        except NotFound:
            depth, more = memory_walk_depth or 0, _object(settings) or {}
            made = journal.register_agent(
                agent_id, crew_id=crew, memory_walk_depth=depth, settings=more, workspace_id=workspace
            )
            _report(plain(made), json_output)
            return
    raise EntryConflict(f"the agent {agent_id} is registered already", hint="use `crew-journal agent update`")


@app.command("update")
def update(
    agent_id: AgentId,
    crew: Crew = None,
    memory_walk_depth: WalkDepth = None,
    settings: Settings = None,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """Change what is registered of an agent; what is not named stays."""
    from crew_journal.services.cli.connection import Where, client
    from crew_journal.services.cli.output import plain

    with client(Where(data_dir, url, token)) as journal:
        known = journal.agent(agent_id, workspace_id=workspace)
        more = _object(settings)
        made = journal.register_agent(
            agent_id,
            crew_id=crew or known.crew_id,
            memory_walk_depth=known.memory_walk_depth if memory_walk_depth is None else memory_walk_depth,
            settings=known.settings if more is None else more,
            workspace_id=workspace,
        )
        _report(plain(made), json_output)


@app.command("get")
def get(
    agent_id: AgentId,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """Show what is registered of an agent."""
    from crew_journal.services.cli.connection import Where, client
    from crew_journal.services.cli.output import plain

    with client(Where(data_dir, url, token)) as journal:
        _report(plain(journal.agent(agent_id, workspace_id=workspace)), json_output)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter("is no JSON object", param_hint="--settings")
    return value


def _report(agent: Mapping[str, Any], json_output: bool) -> None:
    from crew_journal.services.cli.output import emit, print_pairs

    if json_output:
        emit(agent)
    else:
        print_pairs({**agent, "settings": json.dumps(agent["settings"], ensure_ascii=False)}.items())
