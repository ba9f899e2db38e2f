"""Serves a node over HTTP, with its pages, and MCP.

Invariant: HTTP stops accepting requests before anything that serves them stops.
"""

from __future__ import annotations

from collections.abc import Callable

from ...schemas.settings import Settings
from ..desk import Desk
from ..http.app import App
from ..http.connections import ConnectionBounds
from ..http.ports import AppServices, HttpLimits
from ..http.server import HttpServer
from ..journal.intake.append import Journal
from ..mcp.audit import Audit
from ..mcp.server import McpServer
from ..mcp.tools import Tools
from ..parts import Parts
from ..web.routes import web_routes


async def start_mcp(
    parts: Parts, desk: Desk, journal: Journal, settings: Settings, *, can_write: Callable[[], bool]
) -> McpServer:
    """Start the tools of models and the record of their calls."""
    tools = Tools(desk, await parts.begin("tool_calls", Audit(journal)), can_write=can_write)
    return await parts.begin("mcp", McpServer(tools, HttpLimits.of(settings).body_bytes))


async def start_http(parts: Parts, services: AppServices, settings: Settings) -> HttpServer:
    """Start the HTTP server; it answers when this returns."""
    bounds = ConnectionBounds(connections=settings.http_connections)
    server = HttpServer(App(services, web_routes()), settings.http, before_stop=services.tail.close, bounds=bounds)
    return await parts.begin("http", server)
