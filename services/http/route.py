"""A route of the service with its description: what Starlette serves and what OpenAPI says come from one value.

Invariant: every route below ``/v1`` has a token; the endpoint gets the principal and cannot forget to ask for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...schemas.errors import NotAuthenticated
from ...schemas.principal import Principal
from ..budgets import SPENDER
from .budget import OpenRequests, Share
from .ports import AppServices

_SCHEME: Final = "bearer "
Endpoint = Callable[[Request, Principal], Awaitable[Response]]
Description = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""A part of OpenAPI's text; a callable makes it when the text is first asked for, for JSON Schemas take a start 0.1 s."""
OpenEndpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDescription:
    """One route.

    Attributes:
        route: Method and path, ``GET /v1/journal/{entry_id}``.
        name: Unique; OpenAPI's ``operationId``.
        tag: The group in the docs.
        summary: One line.
        description: The rest of the help text.
        serve: The endpoint; with a token unless ``open`` is set.
        answers: OpenAPI's ``responses`` other than problems.
        errors: Status codes of problems beside those of every route.
        extra: OpenAPI's ``parameters`` and ``requestBody``.
        open: The endpoint of a route without a token.
    """

    route: str
    name: str
    tag: str
    summary: str
    description: str = ""
    serve: Endpoint | None = None
    answers: Description = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    extra: Description = field(default_factory=dict)
    open: OpenEndpoint | None = None

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, its fields in braces."""
        return self.route.partition(" ")[2]

    def for_starlette(self) -> Route:
        """The route as Starlette serves it."""

        async def endpoint(request: Request) -> Response:
            request.scope["route"] = self  # the label of its figures
            if self.open is not None:
                return await self.open(request)
            assert self.serve is not None
            return await self.serve(request, principal_of(request))

        return Route(self.path, endpoint, methods=[self.method], name=self.name)


def services_of(request: Request) -> AppServices:
    """The use-cases of this application."""
    services = request.app.state.services
    assert isinstance(services, AppServices)
    return services


def principal_of(request: Request) -> Principal:
    """The binding of the token in ``Authorization: Bearer``; from here on body, place and writes count as the token's.

    Raises:
        NotAuthenticated: If there is no token or it is not valid.
        OverBudget: If too many requests of the token are open.
        Overloaded: If too many of all agents are.
    """
    header = request.headers.get("authorization", "")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        raise NotAuthenticated("the request has no token", hint="send Authorization: Bearer cj_…")
    principal = services_of(request).tokens.authenticate(header[len(_SCHEME) :].strip())
    requests: OpenRequests | None = None
    if not principal.role.administers:
        requests = request.app.state.requests
        requests.enter(principal.token_id)
    request.state.share = Share(request.app.state.bodies, principal.token_id, requests)
    SPENDER.set(services_of(request).budgets.spender(principal))
    return principal
