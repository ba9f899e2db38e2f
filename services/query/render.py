"""The operation render: a recall as text for a prompt.

Invariants: each block has a new nonce; only hits whose text is in the block count as references, once. The default
recipe is ``dense``, because a prompt needs few entries, those that the embed policy selects (seed 1; contract §0, row
8). Without vectors, the hybrid default is used.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from ...schemas.errors import CrewJournalError
from ...schemas.operations.recall import (
    NO_VECTORS,
    Hit,
    RecallHit,
    Redaction,
    RenderAnswer,
    RenderedHit,
    RenderRequest,
)
from ...schemas.principal import Principal
from ...schemas.rules.render import REDACTED_TYPE, Line, Memory, render
from .recall import RecallService
from .recipes import DENSE

NONCE_BYTES: Final = 12
"""Random bytes of a nonce, so that an entry cannot contain it."""
OFF_LOOP_CHARS: Final = 4_000
"""Characters of summaries above which scanning (below 0.5 µs per character) runs in a thread."""

_log = structlog.get_logger(__name__)

MarkUsed = Callable[[Principal, str, Sequence[str]], object]
"""``ReferenceLog.used``: records that entries of a receipt reached a prompt."""


def fresh_nonce() -> str:
    """A random nonce in hex digits."""
    return secrets.token_hex(NONCE_BYTES)


class RenderService:
    """Renders recalls."""

    def __init__(self, recall: RecallService, mark_used: MarkUsed, *, nonce: Callable[[], str] = fresh_nonce) -> None:
        self._recall = recall
        self._mark_used = mark_used
        self._nonce = nonce

    async def render(self, principal: Principal, request: RenderRequest) -> RenderAnswer:
        """Render the hits of a question; raises as ``RecallService.recall``."""
        recipe = request.recipe or DENSE.name
        found = await self._recall.recall(principal, request.model_copy(update={"recipe": recipe}))
        if request.recipe is None and found.degraded == NO_VECTORS:
            found = await self._recall.recall(principal, request.model_copy(update={"recipe": None}))
        memories = [
            Memory(hit.entry_type, hit.summary, hit.age_seconds, hit.score, hit.agent_id, hit.actor_type, hit.actor_id)
            for hit in found.hits
        ]
        nonce = self._nonce()
        if sum(len(memory.summary) for memory in memories) < OFF_LOOP_CHARS:
            block = render(memories, request.max_chars, nonce)
        else:
            block = await asyncio.to_thread(render, memories, request.max_chars, nonce)
        hits = [_rendered_hit(found.hits[line.index], line) for line in block.lines]
        self._count(principal, found.receipt, [hit.entry_id for hit in hits if hit.redaction is None])
        return RenderAnswer(
            text=block.text,
            hits=hits,
            confidence=found.confidence,
            no_evidence=found.no_evidence,
            receipt=found.receipt,
            omitted=block.omitted,
            redacted=sum(hit.redaction is not None for hit in hits),
            recipe=found.recipe,
            scope=found.scope,
            model=found.model,
            degraded=found.degraded,
            without_vectors=found.without_vectors,
            awaiting_vectors=found.awaiting_vectors,
            view_seq=found.view_seq,
        )

    def _count(self, principal: Principal, receipt: str, entry_ids: Sequence[str]) -> None:
        """Record the references; a failure is logged only (contract §4)."""
        try:
            self._mark_used(principal, receipt, entry_ids)
        except CrewJournalError as error:
            _log.warning("render.not_counted", receipt=receipt, error=error.message)


def _rendered_hit(hit: RecallHit, line: Line) -> RenderedHit:
    why = line.redaction
    kept = {name: getattr(hit, name) for name in Hit.model_fields if name != "summary"}
    if line.actor_redacted and hit.actor_id is not None:
        kept["actor_id"] = REDACTED_TYPE
    return RenderedHit(
        **kept,
        summary=line.summary,
        redaction=None if why is None else Redaction(scanner=why.scanner, category=why.category, pattern=why.pattern),
    )
