"""``/v1/memory/health``: how healthy a workspace's memory was when it was measured last, and measuring it now.

Invariant: reading computes nothing. A snapshot holds counts and scores, no text and no id of an entry, so every token of the
workspace may read it; an AGENT or LEAD names no crew but its own.
"""

from __future__ import annotations

from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response

from crew_journal.schemas.api import HealthAnswer
from crew_journal.schemas.entry import Id
from crew_journal.schemas.errors import InvalidQuery, NotAllowed
from crew_journal.schemas.ids import is_id
from crew_journal.schemas.principal import Principal
from crew_journal.services.http.auth import Administrator, Asker, services_of
from crew_journal.services.http.bodies import Nothing, answer_model, read_model
from crew_journal.services.http.openapi import WORKSPACE, known_names, parameters, problems
from crew_journal.services.http.params import Params
from crew_journal.services.memory.health import HISTORY_MAX_DAYS, Profile

_PROFILES: Final = ("seed", "legacy")
_PARAMETERS: Final[dict[str, Any]] = {
    **WORKSPACE,
    "crew_id": ("The crew; the workspace as a whole if absent.", {"type": "string"}),
    "profile": ("Which formulas: ours, or legacy for comparison.", {"type": "string", "enum": list(_PROFILES)}),
    "history": (
        "Also the snapshots of so many days, newest first.",
        {"type": "integer", "minimum": 0, "maximum": HISTORY_MAX_DAYS},
    ),
}


def health_routes() -> APIRouter:
    """The routes of health."""
    router = APIRouter(prefix="/v1/memory/health", tags=["memory"])

    @router.get(
        "",
        summary="The latest health snapshot",
        responses={200: {"model": HealthAnswer}, **problems()},
        openapi_extra=parameters(_PARAMETERS),
        response_class=Response,
    )
    async def latest(request: Request, principal: Asker) -> Response:
        """Never computed on reading; says so if there is none yet. The embedder's state is of this moment."""
        return await _latest(request, principal)

    @router.post(
        "",
        summary="Measure health now",
        responses={200: {"model": HealthAnswer}, **problems(413, 422)},
        openapi_extra=parameters(_PARAMETERS),
        response_class=Response,
    )
    async def recompute(request: Request, principal: Administrator) -> Response:
        """OWNER and ADMIN: publishes a tick of the health sweep and answers with its snapshot."""
        await read_model(request, Nothing, services_of(request).limits.body_bytes, optional=True)
        workspace = principal.workspace(_params(request).text("workspace_id"))
        _crew(principal, _params(request))
        await services_of(request).health.recompute(workspace)
        return await _latest(request, principal)

    return router


def _params(request: Request) -> Params:
    return Params(request, known_names(_PARAMETERS))


async def _latest(request: Request, principal: Principal) -> Response:
    params = _params(request)
    profile = params.text("profile") or _PROFILES[0]
    if profile not in _PROFILES:
        raise InvalidQuery("no such profile", hint=f"use one of {', '.join(_PROFILES)}", field="profile")
    days = params.whole("history") or 0
    if days > HISTORY_MAX_DAYS:
        raise InvalidQuery("history reaches too far back", hint=f"at most {HISTORY_MAX_DAYS} days", field="history")
    found = await services_of(request).health.latest(
        principal.workspace(params.text("workspace_id")),
        crew_id=_crew(principal, params),
        profile=cast(Profile, profile),
        history_days=days,
        administers=principal.role.administers,
    )
    return answer_model(found)


def _crew(principal: Principal, params: Params) -> Id | None:
    named = [value.strip() for name, value in params.items if name == "crew_id"]  # a filter elsewhere, hence no text()
    if len(named) > 1:
        raise InvalidQuery("crew_id is given more than once", hint="give it once", field="crew_id")
    crew = named[0] or None if named else None
    if crew is not None and not is_id(crew):
        raise InvalidQuery("crew_id is no id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field="crew_id")
    if crew is not None and not principal.role.administers and crew != principal.crew_id:
        raise NotAllowed(
            "the token is bound to another crew_id", hint="leave crew_id out or use that crew's token", field="crew_id"
        )
    return crew
