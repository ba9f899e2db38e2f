"""Whether the embedder works, judged by its last call and by nothing else.

"Configured" is not "working", and a failure an hour ago is not a failure now. So the outcome is never latched, an
embedder nobody has called yet is not degraded, and a caller who gave up is no evidence about the embedder, unless it says
that it waited as long as a recall may.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeVar

from ...schemas.errors import CrewJournalError, EmbedderInputRejected
from ...schemas.ports import Embedder, TokenBits, TokenEmbedder

EmbedderMode = Literal["vector", "vector-degraded", "sparse-only"]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EmbedderOutcome:
    """The embedder's line in ``/v1/status``.

    Attributes:
        mode: ``vector`` (works, or never called), ``vector-degraded`` (the last call failed), ``sparse-only``
            (there is no embedder).
        model: Its model id; None without an embedder.
        dim: Dimensions, None until known.
        error: Class name of the last failure, or ``EmbedderSlow``; None unless degraded.
        message: What was wrong; None unless degraded.
        hint: What to do about it; None unless degraded.
        since: When the present run of failures began, UTC; None unless degraded.
        consecutive_failures: Length of that run.
        last_success: When a call last succeeded, UTC; None if none has.
        rejected_inputs: Texts the model refused so far. Not failures: other texts are not affected.
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
"""``error`` of an embedder that answers, but too late for recalls."""
SPARSE_ONLY = EmbedderOutcome(mode="sparse-only", model=None, dim=None)
"""The outcome of a node without an embedder."""


class ObservedEmbedder:
    """An `Embedder` (see `schemas.ports`) that passes every call on and remembers how the last one ended.

    Args:
        inner: The embedder to watch; closed with this one.
        clock: The time now, UTC.
    """

    def __init__(self, inner: Embedder, clock: Callable[[], datetime]) -> None:
        self._inner = inner
        self._clock = clock
        self._outcome = EmbedderOutcome(mode="vector", model=inner.model_id, dim=inner.dim)
        self._late_s, self._late_count = 0.0, 0
        self._late_since: datetime | None = None

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
        """The inner embedder's; None if that one gives no bits."""
        return self._inner.token_quantiser if isinstance(self._inner, TokenEmbedder) else None

    @property
    def outcome(self) -> EmbedderOutcome:
        """How the last call ended; one that works but answers queries too late is degraded all the same."""
        outcome = replace(self._outcome, dim=self._inner.dim)
        if outcome.error is not None or self._late_since is None:
            return outcome
        return replace(
            outcome,
            mode="vector-degraded",
            error=SLOW,
            message=f"no answer to a query within {self._late_s:g} s: recall goes on without vectors",
            hint="is its server busy, or loading the model? A question asked again has its vector if that came later",
            since=self._late_since,
            consecutive_failures=self._late_count,
        )

    def query_answered(self, late_s: float | None) -> None:
        """Whether a recall had its query's vector in time.

        Args:
            late_s: Seconds within which there was no answer; None if there was one.
        """
        if late_s is None:
            self._late_since, self._late_count = None, 0
            return
        self._late_s, self._late_count = late_s, self._late_count + 1
        self._late_since = self._late_since or self._clock()

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Passed on; an empty list calls nothing and so says nothing."""
        if not texts:
            return []
        return await self._observe(self._inner.embed_documents(texts))

    async def embed_query(self, text: str) -> bytes:
        """Passed on."""
        return await self._observe(self._inner.embed_query(text))

    async def embed_documents_tokens(self, texts: Sequence[str]) -> Sequence[tuple[bytes, TokenBits | None]]:
        """Passed on; without token bits where the inner embedder gives none."""
        if not texts:
            return []
        if isinstance(self._inner, TokenEmbedder):
            return await self._observe(self._inner.embed_documents_tokens(texts))
        return [(vector, None) for vector in await self.embed_documents(texts)]

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        """Passed on, likewise."""
        if isinstance(self._inner, TokenEmbedder):
            return await self._observe(self._inner.embed_query_tokens(text))
        return await self.embed_query(text), None

    async def probe(self) -> None:
        """Passed on. A probe that is refused as input is a failure: its text is harmless."""
        await self._observe(self._inner.probe(), rejection_is_failure=True)

    async def close(self) -> None:
        """Close the inner embedder; says nothing about it."""
        await self._inner.close()

    async def _observe(self, call: Awaitable[_Answer], *, rejection_is_failure: bool = False) -> _Answer:
        try:
            answer = await call
        except EmbedderInputRejected as error:
            if rejection_is_failure:
                self._failed(error)
            else:
                self._outcome = replace(self._outcome, rejected_inputs=self._outcome.rejected_inputs + 1)
            raise
        except Exception as error:  # cancellation is a BaseException and passes by unrecorded
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
