"""``embeddings_active``: which model recall uses, per workspace, ``_system`` for the default.

Invariant: the last activation of a workspace counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from ...schemas.events.embeddings import EmbeddingsActivated
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction

_DDL: Final = """CREATE TABLE IF NOT EXISTS embeddings_active (
    workspace_id VARCHAR NOT NULL, model VARCHAR NOT NULL, embedder VARCHAR NOT NULL, dim INTEGER,
    seq UBIGINT NOT NULL)"""


class ActivationsProjection:
    """Folds ``embeddings.activated``."""

    name: ClassVar[str] = "activations"
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = ("embeddings_active",)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Replace the activation of each workspace that has a new one."""
        for event in batch.control(EmbeddingsActivated.ENTRY_TYPE):
            active = payload_of(event, EmbeddingsActivated)
            tx.execute("DELETE FROM embeddings_active WHERE workspace_id = ?", [event.workspace_id])
            tx.execute(
                "INSERT INTO embeddings_active (workspace_id, model, embedder, dim, seq) VALUES (?, ?, ?, ?, ?)",
                [event.workspace_id, active.model, active.embedder, active.dim, event.seq],
            )


PROJECTION = ActivationsProjection
