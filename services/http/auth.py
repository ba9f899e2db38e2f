"""Who asks: ``Authorization: Bearer`` → ``Principal``, for every route below ``/v1``.

Invariant: routers require it as a whole, so a new route cannot forget it; the token is never logged.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from crew_journal.schemas.errors import NotAllowed, NotAuthenticated
from crew_journal.schemas.principal import Principal
from crew_journal.services.http.budget import Share
from crew_journal.services.http.ports import AppServices

_bearer = HTTPBearer(auto_error=False, description="A token: cj_ and 43 characters.")


def services_of(request: Request) -> AppServices:
    """The use-cases of this application."""
    services = request.app.state.services
    assert isinstance(services, AppServices)
    return services


async def authenticated(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Whoever bears the token of this request.

    Raises:
        NotAuthenticated: If there is no token or it does not count.
    """
    if credentials is None:
        raise NotAuthenticated("the request bears no token", hint="send Authorization: Bearer cj_…")
    principal = services_of(request).tokens.authenticate(credentials.credentials)
    request.state.share = Share(request.app.state.bodies, principal.token_id)
    return principal


Asker = Annotated[Principal, Depends(authenticated)]


async def administering(principal: Asker) -> Principal:
    """An OWNER or ADMIN.

    Raises:
        NotAllowed: If the role is another.
    """
    if not principal.role.administers:
        raise NotAllowed(
            f"a token of role {principal.role.value} does not administer", hint="use an OWNER or ADMIN token"
        )
    return principal


Administrator = Annotated[Principal, Depends(administering)]


async def owning_the_node(principal: Administrator) -> Principal:
    """An OWNER of all workspaces: what concerns the whole node shows or changes every workspace at once.

    Raises:
        NotAllowed: If the token is bound to one workspace.
    """
    if principal.workspace_id is not None:
        raise NotAllowed(
            "this concerns every workspace of the node", hint="use an OWNER token for all workspaces (admin.token)"
        )
    return principal


NodeOwner = Annotated[Principal, Depends(owning_the_node)]
