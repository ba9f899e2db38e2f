"""Base of reactors that read views: it takes messages, waits for the views, and handles messages by workspace.

Invariants: a message is handled after the views have folded the message and everything that this reactor published
before. It is acked or postponed only after it was handled, so that a crash loses nothing.

Durable: ack policy explicit, ack wait ``ViewsLimits.ack_wait_s`` (renewed while a batch is being handled), unlimited
deliveries, at most ``max_ack_pending`` unacked; in stream order, except for messages that were postponed or returned.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from nats.aio.msg import Msg

from ...schemas.core.errors import EmbedderError, FoldError, ViewsBehind
from ...schemas.core.ports import ViewReader
from ...schemas.core.subjects import parse_subject
from ...schemas.models.chat import ChatModel, ChatUnavailable
from ..feed.messages import position_of
from ..reactor import ReactorContext
from .durable import Durable
from .llm_calls import MeteredChat, chat_of
from .pull_reactor import PullLimits, PullReactor


@dataclass(frozen=True, slots=True)
class ViewsLimits(PullLimits):
    """Times of a reactor that reads views.

    Attributes:
        views_wait_s: Seconds to wait for the views to fold a message before the message is returned.
    """

    views_wait_s: float = 30.0


class ViewsReactor(PullReactor):
    """A reactor that reads views, so that it runs in the process that has them.

    Args:
        context: The parts of the node; the reactor closes none of them.
        views: The views that it reads.
        chat: A chat model; closed at the end; None if absent.
        limits: Times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    waits_for: ClassVar[tuple[type[Exception], ...]] = (
        *PullReactor.waits_for,
        ViewsBehind,
        EmbedderError,
        ChatUnavailable,
    )
    filter_subjects: ClassVar[tuple[str, ...]]
    description: ClassVar[str]
    """Description of the durable, for the broker's tools."""
    needs: ClassVar[tuple[str, ...]]
    """Projections that must have folded a message."""
    counted: ClassVar[tuple[str, ...]]
    """Counts that ``status`` shows from the start."""
    uses_chat: ClassVar[bool] = False
    batch: ClassVar[int] = 256
    """Maximum number of messages of one turn."""
    max_ack_pending: ClassVar[int] = 1_024
    """Maximum number of unacked messages of all processes."""
    default_limits: ClassVar[ViewsLimits] = ViewsLimits()
    _limits: ViewsLimits

    def __init__(
        self,
        context: ReactorContext,
        views: ViewReader,
        *,
        chat: ChatModel | None = None,
        limits: ViewsLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or self.default_limits
        self._context = context
        self._views = views
        self._chat = None if chat is None else MeteredChat(chat, context.publisher, self.identity)
        durable = Durable(
            name=self._durable_name(),
            filter_subjects=self.filter_subjects,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=self.max_ack_pending,
            description=self.description,
            sparse=True,
        )
        super().__init__(
            context.client, context.publisher, durable, limits, clock=context.clock, draw=draw, counted=self.counted
        )
        self.prepare()

    @classmethod
    def create(cls, context: ReactorContext) -> Self | None:
        """The reactor of a node, or None in a process without views."""
        if context.views is None:
            return None
        return cls(context, context.views, chat=chat_of(context.settings) if cls.uses_chat else None)

    def prepare(self) -> None:
        """Create further parts of the reactor; called once, at the end of the constructor."""

    async def stop(self) -> None:
        """Stop, then close the chat model."""
        await super().stop()
        if self._chat is not None:
            await self._chat.close()

    async def turn(self) -> None:
        """Handle a batch."""
        limits = self._limits
        size = min(self.batch, self.max_ack_pending)
        by_workspace: dict[str, list[Msg]] = {}
        seq = 0
        for message in await self._source.take(size, wait_s=limits.wait_s, window_s=limits.window_s):
            workspace_id = self.workspace_of(message)
            if workspace_id is None:
                await message.ack()
                continue
            self._leases.hold(message)
            by_workspace.setdefault(workspace_id, []).append(message)
            seq = max(seq, position_of(message.reply).seq)
        if by_workspace:
            async with self._leases.renewed():
                await self.caught_up(seq)
                await self.handle_all(by_workspace)

    async def caught_up(self, seq: int = 0) -> None:
        """Wait until the views have folded a sequence and everything that this reactor published.

        Raises:
            ViewsBehind: After ``views_wait_s``.
        """
        await self._views.wait_for(max(seq, self._written), self._limits.views_wait_s, *self.needs)

    async def handle_all(self, by_workspace: Mapping[str, Sequence[Msg]]) -> None:
        """Handle the messages of each workspace, one workspace after the other; an error in one does not stop the others.

        Raises:
            Exception: The first error, after all workspaces.
        """
        failed: Exception | None = None
        for workspace_id, messages in by_workspace.items():
            try:
                await self._settle(workspace_id, messages)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @abstractmethod
    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Handle messages of a workspace; messages that it neither acks nor postpones are acked afterwards.

        Raises:
            Exception: The held messages are returned, and after a pause the next turn begins.
        """

    def workspace_of(self, message: Msg) -> str | None:
        """The workspace of a message; None if the message does not concern the reactor."""
        try:
            return parse_subject(message.subject).workspace
        except FoldError:  # the projections park the message
            return None

    async def _settle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        await self.handle(workspace_id, messages)
        for message in self._leases.held(messages):
            await self._leases.ack(message)

    def _durable_name(self) -> str:
        return f"{self.name.replace('_', '-')}-v{self.version}"
