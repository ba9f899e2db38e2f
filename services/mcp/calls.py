"""Values of a call of a tool: its caller and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...schemas.errors import InvalidQuery, NotAllowed
from ...schemas.ids import is_id
from ...schemas.principal import Principal, Role


@dataclass(frozen=True, slots=True)
class ToolConnection:
    """The caller of tools, and its tools.

    Attributes:
        principal: The binding of the token, or the agent for whom an OWNER or ADMIN connects (``acting_as``).
        toolsets: Names of the sets.
        workspace_id: The workspace of all calls, for a token of all workspaces.
        call_id: The id that a proxy gave the call: sent again, it writes once.
        notes: Whether the instructions of a session hold the agent's remembered notes.
    """

    principal: Principal
    toolsets: tuple[str, ...]
    workspace_id: str | None = None
    call_id: str | None = None
    notes: bool = True


def acting_as(
    principal: Principal, agent_id: str | None, crew_id: str | None, workspace_id: str | None, *, leads: bool
) -> Principal:
    """The rights of an agent, for an OWNER or ADMIN who connects it; the token itself for everybody else.

    Raises:
        NotAllowed: If a token of an agent names another agent or crew.
        InvalidQuery: If an id is not valid, or a crew or LEAD is named without an agent or crew.
    """
    if agent_id is None:
        if crew_id is not None or leads:
            raise InvalidQuery(
                "crew_id and role need an agent_id", hint="name the agent that connects", field="agent_id"
            )
        return principal
    if not principal.role.administers:
        if agent_id != principal.agent_id or crew_id not in (None, principal.crew_id):
            raise NotAllowed("the token is for another agent", hint="leave agent_id and crew_id out", field="agent_id")
        return principal
    if not is_id(agent_id) or not (crew_id is None or is_id(crew_id)):
        raise InvalidQuery("agent_id or crew_id is not valid", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="agent_id")
    if leads and crew_id is None:
        raise InvalidQuery("a LEAD needs a crew", hint="name crew_id", field="crew_id")
    return Principal(
        token_id=principal.token_id,
        role=Role.LEAD if leads else Role.AGENT,
        workspace_id=principal.workspace(workspace_id),
        crew_id=crew_id,
        agent_id=agent_id,
        expires_ms=principal.expires_ms,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call: text for the model, the same as JSON, and whether it is an error."""

    text: str
    structured: dict[str, Any]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call that ended.

    Attributes:
        workspace_id: The workspace that the call named, by an argument or by its URL; None if it named none.
    """

    connection: ToolConnection
    workspace_id: str | None
    tool: str
    arguments: Mapping[str, Any]
    outcome: Outcome
    took_ms: float
