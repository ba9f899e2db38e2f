"""Gathers the memories that may go into a context, each with its salience: facts, entries, drawers, documents, the run.

A context is asked for, so entries are recalled as in the mode ``search``; none for a prompt that asks nothing. The best
memories of each source, and all that are surely about the query, compete by their salience. The others take turns after
them, of each source the best first: those that have something in common with the query, then the documents, then, if any
entry has evidence, the entries that are nearest without any. Turns need no common scale of the sources, whose
similarities mean different things.

Invariant: only what the token may read is gathered, and no document of an agent whose memory is off. The relevance of a
recalled entry follows the order of the recall. No text is gathered twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from ...schemas.context.assembly import Item, left_out
from ...schemas.context.budget import MemoryKind
from ...schemas.context.operations import (
    ContextDrop,
    ContextRequest,
    Episode,
    LayeredQueryAnswer,
    LayeredQueryRequest,
    LayeredReadAnswer,
)
from ...schemas.context.salience import Freshness, Remembered, parts_of, salience, state_of
from ...schemas.core.limits import COLLECTED_MOST
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import day_of, format_ms, from_ms, parse_ts, to_ms
from ...schemas.documents.rules import TIERS, Scope, owner_of
from ...schemas.palace.events import MOST_IMPORTANCE
from ...schemas.palace.tables import PALACE_IDENTITIES
from ...schemas.prompt.assembler import LineForm, finding_of, one_line
from ...schemas.recall.evidence import SURE, WEAK, confidence_word
from ...schemas.recall.operations import (
    COLLECTED_TOKENS,
    ENTRIES_ALONE,
    INJECT,
    RecallAnswer,
    RecallHit,
    RecallRequest,
)
from ...schemas.recall.questions import asks_nothing, collects
from ...schemas.standing.operations import Standing, State
from ...schemas.text.analyzer import Analyzer
from ..desk import Caller
from ..documents.addressing import check_own
from ..documents.owned import OwnedDocuments, StoredPrompts
from ..entries.filters import EntryFilters
from ..entries.rows import EntryPage, StoredEntry
from ..kept import KeptValues
from ..node import Node
from ..palace.drawer_index import UNREAD, DrawerReader, DrawerUses, HotDrawer
from ..palace.searching import DrawerSearch
from ..recall.arranging import ComparedText, KnownTexts
from ..recall.kinds import line_of
from ..registry import Registry
from .layered_facts import LayeredFacts, RankedFact, ranked
from .state import NEVER, LayeredChoices, LayeredState, Uses

# Leaves out memories that say what another one says: an entry, the drawer it was filed in, a fact, a lesson.


_PRECEDENCE: Final = {"entry": 0, "fact": 1, "identity": 2, "document": 3, "drawer": 4}
_PARAGRAPH: Final = re.compile(r"\n[ \t]*\n+")
_SPEAKER: Final = re.compile(r"(?:User|Agent):\s+")
_BULLET: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_COMPARED: Final = 8_192
"""Texts whose words are kept, because most are gathered again and again."""


@dataclass(frozen=True, slots=True)
class Said:
    """A memory that may go into a context.

    Attributes:
        item: The memory.
        text: Its text without date, speaker and marks; that of a drawer may have several turns.
        memory: What its salience is made of; None if it has its salience.
        entry_id: The entry that is used when it is in a context.
    """

    item: Item
    text: str
    memory: Remembered | None = None
    entry_id: str | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """Memories without repeats.

    Attributes:
        items: Those that stay.
        repeated: Those that are left out, each with the id of the one that says the same.
    """

    items: list[Item]
    repeated: list[tuple[Item, str]]


def distinct(memories: Sequence[Said], analyzer: Analyzer) -> Distinct:
    """Leave out repeats.

    Args:
        memories: The memories.
        analyzer: Turns texts into terms.
    """
    order = sorted(range(len(memories)), key=lambda at: _precedence(memories[at].item))
    parts = [[_compared(part, analyzer) for part in _parts(memory)] for memory in memories]
    known = KnownTexts(text for some in parts for text in some)
    items = {at: memory.item for at, memory in enumerate(memories)}
    repeated: list[tuple[Item, str]] = []
    moved: dict[int, int] = {}
    for at in order:
        places = [None if (place := known.find(part)) is None else moved.get(place, place) for part in parts[at]]
        same = {place for place in places if place is not None}
        if same and None not in places:
            place = min(same)
            for other in same:
                items[other] = _as_strong(items[other], items[at])
            repeated.append((items.pop(at), items[place].id))
            continue
        for place in sorted(same):  # a drawer with more than these entries
            entry = items[place]
            if entry.source == "entry" and entry.until is None and entry.contradicted_by is None:
                items[at] = _as_strong(items[at], entry)
                repeated.append((items.pop(place), items[at].id))
                moved[place] = at
        for part, place_found in zip(parts[at], places, strict=True):
            if place_found is None:
                known.keep(part, at)
    return Distinct(list(items.values()), repeated)


def _precedence(item: Item) -> tuple[int, bool, int, str]:
    return _PRECEDENCE[item.source], item.until is not None, -(item.at_ms or 0), item.id


def _parts(memory: Said) -> list[str]:
    """The turns of a drawer, or the one text, without the names of speakers and without marks of lists."""
    if memory.item.source != "drawer":
        return [_unlisted(memory.text)]
    texts = _PARAGRAPH.split(memory.text) if "\n" in memory.text else [memory.text]
    return [part for text in texts if (part := _unlisted(_SPEAKER.sub("", text.strip(), count=1)))]


def _unlisted(text: str) -> str:
    match = _BULLET.match(text)
    return text if match is None else text[match.end() :]


def _as_strong(item: Item, other: Item) -> Item:
    """The item with the better rank of both, and what is known of the time of either."""
    confidence = item.confidence if other.confidence is None else max(item.confidence or 0.0, other.confidence)
    return replace(
        item,
        turn=min(item.turn, other.turn),
        salience=max(item.salience, other.salience),
        confidence=confidence,
        since=item.since or other.since,
        until=item.until or other.until,
        contradicted_by=item.contradicted_by or other.contradicted_by,
    )


_compared: Final = lru_cache(maxsize=_COMPARED)(ComparedText)


# Episodes and working memory: what runs have recorded, as far as the token may read it.


RUN_ENDS: Final = ("run.completed", "run.failed", "run.cancelled")
"""Types of entries that end a run."""
WORKING_ENTRIES: Final = 50
"""Newest entries of a run that are its working memory."""
_HOUR_MS: Final = 3_600_000


class Runs:
    """The queries."""

    def __init__(self, node: Node) -> None:
        self._queries = node.queries

    async def episodes(self, caller: Caller, request: LayeredQueryRequest, since_ms: int | None) -> LayeredQueryAnswer:
        """Episodes by run and type, newest first."""
        filters = EntryFilters(run_id=request.run_id, types=request.types, since_ms=since_ms)
        page = await self._queries.list(
            caller.principal, filters, workspace=caller.workspace_id, limit=request.limit + 1
        )
        shown = tuple(_episode(entry, request.run_id) for entry in page.entries[: request.limit])
        more = len(page.entries) > request.limit
        return LayeredQueryAnswer(kind="episode", episodes=shown, truncated=more, view_seq=page.view_seq)

    async def working(self, caller: Caller, run_id: str) -> LayeredReadAnswer:
        """The working memory of a run, newest first; none if it has ended."""
        page = await self._of(caller.principal, caller.workspace_id, EntryFilters(run_id=run_id), WORKING_ENTRIES)
        ended = any(entry.record["entry_type"] in RUN_ENDS for entry in page.entries)
        if not ended and len(page.entries) == WORKING_ENTRIES:
            ends = EntryFilters(run_id=run_id, types=RUN_ENDS)
            ended = bool((await self._of(caller.principal, caller.workspace_id, ends, 1)).entries)
        return LayeredReadAnswer(
            kind="working",
            working=() if ended else tuple(_episode(entry, run_id) for entry in page.entries),
            run_ended=ended,
            view_seq=page.view_seq,
        )

    async def _of(self, principal: Principal, workspace_id: str, filters: EntryFilters, limit: int) -> EntryPage:
        return await self._queries.list(principal, filters, workspace=workspace_id, limit=limit)


def since_of(ttl_hours: float | None, now_ms: int) -> int | None:
    """From when on episodes are returned; None for all."""
    return None if ttl_hours is None else now_ms - int(ttl_hours * _HOUR_MS)


def _episode(entry: StoredEntry, run_id: str | None) -> Episode:
    record: dict[str, Any] = orjson.loads(entry.to_json())
    of_payload = record["payload"].get("run_id")
    return Episode(
        entry_id=record["id"],
        ts=record["ts"],
        entry_type=record["entry_type"],
        summary=record["summary"],
        agent_id=record["agent_id"],
        run_id=run_id or record["trace_id"] or (of_payload if isinstance(of_payload, str) else None),
        payload=record["payload"],
        seq=entry.seq,
    )


RECALLED_LEAST: Final = 20
RECALLED_MOST: Final = 64
"""Entries that recall is asked for, up to a budget of 4,000 tokens; above it, more in proportion. Contexts of 8,000 tokens
hold .968 of the answering texts of locomo_dev and use .83 of the budget (.906 and .46 with 64 entries)."""
HIT_TOKENS: Final = 20
"""Tokens of a short line, so that as many entries are asked for as a budget holds."""
DRAWERS_FOUND: Final = 20
COMPETING: Final = 3
"""Best memories of each source that compete by their salience, however sure they are: set, not fitted."""
DOCUMENTS_TURN: Final = 1_000
"""Turn of paragraphs that have no word in common with the query."""
NEAR_TURN: Final = 2_000
"""Turn of the first entry that has no evidence."""
_RANK_STEP: Final = 1e-4
"""By which relevance falls from one hit to the next at equal confidence, so that recall's order stays."""
_STANDING_TIERS: Final = ("pins", "AGENT", "CREW", "WORKSPACE")
LINE: Final = LineForm("", " ", ": ")
_CONTRADICTED: Final = frozenset({State.CONTRADICTED, State.DISPUTED})


@dataclass(frozen=True, slots=True)
class GatheredMemories:
    """The gathered memories.

    Attributes:
        items: The memories.
        drops: What was left out, because it repeats another memory.
        facts: Those among them that are facts.
        recall: The answer of recall.
        entry_ids: Id of an item → the entry that is used when it is in a context.
    """

    items: Sequence[Item]
    drops: Sequence[ContextDrop]
    facts: Sequence[RankedFact]
    recall: RecallAnswer
    entry_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A request with derived values.

    Attributes:
        caller: The caller.
        request: The request.
        query: The text to search for.
        choices: Settings of the workspace.
        now_ms: The time for which it is answered.
        tokens: The budget.
    """

    caller: Caller
    request: ContextRequest
    query: str
    choices: LayeredChoices
    now_ms: int
    tokens: int


class Memories:
    """Gathers memories."""

    def __init__(self, node: Node) -> None:
        self._uses = node.use(LayeredState).uses
        self._facts = node.use(LayeredFacts)
        self._recall = node.recall
        self._runs = node.use(Runs)
        self._identity = KeptValues(node.views, (PALACE_IDENTITIES,), DrawerReader(node.views).identity)
        self._search = node.use(DrawerSearch)
        self._documents = node.use(StoredPrompts)
        self._registry = node.use(Registry)
        analyzer = self._analyzer = node.analyzer
        self._terms: Callable[[str], frozenset[int]] = lru_cache(8_192)(lambda text: frozenset(analyzer.terms(text)))
        node.ends.callback(self._identity.close)

    async def gather(self, query: MemoryQuery) -> GatheredMemories:
        """All candidates of a context."""
        check_own(query.caller, query.request)
        (known, recalled, drawers, documents, working) = await asyncio.gather(
            self._facts.candidates(
                query.caller.workspace_id, query.query, query.request.namespace, query.now_ms, ended=True
            ),
            self._recalled(query),
            self._of_palace(query),
            self._of_documents(query),
            self._working(query),
        )
        hits, answer = recalled
        of_run = {said.item.id for said in working}
        uses = await self._uses.of(query.caller.workspace_id)
        memories = [
            _weighed(said, uses.get(said.entry_id or "", NEVER), query)
            for said in (*working, *(hit for hit in hits if hit.item.id not in of_run), *drawers, *documents)
        ]
        choices = query.choices
        facts = ranked(known, uses, choices.weights, query.now_ms, decays=choices.decays)
        contradicted = await self._facts.contradictions(query.caller.workspace_id, query.now_ms)
        memories += _of_facts(facts, contradicted, query.now_ms)
        found = await asyncio.to_thread(distinct, memories, self._analyzer)
        drops = [left_out(item, f"it repeats {other}") for item, other in found.repeated]
        entry_ids = {said.item.id: said.entry_id for said in memories if said.entry_id is not None}
        return GatheredMemories(found.items, drops, facts, answer, entry_ids)

    async def _recalled(self, query: MemoryQuery) -> tuple[list[Said], RecallAnswer]:
        request = RecallRequest(
            query=query.query,
            mode=INJECT if asks_nothing(query.query) else "search",
            kinds=ENTRIES_ALONE,
            k=RECALLED_LEAST,
            asked_at=format_ms(query.now_ms),
            agent_id=query.request.agent_id,
            crew_id=query.request.crew_id,
            workspace_id=query.caller.workspace_id,
        )
        many = collects(query.query)
        room = max(1.0, query.tokens / COLLECTED_TOKENS)  # for longer lines and more entries
        limit = COLLECTED_MOST if many else round(RECALLED_MOST * room)
        most = min(limit, COLLECTED_MOST, max(RECALLED_LEAST, query.tokens // HIT_TOKENS))
        answered = await self._recall.answer(query.caller.principal, request, most)
        hits = answered.response.hits
        if many:
            weights = dict.fromkeys(self._terms(query.query), 1.0)
            hits = tuple(
                hit.model_copy(update={"summary": line_of(hit.summary, weights, self._analyzer, place, room)})
                for place, hit in enumerate(hits)
            )
        return list(_of_hits(hits, answered.near, query.now_ms)), answered.response

    async def _of_palace(self, query: MemoryQuery) -> list[Said]:
        workspace_id = query.caller.workspace_id
        identity = await self._identity.of(workspace_id)
        hits, _model = await self._search.search(workspace_id, query.query, DRAWERS_FOUND)
        uses = await self._search.uses(workspace_id)
        best = sorted(hits, key=lambda hit: (-hit.similarity, hit.drawer.drawer_id))
        made = [
            _of_drawer(hit.drawer, hit.content, hit.similarity, place, uses.get(hit.drawer.entry_id, UNREAD))
            for place, hit in enumerate(best, 1)
        ]
        if identity is not None and self._terms(query.query) & self._terms(identity.content):
            item = _line(
                MemoryKind.SEMANTIC, "identity", ("Identity,", "set by", identity.author), identity.content.strip()
            )
            said = replace(item, source="identity")
            made.append(Said(said, said.text, Remembered(1.0, query.now_ms, confidence=1.0)))
        return made

    async def _of_documents(self, query: MemoryQuery) -> list[Said]:
        """Paragraphs of the memory documents of agent, crew and workspace, and their procedures."""
        caller, request = query.caller, query.request
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
        today = from_ms(query.now_ms).astimezone(UTC).date()
        wanted = self._terms(query.query)
        candidates: list[tuple[float, Said]] = []
        for owner in filter(None, owners):
            owned = await self._documents.of(caller.workspace_id, owner, today)
            candidates += self._paragraphs(owner, owned, wanted, query.now_ms)
        in_turn = sorted(candidates, key=lambda candidate: -candidate[0])
        return [_in_turn(said, relevance, place) for place, (relevance, said) in enumerate(in_turn, 1)]

    def _paragraphs(
        self, owner: str, owned: OwnedDocuments, wanted: frozenset[int], now_ms: int
    ) -> Iterator[tuple[float, Said]]:
        """Paragraphs, each with its relevance."""
        for tier, key in _documents_of(owned, day_of(now_ms)):
            document = owned.get(tier, key)
            if document is None:
                continue
            label = f"{owner}/{TIERS[tier].label_of(key)}"
            kind = {"daily": MemoryKind.EPISODIC, "procedures": MemoryKind.PROCEDURAL}.get(tier, MemoryKind.SEMANTIC)
            updated_ms = to_ms(datetime.fromisoformat(key).replace(tzinfo=UTC)) if tier == "daily" and key else now_ms
            texts = (
                [document.content] if tier == "procedures" or document.finding else _PARAGRAPH.split(document.content)
            )
            for number, text in enumerate(filter(str.strip, texts), 1):
                named = f"{key} {text}" if tier == "procedures" else text
                relevance = 1.0 if tier == "pins" else _shared(wanted, self._terms(named))
                shown = f"{key}:\n{text.strip()}" if tier == "procedures" else text.strip()
                item = Item(kind, f"{label}#{number}", shown, 0.0, None, "document", document.finding)
                confidence = 1.0 if tier == "pins" else None
                yield relevance, Said(item, shown, Remembered(relevance, updated_ms, confidence=confidence))

    async def _working(self, query: MemoryQuery) -> list[Said]:
        if query.request.run_id is None:
            return []
        read = await self._runs.working(query.caller, query.request.run_id)
        wanted = self._terms(query.query)
        return [self._of_run(episode, wanted) for episode in read.working]

    def _of_run(self, episode: Episode, wanted: frozenset[int]) -> Said:
        summary = one_line(episode.summary)
        item = _line(MemoryKind.WORKING, episode.entry_id, (episode.ts[:16], episode.entry_type), summary)
        relevance = _shared(wanted, self._terms(episode.summary))
        return Said(item, summary, Remembered(relevance, to_ms(parse_ts(episode.ts))), episode.entry_id)


def _line(kind: MemoryKind, item_id: str, head: tuple[str, ...], text: str, **known: Any) -> Item:
    """A memory as a line that says when and by whom; with what the scanners block in it."""
    line = LINE.line(head, text)
    return Item(kind, item_id, line, 0.0, finding=finding_of(line), **known)


def _documents_of(owned: OwnedDocuments, today: str) -> Iterator[tuple[str, str | None]]:
    """The standing documents, the newest daily log and today's, and the procedures."""
    for tier in _STANDING_TIERS:
        yield tier, None
    for day in [day for day in owned.keys("daily") if day <= today][-2:]:
        yield "daily", day
    for name in owned.keys("procedures"):
        yield "procedures", name


def _of_hits(hits: Sequence[RecallHit], near: frozenset[str], now_ms: int) -> Iterator[Said]:
    """Hits that count or did so once; those without evidence only if another one has some."""
    evident = [hit for hit in hits if hit.entry_id not in near]
    places = dict(zip((hit.entry_id for hit in evident), relevances([_sure(hit) for hit in evident]), strict=True))
    count = 0
    for place, hit in enumerate(hits if evident else ()):
        if hit.standing is not None and (hit.standing.state is State.RETRACTED or _never_held(hit, hit.standing)):
            continue
        relevance = places.get(hit.entry_id)
        turn = NEAR_TURN + place
        if relevance is not None:
            count += 1
            turn = _turn_of(relevance, count)
        yield _of_hit(hit, relevance, turn, now_ms)


def _of_hit(hit: RecallHit, relevance: float | None, turn: int, now_ms: int) -> Said:
    summary = one_line(hit.summary)
    ts_ms = to_ms(parse_ts(hit.ts))
    at_ms = ts_ms if hit.valid_at is None else to_ms(parse_ts(hit.valid_at))
    since, until, contradicted_by = _times_of(hit, at_ms, now_ms)
    item = _line(
        MemoryKind.EPISODIC,
        hit.entry_id,
        (day_of(hit.ts), one_line(hit.actor_id or hit.agent_id or hit.actor_type)),
        summary,
        turn=turn,
        certainty=WEAK if relevance is None else confidence_word(_sure(hit)),
        confidence=None if relevance is None else _sure(hit),
        at_ms=None if at_ms > now_ms else at_ms,
        below=None if hit.standing is None else hit.standing.by,
        since=since,
        until=until,
        contradicted_by=contradicted_by,
    )
    return Said(item, summary, Remembered(relevance or 0.0, ts_ms), hit.entry_id)


def _never_held(hit: RecallHit, standing: Standing) -> bool:
    """Whether another statement holds in the place of a hit since its own time, because it was corrected."""
    return standing.state is State.SUPERSEDED and parse_ts(standing.at) <= parse_ts(hit.valid_at or hit.ts)


def _sure(hit: RecallHit) -> float:
    return hit.confidence or 0.0


def _times_of(hit: RecallHit, at_ms: int, now_ms: int) -> tuple[str | None, str | None, str | None]:
    """Since when an entry holds if that is not its date, until when it held, and from when another one contradicts it."""
    since = None
    if hit.valid_at is not None or at_ms > now_ms:
        day = day_of(at_ms)
        since = None if day == day_of(hit.ts) else day
    standing = hit.standing
    if standing is None:
        return since, None, None
    if standing.state in _CONTRADICTED:
        return since, None, _said_later(standing)
    return since, day_of(standing.at), None


def _said_later(standing: Standing) -> str:
    who = "another agent's statement" if standing.state is State.DISPUTED else "a statement"
    return f"{who} of {day_of(standing.at)}"


def relevances(confidences: Sequence[float]) -> list[float]:
    """Falling relevances of hits, best first: at each the highest confidence from there on, less a step for each rank."""
    highest = 0.0
    values = []
    for value in reversed(confidences):
        highest = max(highest, value)
        values.append(highest)
    values.reverse()
    return [max(0.0, value - rank * _RANK_STEP) for rank, value in enumerate(values)]


def _of_drawer(drawer: HotDrawer, content: str, similarity: float, place: int, uses: DrawerUses) -> Said:
    item = _line(
        MemoryKind.EPISODIC,
        drawer.drawer_id,
        (day_of(drawer.filed_ms), drawer.author_text),
        one_line(content),
        source="drawer",
        turn=_turn_of(similarity, place),
        certainty=confidence_word(similarity),
        confidence=similarity,
        at_ms=drawer.filed_ms,
    )
    confidence = drawer.importance / MOST_IMPORTANCE
    memory = Remembered(similarity, drawer.filed_ms, uses.last_ms, confidence, uses.reads)
    return Said(item, content, memory, drawer.entry_id)


def _of_facts(facts: Sequence[RankedFact], contradicted: Mapping[str, str], now_ms: int) -> Iterator[Said]:
    """Facts as items; one that has ended is below the newest of its subject and predicate that holds."""
    holding: dict[tuple[str, str], RankedFact] = {}
    for fact in facts:
        if fact.fact.holds(now_ms):
            other = holding.setdefault(fact.fact.slot, fact)
            holding[fact.fact.slot] = max(other, fact, key=lambda fact: (fact.fact.since_ms, fact.fact.row.fact_id))
    by_similarity = sorted(facts, key=lambda fact: (-fact.parts.relevance, -fact.salience, fact.fact.row.fact_id))
    for place, fact in enumerate(by_similarity, 1):
        row, similarity = fact.fact.row, fact.parts.relevance
        holds = fact.fact.holds(now_ms)
        by = None if holds else holding.get(fact.fact.slot)
        state = state_of(fact.fresh)
        note = "" if state is Freshness.FRESH or not holds else f" ({state.value.replace('_', ' ')})"
        text = one_line(fact.fact.text) + note
        item = Item(
            MemoryKind.SEMANTIC,
            row.fact_id,
            text,
            fact.salience,
            fact.parts,
            "fact",
            finding_of(text),
            certainty=confidence_word(similarity),
            turn=_turn_of(similarity, place) if holds else place,
            confidence=similarity,
            at_ms=fact.fact.since_ms,
            below=None if by is None else by.fact.row.fact_id,
            since=None if row.from_ms is None else day_of(row.from_ms),
            until=None if row.to_ms is None else day_of(row.to_ms),
            contradicted_by=contradicted.get(row.fact_id),
        )
        yield Said(item, fact.fact.text, entry_id=row.entry_id)


def _turn_of(relevance: float, place: int) -> int:
    """0 if a memory competes by its salience, else its place among those of its source."""
    return 0 if place <= COMPETING or relevance >= SURE else place


def _in_turn(said: Said, relevance: float, place: int) -> Said:
    turn = _turn_of(relevance, place) if relevance > 0.0 else DOCUMENTS_TURN + place
    return replace(said, item=replace(said.item, turn=turn))


def _weighed(said: Said, used: Uses, query: MemoryQuery) -> Said:
    memory = said.memory
    assert memory is not None
    if used.count > memory.uses:
        memory = replace(memory, uses=used.count, used_ms=used.last_ms)
    parts = parts_of(memory, query.choices.weights, query.now_ms)
    return replace(said, item=replace(said.item, salience=salience(parts, query.choices.weights), parts=parts))


def _shared(wanted: frozenset[int], terms: frozenset[int]) -> float:
    return len(wanted & terms) / len(wanted) if wanted else 0.0
