"""Operations on the registrations of agents and crews.

Invariant: a registration holds all settings; ``update_agent`` reads the last one and registers it with the given
changes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt

from ..entry import Id, Name
from ..events.workspaces import MEMORY_BUDGET_MAX, AgentRole
from ..views import AGENTS_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace

_AGENT: Final = "Id of the agent."
_CREW: Final = "Id of the crew."
_NAME: Final = "Name for people."
_ROLE: Final = "Its role in the crew: agent or lead."
_MEMORY: Final = "Whether its memory documents are written, searched and put into its prompt."
_BUDGET: Final = "Characters of memory in its prompt; 15,000 if absent."
_DEPTH: Final = "Default of ``walk_depth`` for its recalls: 0 or 1 hop along similar relations."
_SETTINGS: Final = "Further settings, a JSON object."

Budget = Annotated[StrictInt, Field(ge=0, le=MEMORY_BUDGET_MAX)] | None
Depth = Annotated[StrictInt, Field(ge=0, le=1)]


class RegisterAgentRequest(Request):
    """Register an agent with its settings; a setting that is left out gets its default."""

    agent_id: Id = Field(description=_AGENT)
    name: Name | None = Field(default=None, description=_NAME)
    role: AgentRole = Field(default=AgentRole.AGENT, description=_ROLE)
    crew_id: Id | None = Field(default=None, description="Its crew.")
    memory_enabled: StrictBool = Field(default=False, description=_MEMORY)
    memory_budget_chars: Budget = Field(default=None, description=_BUDGET)
    memory_walk_depth: Depth = Field(default=0, description=_DEPTH)
    settings: dict[str, Any] = Field(default_factory=dict, description=_SETTINGS)
    workspace_id: Workspace = None


class UpdateAgentRequest(Request):
    """Change the given settings of a registered agent and keep the others."""

    agent_id: Id = Field(description=_AGENT)
    name: Name | None = Field(default=None, description=_NAME)
    role: AgentRole | None = Field(default=None, description=_ROLE)
    crew_id: Id | None = Field(default=None, description="Its crew.")
    memory_enabled: StrictBool | None = Field(default=None, description=_MEMORY)
    memory_budget_chars: Budget = Field(default=None, description=_BUDGET)
    memory_walk_depth: Depth | None = Field(default=None, description=_DEPTH)
    settings: dict[str, Any] | None = Field(default=None, description=_SETTINGS)
    workspace_id: Workspace = None


class AgentRequest(Request):
    """Show the settings of an agent.

    OWNER and ADMIN may read those of any agent, others their own.
    """

    agent_id: str = Field(description=_AGENT)
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class AgentsRequest(Request):
    """List the registered agents: all of them for OWNER and ADMIN, its own registration for other tokens."""

    crew_id: Id | None = Field(default=None, description="Only agents of this crew.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class RegisterCrewRequest(Request):
    """Register a crew with its settings; a setting that is left out gets its default."""

    crew_id: Id = Field(description=_CREW)
    name: Name | None = Field(default=None, description=_NAME)
    settings: dict[str, Any] = Field(default_factory=dict, description=_SETTINGS)
    workspace_id: Workspace = None


class UpdateCrewRequest(Request):
    """Change the given settings of a registered crew and keep the others.

    The settings are merged by the service, key by key, so that two changes at once both count; a key with ``null`` is
    removed. ``expected_seq`` refuses the change if the crew was registered again meanwhile.
    """

    crew_id: Id = Field(description=_CREW)
    name: Name | None = Field(default=None, description=_NAME)
    settings: dict[str, Any] | None = Field(default=None, description="Settings to change, a JSON object.")
    expected_seq: MinSeq = Field(default=None, description="The ``seq`` of the registration that was read.")
    workspace_id: Workspace = None


class CrewRequest(Request):
    """Show the settings of a crew and its registered agents.

    OWNER and ADMIN may read those of any crew, others those of their own.
    """

    crew_id: str = Field(description=_CREW)
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class CrewsRequest(Request):
    """List the registered crews: all of them for OWNER and ADMIN, its own for other tokens."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class AgentAnswer(Answer):
    """A registered agent; ``seq`` is that of its registration."""

    agent_id: str
    name: str | None
    role: AgentRole
    crew_id: str | None
    memory_enabled: bool
    memory_budget_chars: int | None
    memory_walk_depth: int
    settings: dict[str, Any]
    seq: int


class AgentsAnswer(Answer):
    """Registered agents, by id."""

    agents: tuple[AgentAnswer, ...]
    view_seq: int


class CrewAnswer(Answer):
    """A registered crew and the ids of its registered agents; ``seq`` is that of its registration."""

    crew_id: str
    name: str | None
    settings: dict[str, Any]
    agents: tuple[str, ...]
    seq: int


class CrewsAnswer(Answer):
    """Registered crews, by id."""

    crews: tuple[CrewAnswer, ...]
    view_seq: int


REGISTER_AGENT: Final = Operation(
    name="register_agent",
    request=RegisterAgentRequest,
    answer=AgentAnswer,
    route="PUT /v1/agents/{agent_id}",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
)
UPDATE_AGENT: Final = Operation(
    name="update_agent",
    request=UpdateAgentRequest,
    answer=AgentAnswer,
    route="POST /v1/agents/{agent_id}",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="agent update",
)
AGENT: Final = Operation(
    name="agent",
    request=AgentRequest,
    answer=AgentAnswer,
    route="GET /v1/agents/{agent_id}",
    effect=Effect.READS,
    views=(AGENTS_PROJECTION,),
    errors=(404,),
    command="agent get",
)
AGENTS: Final = Operation(
    name="agents",
    request=AgentsRequest,
    answer=AgentsAnswer,
    route="GET /v1/agents",
    effect=Effect.READS,
    views=(AGENTS_PROJECTION,),
    command="agent list",
)
UPDATE_CREW: Final = Operation(
    name="update_crew",
    request=UpdateCrewRequest,
    answer=CrewAnswer,
    route="POST /v1/crews/{crew_id}",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="crew update",
)
REGISTER_CREW: Final = Operation(
    name="register_crew",
    request=RegisterCrewRequest,
    answer=CrewAnswer,
    route="PUT /v1/crews/{crew_id}",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
)
CREW: Final = Operation(
    name="crew",
    request=CrewRequest,
    answer=CrewAnswer,
    route="GET /v1/crews/{crew_id}",
    effect=Effect.READS,
    views=(AGENTS_PROJECTION,),
    errors=(404,),
    command="crew get",
)
CREWS: Final = Operation(
    name="crews",
    request=CrewsRequest,
    answer=CrewsAnswer,
    route="GET /v1/crews",
    effect=Effect.READS,
    views=(AGENTS_PROJECTION,),
    command="crew list",
)
OPERATIONS: Final = (REGISTER_AGENT, UPDATE_AGENT, AGENT, AGENTS, REGISTER_CREW, UPDATE_CREW, CREW, CREWS)
