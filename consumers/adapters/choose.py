"""Chooses the embedder of this node.

Invariant: an activated model is not replaced because its server is down or because another one is available. Vectors of
two models cannot be compared, so switching needs a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from ...schemas.core.errors import CrewJournalError, EmbedderError, EmbedderInputRejected
from ...schemas.core.ports import Embedder, TokenBits, TokenEmbedder
from ...schemas.models.events import ModelKind
from ...schemas.settings import EMBED_DEFAULT_MODEL, OLLAMA_CONTAINER_HOST, OLLAMA_DEFAULT_HOST, EmbedderKind, Settings
from .minilm_weights import MODEL_ID as MINILM_MODEL_ID
from .minilm_weights import fault_of
from .served import OPENAI_PREFIX, Endpoint, is_closed, listens

NO_ENDPOINT: Final = Endpoint()
BOOT_PROBE_TIMEOUT_S: Final = 3.0
"""Seconds for the first embedding at a start, including loading the model: `up` should be ready within 4 s, and
nomic-embed-text loads in 1 to 2 s.
"""


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The chosen embedder, and the reason for ``/v1/status``.

    Attributes:
        embedder: None for lexical recall only. It may be unavailable at present.
        kind: Kind of adapter.
        reason: Why it was chosen.
    """

    embedder: Embedder | None
    kind: EmbedderKind
    reason: str


async def choose_embedder(
    kind: EmbedderKind,
    *,
    ollama_host: str,
    ollama_model: str,
    cache_dir: Path,
    endpoint: Endpoint = NO_ENDPOINT,
    endpoint_model: str = EMBED_DEFAULT_MODEL,
    pinned_model: str | None = None,
    switched: bool = False,
) -> EmbedderChoice:
    """Choose by the setting, by the last activation, or, with ``auto`` and no activation, by what works.

    With ``auto``, an endpoint counts as the setting ``openai``. An explicit setting and a pinned model are used without a
    test. A setting of another kind overrides the pinned
    model, unless an operator switched to that model by command, which a restart must not undo.

    Args:
        kind: The setting.
        ollama_host: URL or HOST:PORT of Ollama.
        ollama_model: The model to use, unless one of Ollama's models is pinned.
        cache_dir: Directory of MiniLM.
        endpoint: An OpenAI-compatible server.
        endpoint_model: The model to use there, unless one of its models is pinned.
        pinned_model: Model id of the last activation, or None.
        switched: Whether an operator switched to that model by command.

    Returns:
        The choice. An embedder that is unavailable is not an error.

    Raises:
        EmbedderUnavailable: The address of the server is not valid.
    """
    if kind == "none":
        return EmbedderChoice(None, "none", "switched off by the setting `none`")
    pinned_kind: EmbedderKind | None = None
    if pinned_model is not None:
        pinned_kind = kind_of(pinned_model)
    if kind == "auto" and pinned_kind is None and endpoint.url is not None:
        kind = "openai"
    if kind == "auto" and pinned_kind is None:
        return await _first_that_works(ollama_host, ollama_model, cache_dir)
    chosen = pinned_kind if pinned_kind is not None and (kind == "auto" or switched) else kind
    if pinned_kind == chosen:
        reason = f"{pinned_model} was activated before and is used until another is activated"
    elif pinned_kind is not None:
        reason = f"required by the setting, although {pinned_model} was activated before"
    else:
        reason = "required by the setting"
    if chosen == "minilm":
        return EmbedderChoice(_minilm(cache_dir), chosen, reason)
    model = f"{OPENAI_PREFIX}{endpoint_model}" if chosen == "openai" else ollama_model
    if pinned_kind == chosen and pinned_model is not None:
        model = pinned_model
    embedder = make_embedder(model, ollama_host=ollama_host, cache_dir=cache_dir, endpoint=endpoint)
    return EmbedderChoice(embedder, chosen, reason)


def kind_of(model: str) -> ModelKind:
    """The adapter of a model: MiniLM runs in this process, ``openai/…`` at the endpoint, every other model in Ollama."""
    if model == MINILM_MODEL_ID:
        return "minilm"
    return "openai" if model.startswith(OPENAI_PREFIX) else "ollama"


def runnable_models(settings: Settings) -> tuple[str, ...]:
    """The models that can be activated without having been added."""
    endpoint = (f"{OPENAI_PREFIX}{settings.embed_model}",) if settings.embed_base_url is not None else ()
    return (MINILM_MODEL_ID, settings.ollama_model, *endpoint)


_CONTAINER_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into every container."""


async def ollama_host_of(
    configured: str, *, fallback: str = OLLAMA_CONTAINER_HOST, marks: Sequence[Path] = _CONTAINER_MARKS
) -> str:
    """The address of Ollama: the configured address, or the host machine's if a container has no Ollama of its own.

    An address that an operator set is never replaced: only the default is.
    """
    if configured != OLLAMA_DEFAULT_HOST or not any(mark.exists() for mark in marks):
        return configured
    return fallback if await is_closed(configured) and await listens(fallback) else configured


def make_embedder(model: str, *, ollama_host: str, cache_dir: Path, endpoint: Endpoint = NO_ENDPOINT) -> Embedder:
    """Create the embedder of a model, without connecting or loading.

    Raises:
        EmbedderUnavailable: The address of the model's server is not valid.
    """
    kind = kind_of(model)
    if kind == "minilm":
        return _minilm(cache_dir)
    if kind == "ollama":
        return _ollama(ollama_host, model)
    from .served import OpenAiEmbedder

    return OpenAiEmbedder(endpoint, model.removeprefix(OPENAI_PREFIX))


def _minilm(cache_dir: Path) -> Embedder:
    from .minilm import MiniLmEmbedder  # 20 ms of CPU, only where it is used

    return MiniLmEmbedder(cache_dir)


def _ollama(host: str, model: str) -> Embedder:
    from .ollama import OllamaEmbedder  # 0.3 s of CPU, only where Ollama is used

    return OllamaEmbedder(host, model)


async def _first_that_works(ollama_host: str, ollama_model: str, cache_dir: Path) -> EmbedderChoice:
    fault: str | None = f"Ollama at {ollama_host} cannot be reached (nothing listens there)"
    if not await is_closed(ollama_host):
        try:
            ollama = _ollama(ollama_host, ollama_model)
        except EmbedderError as error:
            fault = error.message
        else:
            fault = await _fault_at_boot(ollama)
            if fault is None:
                return EmbedderChoice(ollama, "ollama", f"auto: {ollama_model} at {ollama_host} answers")
            await ollama.close()
    minilm_fault = await asyncio.to_thread(fault_of, cache_dir / MINILM_MODEL_ID)
    if minilm_fault is None:
        return EmbedderChoice(_minilm(cache_dir), "minilm", f"auto: {fault}; {MINILM_MODEL_ID} is installed")
    return EmbedderChoice(
        None,
        "none",
        f"auto: {fault}; {MINILM_MODEL_ID}: {minilm_fault} (run `crew-journal embedder install minilm`)",
    )


async def _fault_at_boot(embedder: Embedder) -> str | None:
    try:
        async with asyncio.timeout(BOOT_PROBE_TIMEOUT_S):
            await embedder.probe()
    except EmbedderError as error:
        return error.message
    except TimeoutError:
        return f"Ollama did not embed a sentence within {BOOT_PROBE_TIMEOUT_S:g} s"
    return None


# Records whether the last call of the embedder succeeded.
#
# Only the last call counts, not the configuration and not earlier failures. An embedder without calls is not degraded.
# A cancelled call does not count, except a recall that reports that it waited for its full time limit.


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
