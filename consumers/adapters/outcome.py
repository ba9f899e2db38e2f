"""Records whether the last call of the embedder succeeded.

Only the last call counts, not the configuration and not earlier failures. An embedder without calls is not degraded. A
cancelled call does not count, except a recall that reports that it waited for its full time limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeVar

from ...schemas.core.errors import CrewJournalError, EmbedderInputRejected
from ...schemas.core.ports import Embedder, TokenBits, TokenEmbedder

EmbedderMode = Literal["vector", "vector-degraded", "sparse-only"]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EmbedderOutcome:
    """State of the embedder in ``/v1/status``.

    Attributes:
        mode: ``vector`` (works, or never called), ``vector-degraded`` (the last call failed), ``sparse-only``
            (there is no embedder).
        model: Its model id; None without an embedder.
        dim: Dimensions, None until known.
        error: Class name of the last failure, or ``EmbedderSlow``; None unless degraded.
        message: Description of the failure; None unless degraded.
        hint: What to do; None unless degraded.
        since: When the current series of failures began, UTC; None unless degraded.
        consecutive_failures: Length of that series.
        last_success: UTC time of the last successful call; None if no call has succeeded.
        rejected_inputs: Number of texts that the model refused; these are not failures.
    """

    mode: EmbedderMode
    model: str | None
    dim: int | None
    error: str | None = None
    message: str | None = None
    hint: str | None = None
    since: datetime | None = None
    consecutive_failures: int = 0
    last_success: datetime | None = None
    rejected_inputs: int = 0


SLOW: Final = "EmbedderSlow"
"""``error`` of an embedder that answers too late for recalls."""
SPARSE_ONLY = EmbedderOutcome(mode="sparse-only", model=None, dim=None)
"""The outcome of a node without an embedder."""


class ObservedEmbedder:
    """An `Embedder` (see `schemas.core.ports`) that forwards every call and records the outcome of the last one.

    Args:
        inner: The embedder; closed with this object, after the last running call.
        clock: The time now, UTC.
    """

    def __init__(self, inner: Embedder, clock: Callable[[], datetime]) -> None:
        self._inner = inner
        self._clock = clock
        self._outcome = EmbedderOutcome(mode="vector", model=inner.model_id, dim=inner.dim)
        self._late_s, self._late_count = 0.0, 0
        self._late_since: datetime | None = None
        self._calls, self._closing = 0, False

    @property
    def model_id(self) -> str:
        """The inner embedder's."""
        return self._inner.model_id

    @property
    def dim(self) -> int | None:
        """The inner embedder's."""
        return self._inner.dim

    @property
    def token_quantiser(self) -> int | None:
        """The inner embedder's quantiser; None if it computes no token bits."""
        return self._inner.token_quantiser if isinstance(self._inner, TokenEmbedder) else None

    @property
    def outcome(self) -> EmbedderOutcome:
        """The outcome of the last call; an embedder that answers queries too late is also degraded."""
        outcome = replace(self._outcome, dim=self._inner.dim)
        if outcome.error is not None or self._late_since is None:
            return outcome
        return replace(
            outcome,
            mode="vector-degraded",
            error=SLOW,
            message=f"no answer to a query within {self._late_s:g} s, so recall works without vectors",
            hint="check whether its server is busy or still loading the model; repeating the question later may succeed",
            since=self._late_since,
            consecutive_failures=self._late_count,
        )

    def query_answered(self, late_s: float | None) -> None:
        """Record whether a recall got the vector of its query in time.

        Args:
            late_s: The time limit in seconds if it was exceeded, else None.
        """
        if late_s is None:
            self._late_since, self._late_count = None, 0
            return
        self._late_s, self._late_count = late_s, self._late_count + 1
        self._late_since = self._late_since or self._clock()

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Forwarded; an empty list does not change the outcome."""
        if not texts:
            return []
        return await self._observe(self._inner.embed_documents(texts))

    async def embed_query(self, text: str) -> bytes:
        """Forwarded."""
        return await self._observe(self._inner.embed_query(text))

    async def embed_documents_tokens(self, texts: Sequence[str]) -> Sequence[tuple[bytes, TokenBits | None]]:
        """Forwarded; without token bits if the inner embedder computes none."""
        if not texts:
            return []
        if isinstance(self._inner, TokenEmbedder):
            return await self._observe(self._inner.embed_documents_tokens(texts))
        return [(vector, None) for vector in await self.embed_documents(texts)]

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        """Forwarded, as ``embed_documents_tokens``."""
        if isinstance(self._inner, TokenEmbedder):
            return await self._observe(self._inner.embed_query_tokens(text))
        return await self.embed_query(text), None

    async def probe(self) -> None:
        """Forwarded. If the model refuses the text of the probe, that is a failure."""
        await self._observe(self._inner.probe(), rejection_is_failure=True)

    async def close(self) -> None:
        """Close the inner embedder now or after its last running call; does not change the outcome."""
        self._closing = True
        if not self._calls:
            await self._inner.close()

    async def _observe(self, call: Awaitable[_Answer], *, rejection_is_failure: bool = False) -> _Answer:
        try:
            answer = await self._counted(call)
        except EmbedderInputRejected as error:
            if rejection_is_failure:
                self._failed(error)
            else:
                self._outcome = replace(self._outcome, rejected_inputs=self._outcome.rejected_inputs + 1)
            raise
        except Exception as error:  # cancellation is a BaseException and is not recorded
            self._failed(error)
            raise
        self._outcome = EmbedderOutcome(
            mode="vector",
            model=self._inner.model_id,
            dim=self._inner.dim,
            last_success=self._clock(),
            rejected_inputs=self._outcome.rejected_inputs,
        )
        return answer

    async def _counted(self, call: Awaitable[_Answer]) -> _Answer:
        self._calls += 1
        try:
            return await call
        finally:
            self._calls -= 1
            if self._closing and not self._calls:
                await self._inner.close()

    def _failed(self, error: Exception) -> None:
        before = self._outcome
        message, hint = (error.message, error.hint) if isinstance(error, CrewJournalError) else (str(error), "")
        self._outcome = replace(
            before,
            mode="vector-degraded",
            error=type(error).__name__,
            message=message,
            hint=hint,
            since=before.since or self._clock(),
            consecutive_failures=before.consecutive_failures + 1,
        )
