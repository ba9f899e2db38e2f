"""The use-cases that the HTTP shell exposes, and its bounds; the composition root makes both."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schemas.settings import BODIES_MB, MAX_BATCH_BYTES, Settings
from ..access.tokens import TokenRegistry
from ..desk import Desk
from ..journal.intake.submitted import Appender
from ..mcp.server import McpServer
from ..memory.models import EmbeddingModels
from ..operating.long_work import Operations
from ..operating.status import Node
from ..query.entries.live_tail import LiveTail
from ..query.entries.queries import JournalQueries


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the shell.

    Attributes:
        body_bytes: Largest request body.
        bodies_bytes: Bytes of request bodies in memory at once; half of it for one token.
        heartbeat_s: Seconds of silence on a live tail until a heartbeat.
        hosts: Names accepted in the Host header beside addresses, in lower case, without port; None for any.
    """

    body_bytes: int = MAX_BATCH_BYTES
    bodies_bytes: int = BODIES_MB << 20
    heartbeat_s: float = 15.0
    hosts: frozenset[str] | None = frozenset({"localhost"})

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Those of a node: loopback, the host it listens on, and the names its settings add."""
        listens_on = settings.http.rpartition(":")[0].lower()
        added = (name.strip().lower() for name in settings.http_hosts.split(","))
        hosts = frozenset({"localhost", listens_on, *added} - {""})
        return cls(bodies_bytes=settings.bodies_mb << 20, hosts=hosts)


@dataclass(frozen=True, slots=True)
class AppServices:
    """Every use-case that the shell exposes."""

    journal: Appender
    queries: JournalQueries
    tail: LiveTail
    desk: Desk
    tokens: TokenRegistry
    status: Node
    operations: Operations
    models: EmbeddingModels
    mcp: McpServer
    limits: HttpLimits = field(default_factory=HttpLimits)
