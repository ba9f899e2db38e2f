"""Gathers the memories that may go into a context, each with its salience: facts, entries, drawers, documents, the run.

A context is asked for, so entries are recalled as in the mode ``search``. The best memories of each source, and all that
are surely about the query, compete by their salience. The others take turns after them, of each source the best first:
those that have something in common with the query, then the documents, then, if any entry has evidence, the entries that
are nearest without any. Turns need no common scale of the sources, whose similarities mean different things.

Invariant: only what the token may read is gathered, and no document of an agent whose memory is off. The relevance of a
recalled entry follows the order of the recall. No text is gathered twice.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import orjson

from ...schemas.context.assembly import Drop
from ...schemas.context.budget import MemoryKind
from ...schemas.context.operations import (
    ContextRequest,
    Episode,
    LayeredQueryAnswer,
    LayeredQueryRequest,
    LayeredReadAnswer,
)
from ...schemas.context.salience import Freshness, Remembered, parts_of, salience, state_of
from ...schemas.context.selection import Item
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import format_ms, from_ms, parse_ts, to_ms
from ...schemas.documents.rules import TIERS, Scope, owner_of
from ...schemas.palace.events import MOST_IMPORTANCE
from ...schemas.palace.tables import PALACE_IDENTITIES
from ...schemas.recall.evidence import SURE, WEAK, confidence_word
from ...schemas.recall.operations import ENTRIES_ALONE, RecallAnswer, RecallHit, RecallRequest
from ...schemas.recall.render import one_line
from ...schemas.standing.operations import Standing, State
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.injection import finding_in
from ..desk import Caller
from ..documents.addressing import check_own
from ..documents.owned import OwnedDocuments, StoredPrompts
from ..entries.filters import EntryFilters
from ..entries.rows import EntryPage, StoredEntry
from ..kept import KeptValues
from ..node import Node
from ..palace.drawer_index import UNREAD, DrawerUses, HotDrawer
from ..palace.rows import DrawerReader
from ..palace.searching import DrawerSearch
from ..recall.arranging import ComparedText
from ..registry import Registry
from .layered_facts import LayeredFacts, RankedFact, ranked
from .state import NEVER, LayeredChoices, LayeredState, Uses

# Leaves out memories that say what another one says: an entry, the drawer it was filed in, a fact, a lesson.


_PRECEDENCE: Final = {"entry": 0, "fact": 1, "identity": 2, "document": 3, "drawer": 4}
_TURNS: Final = re.compile(r"\n[ \t]*\n+")
_SPEAKER: Final = re.compile(r"(?:User|Agent):\s+")
_BULLET: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_WORD: Final = re.compile(r"\w+")
_LEADING: Final = 2
"""Rarest words of a text by which its repeats are looked for: two, because one may be inflected in the other text."""
_ALIKE: Final = 0.5
"""Least share of common words, as they are written, of texts that are compared: inflected words differ, and a repeat may
have a quarter more content words."""
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Said:
    """A memory, and its text without date, speaker and marks.

    Attributes:
        item: The memory.
        text: Its text; that of a drawer may have several turns.
    """

    item: Item
    text: str


@dataclass(frozen=True, slots=True)
class Distinct:
    """Memories without repeats.

    Attributes:
        items: Those that stay.
        repeated: Those that are left out, each with the id of the one that says the same.
    """

    items: list[Item]
    repeated: list[tuple[Item, str]]


@dataclass(frozen=True, slots=True)
class _Words:
    """A text as ``arranging`` compares it."""

    summary: str
    payload: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


@dataclass(slots=True)
class _KnownTexts:
    """Texts that are kept, found by their rarest word: of two repeats, one has nearly all words of the other."""

    analyzer: Analyzer
    words: Mapping[str, frozenset[str]]
    rarest: Mapping[str, tuple[str, ...]]
    telling: frozenset[str]
    by_rarest: dict[str, list[str]] = field(default_factory=dict)
    by_word: dict[str, list[str]] = field(default_factory=dict)
    place_of: dict[str, int] = field(default_factory=dict)
    texts: dict[str, ComparedText] = field(default_factory=dict)

    @classmethod
    def among(cls, words: Mapping[str, frozenset[str]], analyzer: Analyzer) -> _KnownTexts:
        """Nothing kept yet of these texts, each with its words. A word of one text alone leads to no other."""
        held = Counter(chain.from_iterable(words.values()))
        shared = {word for word, count in held.items() if count > 1}
        rarest = {
            text: tuple(heapq.nsmallest(_LEADING, leading, key=lambda word: (held[word], word)))
            for text, some in words.items()
            if (leading := some & shared)
        }
        return cls(analyzer, words, rarest, frozenset(chain.from_iterable(rarest.values())))

    def find(self, text: str) -> int | None:
        """The place of the memory that says the same."""
        if (place := self.place_of.get(text)) is not None:
            return place
        words = self.words[text]
        others: dict[str, None] = {}
        for word in self.rarest.get(text, ()):
            others.update(dict.fromkeys(self.by_word.get(word, ())))
        for word in sorted(words & self.telling):
            others.update(dict.fromkeys(self.by_rarest.get(word, ())))
        for other in others:
            of_other = self.words[other]
            if len(words & of_other) >= _ALIKE * max(len(words), len(of_other)) and self._of(text).repeats(
                self._of(other)
            ):
                return self.place_of[other]
        return None

    def keep(self, text: str, place: int) -> None:
        """Add the text of a memory."""
        self.place_of[text] = place
        for word in self.rarest.get(text, ()):
            self.by_rarest.setdefault(word, []).append(text)
        for word in self.words[text] & self.telling:
            self.by_word.setdefault(word, []).append(text)

    def _of(self, text: str) -> ComparedText:
        if text not in self.texts:
            self.texts[text] = ComparedText(_Words(text), self.analyzer)
        return self.texts[text]


def distinct(memories: Sequence[Said], analyzer: Analyzer) -> Distinct:
    """Leave out repeats.

    Args:
        memories: The memories.
        analyzer: Turns texts into terms.
    """
    order = sorted(range(len(memories)), key=lambda at: _precedence(memories[at].item))
    parts = [_parts(memory) for memory in memories]
    known = _KnownTexts.among({part: _words_of(part) for some in parts for part in some}, analyzer)
    items: list[Item | None] = [memory.item for memory in memories]
    repeated: list[tuple[Item, str]] = []
    moved: dict[int, int] = {}
    for at in order:
        places = [None if (place := known.find(part)) is None else moved.get(place, place) for part in parts[at]]
        same = {place for place in places if place is not None}
        if same and None not in places:
            place = min(same)
            for other in same:
                items[other] = _as_strong(_item(items, other), _item(items, at))
            repeated.append((_item(items, at), _item(items, place).id))
            items[at] = None
            continue
        for place in sorted(same):  # a drawer with more than these entries
            entry = _item(items, place)
            if entry.source == "entry" and entry.until is None and entry.contradicted_by is None:
                items[at] = _as_strong(_item(items, at), entry)
                repeated.append((entry, _item(items, at).id))
                items[place], moved[place] = None, at
        for part, place_found in zip(parts[at], places, strict=True):
            if place_found is None:
                known.keep(part, at)
    return Distinct([item for item in items if item is not None], repeated)


def _item(items: Sequence[Item | None], at: int) -> Item:
    item = items[at]
    assert item is not None
    return item


def _precedence(item: Item) -> tuple[int, bool, int, str]:
    return _PRECEDENCE[item.source], item.until is not None, -(item.at_ms or 0), item.id


def _parts(memory: Said) -> list[str]:
    """The turns of a drawer, or the one text, without the names of speakers and without marks of lists."""
    if memory.item.source != "drawer":
        return [_unlisted(memory.text)]
    texts = _TURNS.split(memory.text) if "\n" in memory.text else [memory.text]
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


def _words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


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
"""Entries that recall is asked for: as many as a budget of 2,000 tokens holds. Contexts of 8,000 tokens hold .970 of the
answering texts of locomo_dev and use .68 of the budget, with 200 entries .971 and .84, in a third more time."""
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
_PARAGRAPH: Final = re.compile(r"\n[ \t]*\n+")
_STANDING_TIERS: Final = ("pins", "AGENT", "CREW", "WORKSPACE")
_DATE_CHARS: Final = len("2026-11-21")
_CONTRADICTED: Final = frozenset({State.CONTRADICTED, State.DISPUTED})


@dataclass(slots=True)
class GatheredMemories:
    """The gathered memories.

    Attributes:
        items: The memories.
        facts: Those among them that are facts.
        recall: The answer of recall.
        entry_ids: Id of an item → the entry that is used when it is in a context.
        drops: What was left out, because it repeats another memory or has nothing in common with the query.
    """

    items: list[Item] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    facts: list[RankedFact] = field(default_factory=list)
    recall: RecallAnswer | None = None
    entry_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory without its salience; ``text`` is its text without date and speaker."""

    item: Item
    memory: Remembered
    entry_id: str | None = None
    text: str = ""


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
        of_run = {candidate.item.id for candidate in working}
        candidates = [*working, *(hit for hit in hits if hit.item.id not in of_run), *drawers, *documents]
        uses = await self._uses.of(query.caller.workspace_id)
        gathered = GatheredMemories(recall=answer)
        texts = []
        for candidate in candidates:
            texts.append(
                Said(
                    _weighed(candidate, uses.get(candidate.entry_id or "", NEVER), query),
                    candidate.text or candidate.item.text,
                )
            )
            if candidate.entry_id is not None:
                gathered.entry_ids[candidate.item.id] = candidate.entry_id
        choices = query.choices
        gathered.facts = ranked(known, uses, choices.weights, query.now_ms, decays=choices.decays)
        contradicted = await self._facts.contradictions(query.caller.workspace_id, query.now_ms)
        for item, fact in _of_facts(gathered.facts, contradicted, query.now_ms):
            texts.append(Said(item, fact.fact.text))
            gathered.entry_ids[item.id] = fact.fact.row.entry_id
        distinct_items = await asyncio.to_thread(distinct, texts, self._analyzer)
        gathered.items = distinct_items.items
        gathered.drops = [_left_out(item, f"it repeats {other}") for item, other in distinct_items.repeated]
        return gathered

    async def _recalled(self, query: MemoryQuery) -> tuple[list[_Candidate], RecallAnswer]:
        request = RecallRequest(
            query=query.query,
            kinds=ENTRIES_ALONE,
            k=RECALLED_LEAST,
            asked_at=format_ms(query.now_ms),
            agent_id=query.request.agent_id,
            crew_id=query.request.crew_id,
            workspace_id=query.caller.workspace_id,
        )
        most = min(RECALLED_MOST, max(RECALLED_LEAST, query.tokens // HIT_TOKENS))
        answered = await self._recall.answer(query.caller.principal, request, most)
        return list(_of_hits(answered.response.hits, answered.near, query.now_ms)), answered.response

    async def _of_palace(self, query: MemoryQuery) -> list[_Candidate]:
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
            text = f"Identity, set by {identity.author}: {identity.content.strip()}"
            item = Item(MemoryKind.SEMANTIC, "identity", text, 0.0, source="identity", finding=_finding(text))
            made.append(_Candidate(item, Remembered(1.0, query.now_ms, confidence=1.0)))
        return made

    async def _of_documents(self, query: MemoryQuery) -> list[_Candidate]:
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
        candidates: list[_Candidate] = []
        for owner in filter(None, owners):
            owned = await self._documents.of(caller.workspace_id, owner, today)
            candidates += self._paragraphs(owner, owned, wanted, query.now_ms)
        in_turn = sorted(candidates, key=lambda candidate: -candidate.memory.relevance)
        return [_in_turn(document, place) for place, document in enumerate(in_turn, 1)]

    def _paragraphs(
        self, owner: str, owned: OwnedDocuments, wanted: frozenset[int], now_ms: int
    ) -> Iterator[_Candidate]:
        for tier, key in _documents_of(owned, format_ms(now_ms)[:_DATE_CHARS]):
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
                yield _Candidate(item, Remembered(relevance, updated_ms, confidence=confidence), text=shown)

    async def _working(self, query: MemoryQuery) -> list[_Candidate]:
        if query.request.run_id is None:
            return []
        read = await self._runs.working(query.caller, query.request.run_id)
        wanted = self._terms(query.query)
        return [self._of_run(episode, wanted) for episode in read.working]

    def _of_run(self, episode: Episode, wanted: frozenset[int]) -> _Candidate:
        text = f"{episode.ts[:16]} {episode.entry_type}: {one_line(episode.summary)}"
        relevance = _shared(wanted, self._terms(episode.summary))
        item = Item(MemoryKind.WORKING, episode.entry_id, text, 0.0, finding=_finding(text))
        return _Candidate(
            item, Remembered(relevance, to_ms(parse_ts(episode.ts))), episode.entry_id, one_line(episode.summary)
        )


def _documents_of(owned: OwnedDocuments, today: str) -> Iterator[tuple[str, str | None]]:
    """The standing documents, the newest daily log and today's, and the procedures."""
    for tier in _STANDING_TIERS:
        yield tier, None
    for day in [day for day in owned.keys("daily") if day <= today][-2:]:
        yield "daily", day
    for name in owned.keys("procedures"):
        yield "procedures", name


def _of_hits(hits: Sequence[RecallHit], near: frozenset[str], now_ms: int) -> Iterable[_Candidate]:
    """Hits that count or did so once; those without evidence only if another one has some."""
    evident = [hit for hit in hits if hit.entry_id not in near]
    places = dict(zip((hit.entry_id for hit in evident), relevances([_sure(hit) for hit in evident]), strict=True))
    count = 0
    for place, hit in enumerate(hits if evident else ()):
        if hit.standing is not None and hit.standing.state is State.RETRACTED:
            continue
        relevance = places.get(hit.entry_id)
        turn = NEAR_TURN + place
        if relevance is not None:
            count += 1
            turn = _turn_of(relevance, count)
        yield _of_hit(hit, relevance, turn, now_ms)


def _of_hit(hit: RecallHit, relevance: float | None, turn: int, now_ms: int) -> _Candidate:
    summary = one_line(hit.summary)
    ts_ms = to_ms(parse_ts(hit.ts))
    at_ms = ts_ms if hit.valid_at is None else to_ms(parse_ts(hit.valid_at))
    since, until, contradicted_by = _times_of(hit, at_ms, now_ms)
    text = f"{hit.ts[:_DATE_CHARS]} {one_line(_speaker(hit))}: {summary}"
    item = Item(
        MemoryKind.EPISODIC,
        hit.entry_id,
        text,
        0.0,
        finding=_finding(text),
        turn=turn,
        certainty=WEAK if relevance is None else confidence_word(_sure(hit)),
        confidence=None if relevance is None else _sure(hit),
        at_ms=None if at_ms > now_ms else at_ms,
        below=None if hit.standing is None else hit.standing.by,
        since=since,
        until=until,
        contradicted_by=contradicted_by,
    )
    return _Candidate(item, Remembered(relevance or 0.0, ts_ms), hit.entry_id, summary)


def _sure(hit: RecallHit) -> float:
    return hit.confidence or 0.0


def _speaker(hit: RecallHit) -> str:
    return hit.actor_id or hit.agent_id or hit.actor_type


def _times_of(hit: RecallHit, at_ms: int, now_ms: int) -> tuple[str | None, str | None, str | None]:
    """Since when an entry holds if that is not its date, until when it held, and from when another one contradicts it."""
    since = None
    if hit.valid_at is not None or at_ms > now_ms:
        day = format_ms(at_ms)[:_DATE_CHARS]
        since = None if day == hit.ts[:_DATE_CHARS] else day
    standing = hit.standing
    if standing is None:
        return since, None, None
    if standing.state in _CONTRADICTED:
        return since, None, _said_later(standing)
    return since, standing.at[:_DATE_CHARS], None


def _said_later(standing: Standing) -> str:
    who = "another agent's statement" if standing.state is State.DISPUTED else "a statement"
    return f"{who} of {standing.at[:_DATE_CHARS]}"


def relevances(confidences: Sequence[float]) -> list[float]:
    """Falling relevances of hits, best first: at each the highest confidence from there on, less a step for each rank."""
    highest = 0.0
    values = []
    for value in reversed(confidences):
        highest = max(highest, value)
        values.append(highest)
    values.reverse()
    return [max(0.0, value - rank * _RANK_STEP) for rank, value in enumerate(values)]


def _of_drawer(drawer: HotDrawer, content: str, similarity: float, place: int, uses: DrawerUses) -> _Candidate:
    text = f"{format_ms(drawer.filed_ms)[:_DATE_CHARS]} {drawer.author_text}: {one_line(content)}"
    item = Item(
        MemoryKind.EPISODIC,
        drawer.drawer_id,
        text,
        0.0,
        source="drawer",
        finding=_finding(text),
        turn=_turn_of(similarity, place),
        certainty=confidence_word(similarity),
        confidence=similarity,
        at_ms=drawer.filed_ms,
    )
    confidence = drawer.importance / MOST_IMPORTANCE
    memory = Remembered(similarity, drawer.filed_ms, uses.last_ms, confidence, uses.reads)
    return _Candidate(item, memory, drawer.entry_id, content)


def _of_facts(
    facts: Sequence[RankedFact], contradicted: Mapping[str, str], now_ms: int
) -> Iterator[tuple[Item, RankedFact]]:
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
            _finding(text),
            certainty=confidence_word(similarity),
            turn=_turn_of(similarity, place) if holds else place,
            confidence=similarity,
            at_ms=fact.fact.since_ms,
            below=None if by is None else by.fact.row.fact_id,
            since=None if row.from_ms is None else format_ms(row.from_ms)[:_DATE_CHARS],
            until=None if row.to_ms is None else format_ms(row.to_ms)[:_DATE_CHARS],
            contradicted_by=contradicted.get(row.fact_id),
        )
        yield item, fact


def _turn_of(relevance: float, place: int) -> int:
    """0 if a memory competes by its salience, else its place among those of its source."""
    return 0 if place <= COMPETING or relevance >= SURE else place


def _in_turn(candidate: _Candidate, place: int) -> _Candidate:
    relevance = candidate.memory.relevance
    turn = _turn_of(relevance, place) if relevance > 0.0 else DOCUMENTS_TURN + place
    return replace(candidate, item=replace(candidate.item, turn=turn))


def _left_out(item: Item, reason: str) -> Drop:
    return Drop("memory", item.id, reason, "dropped", 0, item.kind.value, item.salience)


def _weighed(candidate: _Candidate, used: Uses, query: MemoryQuery) -> Item:
    memory = candidate.memory
    if used.count > memory.uses:
        memory = replace(memory, uses=used.count, used_ms=used.last_ms)
    parts = parts_of(memory, query.choices.weights, query.now_ms)
    item, value = candidate.item, salience(parts, query.choices.weights)
    return replace(item, salience=value, parts=parts)


def _shared(wanted: frozenset[int], terms: frozenset[int]) -> float:
    return len(wanted & terms) / len(wanted) if wanted else 0.0


_finding: Final = lru_cache(maxsize=32_768)(finding_in)
"""What the scanners block in a text; scanning one takes 0.5 µs a character."""
