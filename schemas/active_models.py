"""Reads from the views which embedding model recall uses.

Invariant: a model that was dropped after its activation is not active.
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
    """Active model by workspace (``_system``: the default); without dropped models. Blocking."""
    return {str(workspace_id): str(model) for workspace_id, model in views.rows(_ACTIVE)}


def active_in(models: Mapping[str, str], workspace_id: str) -> str | None:
    """The workspace's own active model, else the default of ``_system``; None if there is neither."""
    return models.get(workspace_id) or models.get(SYSTEM_WORKSPACE)
