"""The route of the Model Context Protocol, and the metadata about its tokens (RFC 9728).

``GET`` is answered with 405, which the protocol requires of a server that sends no messages by itself; an open, empty
stream would only occupy a connection.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...schemas.core.errors import InvalidQuery, NotAuthenticated
from ...schemas.core.ids import is_id
from ...schemas.toolsets import DEFAULT_TOOLSETS, tools_of
from ..mcp.server import PATH, ToolConnection, acting_as
from .bodies import answer
from .problems import error_response, trace_id_of
from .route import principal_of, services_of

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
CALL_ID: Final = "Crew-Call-Id"
"""Header of a proxy that may resend a call (``services/client/mcp_proxy``)."""
_CALL_ID_CHARS: Final = 60
PARAMETERS: Final = ("tools", "agent_id", "crew_id", "role", "workspace_id", "notes")
"""Query parameters: toolsets, the agent that an OWNER or ADMIN connects, its workspace, and whether a session gets the
agent's notes.
"""


class McpEndpoint:
    """ASGI endpoint: checks the token, the toolsets and the agent for which the caller acts, then serves the protocol."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        try:
            connection = _connection(request)
        except NotAuthenticated as error:
            refused = error_response(error, trace_id_of(request))
            refused.headers["WWW-Authenticate"] = f'Bearer resource_metadata="{_base(request)}{METADATA_PATH}{PATH}"'
            await refused(scope, receive, send)
            return
        await services_of(request).mcp.serve(connection, scope, receive, send)


def _connection(request: Request) -> ToolConnection:
    principal = principal_of(request)
    params = request.query_params
    for name in params:
        if name not in PARAMETERS:
            raise InvalidQuery(
                f"no parameter {name[:64]!r} here", hint=f"known are {', '.join(PARAMETERS)}", field=name
            )
    toolsets = tuple(dict.fromkeys((params.get("tools") or ",".join(DEFAULT_TOOLSETS)).split(",")))
    tools_of(toolsets)
    agent, crew, workspace = (params.get(name) or None for name in ("agent_id", "crew_id", "workspace_id"))
    role = params.get("role") or "agent"
    if role not in ("agent", "lead"):
        raise InvalidQuery("role is not valid", hint="use agent or lead", field="role")
    notes = params.get("notes") or "true"
    if notes not in ("true", "false"):
        raise InvalidQuery("notes is not valid", hint="use true or false", field="notes")
    if workspace is not None:
        principal.workspace(workspace)  # refused here, so that no call of the connection can use another workspace
    caller = acting_as(principal, agent, crew, workspace, leads=role == "lead")
    call_id = request.headers.get(CALL_ID)
    return ToolConnection(
        caller,
        toolsets,
        workspace if principal.role.administers else None,
        call_id if call_id is not None and is_id(call_id) and len(call_id) <= _CALL_ID_CHARS else None,
        notes=notes == "true",
    )


async def metadata(request: Request) -> Response:
    """Metadata for clients that have no token yet."""
    about = {
        "resource": _base(request) + PATH,
        "resource_name": "Crew Journal",
        "authorization_servers": [],
        "bearer_methods_supported": ["header"],
    }
    return answer(about)


def _base(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}"


MCP_ROUTES: Final = (
    Route(PATH, McpEndpoint(), methods=["POST", "DELETE"], name="mcp"),
    Route(METADATA_PATH, metadata, methods=["GET"], name="mcp_metadata"),
    Route(METADATA_PATH + PATH, metadata, methods=["GET"], name="mcp_metadata_of_path"),
)
