"""``agent`` and ``crew``: what an OWNER or ADMIN registers.

Invariant: ``create`` refuses what is registered, ``update`` what is not; ``update`` changes only what is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import click

from ...schemas.errors import EntryConflict, NotFound
from ...schemas.ids import slug_of
from .commands import Argument, Group, Option
from .connection import client
from .options import Json, Where, Workspace, json_object
from .output import show
from .printers import print_registered

agents = Group(help="Agents and their settings.")
crews = Group(help="Crews and their settings.")

AgentId = Annotated[str, Argument(metavar="AGENT", help="Id of the agent.")]
CrewId = Annotated[str, Argument(metavar="CREW", help="Id of the crew.")]
NewId = Annotated[str | None, Argument(metavar="[ID]", help="The id; without it, one is made of --name.")]
PersonName = Annotated[str | None, Option("--name", help="Name for people.")]
SettingsJson = Annotated[str | None, Option("--settings", help="Further settings, a JSON object.")]
_SETTINGS: Final = "--settings"


@dataclass(frozen=True, slots=True)
class Profile:
    """What an agent is registered with; absent options are not sent."""

    name: PersonName = None
    role: Annotated[str | None, Option("--role", help="What it is in its crew: agent or lead.")] = None
    crew: Annotated[str | None, Option("--crew", help="Its crew.")] = None
    memory: Annotated[
        bool | None,
        Option("--memory/--no-memory", help="Whether its memory is on: written, searched and put into its prompt."),
    ] = None
    budget: Annotated[int | None, Option("--budget", min=0, help="Characters of memory in its prompt (15,000).")] = None
    walk_depth: Annotated[
        int | None, Option("--walk-depth", "--memory-walk-depth", min=0, max=1, help="Hops of its recalls by default.")
    ] = None
    settings: SettingsJson = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the request."""
        return _given(
            name=self.name,
            role=self.role,
            crew_id=self.crew,
            memory_enabled=self.memory,
            memory_budget_chars=self.budget,
            memory_walk_depth=self.walk_depth,
            settings=_object(self.settings),
        )


@agents.command("create")
def create_agent(
    agent_id: NewId = None,
    workspace: Workspace = None,
    *,
    profile: Profile,
    where: Where,
    json_output: Json = False,
) -> None:
    """Register an agent that is not registered yet."""
    asked, new = profile.fields, _new_id(agent_id, profile.name)
    with client(where) as journal:
        _refuse_known("agent", new, lambda: journal.agent(new, workspace_id=workspace))
        show(journal.register_agent(new, **asked, workspace_id=workspace), json_output, print_registered)


@agents.command("update")
def update_agent(
    agent_id: AgentId,
    workspace: Workspace = None,
    *,
    profile: Profile,
    where: Where,
    json_output: Json = False,
) -> None:
    """Change the given settings of an agent and keep the others."""
    asked = profile.fields
    with client(where) as journal:
        show(journal.update_agent(agent_id, **asked, workspace_id=workspace), json_output, print_registered)


@crews.command("create")
def create_crew(
    crew_id: NewId = None,
    name: PersonName = None,
    settings: SettingsJson = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Register a crew that is not registered yet."""
    asked, new = _given(name=name, settings=_object(settings)), _new_id(crew_id, name)
    with client(where) as journal:
        _refuse_known("crew", new, lambda: journal.crew(new, workspace_id=workspace))
        show(journal.register_crew(new, **asked, workspace_id=workspace), json_output, print_registered)


@crews.command("update")
def update_crew(
    crew_id: CrewId,
    name: PersonName = None,
    settings: SettingsJson = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Change the given settings of a crew and keep the others; a setting with null is removed."""
    asked = _given(name=name, settings=_object(settings))
    with client(where) as journal:
        show(journal.update_crew(crew_id, **asked, workspace_id=workspace), json_output, print_registered)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _object(settings: str | None) -> dict[str, Any] | None:
    return None if settings is None else json_object(settings, _SETTINGS)


def _new_id(given: str | None, name: str | None) -> str:
    if found := given or slug_of(name or ""):
        return found
    raise click.BadParameter("give an id, or a --name with letters a-z or digits", param_hint="ID")


def _refuse_known(kind: str, new: str, look: Callable[[], object]) -> None:
    try:
        look()
    except NotFound:
        return
    raise EntryConflict(f"the {kind} {new} is registered already", hint=f"use `crew-journal {kind} update`")
