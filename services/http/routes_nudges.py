"""``POST /v1/nudges``, and ``/v1/workspace/settings``, which say when one is due.

Invariant: an agent is nudged about itself; settings are for OWNER and ADMIN.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from crew_journal.schemas.api import NudgesAnswer
from crew_journal.schemas.api_admin import WorkspaceSettingsAnswer
from crew_journal.schemas.entry import Id, WorkspaceId
from crew_journal.services.http.auth import Administrator, Asker, services_of
from crew_journal.services.http.bodies import answer, read_model
from crew_journal.services.http.openapi import COMMON, body_of, known_names, parameters, problems
from crew_journal.services.http.params import Params

_COMMON: Final = known_names(COMMON)


class NudgesRequest(BaseModel):
    """Which session asks; ``agent_id`` and ``workspace_id`` as in a recall."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    session_id: Id = Field(description="The session; each kind of nudge is offered to it once.")
    agent_id: Id | None = Field(default=None, description="The agent, for OWNER and ADMIN.")
    workspace_id: WorkspaceId | None = Field(default=None, description="For tokens of all workspaces.")
    min_seq: StrictInt | None = Field(default=None, ge=0, description="Wait until this sequence is folded.")


class WorkspaceSettingsRequest(BaseModel):
    """New settings of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    cost_nudge_usd: float = Field(
        ge=0.0, allow_inf_nan=False, description="US dollars in 24 h above which an agent is nudged."
    )
    workspace_id: WorkspaceId | None = Field(default=None, description="For tokens of all workspaces.")


def nudge_routes() -> APIRouter:
    """The routes of nudges and workspace settings."""
    router = APIRouter(prefix="/v1", tags=["nudges"])

    @router.post(
        "/nudges",
        summary="Nudges for the user turn of a session",
        responses={200: {"model": NudgesAnswer}, **problems(413, 422)},
        openapi_extra=body_of(NudgesRequest),
        response_class=Response,
    )
    async def nudges(request: Request, principal: Asker) -> Response:
        """Each kind at most once per session: it is recorded before it is answered. Usually there are none."""
        services = services_of(request)
        asked = await read_model(request, NudgesRequest, services.limits.body_bytes)
        found = await services.nudges.offer(
            principal,
            asked.session_id,
            agent_id=asked.agent_id,
            workspace=asked.workspace_id,
            min_seq=asked.min_seq,
        )
        return answer({"nudges": [asdict(nudge) for nudge in found.nudges], "view_seq": found.view_seq})

    @router.get(
        "/workspace/settings",
        summary="Settings of a workspace",
        responses={200: {"model": WorkspaceSettingsAnswer}, **problems()},
        openapi_extra=parameters(COMMON),
        response_class=Response,
    )
    async def read_settings(request: Request, principal: Administrator) -> Response:
        """The defaults if nobody has configured it."""
        params = Params(request, _COMMON)
        found = await services_of(request).workspace_settings.get(
            principal, workspace=params.text("workspace_id"), min_seq=params.whole("min_seq")
        )
        return answer(asdict(found))

    @router.put(
        "/workspace/settings",
        summary="Change the settings of a workspace",
        responses={200: {"model": WorkspaceSettingsAnswer}, **problems(413, 422)},
        openapi_extra=body_of(WorkspaceSettingsRequest),
        response_class=Response,
    )
    async def change_settings(request: Request, principal: Administrator) -> Response:
        """Recorded as an entry; ``view_seq`` is its sequence, to be asked for as ``min_seq``."""
        services = services_of(request)
        asked = await read_model(request, WorkspaceSettingsRequest, services.limits.body_bytes)
        done = await services.workspace_settings.put(
            principal, cost_nudge_usd=asked.cost_nudge_usd, workspace=asked.workspace_id
        )
        return answer(asdict(done))

    return router
