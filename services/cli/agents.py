"""``agent create`` and ``crew create``: what is registered already is refused.

Invariant: an option that is not given is not sent, so that the service's defaults apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import click

from ...schemas.errors import EntryConflict, NotFound
from ...schemas.ids import slug_of
from ...schemas.operations.agents import REGISTER_CREW, UPDATE_AGENT
from .commands import Argument, CommandGroup
from .connection import client
from .options import Json, Where
from .output import show
from .printers import print_registered
from .request_options import Fields

agents = CommandGroup(help="Agents and their settings.")
crews = CommandGroup(help="Crews and their settings.")
NewId = Annotated[str | None, Argument(metavar="[ID]", help="The id; without it, one is made of --name.")]


@agents.command("create")
def create_agent(
    agent_id: NewId,
    fields: Annotated[dict[str, Any], Fields(UPDATE_AGENT, without=("agent_id",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Register an agent that is not registered yet."""
    new, workspace = _new_id(agent_id, fields), fields.get("workspace_id")
    with client(where) as journal:
        _refuse_known("agent", new, lambda: journal.agent(new, workspace_id=workspace))
        show(journal.register_agent(new, **fields), json_output, print_registered)


@crews.command("create")
def create_crew(
    crew_id: NewId,
    fields: Annotated[dict[str, Any], Fields(REGISTER_CREW, without=("crew_id",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Register a crew that is not registered yet."""
    new, workspace = _new_id(crew_id, fields), fields.get("workspace_id")
    with client(where) as journal:
        _refuse_known("crew", new, lambda: journal.crew(new, workspace_id=workspace))
        show(journal.register_crew(new, **fields), json_output, print_registered)


def _new_id(given: str | None, asked: dict[str, Any]) -> str:
    if new_id := given or slug_of(asked.get("name", "")):
        return new_id
    raise click.BadParameter("give an id, or a --name with letters a-z or digits", param_hint="ID")


def _refuse_known(kind: str, new: str, look: Callable[[], object]) -> None:
    try:
        look()
    except NotFound:
        return
    raise EntryConflict(f"the {kind} {new} is registered already", hint=f"use `crew-journal {kind} update`")
