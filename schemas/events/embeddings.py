"""Payloads of the decisions about embedding models and what they embed."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from .payload import ControlPayload


class EmbeddingsActivated(ControlPayload):
    """Recall uses this model from here on; in the system workspace it is the default of all."""

    ENTRY_TYPE = "embeddings.activated"
    model: str = Field(min_length=1, max_length=96)
    embedder: Literal["ollama", "minilm", "none"]
    dim: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=500)


class EmbeddingsAdded(ControlPayload):
    """A further model is filled in the background, beside the active one; recorded in the system workspace."""

    ENTRY_TYPE = "embeddings.added"
    model: str = Field(min_length=1, max_length=96)
    embedder: Literal["ollama", "minilm"]


class EmbeddingsDropped(ControlPayload):
    """A model's vectors are not wanted any more: nothing fills them and the fold forgets them."""

    ENTRY_TYPE = "embeddings.dropped"
    model: str = Field(min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


class ReindexRequested(ControlPayload):
    """Entries are judged anew by a version of the embed policy; tombstones of a model are tried again."""

    ENTRY_TYPE = "embeddings.reindex_requested"
    policy: int = Field(ge=1)
    model: str | None = Field(default=None, max_length=96)
    reason: str = Field(default="", max_length=500)


MODEL_DECISIONS: Final = (EmbeddingsAdded.ENTRY_TYPE, EmbeddingsActivated.ENTRY_TYPE, EmbeddingsDropped.ENTRY_TYPE)
"""Entry types that decide which models are filled, and which one recall uses."""
