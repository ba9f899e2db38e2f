"""``/v1/admin``: what OWNER and ADMIN may do; AGENT and LEAD get 403 for all of it.

Invariant: what shows or changes the whole node (rebuild, verify, the broker's password) needs an OWNER of all workspaces;
everything else is bound to the token's workspace.
"""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Final, Literal

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.api_admin import (
    BrokerAnswer,
    DeadLetterAnswer,
    DeadLettersAnswer,
    SweepAnswer,
    SweepRequest,
    TokenCreatedAnswer,
    TokenRequest,
    TokensAnswer,
)
from crew_journal.schemas.errors import InvalidQuery
from crew_journal.services.http.auth import Administrator, NodeOwner, administering, services_of
from crew_journal.services.http.bodies import answer, answer_model, read_model
from crew_journal.services.http.lines import LINES, lines
from crew_journal.services.http.openapi import WORKSPACE, body_of, known_names, parameters, problems
from crew_journal.services.http.params import Params, named_workspace
from crew_journal.services.http.routes_embeddings import ActivateRequest, activated
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
    _dead_letters(router)
    _tokens(router)
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

    @router.post(
        "/embedder",
        summary="Make a model the active one",
        responses=problems(413, 422),
        openapi_extra=body_of(ActivateRequest),
        response_class=Response,
    )
    async def activate(request: Request, principal: Administrator) -> Response:
        """The same as POST /v1/admin/embeddings/activate."""
        return await activated(request, principal)

    @router.post(
        "/sweeps",
        summary="Run a sweep now",
        responses={200: {"model": SweepAnswer}, **problems(413, 422)},
        openapi_extra=body_of(SweepRequest),
        response_class=Response,
    )
    async def sweep(request: Request, principal: Administrator) -> Response:
        """A tick due now, after those that were missed; answered when it is folded."""
        services = services_of(request)
        asked = await read_model(request, SweepRequest, services.limits.body_bytes)
        done = await services.timekeeper.run_now(principal, asked.sweep, workspace=asked.workspace_id)
        return answer(asdict(done))

    @router.get(
        "/broker",
        summary="How reactors in other processes reach the broker",
        responses={200: {"model": BrokerAnswer}, **problems()},
        response_class=Response,
    )
    async def broker(request: Request, _principal: NodeOwner) -> Response:
        """Holds the service's password."""
        return answer((await services_of(request).admin.broker()).model_dump())


def _dead_letters(router: APIRouter) -> None:
    @router.get(
        "/dlq",
        summary="Events that could not be folded",
        responses={200: {"model": DeadLettersAnswer}, **problems()},
        openapi_extra=parameters(WORKSPACE, _STATE),
        response_class=Response,
    )
    async def dead_letters(request: Request, principal: Administrator) -> Response:
        """Of the token's workspace; of all for a token of all that names none."""
        params = Params(request, known_names(WORKSPACE, _STATE))
        state = params.text("state")
        if state is not None and state not in _STATES:
            raise InvalidQuery("state is unknown", hint=f"use any of {', '.join(_STATES)}", field="state")
        found = await services_of(request).admin.dead_letters(
            principal.workspace_or_all(params.text("workspace_id")), state=state
        )
        return answer({"dead_letters": [letter.model_dump() for letter in found]})

    @router.post(
        "/dlq/{seq}/{decision}",
        summary="Retry or discard a dead letter",
        responses={200: {"model": DeadLetterAnswer}, **problems(404, 409, 413, 422)},
        openapi_extra=parameters(WORKSPACE) | body_of(DecisionRequest, required=False),
        response_class=Response,
    )
    async def decide(
        request: Request, principal: Administrator, seq: Seq, decision: Literal["retry", "discard"]
    ) -> Response:
        """Retrying publishes it again as a new event; nothing is applied out of order.

        What only one view could not fold is refused (409), for all others would have it twice: a new version of that view
        folds it in its place.
        """
        services = services_of(request)
        asked = await read_model(request, DecisionRequest, services.limits.body_bytes, optional=True)
        workspace = principal.workspace_or_all(named_workspace(request))
        if decision == "retry":
            done = await services.admin.retry_dead_letter(workspace, seq, force=asked.force)
        else:
            done = await services.admin.discard_dead_letter(workspace, seq, asked.reason)
        return answer(done.model_dump())


def _tokens(router: APIRouter) -> None:
    @router.get(
        "/tokens",
        summary="List tokens",
        responses={200: {"model": TokensAnswer}, **problems()},
        openapi_extra=parameters(WORKSPACE),
        response_class=Response,
    )
    async def list_tokens(request: Request, principal: Administrator) -> Response:
        """Without their secrets, which nobody has."""
        named = named_workspace(request)
        found = await services_of(request).tokens.list(principal, named)
        return answer_model(TokensAnswer(tokens=found))

    @router.post(
        "/tokens",
        status_code=HTTPStatus.CREATED,
        summary="Make a token",
        responses={201: {"model": TokenCreatedAnswer}, **problems(409, 413, 422)},
        openapi_extra=body_of(TokenRequest),
        response_class=Response,
    )
    async def create_token(request: Request, principal: Administrator) -> Response:
        """The answer holds the secret, this once."""
        services = services_of(request)
        asked = await read_model(request, TokenRequest, services.limits.body_bytes)
        made = await services.tokens.create(
            principal,
            role=asked.role,
            workspace=asked.workspace_id,
            all_workspaces=asked.all_workspaces,
            crew_id=asked.crew_id,
            agent_id=asked.agent_id,
            label=asked.label,
            nats=asked.nats,
        )
        answered = TokenCreatedAnswer(**made.info.model_dump(), token=made.plaintext, nats_access=made.nats_access)
        return answer_model(answered, HTTPStatus.CREATED)

    @router.delete(
        "/tokens/{token_id}",
        status_code=HTTPStatus.NO_CONTENT,
        summary="Revoke a token",
        responses=problems(404),
        response_class=Response,
    )
    async def revoke_token(request: Request, principal: Administrator, token_id: str) -> Response:
        """It is refused from the moment this is answered; its live tails and connections to the broker are cut."""
        await services_of(request).tokens.revoke(principal, token_id)
        return Response(status_code=HTTPStatus.NO_CONTENT)
