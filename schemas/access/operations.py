"""Operations on tokens, accounts of people, agents, crews, settings, nudges, and the broker's address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt

from ..core.entry import Id, Timestamp, WorkspaceId
from ..core.grants import MAX_GRANTS, PersonName, Speaker, TypePattern
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..core.principal import Role
from ..core.recorded_settings import AgentSettings, CrewSettings, WorkspaceSettings, changes_of
from ..entries.tables import ENTRIES_PROJECTION
from ..recall.tables import RECEIPTS_PROJECTION
from .tables import AGENTS_PROJECTION, NUDGES_PROJECTION


class TokenRequest(Request):
    """Create a token; only this answer holds its secret.

    With ``nats``, the secret is also a NATS password, and ``nats_access`` holds address, user and subject.
    """

    role: Role = Field(description="OWNER, ADMIN, LEAD or AGENT.", examples=["AGENT"])
    workspace_id: WorkspaceId | None = Field(default=None, description="Its workspace; `default` if absent.")
    all_workspaces: StrictBool = Field(
        default=False, description="For OWNER: valid for all workspaces; each request then names its workspace."
    )
    crew_id: Id | None = Field(default=None, description="Its crew; LEAD needs one.")
    agent_id: Id | None = Field(default=None, description="Its agent; LEAD and AGENT need one.", examples=["ada"])
    label: str = Field(default="", max_length=128, description="Purpose of the token.")
    nats: StrictBool = Field(default=False, description="For LEAD and AGENT: also make it a NATS password.")
    may_publish: tuple[TypePattern, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="For LEAD and AGENT: further entry types, or prefix.*, that it may publish.",
    )
    speaks_for: tuple[Speaker, ...] = Field(
        default=(),
        max_length=MAX_GRANTS,
        description="Persons for whom the token may speak, such as user:maria. For LEAD and AGENT also other actors, "
        "such as keeper or keeper:gate.",
    )
    expires_at: Timestamp | None = Field(default=None, description="When it expires; never if absent.")


class TokensRequest(Request):
    """List tokens: ids, bindings, grants and times, without secrets.

    Covers the token's workspace. A token for all workspaces may name a workspace; otherwise the answer covers all.
    """

    workspace_id: Workspace = None


class RevokeTokenRequest(Request):
    """Revoke a token; it is refused from now on.

    Its live tails and its NATS connections are closed.
    """

    token_id: str = Field(description="Its id, as `token list` prints it.")


class BrokerRequest(Request):
    """Show the broker's address for reactors in other processes; the answer holds the service's password."""


class TokenRecord(Answer):
    """A token without its secret. Times are milliseconds since the epoch.

    ``nats``: whether it is also a NATS password. ``may_publish`` and ``speaks_for`` are grants beyond its role.
    ``expires_ms`` is null if it does not expire.
    """

    token_id: str
    role: Role
    workspace_id: str | None
    crew_id: str | None
    agent_id: str | None
    label: str
    created_ms: int
    revoked_ms: int | None
    nats: bool = False
    may_publish: tuple[str, ...] = ()
    speaks_for: tuple[str, ...] = ()
    expires_ms: int | None = None


class TokensAnswer(Answer):
    """Tokens, oldest first."""

    tokens: tuple[TokenRecord, ...]


class NatsAccess(Answer):
    """How an agent appends over NATS: it sends entries as requests on ``subject``, of at most ``max_bytes`` bytes each."""

    address: str
    user: str
    password: str = Field(repr=False)
    subject: str
    max_bytes: int


class TokenCreatedAnswer(TokenRecord):
    """A new token; ``token`` is the secret and cannot be read again. ``nats_access`` if it is also a NATS password."""

    token: str
    nats_access: NatsAccess | None = None


class TokenRevokedAnswer(Answer):
    """The revoked token."""

    token_id: str
    revoked: bool = True


class BrokerAnswer(Answer):
    """Address, user and password of the broker, for reactors in other processes."""

    url: str
    user: str | None
    password: str | None = Field(default=None, repr=False)


CREATE_TOKEN: Final = Operation(
    name="create_token",
    request=TokenRequest,
    answer=TokenCreatedAnswer,
    route="POST /v1/admin/tokens",
    effect=Effect.CREATES,
    access=Access.ADMINISTRATOR,
    errors=(409,),
    repeatable=False,
    decided="node",
)
TOKENS: Final = Operation(
    name="tokens",
    request=TokensRequest,
    answer=TokensAnswer,
    route="GET /v1/admin/tokens",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    command="token list",
)
REVOKE_TOKEN: Final = Operation(
    name="revoke_token",
    request=RevokeTokenRequest,
    answer=TokenRevokedAnswer,
    route="DELETE /v1/admin/tokens/{token_id}",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="token revoke",
    repeatable=False,
    decided="node",
)
BROKER: Final = Operation(
    name="broker",
    request=BrokerRequest,
    answer=BrokerAnswer,
    route="GET /v1/admin/broker",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
)


# Operations on the accounts of people who sign in to the pages, and on their sessions.


class InvitePersonRequest(Request):
    """Invite a person to the pages; the answer has a link with which the person sets a password, once.

    Inviting a person again makes a new link, for a forgotten password or another role; the former link ends.
    """

    person: PersonName = Field(description="The name with which the person signs in.", examples=["maria"])
    role: Role = Field(default=Role.ADMIN, description="OWNER, ADMIN, LEAD or AGENT.", examples=["ADMIN"])
    workspace_id: WorkspaceId | None = Field(default=None, description="The workspace; `default` if absent.")
    all_workspaces: StrictBool = Field(default=False, description="For OWNER: all workspaces.")
    crew_id: Id | None = Field(default=None, description="The crew; LEAD needs one.")
    agent_id: Id | None = Field(
        default=None, description="For LEAD and AGENT: the agent whose memory the person sees; by default of that name."
    )
    hours: StrictInt = Field(default=72, ge=1, le=24 * 30, description="Hours until the link expires.")


class AccountsRequest(Request):
    """List the people who may sign in to the pages.

    Covers the token's workspace. A token for all workspaces may name a workspace; otherwise the answer covers all.
    """

    workspace_id: Workspace = None


class RemoveAccountRequest(Request):
    """Remove the account of a person; the person's sessions end at once, and the password is deleted.

    Decisions of the person stay in the journal under the name.
    """

    person: str = Field(description="The name with which the person signs in.")


class SessionsRequest(Request):
    """List the sessions of pages: your own, and for OWNER all of the workspace."""


class EndSessionRequest(Request):
    """End a session of pages: one of your own, or for OWNER any of the workspace."""

    session_id: str = Field(description="Its id, as `account sessions` prints it.")


class PersonInvitedAnswer(Answer):
    """The invited person. ``path`` is the path of the link; it is a secret and cannot be read again."""

    account_id: str
    person: str
    role: Role
    workspace_id: str | None
    path: str = Field(repr=False)
    expires_ms: int
    again: bool


class AccountRecord(Answer):
    """The account of a person. Times are milliseconds since the epoch.

    ``joined`` says whether the person has set a password; ``link_expires_ms`` is null if no link is open.
    """

    account_id: str
    person: str
    role: Role
    workspace_id: str | None
    crew_id: str | None
    agent_id: str | None
    invited_ms: int
    joined: bool
    link_expires_ms: int | None


class AccountsAnswer(Answer):
    """Accounts by name."""

    accounts: tuple[AccountRecord, ...]


class AccountRemovedAnswer(Answer):
    """The removed account."""

    person: str
    removed: bool = True


class SessionRecord(Answer):
    """A session of pages: who signed in, with which program, and when it began, was last used and ends."""

    session_id: str
    person: str | None
    token_id: str
    role: Role
    workspace_id: str | None
    program: str
    began_ms: int
    used_ms: int
    ends_ms: int


class SessionsAnswer(Answer):
    """Sessions, oldest first."""

    sessions: tuple[SessionRecord, ...]


class SessionEndedAnswer(Answer):
    """The ended session."""

    session_id: str
    ended: bool = True


INVITE_PERSON: Final = Operation(
    name="invite_person",
    request=InvitePersonRequest,
    answer=PersonInvitedAnswer,
    route="POST /v1/admin/accounts",
    effect=Effect.CREATES,
    access=Access.ADMINISTRATOR,
    errors=(409,),
    repeatable=False,
    decided="node",
)
ACCOUNTS: Final = Operation(
    name="accounts",
    request=AccountsRequest,
    answer=AccountsAnswer,
    route="GET /v1/admin/accounts",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    command="account list",
)
REMOVE_ACCOUNT: Final = Operation(
    name="remove_account",
    request=RemoveAccountRequest,
    answer=AccountRemovedAnswer,
    route="DELETE /v1/admin/accounts/{person}",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="account remove",
    repeatable=False,
    decided="node",
)
SESSIONS: Final = Operation(
    name="sessions",
    request=SessionsRequest,
    answer=SessionsAnswer,
    route="GET /v1/sessions",
    effect=Effect.READS,
    command="account sessions",
)
END_SESSION: Final = Operation(
    name="end_session",
    request=EndSessionRequest,
    answer=SessionEndedAnswer,
    route="DELETE /v1/sessions/{session_id}",
    effect=Effect.DESTROYS,
    errors=(404,),
    command="account end-session",
    repeatable=False,
    decided="anywhere",
)


# Operations on the registrations of agents and crews.


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

    OWNER and ADMIN may read the settings of any agent; other tokens may read their own agent's.
    """

    agent_id: str = Field(description="Id of the agent.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class AgentsRequest(Request):
    """List the registered agents: all of them for OWNER and ADMIN, its own registration for other tokens."""

    crew_id: Id | None = Field(default=None, description="Only agents of this crew.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class UpdateCrewRequest(_CrewChanges):
    """Change the given settings of a registered crew and keep the others.

    The service merges the settings key by key, so that two simultaneous changes both take effect; a key with ``null``
    is removed. With ``expected_seq``, the change is refused if the crew was registered again meanwhile.
    """

    expected_seq: MinSeq = Field(default=None, description="The ``seq`` of the registration that was read.")
    workspace_id: Workspace = None


class CrewRequest(Request):
    """Show the settings of a crew and its registered agents.

    OWNER and ADMIN may read the settings of any crew; other tokens may read their own crew's.
    """

    crew_id: str = Field(description="Id of the crew.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class CrewsRequest(Request):
    """List the registered crews: all crews for OWNER and ADMIN, the token's own crew for other tokens."""

    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class AgentAnswer(AgentSettings, Answer):
    """A registered agent; ``seq`` is the sequence of the registration."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    seq: int


class AgentsAnswer(Answer):
    """Registered agents, by id."""

    agents: tuple[AgentAnswer, ...]
    view_seq: int


class CrewAnswer(CrewSettings, Answer):
    """A registered crew and the ids of its registered agents; ``seq`` is the sequence of the registration."""

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


# Operations on settings of a workspace, and on nudges.


class NudgesRequest(Request):
    """Print the nudges that are due for a session, one per line, for use in the user turn.

    Each kind is offered at most once per session. Most answers are empty.
    """

    session_id: Id = Field(description="The session.")
    agent_id: Id | None = Field(default=None, description="The agent, for OWNER and ADMIN.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class WorkspaceSettingsRequest(Request):
    """Show the settings of a workspace, or the defaults if it has none."""

    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


if TYPE_CHECKING:  # mypy accepts no computed Literal
    SettingName = str
else:
    SettingName = Literal[*WorkspaceSettings.model_fields]


class ConfigureWorkspaceRequest(WorkspaceSettings, Request):
    """Change the given settings of a workspace.

    Recorded as an entry, whose sequence is the answer's ``view_seq``; pass it as ``min_seq`` to read the change. When
    ``embed_chat`` is switched on again, an index sweep embeds the older entries; when it is switched off, existing
    vectors are kept.
    """

    reset: tuple[SettingName, ...] = Field(
        default=(), description="Settings to reset to their defaults, before the given ones are set; repeatable."
    )
    workspace_id: Workspace = None


class CalibrateRequest(Request):
    """Propose an evidence floor from the hits that recall returned and those that were used.

    Replays the workspace's receipts under every floor. The proposal is the highest floor that keeps 95 % of the hits
    that were reported as used (`used`); with fewer than 20 such hits there is no proposal. Hits that were only rendered
    do not count as used. The command does not change the floor; `workspace settings --evidence-floor` sets it. Recalls
    of both modes count; of a recall in mode inject, only the hits above the floor of that recall are known.
    """

    receipts: StrictInt = Field(
        default=5_000, ge=1, le=50_000, description="Maximum number of receipts to replay, newest first."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class FloorShown(Answer):
    """The effect of a floor: hits per recall; shares of used hits kept, of kept hits used, and of empty recalls."""

    floor: float
    hits: float
    used_kept: float
    used_share: float | None
    silent: float


class CalibrateAnswer(Answer):
    """The proposed floor, null if too few hits were used, and the figures of every floor.

    ``receipts`` counts the replayed recalls, ``used`` the hits reported as used, ``rendered`` the hits that `render`
    put into a block.
    """

    workspace_id: str
    floor: float | None
    receipts: int
    used: int
    rendered: int = 0
    floors: tuple[FloorShown, ...]
    view_seq: int


class WorkspacesRequest(Request):
    """List the workspaces that the token may read, with the number of their entries and the time of the last one."""

    min_seq: MinSeq = None


class NudgeShown(Answer):
    """Text for the user turn, in a tag that ``strip_nudges`` removes from a model's answer."""

    kind: str
    text: str


class NudgesAnswer(Answer):
    """Nudges that are due and were not offered to this session before."""

    nudges: tuple[NudgeShown, ...]
    view_seq: int


class WorkspaceSettingsAnswer(WorkspaceSettings, Answer):
    """Settings of a workspace; null where the value of the node or the default applies."""

    cost_nudge_usd: float
    workspace_id: str
    view_seq: int


class WorkspaceShown(Answer):
    """A workspace: its entries, how many agents and crews they name, and the latest ``ts``; null without entries."""

    workspace_id: str
    entries: int
    agents: int
    crews: int
    last_entry: str | None


class WorkspacesAnswer(Answer):
    """The workspaces by name."""

    workspaces: tuple[WorkspaceShown, ...]
    view_seq: int


NUDGES: Final = Operation(
    name="nudges",
    request=NudgesRequest,
    answer=NudgesAnswer,
    route="POST /v1/nudges",
    effect=Effect.CHANGES,
    views=(ENTRIES_PROJECTION, NUDGES_PROJECTION),
    command="nudges",
)
WORKSPACE_SETTINGS: Final = Operation(
    name="workspace_settings",
    request=WorkspaceSettingsRequest,
    answer=WorkspaceSettingsAnswer,
    route="GET /v1/workspace/settings",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(ENTRIES_PROJECTION, NUDGES_PROJECTION),
    errors=(404,),
)
CONFIGURE_WORKSPACE: Final = Operation(
    name="configure_workspace",
    request=ConfigureWorkspaceRequest,
    answer=WorkspaceSettingsAnswer,
    route="PUT /v1/workspace/settings",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
)
WORKSPACES: Final = Operation(
    name="workspaces",
    request=WorkspacesRequest,
    answer=WorkspacesAnswer,
    route="GET /v1/workspaces",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(ENTRIES_PROJECTION,),
    command="workspace list",
)
CALIBRATE: Final = Operation(
    name="calibrate",
    request=CalibrateRequest,
    answer=CalibrateAnswer,
    route="GET /v1/workspace/calibration",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(ENTRIES_PROJECTION, RECEIPTS_PROJECTION),
    errors=(404,),
    command="calibrate",
)

OPERATIONS: Final = (
    CREATE_TOKEN,
    TOKENS,
    REVOKE_TOKEN,
    INVITE_PERSON,
    ACCOUNTS,
    REMOVE_ACCOUNT,
    SESSIONS,
    END_SESSION,
    BROKER,
    REGISTER_AGENT,
    UPDATE_AGENT,
    AGENT,
    AGENTS,
    REGISTER_CREW,
    UPDATE_CREW,
    CREW,
    CREWS,
    NUDGES,
    WORKSPACE_SETTINGS,
    CONFIGURE_WORKSPACE,
    CALIBRATE,
    WORKSPACES,
)
