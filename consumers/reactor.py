"""The protocol of a reactor: it reacts to events with I/O and only publishes further events.

Invariant: it never writes to DuckDB; the ids of its events are deterministic, so that a repeated run publishes nothing
new; it acks a message only after the broker has acked the resulting events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol, runtime_checkable

from nats.aio.client import Client

from ..schemas.core.ports import Embedder, Publisher, SimilarReader, ViewReader
from ..schemas.health.rules import EmbedderFailure
from ..schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class ReactorStatus:
    """The status of a reactor in ``/v1/status``.

    Attributes:
        name: ``name@version``.
        state: running, waiting (environment failing, backing off) or stopped.
        pending: Messages of its durable that are not acked yet.
        counts: Totals since start: proposed, written, refused, failed.
        last_error: The last failure, None after a success.
        since: Time since which it fails.
    """

    name: str
    state: str
    pending: int
    counts: dict[str, int] = field(default_factory=dict)
    last_error: str | None = None
    since: datetime | None = None


@runtime_checkable
class Reactor(Protocol):
    """Runs in a separate process or inside ``up``; several reactors of one kind share the load through one durable."""

    name: ClassVar[str]
    version: ClassVar[int]

    async def start(self) -> None:
        """Begin consuming."""
        ...

    async def stop(self) -> None:
        """Finish the current work, then stop."""
        ...

    async def status(self) -> ReactorStatus:
        """The status."""
        ...


@dataclass(frozen=True, slots=True)
class ReactorContext:
    """The parts of a reactor; the caller closes them.

    Attributes:
        client: A connection to the broker that reconnects without limit, to consume with.
        publisher: Publishes to JOURNAL.
        embedder: The active model, None if absent.
        embedding_dim: Dimensions of the active model that the journal has recorded, None if there are none.
        clock: The time now, UTC; for status, never for events.
        settings: The node's settings.
        views: The node's views, read only; None in a process without views (``work``), in which reactors that search
            views have nothing to do.
        similar: Finds the nearest earlier entries of an entry; None likewise.
        embedding_generation: Sequence of the event that last dropped the embedder's model, 0 if it was never dropped.
        embedder_for: Returns the embedder of a model in this process, None if there is none.
        embed_unsettled: Name of a durable → sequences of unacked messages of its embed reactor in this process; None if
            no such reactor runs here.
        subject_key: The key of the hash that names people in events; empty in a process without views.
        embedder_trouble: Returns the current failure of a model's embedder and its beginning, None if there is none.
    """

    client: Client
    publisher: Publisher
    embedder: Embedder | None
    embedding_dim: int | None
    clock: Callable[[], datetime]
    settings: Settings
    views: ViewReader | None = None
    similar: SimilarReader | None = None
    embedder_for: Callable[[str], Embedder | None] = lambda _model: None
    embed_unsettled: Callable[[str], frozenset[int] | None] = lambda _durable: None
    embedder_trouble: Callable[[str | None], EmbedderFailure | None] = lambda _model: None
    embedding_generation: int = 0
    subject_key: bytes = b""
