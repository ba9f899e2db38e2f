"""What the HTTP shell needs of the use-cases; the composition root puts it together as ``AppServices``.

Invariant: the shell knows use-cases only through these types, so it can be tested without broker or DuckDB.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...schemas.settings import BODIES_MB, MAX_BATCH_BYTES, Settings
from ..access.tokens import TokenRegistry
from ..desk import Desk
from ..journal.intake.submitted import Appender
from ..query.entries.live_tail import LiveTail
from ..query.entries.queries import JournalQueries


class NodeStatus(Protocol):
    """How the node is doing."""

    async def status(self, *, workspace_id: str | None, node: bool) -> Mapping[str, Any]:
        """The body of ``/v1/status``.

        Args:
            workspace_id: Show figures of this workspace alone; None for all.
            node: Whether the figures of broker, disk and consumers may be shown: to an OWNER of all workspaces.
        """
        ...

    async def not_ready(self) -> Sequence[str]:
        """Why the node cannot serve; empty if it can."""
        ...

    async def gauges(self) -> Mapping[str, float]:
        """Figures for Prometheus by name (``crew_journal_…``); no workspace, agent or id in them."""
        ...


class AdminOperations(Protocol):
    """What OWNER and ADMIN may have done; the shell has checked role and workspace."""

    def rebuild(
        self, projections: Sequence[str] | None, *, accept_loss: bool = False, actor: str | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Rebuild projections (all if None): progress records, the last one with key ``result``.

        Raises:
            JournalDamaged: If the journal has lost something and ``accept_loss`` is not given.
        """
        ...

    def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the views still know of lost entries: records with ``entry`` or ``decision``, the last with ``result``."""
        ...

    def verify(self) -> AsyncIterator[Mapping[str, Any]]:
        """Compare live views with a fresh rebuild: progress records, the last one with key ``result``."""
        ...

    async def embedder(self) -> Mapping[str, Any]:
        """The embedder, its model, and its last outcome."""
        ...


class ModelAdministration(Protocol):
    """``services.memory.models.EmbeddingModels``; the shell has checked role and workspace."""

    async def compare(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """How far two models agree on a workspace's logged queries: progress records, the last one with ``result``.

        Raises:
            NotFound: If a model has no vectors, or no query was logged.
            EmbedderError: If a model does not work.
        """
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the shell.

    Attributes:
        body_bytes: Largest request body.
        bodies_bytes: Bytes of request bodies in memory at once; half of it for one token.
        heartbeat_s: Seconds of silence on a live tail until a heartbeat.
        send_timeout_s: Seconds a client may leave a piece of a stream unread until it is cut off.
        hosts: Names accepted in the Host header beside addresses, in lower case, without port; None for any.
    """

    body_bytes: int = MAX_BATCH_BYTES
    bodies_bytes: int = BODIES_MB << 20
    heartbeat_s: float = 15.0
    send_timeout_s: float = 30.0
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
    status: NodeStatus
    admin: AdminOperations
    models: ModelAdministration
    limits: HttpLimits = field(default_factory=HttpLimits)
