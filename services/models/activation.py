"""Records as an event which model recall uses, so that it stays the same across restarts and nodes.

Invariant: an activation is recorded only if it changes the model; a start with the same model records nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from ...schemas.core.entry import ActorType
from ...schemas.core.errors import NotFound
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.ports import ViewReader
from ...schemas.models.events import EmbeddingsActivated
from ...schemas.models.tables import EMBEDDINGS, read_active_models
from ...schemas.settings import EmbedderKind
from ..journal.intake.append import Journal

_KNOWN = f"SELECT DISTINCT model FROM {EMBEDDINGS} WHERE dim > 0 ORDER BY model"


async def check_model(views: ViewReader, model: str, runnable: Collection[str]) -> None:
    """Refuse a model that has neither an embedder nor vectors: a misspelt name would silently disable dense recall.

    Args:
        views: Hold the vectors there are.
        model: The model to activate.
        runnable: Models that this node's configuration can run.

    Raises:
        NotFound: If the model is not runnable and has no vectors.
    """
    if model in runnable:
        return
    known = {str(name) for (name,) in await asyncio.to_thread(views.rows, _KNOWN, [])}
    if model not in known:
        raise NotFound(
            "no embedder here runs that model, and there are no vectors of it",
            hint=f"use one of {', '.join(sorted(known.union(runnable)))}",
            field="model",
        )


async def activate_embeddings(
    journal: Journal,
    views: ViewReader,
    *,
    model: str,
    embedder: EmbedderKind,
    dim: int | None = None,
    reason: str = "",
    workspace_id: str | None = None,
    actor_id: str | None = None,
) -> dict[str, Any]:
    """Activate ``model`` for one workspace or (None) as the default; without ``actor_id``, the system is the actor.

    Returns:
        ``workspace_id``, ``model``, ``changed`` and, if changed, ``seq``.

    Raises:
        BrokerUnavailable: If the activation could not be recorded.
    """
    where = workspace_id or SYSTEM_WORKSPACE
    if (await asyncio.to_thread(read_active_models, views)).get(where) == model:
        return {"workspace_id": workspace_id, "model": model, "changed": False}
    recorded = await journal.record(
        where,
        EmbeddingsActivated.model_validate({"model": model, "embedder": embedder, "dim": dim, "reason": reason[:500]}),
        summary=f"Recall uses vectors of {model} from here on",
        actor_type=ActorType.SYSTEM if actor_id is None else ActorType.USER,
        actor_id=actor_id,
    )
    return {"workspace_id": workspace_id, "model": model, "changed": True, "seq": recorded.seq}
