"""``embeddings_active``: which model recall uses, per workspace, ``_system`` for the default.

Invariant: the last activation of a workspace counts.
"""

from __future__ import annotations

from typing import ClassVar

from ...schemas.core.table import Tables
from ...schemas.models.events import EmbeddingsActivated
from ...schemas.models.tables import ACTIVATIONS, ACTIVATIONS_PROJECTION, ActivationRow
from ..folds.payloads import decisions
from ..projection import Batch, FoldTransaction


class ActivationsProjection:
    """Folds ``embeddings.activated``."""

    name: ClassVar = ACTIVATIONS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (ACTIVATIONS,)
    folds: ClassVar = (EmbeddingsActivated,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Replace the activation of each workspace that has a new one."""
        for event, active in decisions(batch, *self.folds):
            row = ActivationRow(event.workspace_id, active.model, active.embedder, active.dim, event.seq)
            tx.replace(ACTIVATIONS, [row])


PROJECTION = ActivationsProjection
