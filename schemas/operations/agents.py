"""Operations on the registrations of agents and crews.

Invariant: a registration holds all settings; ``update_agent`` reads the last one and registers it with the given
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict, Field

from ..entry import Id
from ..recorded_settings import AgentSettings, CrewSettings, changes_of
from ..views import AGENTS_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace


class RegisterAgentRequest(AgentSettings, Request):
    """Register an agent with its settings; a setting that is left out gets its default."""

    workspace_id: Workspace = None


class RegisterCrewRequest(CrewSettings, Request):
    """Register a crew with its settings; a setting that is left out gets its default."""

    workspace_id: Workspace = None


if TYPE_CHECKING:  # mypy accepts no computed base
    _AgentChanges = RegisterAgentRequest
    _CrewChanges = RegisterCrewRequest
else:
    _AgentChanges = changes_of(AgentSettings, Request)
    _CrewChanges = changes_of(CrewSettings, Request)


class UpdateAgentRequest(_AgentChanges):
    """Change the given settings of a registered agent and keep the others."""

    workspace_id: Workspace = None


class AgentRequest(Request):
    """Show the settings of an agent.

    OWNER and ADMIN may read those of any agent, others their own.
    """

    agent_id: str = Field(description="Id of the agent.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class AgentsRequest(Request):
    """List the registered agents: all of them for OWNER and ADMIN, its own registration for other tokens."""

    crew_id: Id | None = Field(default=None, description="Only agents of this crew.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class UpdateCrewRequest(_CrewChanges):
    """Change the given settings of a registered crew and keep the others.

    The settings are merged by the service, key by key, so that two changes at once both count; a key with ``null`` is
    removed. ``expected_seq`` refuses the change if the crew was registered again meanwhile.
    """

    expected_seq: MinSeq = Field(default=None, description="The ``seq`` of the registration that was read.")
    workspace_id: Workspace = None


class CrewRequest(Request):
    """Show the settings of a crew and its registered agents.

    OWNER and ADMIN may read those of any crew, others those of their own.
    """

    crew_id: str = Field(description="Id of the crew.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class CrewsRequest(Request):
    """List the registered crews: all of them for OWNER and ADMIN, its own for other tokens."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class AgentAnswer(AgentSettings, Answer):
    """A registered agent; ``seq`` is that of its registration."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    seq: int


class AgentsAnswer(Answer):
    """Registered agents, by id."""

    agents: tuple[AgentAnswer, ...]
    view_seq: int


class CrewAnswer(CrewSettings, Answer):
    """A registered crew and the ids of its registered agents; ``seq`` is that of its registration."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
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
