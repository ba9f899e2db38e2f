"""Compares a classified drawer with its neighbours: contradictions first, then clusters (contract of the palace, §3).

The rule for updates (``rules/updates``) looks at the ten nearest drawers, a chat model at the five nearest, whatever their
cosine: a statement and its correction often share few words. The contract compares within [0.75, 0.90) only; there
were 3 of 14 real pairs.

Invariant: at most one call a drawer; if two drawers contradict each other, the older is superseded, whichever was classified
later; without a usable answer the model supersedes and merges nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import structlog

from ...schemas.active_models import active_in, read_active_models
from ...schemas.chat import ChatError, ChatUnavailable
from ...schemas.ports import Embedder, ViewReader
from ...schemas.rules.palace.exchanges import turns_in
from ...schemas.rules.updates import Statement, update
from ...schemas.timestamps import DAY_MS
from ..prompts.drawers import Comparison, comparison, contradicted, summary_of
from ..reacting.llm_calls import MeteredChat
from .embed_batch import Embedded, embed_in_pieces
from .index_rows import known
from .palace_classify_reads import Neighbour, Waiting, matrix_of, neighbours_in, texts_of
from .palace_record import PalaceRecord

CONFLICTS_AMONG: Final = 5
"""Nearest drawers that a model compares for contradictions (contract, §3)."""
SAME_FROM: Final = 0.85
"""Cosine above which drawers are a cluster (likewise)."""
NEAREST: Final = 10
"""Nearest drawers that may be a cluster, and that the rule for updates looks at."""
LEAST_MEMBERS: Final = 2
"""Neighbours that a cluster needs (likewise)."""
MOMENTARY: Final = frozenset({"task", "milestone", "problem", "emotional"})
"""Types of what was so at one moment; a model may find that such drawers contradict others, the rule does not look."""
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
class _Neighbour:
    """A neighbour."""

    drawer_id: str
    filed_ms: int
    memory_type: str
    cosine: float


@dataclass(frozen=True, slots=True)
class _RetiredDrawer:
    """Two drawers that contradict each other, the older one, and when the newer one began to hold."""

    older: str
    newer: str
    until_ms: int

    @classmethod
    def of(cls, drawer: Waiting, other: _Neighbour) -> _RetiredDrawer:
        """A drawer and its neighbour; of one time, the neighbour is older."""
        if other.filed_ms <= drawer.filed_ms:
            return cls(other.drawer_id, drawer.drawer_id, drawer.filed_ms)
        return cls(drawer.drawer_id, other.drawer_id, other.filed_ms)


class Comparing:
    """Compares drawers.

    Args:
        views: Where drawers and vectors are read.
        chat: Says which contradict each other; None leaves that to the rule.
        record: Publishes.
        embedder_for: What runs a model, None if nothing does.
    """

    def __init__(
        self,
        views: ViewReader,
        chat: MeteredChat | None,
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
        candidates = await asyncio.to_thread(neighbours_in, self._views, workspace_id, model)
        embedder = self._embedder_for(model)
        if embedder is not None and (
            missing := [candidate for candidate in candidates if not candidate.vector][-MOST_EMBEDDED:]
        ):
            _, dim = await asyncio.to_thread(known, self._views, model)
            async for part in embed_in_pieces(embedder, missing, dim):
                if isinstance(part, Embedded):
                    for candidate, vector in zip(part.candidates, part.vectors, strict=True):
                        candidate.vector = vector
        drawers = tuple(candidate for candidate in candidates if candidate.vector)
        return _Neighbourhood(drawers, matrix_of([drawer.vector for drawer in drawers]))

    async def compare(self, workspace_id: str, drawer: Waiting, around: _Neighbourhood) -> None:
        """Supersede and merge what one drawer contradicts or repeats.

        Raises:
            ChatUnavailable: Try again later.
        """
        if drawer.drawer_id in around.gone:
            return
        near = _near(drawer.drawer_id, around)
        texts = await asyncio.to_thread(
            texts_of, self._views, workspace_id, [neighbour.drawer_id for neighbour in near]
        )
        near = [neighbour for neighbour in near if neighbour.drawer_id in texts]
        retired = [
            retired_
            for neighbour in near
            if (retired_ := retired_by_rule(drawer, neighbour, texts[neighbour.drawer_id])) is not None
        ]
        if not await self._supersede(workspace_id, drawer, retired, around):
            return
        if self._chat is not None and drawer.by_model:
            near = [neighbour for neighbour in near if neighbour.drawer_id not in around.gone]
            await self._ask(workspace_id, self._chat, drawer, near, texts, around)

    async def _ask(
        self,
        workspace_id: str,
        chat: MeteredChat,
        drawer: Waiting,
        near: Sequence[_Neighbour],
        texts: Mapping[str, str],
        around: _Neighbourhood,
    ) -> None:
        conflicts = near[:CONFLICTS_AMONG]
        same = [neighbour for neighbour in near if neighbour.cosine > SAME_FROM]
        cluster = same if len(same) >= LEAST_MEMBERS else []
        compared = list({neighbour.drawer_id: neighbour for neighbour in (*conflicts, *cluster)}.values())
        if not compared:
            return
        prompt = comparison(drawer.content, [texts[neighbour.drawer_id] for neighbour in compared])
        try:
            answer = await chat.complete(workspace_id, PURPOSE, prompt, Comparison)
        except ChatUnavailable:
            raise
        except ChatError as error:
            _log.warning("palace.not_compared", workspace=workspace_id, error=type(error).__name__)
            return
        against = {compared[at].drawer_id for at in contradicted(answer, len(compared))}
        pairs = [_RetiredDrawer.of(drawer, neighbour) for neighbour in conflicts if neighbour.drawer_id in against]
        newer = await self._supersede(workspace_id, drawer, pairs, around)
        members = [neighbour.drawer_id for neighbour in cluster if neighbour.drawer_id not in against]
        summary = summary_of(answer.summary)
        if newer and len(members) >= LEAST_MEMBERS and summary:
            await self._record.merged(workspace_id, drawer, members, summary)
            around.gone |= set(members)

    async def _supersede(
        self, workspace_id: str, drawer: Waiting, pairs: Sequence[_RetiredDrawer], around: _Neighbourhood
    ) -> bool:
        """Supersede the older of each pair; False if that is the drawer itself."""
        for pair in pairs:
            if pair.older not in around.gone:
                await self._record.superseded(workspace_id, drawer, pair.older, pair.newer, pair.until_ms)
                around.gone.add(pair.older)
        return drawer.drawer_id not in around.gone


def retired_by_rule(drawer: Waiting, other: _Neighbour, text: str) -> _RetiredDrawer | None:
    """The older of two drawers, if the rule for updates says that the newer one retires it.

    What was to be done, happened, failed or was felt stays so: the rule compares what holds for a while.
    """
    if drawer.memory_type in MOMENTARY or other.memory_type in MOMENTARY:
        return None
    pair = _RetiredDrawer.of(drawer, other)
    own_statement, other_statement = _statement(drawer.content, drawer.filed_ms), _statement(text, other.filed_ms)
    newer, older = (
        (own_statement, other_statement) if pair.newer == drawer.drawer_id else (other_statement, own_statement)
    )
    update_ = update(newer, older, cosine=other.cosine)
    if update_ is None or not update_.retires:
        return None
    since_ms = pair.until_ms if update_.since_day is None else update_.since_day * DAY_MS
    return replace(pair, until_ms=max(since_ms, pair.until_ms))


def _statement(content: str, filed_ms: int) -> Statement:
    return Statement("\n".join(part.strip() for part in turns_in(content)), filed_ms // DAY_MS)


def _near(drawer_id: str, around: _Neighbourhood) -> list[_Neighbour]:
    """The ten nearest drawers that count, the nearest first; none for a drawer without a vector."""
    own_index = next((at for at, drawer in enumerate(around.drawers) if drawer.drawer_id == drawer_id), None)
    if own_index is None:
        return []
    cosines = around.vectors @ around.vectors[own_index]
    near: list[_Neighbour] = []
    for at in np.argsort(-cosines, kind="stable").tolist():
        if len(near) == NEAREST:
            break
        drawer = around.drawers[at]
        if at != own_index and drawer.drawer_id not in around.gone:
            near.append(_Neighbour(drawer.drawer_id, drawer.filed_ms, drawer.memory_type, float(cosines[at])))
    return near
