"""The operations render and recall_brief: a recall as text, for a prompt or for the model that asks.

Invariants: each text has a new nonce; of a block only hits whose text is in it count as used, of a brief text none, because
it holds weak hits, too. The recipe is that of recall (ADR 15).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeVar

from ...schemas.core.limits import RENDER_CHARS_MAX
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import day_of
from ...schemas.prompt.assembler import REDACTED
from ...schemas.recall.operations import (
    LEXICAL_ONLY,
    NO_VECTORS,
    BriefAnswer,
    BriefHit,
    BriefRequest,
    Hit,
    RecallAnswer,
    RecallHit,
    Redaction,
    RenderAnswer,
    RenderedHit,
    RenderRequest,
)
from ...schemas.recall.render import BlockLine, PromptHit, brief_lines, fenced, render
from ...schemas.standing.operations import Standing, State
from ...schemas.text.injection import finding_in
from .recall import RecallService

_EMPTY_TEXTS: Final = {
    "ok": "",
    "nothing": "Nothing was found: no recorded entry is near this question.",
    "unavailable": "The memory could not be searched.",
}
_BY_WORDS_ONLY: Final = "Nothing was found by its words; the search by meaning is not available now."
_T = TypeVar("_T")
NONCE_BYTES: Final = 12
"""Random bytes of a nonce, so that an entry cannot contain it."""
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
        recalled = answered.response
        memories = [_memory(hit, _standing_text) for hit in recalled.hits]
        nonce = self._nonce()
        most = RENDER_CHARS_MAX if request.collect and request.max_chars is None else request.max_chars
        block = await _off_loop(memories, lambda: render(memories, most, nonce))
        hits = [_rendered_hit(recalled.hits[line.index], line) for line in block.lines]
        shown = recalled.model_copy(update={"hits": tuple(recalled.hits[line.index] for line in block.lines)})
        receipt = self._recall.record(
            replace(answered, response=shown), [hit.entry_id for hit in hits if hit.redaction is None]
        )
        return RenderAnswer(
            status=_status(recalled),
            text=block.text,
            hits=hits,
            confidence=recalled.confidence,
            no_evidence=recalled.no_evidence,
            receipt=receipt,
            omitted=block.omitted,
            redacted=sum(hit.redaction is not None for hit in hits),
            recipe=recalled.recipe,
            scope=recalled.scope,
            model=recalled.model,
            degraded=recalled.degraded,
            without_vectors=recalled.without_vectors,
            awaiting_vectors=recalled.awaiting_vectors,
            view_seq=recalled.view_seq,
        )

    async def brief(self, principal: Principal, request: BriefRequest) -> BriefAnswer:
        """A short text for the model that asks; raises as ``RecallService.recall``."""
        answered = await self._recall.answer(principal, request)
        recalled = answered.response
        memories = [_memory(hit, _until_text) for hit in recalled.hits]
        reader = answered.scope.agent_id
        lines = await _off_loop(memories, lambda: brief_lines(memories, reader))
        shown = recalled.model_copy(update={"hits": tuple(recalled.hits[line.index] for line in lines)})
        receipt = self._recall.record(replace(answered, response=shown), None)
        text = _BY_WORDS_ONLY if recalled.degraded == LEXICAL_ONLY else _EMPTY_TEXTS[_status(recalled)]
        if lines:
            texts = [line.text for line in lines]
            if omitted := len(memories) - len(lines):
                texts.append(f"({omitted} more did not fit)")
            text = fenced(texts, receipt or self._nonce())
        hits = tuple(_brief_hit(hit, line) for hit, line in zip(shown.hits, lines, strict=True))
        return BriefAnswer(
            text=text, hits=hits, receipt=receipt, degraded=recalled.degraded, view_seq=recalled.view_seq
        )


def _status(answer: RecallAnswer) -> Literal["ok", "nothing", "unavailable"]:
    return "ok" if answer.hits else "unavailable" if answer.degraded == NO_VECTORS else "nothing"


async def _off_loop(memories: Sequence[PromptHit], make: Callable[[], _T]) -> _T:
    if sum(len(memory.summary) for memory in memories) < OFF_LOOP_CHARS:
        return make()
    return await asyncio.to_thread(make)


def _memory(hit: RecallHit, standing_text: Callable[[Standing], str]) -> PromptHit:
    standing = getattr(hit, "standing", None)
    return PromptHit(
        _type_text(hit),
        hit.summary,
        hit.age_seconds,
        hit.score,
        hit.agent_id,
        hit.actor_type,
        hit.actor_id,
        date=day_of(hit.ts),
        confidence=hit.confidence,
        repeats=hit.repeats + 1,
        standing=None if standing is None else standing_text(standing),
        entry_id=_id_text(hit),
    )


def _type_text(hit: Hit) -> str:
    """The type of an entry; of another memory its kind and where it is: ``document AGENT.md``."""
    if hit.document is not None:
        return f"document {hit.document.file}"
    if hit.drawer is not None:
        return f"drawer {hit.drawer.wing}/{hit.drawer.room}"
    if hit.text is not None:
        return f"{hit.kind} {hit.text.item}"
    return "fact" if hit.fact is not None else hit.entry_type


def _id_text(hit: Hit) -> str:
    """The id of an entry; of another memory its kind and what it is opened by: ``document AGENT.md:12``."""
    if hit.document is not None:
        return f"document {hit.document.file}:{hit.document.line}"
    if hit.drawer is not None:
        return f"drawer {hit.drawer.drawer_id}"
    if hit.fact is not None:
        return f"fact {hit.fact.fact_id}"
    if hit.text is not None:
        return f"{hit.kind} {hit.text.item}"
    return f"rule {hit.entry_id}" if hit.kind == "rule" else hit.entry_id


def _standing_text(standing: Standing) -> str:
    """``until 2026-11-21: superseded by j_1``; ``retracted 2026-11-21 by ada``."""
    if standing.state == State.SUPERSEDED:
        return _until_text(standing)
    return " ".join(part for part in (standing.state, day_of(standing.at), standing.by and f"by {standing.by}") if part)


def _until_text(standing: Standing) -> str:
    """``until 2026-11-21: superseded by j_1``; an entry in dispute still counts."""
    by = f" by {standing.by}" if standing.by else ""
    day = day_of(standing.at)
    return f"disputed {day}{by}" if standing.state == State.DISPUTED else f"until {day}: {standing.state}{by}"


def _brief_hit(hit: RecallHit, line: BlockLine) -> BriefHit:
    return BriefHit(
        entry_id=hit.entry_id,
        date=day_of(hit.ts),
        who=line.who,
        certainty=hit.certainty,
        standing=line.standing,
        summary=line.summary,
        kind=hit.kind,
    )


def _rendered_hit(hit: RecallHit, line: BlockLine) -> RenderedHit:
    why = line.redaction
    kept = {name: getattr(hit, name) for name in Hit.model_fields if name != "summary"}
    if line.actor_redacted and hit.actor_id is not None:
        kept["actor_id"] = REDACTED
    if why is not None or (hit.fact is not None and finding_in(f"{hit.fact.subject} {hit.fact.object}") is not None):
        kept |= {"document": None, "drawer": None, "fact": None, "text": None}
    return RenderedHit(
        **kept,
        summary=line.summary,
        redaction=None if why is None else Redaction(scanner=why.scanner, category=why.category, pattern=why.pattern),
    )
