"""Tables of agents, crews, settings, nudges, tokens and dead letters, and how the settings are read."""

from __future__ import annotations

import json
from typing import Annotated, Final, NamedTuple

from ..core.ports import ViewReader
from ..core.recorded_settings import WorkspaceSettings
from ..core.table import Default, Int32, Ms, Seq, Table

AGENTS_PROJECTION: Final = "agents"
NUDGES_PROJECTION: Final = "nudges"
TOKENS_PROJECTION: Final = "tokens"
DEAD_LETTERS_PROJECTION: Final = "dead_letters"


class AgentRow(NamedTuple):
    """A registration of an agent, with history."""

    workspace_id: str
    agent_id: str
    name: str | None
    role: str  # ``AgentRole``
    crew_id: str | None
    memory_enabled: bool
    memory_budget_chars: Int32 | None
    memory_walk_depth: Int32
    settings: str  # JSON text
    registered_ms: Ms  # the first registration
    updated_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None


class CrewRow(NamedTuple):
    """A registration of a crew, with history."""

    workspace_id: str
    crew_id: str
    name: str | None
    settings: str  # JSON text
    registered_ms: Ms
    updated_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None


class NudgeOfferedRow(NamedTuple):
    """The first offer of a kind of nudge to a session of an agent."""

    workspace_id: str
    agent_id: str
    session_id: str
    kind: str
    offered_ms: Ms
    seq: Seq


class WorkspaceSettingsRow(NamedTuple):
    """The last configuration of a workspace that has one."""

    workspace_id: str
    cost_nudge_usd: float
    settings: str  # JSON text
    seq: Seq


class TokenRow(NamedTuple):
    """A token; ``may_publish`` holds types joined by blanks, ``speaks_for`` holds actors joined by line breaks."""

    token_id: str
    sha256: str
    role: str
    workspace_id: str | None
    crew_id: str | None
    agent_id: str | None
    label: str
    created_ms: Ms
    revoked_ms: Ms | None
    nats_bcrypt: str | None
    may_publish: Annotated[str, Default("''")]
    speaks_for: Annotated[str, Default("''")]
    expires_ms: Ms | None


class AccountRow(NamedTuple):
    """The account of a person; ``link_sha256`` is null once the link was used."""

    account_id: str
    person: str
    role: str
    workspace_id: str | None
    crew_id: str | None
    agent_id: str | None
    link_sha256: str | None
    link_expires_ms: Ms
    invited_ms: Ms
    password_seq: Seq | None  # of the last ``account.password_set``
    removed_ms: Ms | None


class DeadLetterRow(NamedTuple):
    """An event that a projection could not fold."""

    projection: str
    seq: Seq
    version: Int32
    subject: str
    reason: str
    parked_ms: Ms
    state: str  # parked, retried or discarded; ``services/operate/status.LETTERS`` adds folded
    workspace_id: str


AGENTS: Final = Table("agents", AgentRow, AGENTS_PROJECTION, key=("workspace_id", "agent_id"))
CREWS: Final = Table("crews", CrewRow, AGENTS_PROJECTION, key=("workspace_id", "crew_id"))
NUDGES_OFFERED: Final = Table(
    "nudges_offered", NudgeOfferedRow, NUDGES_PROJECTION, key=("workspace_id", "agent_id", "session_id", "kind")
)
WORKSPACE_SETTINGS: Final = Table("workspace_settings", WorkspaceSettingsRow, NUDGES_PROJECTION, key=("workspace_id",))
TOKENS: Final = Table("tokens", TokenRow, TOKENS_PROJECTION, key=("token_id",))
ACCOUNTS: Final = Table("accounts", AccountRow, TOKENS_PROJECTION, key=("account_id",))
DEAD_LETTERS: Final = Table(
    "dead_letters", DeadLetterRow, DEAD_LETTERS_PROJECTION, key=("projection", "version", "seq")
)
_SETTINGS: Final = f"SELECT cost_nudge_usd, settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


def read_workspace_settings(views: ViewReader, workspace_id: str) -> WorkspaceSettings:
    """The settings of a workspace, all absent if it was not configured; blocking."""
    for cost, settings in views.rows(_SETTINGS, [workspace_id]):
        return WorkspaceSettings.of({**json.loads(settings), "cost_nudge_usd": cost})
    return WorkspaceSettings()
