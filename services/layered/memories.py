"""Gathers the memories that may go into a context, each with its salience: facts, entries, drawers, documents, the run.

Invariant: only what the token may read is gathered, and no document of an agent whose memory is off. The relevance of a
recalled entry follows the order of the recall.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Final

from ...schemas.events.drawers import MOST_IMPORTANCE
from ...schemas.operations.context import ContextRequest
from ...schemas.operations.layered import Episode
from ...schemas.operations.recall import INJECT, RecallAnswer, RecallHit, RecallRequest
from ...schemas.ports import ViewReader
from ...schemas.rules.context.budget import Memory
from ...schemas.rules.context.selection import Item
from ...schemas.rules.documents import finding_in
from ...schemas.rules.render import one_line
from ...schemas.rules.salience import Freshness, Remembered, parts_of, salience, state_of
from ...schemas.rules.text import Analyzer
from ...schemas.rules.tiers import TIERS, Scope, owner_of
from ...schemas.timestamps import format_ms, from_ms, parse_ts, to_ms
from ...schemas.views.drawers import PALACE_IDENTITIES
from ..desk import Caller
from ..kept import Kept
from ..memory.block import DocumentsByOwner
from ..memory.documents.addressing import check_own
from ..memory.documents.owned import OwnedDocuments
from ..memory.registry import Registry
from ..palace.drawer_index import UNREAD, DrawerUses, HotDrawer
from ..palace.use_cases import Palace
from ..query.recall import RecallService
from .choices import LayeredChoices
from .facts import LayeredFacts, RankedFact, ranked
from .runs import Runs
from .uses import NEVER, UseCounts, Uses

RECALLED: Final = 20
"""Entries that recall is asked for. On locomo_dev, contexts of 50 hold an answer no more often."""
DRAWERS_FOUND: Final = 10
ESSENTIAL: Final = 15
"""Most important drawers, whatever the query (the palace's essential story)."""
_RANK_STEP: Final = 1e-4
"""By which relevance falls from one hit to the next at equal confidence, so that recall's order stays."""
_PARAGRAPH: Final = re.compile(r"\n[ \t]*\n+")
_STANDING_TIERS: Final = ("pins", "AGENT", "CREW", "WORKSPACE")
_DATE_CHARS: Final = len("2026-11-21")


@dataclass(slots=True)
class Gathered:
    """The gathered memories.

    Attributes:
        items: The memories.
        facts: Those among them that are facts.
        recall: The answer of recall.
        entry_ids: Id of an item → the entry that is used when it is in a context.
    """

    items: list[Item] = field(default_factory=list)
    facts: list[RankedFact] = field(default_factory=list)
    recall: RecallAnswer | None = None
    entry_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    item: Item
    memory: Remembered
    entry_id: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with derived values.

    Attributes:
        caller: The caller.
        request: The request.
        query: The text to search for.
        choices: Settings of the workspace.
        now_ms: The time for which it is answered.
    """

    caller: Caller
    request: ContextRequest
    query: str
    choices: LayeredChoices
    now_ms: int


class Memories:
    """Gathers memories.

    Args:
        views: The views.
        uses: How often entries were used.
        facts: Facts by salience.
        recall: Recalls entries.
        runs: The working memory of a run.
        palace: Its drawers.
        documents: The present documents by owner.
        registry: The registered agents.
        analyzer: Turns texts into terms.
    """

    def __init__(
        self,
        views: ViewReader,
        uses: UseCounts,
        facts: LayeredFacts,
        recall: RecallService,
        runs: Runs,
        palace: Palace,
        documents: DocumentsByOwner,
        registry: Registry,
        analyzer: Analyzer,
    ) -> None:
        self._uses = uses
        self._facts = facts
        self._recall = recall
        self._runs = runs
        self._identity = Kept(views, (PALACE_IDENTITIES,), palace.drawers.identity)
        self._search = palace.search
        self._documents = documents
        self._registry = registry
        self._terms: Callable[[str], frozenset[int]] = lru_cache(8_192)(lambda text: frozenset(analyzer.terms(text)))

    def close(self) -> None:
        """Stop following the views."""
        self._identity.close()

    async def gather(self, asked: Asked) -> Gathered:
        """All candidates of a context."""
        check_own(asked.caller, asked.request)
        (known, recalled, drawers, documents, working) = await asyncio.gather(
            self._facts.candidates(asked.caller.workspace_id, asked.query, asked.request.namespace, asked.now_ms),
            self._recalled(asked),
            self._of_palace(asked),
            self._of_documents(asked),
            self._working(asked),
        )
        hits, answer = recalled
        made = Gathered(recall=answer)
        of_run = {one.item.id for one in working}
        candidates = [*working, *(one for one in hits if one.item.id not in of_run), *drawers, *documents]
        uses = await self._uses.of(asked.caller.workspace_id)
        for one in candidates:
            made.items.append(_weighed(one, uses.get(one.entry_id or "", NEVER), asked))
            if one.entry_id is not None:
                made.entry_ids[one.item.id] = one.entry_id
        choices = asked.choices
        made.facts = ranked(known, uses, choices.weights, asked.now_ms, decays=choices.decays)
        for fact in made.facts:
            item = _of_fact(fact)
            made.items.append(item)
            made.entry_ids[item.id] = fact.fact.row.entry_id
        return made

    async def _recalled(self, asked: Asked) -> tuple[list[_Candidate], RecallAnswer]:
        request = RecallRequest(
            query=asked.query,
            k=RECALLED,
            mode=INJECT,
            asked_at=format_ms(asked.now_ms),
            agent_id=asked.request.agent_id,
            crew_id=asked.request.crew_id,
            workspace_id=asked.caller.workspace_id,
        )
        answered = await self._recall.answer(asked.caller.principal, request)
        hits = answered.response.hits
        return list(_of_hits(hits)), answered.response

    async def _of_palace(self, asked: Asked) -> list[_Candidate]:
        workspace_id = asked.caller.workspace_id
        identity = await self._identity.of(workspace_id)
        found, _model = await self._search.search(workspace_id, asked.query, DRAWERS_FOUND)
        known = {
            drawer.drawer_id: (drawer, content, 0.0)
            for drawer, content in await self._search.important(workspace_id, None, ESSENTIAL)
        }
        known |= {one.drawer.drawer_id: (one.drawer, one.content, one.similarity) for one in found}
        uses = await self._search.uses(workspace_id)
        made = [
            _of_drawer(drawer, content, similarity, uses.get(drawer.entry_id, UNREAD))
            for _, (drawer, content, similarity) in sorted(known.items(), key=itemgetter(0))
        ]
        if identity and identity.strip():
            item = _item(Memory.SEMANTIC, "identity", identity.strip(), "identity")
            made.append(_Candidate(item, Remembered(1.0, asked.now_ms, confidence=1.0)))
        return made

    async def _of_documents(self, asked: Asked) -> list[_Candidate]:
        """Paragraphs of the memory documents of agent, crew and workspace, and their procedures."""
        caller, request = asked.caller, asked.request
        agent_id = request.agent_id or caller.principal.agent_id
        crew_id = request.crew_id or caller.principal.crew_id
        if agent_id is not None:
            registered = await self._registry.agent(caller.workspace_id, agent_id)
            if registered is not None and not registered.memory_enabled:
                return []
        owners = [
            owner_of(Scope.AGENT, agent_id) if agent_id else None,
            owner_of(Scope.CREW, crew_id) if crew_id else None,
            owner_of(Scope.WORKSPACE, None),
        ]
        today = from_ms(asked.now_ms).astimezone(UTC).date()
        wanted = self._terms(asked.query)
        made: list[_Candidate] = []
        for owner in filter(None, owners):
            owned = await self._documents.of(caller.workspace_id, owner, today)
            made += self._paragraphs(owner, owned, wanted, asked.now_ms)
        return made

    def _paragraphs(
        self, owner: str, owned: OwnedDocuments, wanted: frozenset[int], now_ms: int
    ) -> Iterator[_Candidate]:
        for tier, key in _documents_of(owned, format_ms(now_ms)[:_DATE_CHARS]):
            found = owned.get(tier, key)
            if found is None:
                continue
            label = f"{owner}/{TIERS[tier].label_of(key)}"
            kind = {"daily": Memory.EPISODIC, "procedures": Memory.PROCEDURAL}.get(tier, Memory.SEMANTIC)
            updated_ms = to_ms(datetime.fromisoformat(key).replace(tzinfo=UTC)) if tier == "daily" and key else now_ms
            texts = [found.content] if tier == "procedures" or found.finding else _PARAGRAPH.split(found.content)
            for number, text in enumerate(filter(str.strip, texts), 1):
                named = f"{key} {text}" if tier == "procedures" else text
                relevance = 1.0 if tier == "pins" else _shared(wanted, self._terms(named))
                shown = f"{key}:\n{text.strip()}" if tier == "procedures" else text.strip()
                item = Item(kind, f"{label}#{number}", shown, 0.0, None, "document", found.finding)
                confidence = 1.0 if tier == "pins" else None
                yield _Candidate(item, Remembered(relevance, updated_ms, confidence=confidence))

    async def _working(self, asked: Asked) -> list[_Candidate]:
        if asked.request.run_id is None:
            return []
        read = await self._runs.working(asked.caller, asked.request.run_id)
        wanted = self._terms(asked.query)
        return [self._of_run(one, wanted) for one in read.working]

    def _of_run(self, one: Episode, wanted: frozenset[int]) -> _Candidate:
        text = f"{one.ts[:16]} {one.entry_type}: {one_line(one.summary)}"
        relevance = _shared(wanted, self._terms(one.summary))
        item = _item(Memory.WORKING, one.entry_id, text, "entry")
        return _Candidate(item, Remembered(relevance, to_ms(parse_ts(one.ts))), one.entry_id)


def _documents_of(owned: OwnedDocuments, today: str) -> Iterator[tuple[str, str | None]]:
    """The standing documents, the newest daily log and today's, and the procedures."""
    for tier in _STANDING_TIERS:
        yield tier, None
    for day in [day for day in owned.keys("daily") if day <= today][-2:]:
        yield "daily", day
    for name in owned.keys("procedures"):
        yield "procedures", name


def _of_hits(hits: Sequence[RecallHit]) -> Iterable[_Candidate]:
    relevance = relevances([hit.confidence or 0.0 for hit in hits])
    for hit, value in zip(hits, relevance, strict=True):
        who = hit.agent_id or hit.actor_id or hit.actor_type
        text = f"{hit.ts[:_DATE_CHARS]} {one_line(who)}: {one_line(hit.summary)}"
        item = _item(Memory.EPISODIC, hit.entry_id, text, "entry")
        yield _Candidate(item, Remembered(value, to_ms(parse_ts(hit.ts))), hit.entry_id)


def relevances(confidences: Sequence[float]) -> list[float]:
    """Falling relevances of hits, best first: at each the highest confidence from there on, less a step for each rank."""
    highest = 0.0
    found = []
    for value in reversed(confidences):
        highest = max(highest, value)
        found.append(highest)
    found.reverse()
    return [max(0.0, value - rank * _RANK_STEP) for rank, value in enumerate(found)]


def _of_drawer(drawer: HotDrawer, content: str, similarity: float, uses: DrawerUses) -> _Candidate:
    text = f"{format_ms(drawer.filed_ms)[:_DATE_CHARS]} {one_line(content)}"
    confidence = drawer.importance / MOST_IMPORTANCE
    memory = Remembered(similarity, drawer.filed_ms, uses.last_ms, confidence, uses.reads)
    return _Candidate(_item(Memory.EPISODIC, drawer.drawer_id, text, "drawer"), memory, drawer.entry_id)


def _of_fact(one: RankedFact) -> Item:
    state = state_of(one.fresh)
    note = "" if state is Freshness.FRESH else f" ({state.value.replace('_', ' ')})"
    text = one_line(one.fact.text) + note
    return Item(Memory.SEMANTIC, one.fact.row.fact_id, text, one.salience, one.parts, "fact", _finding(text))


def _item(kind: Memory, item_id: str, text: str, source: str) -> Item:
    return Item(kind, item_id, text, 0.0, None, source, _finding(text))


def _weighed(one: _Candidate, used: Uses, asked: Asked) -> Item:
    memory = one.memory
    if used.count > memory.uses:
        memory = replace(memory, uses=used.count, used_ms=used.last_ms)
    parts = parts_of(memory, asked.choices.weights, asked.now_ms)
    item, value = one.item, salience(parts, asked.choices.weights)
    return Item(item.kind, item.id, item.text, value, parts, item.source, item.finding)


def _shared(wanted: frozenset[int], terms: frozenset[int]) -> float:
    return len(wanted & terms) / len(wanted) if wanted else 0.0


_finding: Final = lru_cache(maxsize=32_768)(finding_in)
"""What the scanners block in a text; scanning one takes 0.5 µs a character."""
