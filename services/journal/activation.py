"""Which model recall uses, recorded as an event so that it stays the same across restarts and view nodes.

Invariant: an activation is recorded when it changes something and only then; a start with the same model records nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from crew_journal.schemas.events.control import EmbeddingsActivated
from crew_journal.schemas.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.ports import ViewReader
from crew_journal.schemas.settings import EmbedderKind
from crew_journal.services.journal.append import Journal

_ACTIVE = "SELECT model FROM embeddings_active WHERE workspace_id = ?"


async def activate_embeddings(
    journal: Journal,
    views: ViewReader,
    *,
    model: str,
    embedder: EmbedderKind,
    dim: int | None = None,
    reason: str = "",
    workspace_id: str | None = None,
) -> dict[str, Any]:
    """Make ``model`` the active one, of one workspace or (None) by default.

    Returns:
        ``workspace_id``, ``model``, ``changed`` and, if changed, ``seq``.

    Raises:
        BrokerUnavailable: If the activation could not be recorded.
    """
    where = workspace_id or SYSTEM_WORKSPACE
    rows = await asyncio.to_thread(views.rows, _ACTIVE, [where])
    if rows and rows[0][0] == model:
        return {"workspace_id": workspace_id, "model": model, "changed": False}
    recorded = await journal.record(
        where,
        EmbeddingsActivated.model_validate({"model": model, "embedder": embedder, "dim": dim, "reason": reason[:500]}),
        summary=f"Recall uses vectors of {model} from here on",
    )
    return {"workspace_id": workspace_id, "model": model, "changed": True, "seq": recorded.seq}
