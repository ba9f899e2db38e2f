"""``/v1/admin``: what OWNER and ADMIN may do; AGENT and LEAD get 403 for all of it.

Invariant: what shows or changes the whole node (rebuild, verify, the broker's password) needs an OWNER of all workspaces;
everything else is bound to the token's workspace.
"""

from __future__ import annotations

from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from crew_journal.services.http.auth import NodeOwner, administering, services_of
from crew_journal.services.http.bodies import answer, read_model
from crew_journal.services.http.lines import LINES, lines
from crew_journal.services.http.openapi import body_of, problems
from crew_journal.services.query.entries.queries import MAX_SEQ

_STATES: Final = ("parked", "folded", "retried", "discarded")
_STATE: Final = {"state": ("Only those in this state.", {"type": "string", "enum": list(_STATES)})}
Seq = Annotated[int, Path(ge=1, le=MAX_SEQ, description="The event's sequence in the journal.")]

log = structlog.get_logger(__name__)


class RebuildRequest(BaseModel):
    """Which projections to rebuild, all if absent; whether what the journal has lost is given up."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    projections: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=100)
    accept_loss: bool = Field(default=False, description="Only for all; the old views file is kept.")


class DecisionRequest(BaseModel):
    """Why a dead letter needs nothing more; whether to publish again what only one view could not fold."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    reason: str = Field(default="", max_length=500, description="Of a discard.")
    force: bool = Field(default=False, description="Of a retry: also if all other views have the event already.")


def admin_routes() -> APIRouter:
    """The routes of administration."""
    router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(administering)])
    _operations(router)
    return router


def _operations(router: APIRouter) -> None:
    @router.post(
        "/rebuild",
        summary="Rebuild views from the journal",
        responses={200: LINES, **problems(413, 422)},
        openapi_extra=body_of(RebuildRequest, required=False),
        response_class=Response,
    )
    async def rebuild(request: Request, principal: NodeOwner) -> Response:
        """Builds beside the live views, then swaps. Lines of JSON tell how far it is."""
        services = services_of(request)
        asked = await read_model(request, RebuildRequest, services.limits.body_bytes, optional=True)
        log.info("admin.rebuild", token_id=principal.token_id, accept_loss=asked.accept_loss)
        records = services.admin.rebuild(asked.projections, accept_loss=asked.accept_loss, actor=principal.token_id)
        return lines(request, records)

    @router.post(
        "/salvage",
        summary="What the views still know of entries that the journal has lost",
        responses={200: LINES, **problems()},
        response_class=Response,
    )
    async def salvage(request: Request, principal: NodeOwner) -> Response:
        """Lines of JSON, each with `entry` (may be imported) or `decision` (the service's own); the last has counts."""
        log.info("admin.salvage", token_id=principal.token_id)
        return lines(request, services_of(request).admin.salvage())

    @router.post(
        "/verify",
        summary="Compare the live views with a fresh rebuild",
        responses={200: LINES, **problems()},
        response_class=Response,
    )
    async def verify(request: Request, principal: NodeOwner) -> Response:
        """Lines of JSON tell how far it is; the last names the first difference, if there is one."""
        log.info("admin.verify", token_id=principal.token_id)
        return lines(request, services_of(request).admin.verify())

    @router.get("/embedder", summary="The embedder and its last outcome", responses=problems(), response_class=Response)
    async def embedder(request: Request) -> Response:
        """Health is the last outcome, not the configuration."""
        return answer(dict(await services_of(request).admin.embedder()))
