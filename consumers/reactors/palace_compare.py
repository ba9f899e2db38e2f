"""Compares a classified drawer with its neighbours: contradictions first, then clusters (contract of the palace, §3).

Invariant: at most one call a drawer, and none without a near neighbour; if two drawers contradict each other, the older is
superseded, whichever was classified later; without a usable answer nothing is superseded or merged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import structlog

from ...schemas.active_models import active_in, read_active_models
from ...schemas.chat import ChatError, ChatUnavailable
from ...schemas.ports import Embedder, ViewReader
from ..prompts.drawers import Comparison, comparison, contradicted, summary_of
from ..reacting.llm_calls import MeteredChat
from .embed_batch import Embedded, embed_in_pieces
from .index_rows import known
from .palace_classify_reads import Neighbour, Waiting, matrix_of, neighbours_in, texts_of
from .palace_record import PalaceRecord

CONFLICT_FROM, CONFLICT_BELOW = 0.75, 0.90
"""Cosines of drawers that are compared for contradictions (contract, §3)."""
CONFLICTS_AMONG: Final = 5
SAME_FROM: Final = 0.85
"""Cosine above which drawers are a cluster (likewise)."""
SAME_AMONG: Final = 10
LEAST_MEMBERS: Final = 2
"""Neighbours that a cluster needs (likewise)."""
MOST_EMBEDDED: Final = 256
"""Drawers without a vector that a comparison embeds, those that were classified last: about a second with MiniLM."""
PURPOSE: Final = "palace_compare"
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Neighbourhood:
    """The drawers of a workspace while some of them are compared; ``gone`` are those that do not count any more."""

    drawers: tuple[Neighbour, ...]
    vectors: npt.NDArray[np.float32]
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Near:
    """A neighbour."""

    drawer_id: str
    filed_ms: int
    cosine: float


class Comparing:
    """Compares drawers.

    Args:
        views: Where drawers and vectors are read.
        chat: Says which contradict each other.
        record: Publishes.
        embedder_for: What runs a model, None if nothing does.
    """

    def __init__(
        self,
        views: ViewReader,
        chat: MeteredChat,
        record: PalaceRecord,
        embedder_for: Callable[[str], Embedder | None],
    ) -> None:
        self._views = views
        self._chat = chat
        self._record = record
        self._embedder_for = embedder_for

    async def neighbourhood(self, workspace_id: str) -> _Neighbourhood | None:
        """What drawers are compared with; None without an embedding model.

        Drawers that ``embed_chunks`` has not embedded yet are embedded here, because nothing compares them later.

        Raises:
            EmbedderError: The model is unavailable; try again later.
        """
        model = active_in(await asyncio.to_thread(read_active_models, self._views), workspace_id)
        if model is None:
            return None
        found = await asyncio.to_thread(neighbours_in, self._views, workspace_id, model)
        embedder = self._embedder_for(model)
        if embedder is not None and (missing := [one for one in found if not one.vector][-MOST_EMBEDDED:]):
            _, dim = await asyncio.to_thread(known, self._views, model)
            async for part in embed_in_pieces(embedder, missing, dim):
                if isinstance(part, Embedded):
                    for one, vector in zip(part.candidates, part.vectors, strict=True):
                        one.vector = vector
        drawers = tuple(one for one in found if one.vector)
        return _Neighbourhood(drawers, matrix_of([one.vector for one in drawers]))

    async def compare(self, workspace_id: str, drawer: Waiting, around: _Neighbourhood) -> None:
        """Supersede and merge what one drawer contradicts or repeats.

        Raises:
            ChatUnavailable: Try again later.
        """
        if drawer.drawer_id in around.gone:
            return
        near = _near(drawer.drawer_id, around)
        conflicts = [one for one in near[:CONFLICTS_AMONG] if CONFLICT_FROM <= one.cosine < CONFLICT_BELOW]
        same = [one for one in near if one.cosine > SAME_FROM]
        cluster = same if len(same) >= LEAST_MEMBERS else []
        asked = list({one.drawer_id: one for one in (*conflicts, *cluster)}.values())
        if not asked:
            return
        texts = await asyncio.to_thread(texts_of, self._views, workspace_id, [one.drawer_id for one in asked])
        asked = [one for one in asked if one.drawer_id in texts]
        prompt = comparison(drawer.content, [texts[one.drawer_id] for one in asked])
        try:
            answer = await self._chat.complete(workspace_id, PURPOSE, prompt, Comparison)
        except ChatUnavailable:
            raise
        except ChatError as error:
            _log.warning("palace.not_compared", workspace=workspace_id, error=type(error).__name__)
            return
        against = {asked[at].drawer_id for at in contradicted(answer, len(asked))}
        newer = await self._supersede(
            workspace_id, drawer, [one for one in conflicts if one.drawer_id in against], around
        )
        members = [one.drawer_id for one in cluster if one.drawer_id not in against]
        summary = summary_of(answer.summary)
        if newer and len(members) >= LEAST_MEMBERS and summary:
            await self._record.merged(workspace_id, drawer, members, summary)
            around.gone |= set(members)

    async def _supersede(
        self, workspace_id: str, drawer: Waiting, conflicts: Sequence[_Near], around: _Neighbourhood
    ) -> bool:
        """Supersede the older of each pair; False if that is the drawer itself."""
        for one in conflicts:
            pair = (one.drawer_id, drawer.drawer_id)
            older, newer = pair if one.filed_ms <= drawer.filed_ms else pair[::-1]
            await self._record.superseded(workspace_id, drawer, older, newer)
            around.gone.add(older)
        return drawer.drawer_id not in around.gone


def _near(drawer_id: str, around: _Neighbourhood) -> list[_Near]:
    """The ten nearest drawers that count, the nearest first; none for a drawer without a vector."""
    own = next((at for at, one in enumerate(around.drawers) if one.drawer_id == drawer_id), None)
    if own is None:
        return []
    cosines = around.vectors @ around.vectors[own]
    near: list[_Near] = []
    for at in np.argsort(-cosines, kind="stable").tolist():
        if cosines[at] < CONFLICT_FROM or len(near) == SAME_AMONG:
            break
        one = around.drawers[at]
        if at != own and one.drawer_id not in around.gone:
            near.append(_Near(one.drawer_id, one.filed_ms, float(cosines[at])))
    return near
