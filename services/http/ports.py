"""The use-cases that the HTTP shell exposes, and its bounds; the composition root makes both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...schemas.core.limits import MAX_BATCH_BYTES
from ...schemas.settings import BODIES_MB, HTTP_CONNECTIONS, TOKEN_REQUESTS, Settings
from ..access.tokens import TokenRegistry
from ..budgets import Budgets
from ..desk import Desk
from ..documents.stores import MemoryStores
from ..entries.live_tail import LiveTail
from ..entries.queries import JournalQueries
from ..journal.intake.submitted import Appender
from ..lineage.notices import Notices
from ..mcp.server import McpServer
from ..models.use_cases import EmbeddingModels
from ..operate.long_work import LongOperations
from ..operate.status import NodeStatus

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
    status: NodeStatus
    operations: LongOperations
    models: EmbeddingModels
    mcp: McpServer
    notices: Notices
    stores: MemoryStores
    budgets: Budgets = field(default_factory=Budgets)
    limits: HttpLimits = field(default_factory=HttpLimits)
