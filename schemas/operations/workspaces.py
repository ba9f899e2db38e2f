"""Settings of a workspace, and the nudges that they govern."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..entry import Id
from ..views import ENTRIES_PROJECTION, NUDGES_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace


class NudgesRequest(Request):
    """Print the nudges that are due for a session, a line each, marked for the user turn.

    Each kind at most once per session: it is recorded before it is answered. Usually there are none.
    """

    session_id: Id = Field(description="The session; each kind of nudge is offered to it once.")
    agent_id: Id | None = Field(default=None, description="The agent, for OWNER and ADMIN.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class WorkspaceSettingsRequest(Request):
    """Show the settings of a workspace; the defaults if it was not configured."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ConfigureWorkspaceRequest(Request):
    """Change the settings of a workspace that are given.

    Recorded as an entry; ``view_seq`` of the answer is its sequence, to be asked for as ``min_seq``.
    """

    cost_nudge_usd: float | None = Field(
        default=None,
        ge=0.0,
        allow_inf_nan=False,
        description="US dollars in 24 h above which an agent is nudged.",
        examples=[2.5],
    )
    evidence_floor: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="Confidence below which recall in mode inject leaves out a hit.",
        examples=[0.1],
    )
    workspace_id: Workspace = None


class NudgeShown(Answer):
    """Text for the user turn, marked so that ``strip_nudges`` takes it out of what a model answers."""

    kind: str
    text: str


class NudgesAnswer(Answer):
    """What is due and was not offered to this session before."""

    nudges: tuple[NudgeShown, ...]
    view_seq: int


class WorkspaceSettingsAnswer(Answer):
    """Settings of a workspace; ``evidence_floor`` is null where that of the constants counts."""

    workspace_id: str
    cost_nudge_usd: float
    evidence_floor: float | None
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
    views=(NUDGES_PROJECTION,),
)
CONFIGURE_WORKSPACE: Final = Operation(
    name="configure_workspace",
    request=ConfigureWorkspaceRequest,
    answer=WorkspaceSettingsAnswer,
    route="PUT /v1/workspace/settings",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
)
OPERATIONS: Final = (NUDGES, WORKSPACE_SETTINGS, CONFIGURE_WORKSPACE)
"""In the order of the docs."""
