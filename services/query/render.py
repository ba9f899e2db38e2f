"""The operation render: a recall as text for a prompt.

Invariants: each block has a new nonce; only hits whose text is in the block count as used. The recipe is that of recall
(ADR 15).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...schemas.operations.recall import (
    NO_VECTORS,
    Hit,
    RecallHit,
    Redaction,
    RenderAnswer,
    RenderedHit,
    RenderRequest,
)
from ...schemas.operations.retractions import State
from ...schemas.principal import Principal
from ...schemas.rules.render import REDACTED_TYPE, Line, Memory, render
from .recall import RecallService

NONCE_BYTES: Final = 12
"""Random bytes of a nonce, so that an entry cannot contain it."""
DATE_CHARS: Final = len("2026-11-21")
OFF_LOOP_CHARS: Final = 4_000
"""Characters of summaries above which scanning (below 0.5 µs per character) runs in a thread."""


def fresh_nonce() -> str:
    """A random nonce in hex digits."""
    return secrets.token_hex(NONCE_BYTES)


class RenderService:
    """Renders recalls."""

    def __init__(self, recall: RecallService, *, nonce: Callable[[], str] = fresh_nonce) -> None:
        self._recall = recall
        self._nonce = nonce

    async def render(self, principal: Principal, request: RenderRequest) -> RenderAnswer:
        """Render the hits of a question; raises as ``RecallService.recall``."""
        answered = await self._recall.answer(principal, request)
        found = answered.response
        memories = [_memory(hit) for hit in found.hits]
        nonce = self._nonce()
        if sum(len(memory.summary) for memory in memories) < OFF_LOOP_CHARS:
            block = render(memories, request.max_chars, nonce)
        else:
            block = await asyncio.to_thread(render, memories, request.max_chars, nonce)
        hits = [_rendered_hit(found.hits[line.index], line) for line in block.lines]
        shown = found.model_copy(update={"hits": tuple(found.hits[line.index] for line in block.lines)})
        receipt = self._recall.record(
            replace(answered, response=shown), [hit.entry_id for hit in hits if hit.redaction is None]
        )
        return RenderAnswer(
            status="ok" if found.hits else "unavailable" if found.degraded == NO_VECTORS else "nothing",
            text=block.text,
            hits=hits,
            confidence=found.confidence,
            no_evidence=found.no_evidence,
            receipt=receipt,
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


def _memory(hit: RecallHit) -> Memory:
    standing = getattr(hit, "standing", None)
    return Memory(
        hit.entry_type,
        hit.summary,
        hit.age_seconds,
        hit.score,
        hit.agent_id,
        hit.actor_type,
        hit.actor_id,
        date=hit.ts[:DATE_CHARS],
        confidence=hit.confidence,
        repeats=hit.repeats + 1,
        standing=None if standing is None else _standing_text(standing.state, standing.by, standing.at),
    )


def _standing_text(state: str, by: str | None, at: str | None) -> str:
    """``until 2026-11-21: superseded by j_1``; ``retracted 2026-11-21 by ada``."""
    if state == State.SUPERSEDED and at:
        return " ".join(part for part in (f"until {at[:DATE_CHARS]}: {state}", by and f"by {by}") if part)
    return " ".join(part for part in (state, at and at[:DATE_CHARS], by and f"by {by}") if part)


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
