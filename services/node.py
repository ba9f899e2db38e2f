"""The shared parts of a node's use-cases, and the method with which they record decisions.

Invariant: a stored decision is never answered with an error. If the views do not show it in time, the answer has its
sequence and ``visible`` false; a later request can pass the sequence as ``min_seq``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast

from ..schemas.core.errors import ViewsBehind
from ..schemas.core.operation import Operation
from ..schemas.core.payload import ControlPayload
from ..schemas.core.ports import Embedder, ViewReader
from ..schemas.models.events import ModelKind
from ..schemas.settings import MIN_SEQ_WAIT_S, Settings
from ..schemas.text.analyzer import Analyzer
from .desk import Caller, Past
from .journal.intake.append import DecisionFields, Journal
from .journal.publishing import Writer
from .ownership import ALONE, Ownership

if TYPE_CHECKING:
    from .documents.search import RecordSearch
    from .entries.queries import JournalQueries
    from .recall.recall import RecallService

Answers = tuple[tuple[Operation[Any, Any], Callable[..., Awaitable[Any]]], ...]
"""The operations of a family, each with the method that answers it; the method's class is created from the node."""
T = TypeVar("T")


class Embedders(Protocol):
    """The embedding models of a node."""

    @property
    def aliases(self) -> Mapping[str, str]:
        """Short names of models."""
        ...

    @property
    def runnable(self) -> Collection[str]:
        """Models that this node's configuration can run."""
        ...

    def running(self, model: str) -> Embedder | None:
        """The embedder of a model, created if necessary; None if the node does not embed."""
        ...

    async def release(self, model: str) -> None:
        """Close a model that is no longer wanted."""
        ...

    def wanted(self) -> Mapping[str, int]:
        """Models to be filled, each with the sequence of its last drop (0 if none); blocking."""
        ...

    def kind_of(self, model: str) -> ModelKind:
        """The adapter that runs a model."""
        ...

    def state(self, workspace_id: str) -> Mapping[str, Any]:
        """The state of the embedder of a workspace's active model, for every token."""
        ...

    def outcomes(self) -> Mapping[str, Mapping[str, Any]]:
        """Model → how its last call ended."""
        ...

    async def filling(self) -> Mapping[str, Mapping[str, Any]]:
        """Model → status of the reactor that fills it."""
        ...


class PastWalk(Protocol):
    """A view of the past that is folded on, for a request that asks at many moments."""

    @property
    def seq(self) -> int:
        """The sequence that it has reached."""
        ...

    @property
    def left_out(self) -> int:
        """Messages that were left out so far."""
        ...

    async def to(self, seq: int) -> Node:
        """Fold on to a sequence that is not before the last one; the node there.

        Raises:
            Unavailable: If an erasure began since the walk was opened.
        """
        ...


@dataclass(frozen=True, slots=True)
class PastMoments:
    """The past of a node, for use-cases that compare moments; a past node has none.

    Attributes:
        at: Opens the views as of a sequence or a time, and keeps them for a while; takes also the name of its field.
        sequence_of: The sequence that a sequence or time stands for; takes also the name of its field, for errors.
        walk: Opens a view before the first message; takes a workspace, and names of messages in it that are left out
            with all that was made of them.
    """

    at: Past
    sequence_of: Callable[[str, str], Awaitable[int]]
    walk: Callable[[str, Sequence[str]], AbstractAsyncContextManager[PastWalk]]


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that is in the journal.

    Attributes:
        id: The id of its entry.
        seq: Its sequence.
        visible: Whether the awaited views show it; false if no view was awaited.
        duplicate: Whether the same decision was recorded before; ``seq`` is then the first record's sequence.
    """

    id: str
    seq: int
    visible: bool
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """The shared parts of a node.

    Attributes:
        views: The views.
        journal: Appends entries and records decisions.
        writer: Publishes messages that are not entries.
        queries: Reads entries with the rights of a token.
        recall: The hot indexes, the embedders of queries, and recall.
        embedders: The embedding models.
        analyzer: Turns texts into terms.
        record_search: Records a search as a receipt.
        settings: Of the node.
        clock: The time now, UTC.
        subject_key: The key of the hash that names people.
        ends: Closes resources of use-cases.
        wait_s: Seconds to wait until the views show a decision.
        ownership: For which workspaces this node decides.
    """

    views: ViewReader
    journal: Journal
    writer: Writer
    queries: JournalQueries
    recall: RecallService
    embedders: Embedders
    analyzer: Analyzer
    record_search: RecordSearch
    settings: Settings
    clock: Callable[[], datetime]
    subject_key: bytes = field(repr=False)
    ends: AsyncExitStack
    wait_s: float = MIN_SEQ_WAIT_S
    ownership: Ownership = ALONE
    _made: dict[type[Any], Any] = field(default_factory=dict, init=False, repr=False)

    def use(self, kind: type[T]) -> T:
        """The node's instance of a use-case class, created at the first call."""
        if kind not in self._made:
            self._made[kind] = cast("Callable[[Node], T]", kind)(self)
        return cast("T", self._made[kind])

    def put(self, kind: type[T], part: T) -> T:
        """Set the instance that ``use`` returns, for a class that needs more than the node."""
        self._made[kind] = part
        return part

    async def decide(
        self,
        caller: Caller | None,
        payload: ControlPayload,
        summary: str,
        *projections: str,
        workspace_id: str | None = None,
        **fields: Unpack[DecisionFields],
    ) -> Decided:
        """Record a decision, and wait until the views show it.

        Args:
            caller: The caller who decides; None for the service itself.
            payload: The decision.
            summary: One line for the reader of the journal.
            *projections: The views to wait for; if none is named, the call does not wait.
            workspace_id: The workspace; the caller's if absent.
            **fields: Further fields of the entry.

        Raises:
            EntryConflict: If ``entry_id`` belongs to another decision.
            InvalidEntry: If a text has credentials that the workspace refuses.
            BrokerUnavailable: If no ack came in time.
        """
        if caller is not None:
            workspace_id = workspace_id or caller.workspace_id
            fields = {**caller.actor_fields, **fields}
        assert workspace_id is not None  # calls of the service always name it
        recorded = await self.journal.record(workspace_id, payload, summary=summary, **fields)
        visible = bool(projections) and await self.shows(recorded.seq, *projections)
        return Decided(recorded.id, recorded.seq, visible, recorded.duplicate)

    async def shows(self, seq: int, *projections: str, wait_s: float | None = None) -> bool:
        """Whether the projections (by default all) have passed a sequence, or pass it within ``wait_s`` seconds."""
        with contextlib.suppress(ViewsBehind):
            await self.views.wait_for(seq, self.wait_s if wait_s is None else wait_s, *projections)
            return True
        return False
