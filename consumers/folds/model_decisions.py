"""The decisions about embedding models in control entries, for every fold with rows of a model.

Invariant: models are added and dropped for all workspaces, so only decisions of the system workspace do so; every workspace
can activate one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.events.embeddings import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from ...schemas.events.envelope import EntryRecorded
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.views import ModelState
from .payloads import payload_of


@dataclass(frozen=True, slots=True)
class ModelDecision:
    """A decision about a model; ``embedder`` is the kind that runs it, None if the model is dropped."""

    model: str
    state: ModelState
    embedder: str | None


def model_decision(event: EntryRecorded) -> ModelDecision | None:
    """The decision of a control entry of ``MODEL_DECISIONS``; None if its workspace may not make it.

    Raises:
        FoldError: If its payload is not valid.
    """
    kind = event.entry.entry_type
    if kind == EmbeddingsActivated.ENTRY_TYPE:
        activated = payload_of(event, EmbeddingsActivated)
        return ModelDecision(activated.model, ModelState.ACTIVATED, activated.embedder)
    if event.workspace_id != SYSTEM_WORKSPACE:
        return None
    if kind == EmbeddingsAdded.ENTRY_TYPE:
        added = payload_of(event, EmbeddingsAdded)
        return ModelDecision(added.model, ModelState.ADDED, added.embedder)
    return ModelDecision(payload_of(event, EmbeddingsDropped).model, ModelState.DROPPED, None)
