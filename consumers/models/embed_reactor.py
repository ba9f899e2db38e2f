"""Embeds the entries that the policy selects and publishes their vectors as facts.

Invariants: an entry is acked only after its fact was acked, so nothing is lost; a fact's id follows from the entry, its
sequence, the model and our version, so an entry that comes twice is published once; an unavailable model stops the reactor,
and a text that the model rejects delays no other text. Each (version, model) has a durable of its own, so another model is
filled from the journal's beginning beside the first.

Durable: ack policy explicit, ack wait ``EmbedLimits.ack_wait_s`` (renewed while the model works), unlimited deliveries,
at most ``max_ack_pending`` unacked; in stream order, except for entries that were put off.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final, TypeVar

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic_core import from_json

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.core.errors import BrokerError, EmbedderError, EmbedderInputRejected, EmbedderUnavailable, FoldError
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import Embedder, Published, Publisher, TokenBits
from ...schemas.core.subjects import control_subject
from ...schemas.models.events import ReindexRequested
from ...schemas.models.rules import FIRST, POLICIES
from ...schemas.settings import EMBED_BATCH
from ..feed.jetstream import EMBED_ACK_PENDING
from ..reacting.pull import Durable, doubled
from ..reacting.pull_reactor import PullLimits, PullReactor
from ..reactor import Reactor, ReactorContext, ReactorStatus
from .embed_batch import (
    EMBED_VERSION,
    FILTER_SUBJECTS,
    DeliveredEntry,
    Embedded,
    Failed,
    SpeechRule,
    candidate_of,
    embed_in_pieces,
    speech_workspace,
)

# Sizes and times of the embed reactor, and the name of its durable.


MODEL_SLUG_CHARS: Final = 40
"""Characters of a model's name in its durable's name; a hash of the whole name follows."""
_NOT_SLUG: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class EmbedLimits(PullLimits):
    """Sizes and times of the embed reactor; one call for several texts costs little more than for one.

    Attributes:
        batch: Texts of one call to the model.
        max_ack_pending: Unacked entries over all processes, those put off included: if more texts than this fail at
            once, the rest waits until the first are given up.
        retry_first_s: Seconds until a text that failed alone comes again; doubled with each delivery.
        retry_last_s: Seconds of the longest such delay.
        suspect_deliveries: Deliveries from which a text is asked for alone. A text without fault comes again only when
            the model or a process went away with it in hand, which is rarely twice.
        suspects_a_turn: Texts asked for alone between two batches; the others are put off once more.
        takes_a_turn: Full takes without anything new after which the pending suspects are tried.
        give_up_after: Failures of one text alone, seen by this process, before it is given up.
        give_up_refused_s: Seconds since the first of them, where the model refuses the text.
        give_up_broken_s: The same where the model breaks on it or gives no vector: that may be mended with the server.
    """

    batch: int = EMBED_BATCH
    max_ack_pending: int = EMBED_ACK_PENDING
    retry_first_s: float = 5.0
    retry_last_s: float = 600.0
    suspect_deliveries: int = 4
    suspects_a_turn: int = 4
    takes_a_turn: int = 32
    give_up_after: int = 5
    give_up_refused_s: float = 600.0
    give_up_broken_s: float = 86_400.0


def durable_name(version: int, model: str, generation: int = 0) -> str:
    """``embed-v<version>-<model>-<hash>``: names a model in characters that the broker allows (no dots and slashes).

    After a drop ``-<generation>`` follows, so that the model is filled from the journal's beginning once more.
    """
    return f"embed-v{version}-{model_slug(model)}" + (f"-{generation}" if generation else "")


def model_slug(model: str) -> str:
    """The model in a durable's name: a readable piece and a hash of the whole name."""
    slug = _NOT_SLUG.sub("-", model).strip("-")[:MODEL_SLUG_CHARS]
    return f"{slug}-{hashlib.blake2b(model.encode(), digest_size=4).hexdigest()}"


_log = structlog.get_logger(__name__)
P = TypeVar("P", bound=ControlPayload)


@dataclass(slots=True)
class _EmbedTrouble:
    """The failures of one text: their number and the time of the first, seconds of the loop's clock."""

    failures: int
    since_s: float


class EmbedReactor(PullReactor):
    """The reactor; several with the same model share the load.

    Args:
        client: A connection that reconnects without limit; not closed here.
        publisher: Publishes to JOURNAL; not closed here.
        embedder: The model; not closed here.
        clock: The time for ``status``.
        dim: Dimensions that the journal knows of the model; None to go by its first answer.
        generation: Sequence of the model's last drop, 0 if it was never dropped.
        limits: Sizes and times.
        draw: Uniform in [0, 1), spreads the pauses of several processes.
    """

    name: ClassVar[str] = "embed"
    version: ClassVar[int] = EMBED_VERSION
    waits_for: ClassVar[tuple[type[Exception], ...]] = (EmbedderError, BrokerError, NatsError)

    def __init__(
        self,
        client: Client,
        publisher: Publisher,
        embedder: Embedder,
        *,
        clock: Callable[[], datetime],
        dim: int | None = None,
        generation: int = 0,
        limits: EmbedLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits = limits or EmbedLimits()
        durable = Durable(
            name=durable_name(self.version, embedder.model_id, generation),
            filter_subjects=FILTER_SUBJECTS,
            ack_wait_s=limits.ack_wait_s,
            max_ack_pending=limits.max_ack_pending,
            description=f"entries to embed with {embedder.model_id}",
        )
        counted = ("proposed", "written", "refused", "failed", "skipped", "unreadable")
        super().__init__(client, publisher, durable, limits, clock=clock, draw=draw, counted=counted)
        self._embedder = embedder
        self._dim = dim
        self._generation = generation
        self._batch = limits.batch
        self._troubles: dict[int, _EmbedTrouble] = {}

    @property
    def model(self) -> str:
        """The model it fills."""
        return self._embedder.model_id

    @property
    def unsettled(self) -> frozenset[int]:
        """Sequences of entries that it holds, put off or returned, and that are not settled."""
        return self._leases.unsettled

    async def status(self) -> ReactorStatus:
        """The status, with the number of texts that are put off."""
        status = await super().status()
        return replace(status, counts={**status.counts, "put_off": len(self._troubles)})

    async def open(self) -> None:
        """Declare the durable and test the model."""
        await super().open()
        await self._embedder.probe()

    async def turn(self) -> None:
        """Embed a batch of fresh entries, then the few that failed before, one by one."""
        fresh, suspects = await self._gather()
        async with self._leases.renewed():
            while fresh:
                now, fresh = fresh[: self._batch], fresh[self._batch :]
                await self._embed(now)
            for suspect in suspects:
                await self._embed([suspect])

    async def _gather(self) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
        """A batch of fresh entries, and the few suspects that are tried this time.

        The broker delivers entries that were put off before new ones. Of those, all but a few are put off again until new
        ones appear; otherwise many failing texts would take all the time.
        """
        limits = self._limits
        fresh: list[DeliveredEntry] = []
        suspects: list[DeliveredEntry] = []
        for _ in range(limits.takes_a_turn):
            messages = await self._source.take(limits.batch, wait_s=limits.wait_s, window_s=limits.window_s)
            for candidate in await self._sort(messages):
                if not self._is_suspect(candidate):
                    fresh.append(candidate)
                elif len(suspects) < limits.suspects_a_turn:
                    suspects.append(candidate)
                else:
                    await self._delay(candidate)
            if fresh or len(messages) < limits.batch or self._stopping.is_set():
                break
        return fresh, suspects

    def _is_suspect(self, candidate: DeliveredEntry) -> bool:
        """Whether it is embedded alone: it failed here, or was delivered so often that it may have failed elsewhere."""
        return candidate.seq in self._troubles or candidate.deliveries >= self._limits.suspect_deliveries

    async def _sort(self, messages: Sequence[Msg]) -> list[DeliveredEntry]:
        """Ack messages that are not embedded; hold and return the others."""
        candidates = []
        rules: dict[str | None, SpeechRule | None] = {None: None}
        for message in messages:
            try:
                workspace = speech_workspace(message)
                if workspace is not None and workspace not in rules:
                    rules[workspace] = await self._speech_rule(workspace)
                candidate = candidate_of(message, speech=rules[workspace])
            except FoldError:  # the projections park it and say so
                self._counts["unreadable"] += 1
                await message.ack()
                continue
            if candidate is None:
                self._counts["skipped"] += 1
                await message.ack()
                continue
            if candidate.deliveries == 1:
                self._counts["proposed"] += 1
            self._leases.hold(message)
            candidates.append(candidate)
        return candidates

    async def _speech_rule(self, workspace_id: str) -> SpeechRule:
        """What a workspace says about speech; read from the journal, because processes share the durable."""
        configured = await self._last(workspace_id, WorkspaceConfigured)
        reindexed = await self._last(workspace_id, ReindexRequested)
        version = FIRST if reindexed is None or reindexed.policy not in POLICIES else reindexed.policy
        return SpeechRule(version, None if configured is None else configured.chosen.embed_chat)

    async def _last(self, workspace_id: str, kind: type[P]) -> P | None:
        """The payload of the last decision of a kind; None if absent."""
        last = await self._source.last_on(control_subject(workspace_id, kind.ENTRY_TYPE))
        if last is None or last.data is None:
            return None
        return kind.model_validate(from_json(last.data)["payload"])

    async def _embed(self, candidates: Sequence[DeliveredEntry]) -> None:
        size = min(self._limits.batch, self._batch * 2)
        async for piece in embed_in_pieces(self._embedder, candidates, self._dim):
            if isinstance(piece, Embedded):
                if self._dim is None:
                    self._dim = self._embedder.dim
                await self._write(piece.candidates, piece.vectors, piece.tokens)
            elif isinstance(piece, Failed):
                await self._put_off(piece)
            elif isinstance(piece.error, EmbedderUnavailable):  # the batch is too large: ask for less, later for more
                size = max(1, self._batch // 2)
        self._batch = size

    async def _write(
        self, candidates: Sequence[DeliveredEntry], vectors: Sequence[bytes], tokens: Sequence[TokenBits | None]
    ) -> None:
        """Publish facts, then ack their causes; those with a fact that was not acked stay in hand."""
        results = await asyncio.gather(
            *(self._publish_all(*item) for item in zip(candidates, vectors, tokens, strict=True)),
            return_exceptions=True,
        )
        failure: BaseException | None = None
        for candidate, vector, result in zip(candidates, vectors, results, strict=True):
            if isinstance(result, BaseException):
                failure = failure or result
                continue
            self._counts["repeated" if result.duplicate else "written" if vector else "refused"] += 1
            await self._leases.ack(candidate.message)
            self._troubles.pop(candidate.seq, None)
        if failure is not None:
            raise failure

    async def _publish_all(self, candidate: DeliveredEntry, vector: bytes, tokens: TokenBits | None) -> Published:
        """Publish an entry's facts; returns the ack of the vector."""
        *before, fact = candidate.facts(self._embedder.model_id, self._generation, vector, tokens, self.identity)
        for bits in before:
            await self.publish(bits)
        return await self.publish(fact)

    async def _put_off(self, piece: Failed[DeliveredEntry]) -> None:
        candidate, limits = piece.candidate, self._limits
        now = asyncio.get_running_loop().time()
        if len(self._troubles) >= limits.max_ack_pending:  # the oldest may have been settled by another process
            del self._troubles[next(iter(self._troubles))]
        trouble = self._troubles.setdefault(candidate.seq, _EmbedTrouble(0, now))
        trouble.failures += 1
        self._counts["failed"] += 1
        refused = isinstance(piece.error, EmbedderInputRejected)
        patience_s = limits.give_up_refused_s if refused else limits.give_up_broken_s
        give_up = trouble.failures >= limits.give_up_after and now - trouble.since_s >= patience_s
        _log.warning(
            "embed.given_up" if give_up else "embed.put_off",
            entry_id=candidate.entry.id,
            seq=candidate.seq,
            workspace=candidate.entry.workspace_id,
            failures=trouble.failures,
            error=type(piece.error).__name__,
        )
        if give_up:
            await self._write([candidate], [b""], [None])
            return
        await self._delay(candidate)

    async def _delay(self, candidate: DeliveredEntry) -> None:
        delay_s = doubled(self._limits.retry_first_s, self._limits.retry_last_s, candidate.deliveries - 1)
        await self._leases.put_off(candidate.message, delay_s)


def create(context: ReactorContext) -> Reactor | None:
    """The embed reactor of a node, or None where no model is chosen."""
    if context.embedder is None:
        return None
    return EmbedReactor(
        context.client,
        context.publisher,
        context.embedder,
        clock=context.clock,
        dim=context.embedding_dim,
        generation=context.embedding_generation,
    )


REACTORS: Final = {"embed": create}
