"""Layered memory of a node: the use-cases that write it, read it, and assemble contexts of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from typing import Any, Final

from ...schemas.context import operations as ops
from ...schemas.context.assembly import Context, ContextInput, Message, assemble_context
from ...schemas.context.budget import Budget, Phase, phase_of
from ...schemas.context.operations import ContextAnswer, ContextRequest, FactConflict
from ...schemas.context.salience import Freshness, state_of
from ...schemas.core.errors import InvalidQuery, NotFound
from ...schemas.core.limits import RECALL_QUERY_MAX_CHARS
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import DocumentAnswer, DocumentsRequest, ReadDocumentRequest, WriteDocumentRequest
from ...schemas.documents.rules import Scope, scope_of
from ...schemas.facts.tables import FACTS_PROJECTION
from ...schemas.prompt.assembler import Count, estimate
from ...schemas.recall.events import MOST_FURTHER, MemorySearched
from ...schemas.recall.evidence import WEAK
from ..desk import Caller
from ..documents.use_cases import JournalDocuments
from ..node import Answers, Node
from .layered_facts import LayeredFacts, shown_conflicts
from .memories import GatheredMemories, Memories, MemoryQuery, Runs, since_of
from .state import LayeredState

# The use-case that assembles a prompt context from all layers of memory.
#
# Invariant: the same request with the same ``now`` at the same ``view_seq`` gives the same answer, receipt apart; what the
# scanners block reaches no context.


# Loads the function that counts tokens, where one is configured.


ESTIMATE: Final = "estimate"
_PROBE = "Deploy 148 of the checkout service was denied."


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The function that counts tokens, and its name in answers."""

    name: str = ESTIMATE
    count: Count = estimate


def tokenizer_of(named: str | None) -> Tokenizer:
    """The tokenizer ``module:function``; the estimate if none is named.

    Raises:
        InvalidQuery: If it cannot be loaded, or does not return the number of tokens of a text.
    """
    if named is None:
        return Tokenizer()
    module, _, function = named.partition(":")
    try:
        count = getattr(import_module(module), function)
        tokens = count(_PROBE)
    except Exception as error:
        raise _refused(named, f"{type(error).__name__}: {error}") from error
    if not isinstance(tokens, int) or tokens <= 0 or count("") != 0:
        raise _refused(named, f"it returns {tokens!r} for a sentence")
    return Tokenizer(named, count)


def _refused(named: str, why: str) -> InvalidQuery:
    hint = (
        "set CREW_JOURNAL_CONTEXT_TOKENIZER to module:function, a function that returns the number of tokens of a text"
    )
    return InvalidQuery(f"the tokenizer {named!r} cannot be used: {why}", hint=hint)


RECIPE: Final = "context"
"""Names these searches in ``memory.searched``."""
MOST_RECORDED: Final = 100
"""Memories that a receipt names."""


class Assembling:
    """Assembles contexts."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._memories = node.use(Memories)
        state = node.use(LayeredState)
        self._indexes = state.indexes
        self._choices = state.choices
        self._moments = state.moments
        self._record = node.record_search
        self._tokenizer = tokenizer_of(node.settings.context_tokenizer)
        self._counts = {"assembled": 0, "conflicts": 0, "stale": 0, "dropped": 0}

    def figures(self) -> Mapping[str, int]:
        """Totals since the start: contexts, and in them conflicts, stale facts and drops."""
        return dict(self._counts)

    async def assemble(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble a context.

        Raises:
            InvalidQuery: If the system's text or tokens leave nothing of the budget.
            NotAllowed: If AGENT or LEAD names another agent or crew.
            NotFound: If there is no such workspace, agent or crew.
        """
        now_ms = self._moments.ms(request.now)
        view_seq = self._views.view_seq(*ops.CONTEXT_ASSEMBLE.views)
        choices = await self._choices.of(caller.workspace_id)
        query = request.query or request.prompt.strip()[:RECALL_QUERY_MAX_CHARS]
        budget = _budget(request, choices.budget)
        wanted = MemoryQuery(caller, request, query if query.strip() else "-", choices, now_ms, budget.total)
        gathered = await self._memories.gather(wanted)
        phase = request.phase or phase_of(request.step, request.max_steps)
        context_input = ContextInput(
            request.prompt,
            request.system,
            gathered.items,
            request.tools,
            [Message(at, turn.role, turn.content) for at, turn in enumerate(request.conversation)],
            gathered.drops,
        )

        made = await asyncio.to_thread(self._assembled, context_input, budget, phase)
        conflicts, stale = await self._doubts(caller, gathered, made, now_ms)
        dropped = sum(drop.action == "dropped" for drop in made.drops)
        for name, number in zip(self._counts, (1, len(conflicts), len(stale), dropped), strict=True):
            self._counts[name] += number
        recall = gathered.recall
        answer = {
            **{name.name: getattr(made, name.name) for name in fields(made)},
            "allocation": asdict(made.allocation),
            "phase": phase,
            "tokenizer": self._tokenizer.name,
            "conflicts": conflicts,
            "stale": stale,
            "recall_confidence": recall.confidence,
            "degraded": recall.degraded,
            "now": format_ms(now_ms),
            "receipt": self._recorded(wanted, gathered, made, view_seq) if request.record else None,
            "view_seq": view_seq,
        }
        return ContextAnswer.model_validate(answer, from_attributes=True)

    def _assembled(self, context_input: ContextInput, budget: Budget, phase: Phase) -> Context:
        try:
            return assemble_context(context_input, budget, phase, self._tokenizer.count)
        except ValueError as error:
            hint = "system: shorten it, or raise budget_tokens"
            raise InvalidQuery(str(error), hint=hint, field="system") from None

    async def _doubts(
        self, caller: Caller, gathered: GatheredMemories, context: Context, now_ms: int
    ) -> tuple[list[FactConflict], tuple[str, ...]]:
        """Conflicts of facts in the context, and those of its facts that are not fresh."""
        inside = {item.id for item in context.items if item.source == "fact"}
        if not inside:
            return [], ()
        index = await self._indexes.get(caller.workspace_id, self._views.view_seq(FACTS_PROJECTION))
        doubted = [
            conflict
            for conflict in await index.conflicts(now_ms)
            if conflict.first in inside or conflict.second in inside
        ]
        conflicts = shown_conflicts(index, doubted, None)
        stale = sorted(
            fact.fact.row.fact_id
            for fact in gathered.facts
            if fact.fact.row.fact_id in inside
            and fact.fact.holds(now_ms)
            and state_of(fact.fresh) is not Freshness.FRESH
        )
        return conflicts, tuple(stale)

    def _recorded(self, query: MemoryQuery, gathered: GatheredMemories, context: Context, view_seq: int) -> str | None:
        held = [item for item in context.items if item.id in gathered.entry_ids and item.finding is None]
        if not held:
            return None
        inside = [item for item in held if not (item.turn and item.certainty in (None, WEAK))]  # no mere filling
        best = sorted(inside, key=lambda item: item.order)[:MOST_RECORDED]
        entries = tuple(dict.fromkeys(gathered.entry_ids[item.id] for item in best))
        others = dict.fromkeys(gathered.entry_ids[item.id] for item in held)
        searched = MemorySearched(
            query=query.query,
            scope="workspace",
            recipe=RECIPE,
            hit_ids=entries,
            scores=tuple(item.salience for item in best)[: len(entries)],
            rendered=entries,
            asked_by=query.caller.principal.token_id,
            held=tuple(name for name in others if name not in entries)[:MOST_FURTHER],
            view_seq=view_seq,
        )
        return self._record(query.caller.principal, query.caller.workspace_id, searched, query.request.run_id)


def _budget(request: ContextRequest, budget: Budget) -> Budget:
    total = budget.total if request.budget_tokens is None else request.budget_tokens
    system = min(budget.system, budget.system * total // budget.total)  # a smaller budget reserves the same share
    if request.system_tokens is not None:
        system = request.system_tokens
    try:
        return Budget(total, system)
    except ValueError as error:
        hint = "budget_tokens: raise it, or lower system_tokens"
        raise InvalidQuery(str(error), hint=hint, field="budget_tokens") from None


# Procedures: documents of the tier ``procedures``, by name.


TIER: Final = "procedures"


class Procedures:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._documents = node.use(JournalDocuments)

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a version; raises as ``JournalDocuments.write``."""
        given = WriteDocumentRequest(key=request.name, mode="replace", content=request.content or "", **_of(request))
        written = await self._documents.write(caller, given)
        return ops.LayeredWriteAnswer(kind="procedure", id=written.id, added=True, seq=written.seq)

    async def read(self, caller: Caller, request: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """A procedure by its name.

        Raises:
            NotFound: If there is none of that name.
        """
        given = ReadDocumentRequest(key=request.name, version=request.version, **_of(request))
        document = await self._documents.read(caller, given)
        if not document.content:
            hint = "list them with `layered query procedure`; scope says whose it is"
            raise NotFound(f"no procedure {request.name[:64]!r}", hint=hint)
        return ops.LayeredReadAnswer(kind="procedure", procedure=_shown(document), view_seq=document.view_seq)

    async def query(self, caller: Caller, query: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Procedures whose name contains the text, by owner and name."""
        wanted = DocumentsRequest(tier=TIER, agent_id=query.agent_id, crew_id=query.crew_id)
        listed = await self._documents.reading.list(caller, wanted)
        part = (query.text or "").casefold()
        named = [
            document for document in listed.documents if document.bytes and part in (document.key or "").casefold()
        ]
        shown = []
        for document in named[: query.limit]:
            scope, owner = scope_of(document.owner)
            request = ReadDocumentRequest(
                tier=TIER,
                key=document.key,
                scope=scope.value,
                agent_id=owner if scope is Scope.AGENT else None,
                crew_id=owner if scope is Scope.CREW else None,
            )
            shown.append(_shown(await self._documents.read(caller, request)))
        more = len(named) > query.limit
        return ops.LayeredQueryAnswer(
            kind="procedure", procedures=tuple(shown), truncated=more, view_seq=listed.view_seq
        )


def _of(request: ops.LayeredWriteRequest | ops.LayeredReadRequest) -> dict[str, Any]:
    """The tier, and whose document it is."""
    return {"tier": TIER, "scope": request.scope, "agent_id": request.agent_id, "crew_id": request.crew_id}


def _shown(answer: DocumentAnswer) -> ops.Procedure:
    return ops.Procedure(
        name=answer.key or "", owner=answer.owner, content=answer.content, seq=answer.seq, updated_at=answer.updated_at
    )


class LayeredMemory:
    """The use-cases that are for several kinds of memory."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._facts = node.use(LayeredFacts)
        self._procedures = node.use(Procedures)
        self._runs = node.use(Runs)
        self._state = node.use(LayeredState)

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Write a fact or a procedure."""
        return await (self._facts if request.kind == "fact" else self._procedures).write(caller, request)

    async def read(self, caller: Caller, request: ops.LayeredReadRequest) -> ops.LayeredReadAnswer:
        """Read a fact, a procedure, or the working memory of a run."""
        if request.kind == "procedure":
            return await self._procedures.read(caller, request)
        if request.kind == "working":
            return await self._runs.working(caller, request.name)
        fact = await self._facts.read(caller, request.name)
        return ops.LayeredReadAnswer(kind="fact", fact=fact, view_seq=self._views.view_seq(FACTS_PROJECTION))

    async def query(self, caller: Caller, request: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Query episodes, facts or procedures."""
        if request.kind == "procedure":
            return await self._procedures.query(caller, request)
        if request.kind == "fact":
            return await self._facts.query(caller, request)
        choices = await self._state.choices.of(caller.workspace_id)
        return await self._runs.episodes(
            caller, request, since_of(choices.episodic_ttl_hours, self._state.moments.ms(request.now))
        )


ANSWERS: Final[Answers] = (
    (ops.LAYERED_WRITE, LayeredMemory.write),
    (ops.LAYERED_READ, LayeredMemory.read),
    (ops.LAYERED_QUERY, LayeredMemory.query),
    (ops.CONTEXT_ASSEMBLE, Assembling.assemble),
)
