"""Which model recall uses: the one place that asks it of the views.

Invariant: a workspace's own activation counts, else the system's; a model that was dropped since is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .ids import SYSTEM_WORKSPACE
from .ports import ViewReader
from .views import EMBEDDING_MODELS, ModelState

_ACTIVE: Final = f"""SELECT a.workspace_id, a.model FROM embeddings_active a
    LEFT JOIN {EMBEDDING_MODELS} m ON m.model = a.model
    WHERE m.state IS DISTINCT FROM '{ModelState.DROPPED.value}'"""


def read_active_models(views: ViewReader) -> dict[str, str]:
    """Workspace → the model it activated, ``_system`` for the default; dropped ones are left out. Blocking."""
    return {str(workspace_id): str(model) for workspace_id, model in views.rows(_ACTIVE)}


def active_in(models: Mapping[str, str], workspace_id: str) -> str | None:
    """The model recall uses in a workspace: its own activation, else the system's; None if there is neither."""
    return models.get(workspace_id) or models.get(SYSTEM_WORKSPACE)
