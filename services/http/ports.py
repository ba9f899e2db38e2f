"""What the HTTP shell needs of the use-cases; the composition root puts it together as ``AppServices``.

Invariant: the shell knows use-cases only through these types, so it can be tested without broker or DuckDB.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from crew_journal.schemas.api_admin import BrokerAnswer, DeadLetter, DeadLetterAnswer
from crew_journal.schemas.principal import Principal
from crew_journal.schemas.settings import MAX_BATCH_BYTES, Settings
from crew_journal.services.journal.append import Appended
from crew_journal.services.journal.tokens import TokenRegistry
from crew_journal.services.memory.agents import Agents
from crew_journal.services.memory.health import MemoryHealth
from crew_journal.services.memory.nudges import NudgeService
from crew_journal.services.memory.priorities import Priorities
from crew_journal.services.memory.references import ReferenceLog
from crew_journal.services.memory.reindex import Reindexing
from crew_journal.services.memory.relations import Relations
from crew_journal.services.memory.sweep_now import SweepNow
from crew_journal.services.memory.sweeps import Sweeps
from crew_journal.services.memory.workspace_settings import WorkspaceSettingsService
from crew_journal.services.query.entries.graph import GraphQueries
from crew_journal.services.query.entries.live_tail import LiveTail
from crew_journal.services.query.entries.queries import JournalQueries
from crew_journal.services.query.recall import RecallService
from crew_journal.services.query.render import RenderService


class Appender(Protocol):
    """``services.journal.append.Journal``, as far as agents use it."""

    async def append(self, principal: Principal, submission: Mapping[str, Any]) -> Appended:
        """Append one entry; returns after the ack."""
        ...

    async def append_batch(self, principal: Principal, submissions: Sequence[Mapping[str, Any]]) -> list[Appended]:
        """Append entries, all or nothing; returns after the acks."""
        ...


class NodeStatus(Protocol):
    """How the node is doing."""

    async def status(self, *, workspace_id: str | None, node: bool) -> Mapping[str, Any]:
        """The body of ``/v1/status``.

        Args:
            workspace_id: Show figures of this workspace alone; None for all.
            node: Whether broker, disk and consumers may be shown in detail (OWNER, ADMIN).
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

    async def dead_letters(self, workspace_id: str | None, *, state: str | None) -> Sequence[DeadLetter]:
        """Parked events of a workspace (of all if None), newest first; only those in ``state`` if given."""
        ...

    async def retry_dead_letter(self, workspace_id: str | None, seq: int, *, force: bool) -> DeadLetterAnswer:
        """Publish a parked event again as a new one.

        Raises:
            NotFound: If the workspace has no such dead letter.
            RefusedByOneView: If all views but one have the event, unless forced.
        """
        ...

    async def discard_dead_letter(self, workspace_id: str | None, seq: int, reason: str) -> DeadLetterAnswer:
        """Decide that a parked event needs nothing more.

        Raises:
            NotFound: If the workspace has no such dead letter.
        """
        ...

    async def embedder(self) -> Mapping[str, Any]:
        """The embedder, its model, and its last outcome."""
        ...

    async def broker(self) -> BrokerAnswer:
        """How reactors in other processes reach the broker."""
        ...


class ModelAdministration(Protocol):
    """``services.memory.models.EmbeddingModels``; the shell has checked role and workspace."""

    async def list(self, workspace_id: str | None) -> Mapping[str, Any]:
        """The models there are, with figures of one workspace, or (None) of the node."""
        ...

    async def add(self, model: str) -> Mapping[str, Any]:
        """Fill a further model in the background.

        Raises:
            NotFound: If the server has no such model.
            EmbedderError: If it does not work.
        """
        ...

    async def activate(
        self, workspace_id: str | None, model: str, reason: str, *, force: bool = False
    ) -> Mapping[str, Any]:
        """Let recall use a model in a workspace, or (None) by default.

        Raises:
            NotFound: If nothing can make vectors of it.
            ModelNotFilled: If entries have no vector of it, unless forced.
        """
        ...

    async def compare(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """How far two models agree on a workspace's logged queries: progress records, the last one with ``result``.

        Raises:
            NotFound: If a model has no vectors, or no query was logged.
            EmbedderError: If a model does not work.
        """
        ...

    async def drop(self, model: str, reason: str) -> Mapping[str, Any]:
        """Forget a model's vectors and fill it no longer.

        Raises:
            NotFound: If there is no such model.
            ModelInUse: If recall uses it.
        """
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the shell.

    Attributes:
        body_bytes: Largest request body.
        heartbeat_s: Seconds of silence on a live tail until a heartbeat.
        send_timeout_s: Seconds a client may leave a piece of a stream unread until it is cut off.
        hosts: Names accepted in the Host header beside addresses, in lower case, without port; None for any.
    """

    body_bytes: int = MAX_BATCH_BYTES
    heartbeat_s: float = 15.0
    send_timeout_s: float = 30.0
    hosts: frozenset[str] | None = frozenset({"localhost"})

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Those of a node: loopback, the host it listens on, and the names its settings add."""
        listens_on = settings.http.rpartition(":")[0].lower()
        added = (name.strip().lower() for name in settings.http_hosts.split(","))
        return cls(hosts=frozenset({"localhost", listens_on, *added} - {""}))


@dataclass(frozen=True, slots=True)
class AppServices:
    """Every use-case that the shell exposes."""

    journal: Appender
    queries: JournalQueries
    tail: LiveTail
    recall: RecallService
    tokens: TokenRegistry
    status: NodeStatus
    admin: AdminOperations
    references: ReferenceLog
    priorities: Priorities
    timekeeper: Sweeps
    render: RenderService
    models: ModelAdministration
    health: MemoryHealth
    sweeps: SweepNow
    reindexing: Reindexing
    relations: Relations
    graph: GraphQueries
    agents: Agents
    nudges: NudgeService
    workspace_settings: WorkspaceSettingsService
    limits: HttpLimits = field(default_factory=HttpLimits)
