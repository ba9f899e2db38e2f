"""Which embedder this node uses, and why.

Invariant: a model that has been activated is not exchanged for another because its server happens to be down or
because a better one has appeared. Vectors of two models cannot be compared, so switching is a command, not luck.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...schemas.errors import EmbedderError
from ...schemas.ports import Embedder
from ...schemas.settings import EmbedderKind
from .loopback import is_closed
from .minilm import MiniLmEmbedder
from .minilm_weights import MODEL_ID as MINILM_MODEL_ID
from .minilm_weights import fault_of

BOOT_PROBE_TIMEOUT_S: Final = 3.0
"""For the first embedding at a start, connection and loading of the model included: `up` is to be ready
within 4 s, and nomic-embed-text loads from a disk in one to two."""


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder in use and the reason, in words for ``/v1/status``.

    Attributes:
        embedder: None for lexical recall only. It may be one that does not work at present.
        kind: Which of the adapters it is.
        reason: Why this one.
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
    pinned_model: str | None = None,
    switched: bool = False,
) -> EmbedderChoice:
    """Choose by setting, by a former activation, or, with ``auto`` and neither, by what works.

    An explicit kind, and a pinned model, are taken without being tried: they are what the operator wants, and
    status says whether they work. A setting that names another kind than the pinned model's wins over it, unless the
    model was switched to by command: a restart must not undo what an operator decided and the journal recorded.

    Args:
        kind: The setting.
        ollama_host: URL or HOST:PORT of Ollama.
        ollama_model: The model to use there, unless one of Ollama's is pinned.
        cache_dir: Where MiniLM is installed.
        pinned_model: Model id of the last activation, or None.
        switched: Whether that model was added beside another and switched to by command.

    Returns:
        The choice; an embedder that does not work at present is no error.

    Raises:
        EmbedderUnavailable: Ollama was asked for by name and `ollama_host` cannot be read as an address.
    """
    if kind == "none":
        return EmbedderChoice(None, "none", "switched off by the setting `none`")
    pinned_kind: EmbedderKind | None = None
    if pinned_model is not None:
        pinned_kind = kind_of(pinned_model)
    if kind == "auto" and pinned_kind is None:
        return await _first_that_works(ollama_host, ollama_model, cache_dir)
    chosen = pinned_kind if pinned_kind is not None and (kind == "auto" or switched) else kind
    if pinned_kind == chosen:
        reason = f"{pinned_model} was activated before and stays until it is switched explicitly"
    elif pinned_kind is not None:
        reason = f"named by the setting, although {pinned_model} was activated before"
    else:
        reason = "named by the setting"
    if chosen == "minilm":
        return EmbedderChoice(MiniLmEmbedder(cache_dir), "minilm", reason)
    model = pinned_model if pinned_kind == "ollama" and pinned_model is not None else ollama_model
    return EmbedderChoice(_ollama(ollama_host, model), "ollama", reason)


def kind_of(model: str) -> Literal["minilm", "ollama"]:
    """Which adapter runs a model: MiniLM is embedded, every other name is Ollama's."""
    return "minilm" if model == MINILM_MODEL_ID else "ollama"


def make_embedder(model: str, *, ollama_host: str, cache_dir: Path) -> Embedder:
    """What runs a model; opens no connection and loads nothing yet.

    Raises:
        EmbedderUnavailable: The model is Ollama's and ``ollama_host`` cannot be read as an address.
    """
    return MiniLmEmbedder(cache_dir) if kind_of(model) == "minilm" else _ollama(ollama_host, model)


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
        return EmbedderChoice(MiniLmEmbedder(cache_dir), "minilm", f"auto: {fault}; {MINILM_MODEL_ID} is installed")
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
