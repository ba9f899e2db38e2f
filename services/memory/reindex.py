"""A reindex: entries are judged by the current embed policy, and texts a model refused are tried again.

Why: nothing changes past decisions silently, neither the embed policy nor a tombstone (contract §3, [TRAP]: a tombstone is
permanent). So a reindex is an event: the folds apply the policy again and delete the tombstones, and the index sweep that is
due right after it embeds the missing entries.

Invariant: the sweep's tick comes after the request in the journal, so it sees its effect.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.active_models import read_active_models
from ...schemas.errors import NotFound
from ...schemas.events.embeddings import ReindexRequested
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.operations.sweeps import REINDEX, ReindexAnswer, ReindexRequest
from ...schemas.rules import embed_policy
from ...schemas.sweep_list import INDEX
from ...schemas.timestamps import to_ms
from ...schemas.views import EMBEDDINGS, ENTRIES
from ..desk import Caller
from ..node import Answers, Node
from .ticks import DueTick, publish_tick

_MODELS: Final = f"SELECT DISTINCT model FROM {EMBEDDINGS} WHERE workspace_id = $workspace"
_REFUSED: Final = f"""SELECT count(*) FROM {EMBEDDINGS}
    WHERE workspace_id = $workspace AND dim = 0 AND ($model IS NULL OR model = $model)"""
_MISSING: Final = f"""SELECT count(*) FROM {ENTRIES} e WHERE e.workspace_id = $workspace AND e.embeddable AND NOT EXISTS (
    SELECT 1 FROM {EMBEDDINGS} v WHERE v.workspace_id = $workspace AND v.entry_seq = e.seq
    AND ($model IS NULL OR v.model = $model))"""


class Reindexing:
    """Requests a reindex of a workspace."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views

    async def request(self, caller: Caller, request: ReindexRequest) -> ReindexAnswer:
        """Record the request, and that the index sweep is due.

        Raises:
            NotFound: If the workspace knows no such model.
            BrokerUnavailable: If it was not acked; asking again is safe.
        """
        workspace_id, model = caller.workspace_id, request.model
        refused, missing = await asyncio.to_thread(self._count, workspace_id, model)
        payload = ReindexRequested(policy=embed_policy.VERSION, model=model, reason=request.reason)
        requested = await self._node.decide(
            caller, payload, f"reindex by embed policy {payload.policy}, {refused} refused texts are tried again"
        )
        tick = DueTick(to_ms(self._node.clock()), workspace_id, INDEX.name)
        await publish_tick(self._node.journal, tick)
        return ReindexAnswer(
            workspace_id=workspace_id,
            policy=payload.policy,
            model=model,
            seq=requested.seq,
            refused=refused,
            missing=missing,
            due=tick.due,
        )

    def _count(self, workspace_id: str, model: str | None) -> tuple[int, int]:
        if model is not None:
            active = read_active_models(self._views)
            held = {str(name) for (name,) in self._views.rows(_MODELS, {"workspace": workspace_id})}
            known = sorted(held | {active[of] for of in (workspace_id, SYSTEM_WORKSPACE) if of in active})
            if model not in known:
                named = ", ".join(known) or "none"
                raise NotFound("no vectors of that model here", hint=f"known are {named}", field="model")
        params = {"workspace": workspace_id, "model": model}
        [(refused,)], [(missing,)] = self._views.rows(_REFUSED, params), self._views.rows(_MISSING, params)
        return int(refused), int(missing)


ANSWERS: Final[Answers] = ((REINDEX, Reindexing.request),)
