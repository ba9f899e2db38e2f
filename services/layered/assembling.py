"""The use-case that assembles a prompt context from all layers of memory.

Invariant: the same request with the same ``now`` at the same ``view_seq`` gives the same answer, receipt apart; what the
scanners block reaches no context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from ...schemas.errors import InvalidQuery
from ...schemas.events.memory import MemorySearched
from ...schemas.limits import RECALL_QUERY_MAX_CHARS
from ...schemas.operations.context import (
    CONTEXT_ASSEMBLE,
    ContextAnswer,
    ContextRequest,
)
from ...schemas.operations.layered import FactConflict
from ...schemas.ports import ViewReader
from ...schemas.rules.context.assembly import Context, ContextInput, assemble_context
from ...schemas.rules.context.budget import Budget, Phase, phase_of
from ...schemas.rules.context.conversation import Message
from ...schemas.rules.context.tokens import Count, estimate
from ...schemas.rules.evidence_words import WEAK
from ...schemas.rules.salience import Freshness, state_of
from ...schemas.timestamps import format_ms
from ..desk import Caller
from ..kept import Kept
from ..query.chunks.documents import RecordSearch
from .choices import LayeredChoices
from .fact_index import FactIndexes
from .facts import shown_conflicts
from .memories import Asked, Gathered, Memories
from .moment import Moments

RECIPE: Final = "context"
"""Names these searches in ``memory.searched``."""
MOST_RECORDED: Final = 100
"""Memories that a receipt names."""
ESTIMATE: Final = "estimate"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The function that counts tokens, and its name in answers."""

    name: str = ESTIMATE
    count: Count = estimate


class Assembling:
    """Assembles contexts.

    Args:
        views: The views.
        memories: Gathers memories.
        indexes: The facts in memory.
        record: Records which memories are in a context.
        choices: Settings of a workspace.
        tokenizer: Counts tokens.
        moments: The time of a request.
    """

    def __init__(
        self,
        views: ViewReader,
        memories: Memories,
        indexes: FactIndexes,
        record: RecordSearch,
        choices: Kept[str, LayeredChoices],
        tokenizer: Tokenizer,
        moments: Moments,
    ) -> None:
        self._views = views
        self.memories = memories
        self._indexes = indexes
        self._record = record
        self._choices = choices
        self._tokenizer = tokenizer
        self._moments = moments
        self._counts = {"assembled": 0, "conflicts": 0, "stale": 0, "dropped": 0}

    def close(self) -> None:
        """Stop following the views."""
        self.memories.close()
        self._indexes.close()

    def figures(self) -> Mapping[str, int]:
        """Totals since the start: contexts, and in them conflicts, stale facts and drops."""
        return dict(self._counts)

    async def assemble(self, caller: Caller, asked: ContextRequest) -> ContextAnswer:
        """Assemble a context.

        Raises:
            InvalidQuery: If the system's text or tokens leave nothing of the budget.
            NotAllowed: If AGENT or LEAD names another agent or crew.
            NotFound: If there is no such workspace, agent or crew.
        """
        now_ms = self._moments.ms(asked.now)
        view_seq = self._views.view_seq(*CONTEXT_ASSEMBLE.views)
        choices = await self._choices.of(caller.workspace_id)
        query = asked.query or asked.prompt.strip()[:RECALL_QUERY_MAX_CHARS]
        budget = _budget(asked, choices.budget)
        wanted = Asked(caller, asked, query if query.strip() else "-", choices, now_ms, budget.total)
        gathered = await self.memories.gather(wanted)
        phase = asked.phase or phase_of(asked.step, asked.max_steps)
        given = ContextInput(
            asked.prompt,
            asked.system,
            gathered.items,
            asked.tools,
            [Message(at, one.role, one.content) for at, one in enumerate(asked.conversation)],
            gathered.drops,
        )

        def assembled() -> tuple[Context, list[FactConflict], tuple[str, ...]]:
            made = self._assembled(given, budget, phase)
            return made, *self._doubts(caller, gathered, made, now_ms)

        made, conflicts, stale = await asyncio.to_thread(assembled)
        self._counts["assembled"] += 1
        self._counts["conflicts"] += len(conflicts)
        self._counts["stale"] += len(stale)
        self._counts["dropped"] += sum(drop.action == "dropped" for drop in made.drops)
        receipt = self._recorded(wanted, gathered, made) if asked.record else None
        return _answer(made, gathered, phase, self._tokenizer.name, conflicts, stale, now_ms, receipt, view_seq)

    def _assembled(self, given: ContextInput, budget: Budget, phase: Phase) -> Context:
        try:
            return assemble_context(given, budget, phase, self._tokenizer.count)
        except ValueError as error:
            hint = "system: shorten it, or raise budget_tokens"
            raise InvalidQuery(str(error), hint=hint, field="system") from None

    def _doubts(
        self, caller: Caller, gathered: Gathered, made: Context, now_ms: int
    ) -> tuple[list[FactConflict], tuple[str, ...]]:
        """Conflicts of facts in the context, and those of its facts that are not fresh."""
        inside = {item.id for item in made.items if item.source == "fact"}
        if not inside:
            return [], ()
        with self._indexes.lock:
            index = self._indexes.fresh(caller.workspace_id)
            found = [one for one in index.conflicts(now_ms) if one.first in inside or one.second in inside]
            conflicts = shown_conflicts(index, found, None)
        stale = sorted(
            one.fact.row.fact_id
            for one in gathered.facts
            if one.fact.row.fact_id in inside and one.fact.holds(now_ms) and state_of(one.fresh) is not Freshness.FRESH
        )
        return conflicts, tuple(stale)

    def _recorded(self, asked: Asked, gathered: Gathered, made: Context) -> str | None:
        inside = [
            item
            for item in made.items
            if item.id in gathered.entry_ids
            and item.finding is None
            and not (item.turn and item.certainty in (None, WEAK))  # it only fills what was left
        ]
        best = sorted(inside, key=lambda item: item.order)[:MOST_RECORDED]
        if not best:
            return None
        entries = tuple(dict.fromkeys(gathered.entry_ids[item.id] for item in best))
        searched = MemorySearched(
            query=asked.query,
            scope="workspace",
            recipe=RECIPE,
            hit_ids=entries,
            scores=tuple(item.salience for item in best)[: len(entries)],
            rendered=entries,
            asked_by=asked.caller.principal.token_id,
        )
        return self._record(asked.caller.principal, asked.caller.workspace_id, searched)


def _budget(asked: ContextRequest, budget: Budget) -> Budget:
    total = budget.total if asked.budget_tokens is None else asked.budget_tokens
    system = min(budget.system, budget.system * total // budget.total)  # a smaller budget reserves the same share
    if asked.system_tokens is not None:
        system = asked.system_tokens
    try:
        return Budget(total, system)
    except ValueError as error:
        hint = "budget_tokens: raise it, or lower system_tokens"
        raise InvalidQuery(str(error), hint=hint, field="budget_tokens") from None


def _answer(
    made: Context,
    gathered: Gathered,
    phase: Phase,
    tokenizer: str,
    conflicts: list[FactConflict],
    stale: tuple[str, ...],
    now_ms: int,
    receipt: str | None,
    view_seq: int,
) -> ContextAnswer:
    recall = gathered.recall
    fields = {
        "system": made.system,
        "memory": made.memory,
        "prompt": made.prompt,
        "tools": made.tools,
        "conversation": made.conversation,
        "items": made.items,
        "drops": made.drops,
        "tokens": made.tokens,
        "allocation": asdict(made.allocation),
        "phase": phase,
        "tokenizer": tokenizer,
        "conflicts": conflicts,
        "stale": stale,
        "recall_confidence": recall.confidence if recall else None,
        "degraded": recall.degraded if recall else None,
        "now": format_ms(now_ms),
        "receipt": receipt,
        "view_seq": view_seq,
    }
    return ContextAnswer.model_validate(fields, from_attributes=True)
