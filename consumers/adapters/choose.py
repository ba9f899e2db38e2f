"""Chooses the embedder of this node.

Invariant: an activated model is not replaced because its server is down or because another one is available. Vectors of
two models cannot be compared, so switching needs a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...schemas.core.errors import EmbedderError
from ...schemas.core.ports import Embedder
from ...schemas.models.events import ModelKind
from ...schemas.settings import (
    EMBED_DEFAULT_MODEL,
    OLLAMA_CONTAINER_HOST,
    OLLAMA_DEFAULT_HOST,
    EmbedderKind,
    Settings,
)
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
    from .openai import OpenAiEmbedder  # the HTTP client is imported where it is used

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
