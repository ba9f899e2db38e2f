"""A route of the service with its description, from which both Starlette's route and the OpenAPI text are made.

Invariant: every route below ``/v1`` requires a token; the endpoint gets the principal as an argument, so that the check
cannot be forgotten.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...schemas.core.errors import InvalidQuery, NotAuthenticated
from ...schemas.core.ids import is_id
from ...schemas.core.limits import MAX_BATCH_BYTES
from ...schemas.core.principal import Principal
from ...schemas.settings import BODIES_MB, HTTP_CONNECTIONS, TOKEN_REQUESTS, Settings
from ..access.accounts import Accounts
from ..access.tokens import TokenRegistry
from ..budgets import SPENDER, Budgets
from ..desk import RUN, Desk
from ..documents.files import MemoryStores
from ..entries.filters import FILTER_PARAMETERS
from ..entries.live_tail import LiveTail
from ..entries.queries import MAX_SEQ, JournalQueries
from ..journal.intake.append import Appender
from ..lineage.notices import Notices
from ..mcp.server import McpServer
from ..models.use_cases import EmbeddingModels
from ..operate.history import FigureHistory
from ..operate.status import LongOperations, NodeStatus
from ..telemetry import Telemetry
from .bodies import OpenRequests, Share

# The use-cases that the HTTP shell exposes, and its bounds; the composition root makes both.


RESERVED_CONNECTIONS: Final = 64
"""Connections that are reserved for OWNER, ADMIN, pages and health checks."""
RESERVED_SHARE: Final = 8
"""Share (1/n) of the connections that is reserved if there are few."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the HTTP server.

    Attributes:
        body_bytes: Maximum bytes of a request body.
        bodies_bytes: Bytes of request bodies in memory at once; half of it for one token.
        token_requests: Requests of one AGENT or LEAD token at once; 0 for no bound.
        agent_requests: Requests of all such tokens at once: the other connections are for OWNER, ADMIN and health checks.
        heartbeat_s: Seconds of silence on a live tail until a heartbeat.
        hosts: Names accepted in the Host header beside addresses, in lower case, without port; None for any.
    """

    body_bytes: int = MAX_BATCH_BYTES
    bodies_bytes: int = BODIES_MB << 20
    token_requests: int = TOKEN_REQUESTS
    agent_requests: int = HTTP_CONNECTIONS - RESERVED_CONNECTIONS
    heartbeat_s: float = 15.0
    hosts: frozenset[str] | None = frozenset({"localhost"})

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """The limits of a node; accepted hosts are loopback, its listening address, and names from its settings."""
        listens_on = settings.http.rpartition(":")[0].lower()
        added = (name.strip().lower() for name in settings.http_hosts.split(","))
        hosts = frozenset({"localhost", listens_on, *added} - {""})
        connections = settings.http_connections
        return cls(
            bodies_bytes=settings.bodies_mb << 20,
            token_requests=settings.token_requests,
            agent_requests=connections - min(RESERVED_CONNECTIONS, connections // RESERVED_SHARE),
            hosts=hosts,
        )


@dataclass(frozen=True, slots=True)
class AppServices:
    """Every use-case that the shell exposes."""

    journal: Appender
    queries: JournalQueries
    tail: LiveTail
    desk: Desk
    tokens: TokenRegistry
    accounts: Accounts
    status: NodeStatus
    operations: LongOperations
    models: EmbeddingModels
    mcp: McpServer
    notices: Notices
    stores: MemoryStores
    history: FigureHistory
    budgets: Budgets = field(default_factory=Budgets)
    limits: HttpLimits = field(default_factory=HttpLimits)
    telemetry: Telemetry | None = None


_SCHEME: Final = "bearer "
Endpoint = Callable[[Request, Principal], Awaitable[Response]]
Description = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""A part of the OpenAPI text, or a callable that creates it at the first request, because JSON Schemas would delay the
start by 0.1 s.
"""
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
        errors: Status codes of problems in addition to those of every route.
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
            principal, telemetry = principal_of(request), services_of(request).telemetry
            with contextlib.nullcontext() if telemetry is None else telemetry.joined(request.headers):
                assert self.serve is not None
                response = await self.serve(request, principal)
            if waiting := services_of(request).notices.waiting(principal):
                response.headers[NOTICES_HEADER] = str(waiting)
            return response

        return Route(self.path, endpoint, methods=[self.method], name=self.name)


def services_of(request: Request) -> AppServices:
    """The use-cases of this application."""
    services = request.app.state.services
    assert isinstance(services, AppServices)
    return services


def principal_of(request: Request) -> Principal:
    """The principal of the token in ``Authorization: Bearer``; from here on, the request counts against the token's budgets.

    Raises:
        NotAuthenticated: If there is no token or it is not valid.
        OverBudget: If too many requests of the token are open.
        Overloaded: If too many requests of all agents are open.
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
    RUN.set(_run_of(request))
    return principal


RUN_HEADER: Final = "Crew-Run"
"""Names the run or session that asks: receipts and notices are for it."""
NOTICES_HEADER: Final = "Crew-Notices"
"""On an answer: how many notices may wait for the run; ``GET /v1/notices`` returns them."""


def _run_of(request: Request) -> str | None:
    run = request.headers.get(RUN_HEADER)
    if run is not None and not is_id(run):
        raise InvalidQuery(f"{RUN_HEADER} is not an id", hint="use 1 to 64 of A-Z a-z 0-9 _ -, or leave it out")
    return run


# Parses the query parameters other than filters.


_WHOLE: Final = re.compile(r"[0-9]{1,19}\Z", re.ASCII)


class Params:
    """The query parameters of one request.

    Args:
        request: The request.
        known: Every name the route knows.

    Raises:
        InvalidQuery: If a name is unknown, a parameter other than a filter is repeated, or the workspace is empty.
    """

    def __init__(self, request: Request, known: frozenset[str]) -> None:
        self.items = request.query_params.multi_items()
        self._known = known
        self._values: dict[str, str] = {}
        for name, value in self.items:
            if name not in known:
                raise InvalidQuery(
                    f"no parameter {name[:64]!r} here",
                    hint=f"known are {', '.join(sorted(known)) or 'none'}",
                    field=name[:64],
                )
            if name in FILTER_PARAMETERS:
                continue  # filters have other rules about repetition
            if name in self._values:
                raise InvalidQuery(f"{name} is given more than once", hint="give it once", field=name)
            self._values[name] = value.strip()
        if self._values.get("workspace_id") == "":
            raise InvalidQuery("workspace_id is empty", hint="name a workspace, or leave it out", field="workspace_id")

    def text(self, name: str) -> str | None:
        """Its text; None if absent or blank.

        Raises:
            LookupError: If the route does not know the name, or the name is a filter, which ``parse_filters`` reads
                from ``items``.
        """
        if name not in self._known or name in FILTER_PARAMETERS:
            raise LookupError(f"{name} is not a parameter of this route beside its filters")
        return self._values.get(name) or None

    def whole(self, name: str) -> int | None:
        """A non-negative integer; None if absent or blank.

        Raises:
            InvalidQuery: If it is not such a number.
        """
        text = self.text(name)
        return None if text is None else whole_number(name, text)

    def truth(self, name: str, *, absent: bool) -> bool:
        """``true`` or ``false``; ``absent`` if absent or blank.

        Raises:
            InvalidQuery: If it is neither.
        """
        text = self.text(name)
        return absent if text is None else _truth(name, text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidQuery(f"{name} must be true or false", hint=f"{name}: send true or false", field=name)
    return text == "true"


def whole_number(name: str, text: str) -> int:
    """A whole number of 0 to 2^63 - 1.

    Raises:
        InvalidQuery: If the text is not such a number.
    """
    if not _WHOLE.match(text) or int(text) > MAX_SEQ:
        raise InvalidQuery(f"{name} must be a non-negative integer", hint=f"{name}: use digits only", field=name)
    return int(text)
