"""Payloads of the decisions about embedding models and the embed policy."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from .payload import ControlPayload

ModelKind = Literal["ollama", "minilm", "openai"]
"""The program that runs a model."""


class EmbeddingsActivated(ControlPayload):
    """Recall uses this model from now on; in the system workspace, as the default of all workspaces."""

    ENTRY_TYPE = "embeddings.activated"
    model: str = Field(min_length=1, max_length=96)
    embedder: ModelKind | Literal["none"]
    dim: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=500)


class EmbeddingsAdded(ControlPayload):
    """A model is added and its vectors are computed in the background. Recorded in the system workspace."""

    ENTRY_TYPE = "embeddings.added"
    model: str = Field(min_length=1, max_length=96)
    embedder: ModelKind


class EmbeddingsDropped(ControlPayload):
    """A model is removed: its vectors are deleted from the views and no longer computed."""

    ENTRY_TYPE = "embeddings.dropped"
    model: str = Field(min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


class ReindexRequested(ControlPayload):
    """A version of the embed policy is applied to all entries; tombstones of a model are removed."""

    ENTRY_TYPE = "embeddings.reindex_requested"
    policy: int = Field(ge=1)
    model: str | None = Field(default=None, max_length=96)
    reason: str = Field(default="", max_length=500)


MODEL_DECISIONS: Final = (EmbeddingsAdded, EmbeddingsActivated, EmbeddingsDropped)
"""What changes which models exist or which one is active."""
