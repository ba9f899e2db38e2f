"""Operations on settings of a workspace, and on nudges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, StrictInt

from ..entry import Id
from ..recorded_settings import WorkspaceSettings
from ..views import ENTRIES_PROJECTION, NUDGES_PROJECTION, RECEIPTS_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace


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
    workspace_id: Workspace = None


if TYPE_CHECKING:  # mypy accepts no computed Literal
    SettingName = str
else:
    SettingName = Literal[*WorkspaceSettings.model_fields]


class ConfigureWorkspaceRequest(WorkspaceSettings, Request):
    """Change the settings of a workspace that are given.

    Recorded as an entry, whose sequence is the answer's ``view_seq``; pass it as ``min_seq`` to read the change. When
    ``embed_chat`` is switched on again, an index sweep embeds the older entries; switched off, vectors are kept.
    """

    reset: tuple[SettingName, ...] = Field(
        default=(), description="Settings to reset to their defaults, before the given ones are set; repeatable."
    )
    workspace_id: Workspace = None


class CalibrateRequest(Request):
    """Propose an evidence floor from the hits that recall returned and those that were used.

    Replays the workspace's receipts under every floor. The proposal is the highest floor that keeps 95 % of the hits
    that were reported as used (`used`); there is none below 20 such hits. Hits that were only rendered do not count
    as used. The floor is not changed: `workspace settings --evidence-floor` sets it. Recalls of both modes count; of
    a recall in mode inject, only the hits above its own floor are known.
    """

    receipts: StrictInt = Field(
        default=5_000, ge=1, le=50_000, description="Maximum number of receipts to replay, the newest first."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class FloorShown(Answer):
    """The effect of a floor: hits per recall, shares of used hits kept and of kept hits used, share of empty recalls."""

    floor: float
    hits: float
    used_kept: float
    used_share: float | None
    silent: float


class CalibrateAnswer(Answer):
    """The proposed floor, null if too few hits were used, and the figures of every floor.

    ``receipts`` counts the recalls that were replayed, ``used`` their hits that were reported as used, ``rendered`` the
    hits that `render` put into a block.
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
OPERATIONS: Final = (NUDGES, WORKSPACE_SETTINGS, CONFIGURE_WORKSPACE, CALIBRATE, WORKSPACES)
