"""The use-case recall: the entries that answer a question, within the rights of a token.

Invariant: the workspace and the scope come from the token; an answer is that of exactly ``view_seq``; without a working
model, recall answers without the dense arm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from ...schemas.operations.recall import (
    INJECT,
    LEXICAL_ONLY,
    NO_VECTORS,
    Degraded,
    RecallAnswer,
    RecallRequest,
    Via,
)
from ...schemas.operations.retractions import Standing, State
from ...schemas.ports import ViewReader
from ...schemas.principal import Principal
from ...schemas.rules.relations import SIMILAR
from ...schemas.rules.text import Analyzer
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.timestamps import DAY_MS, to_ms
from ...schemas.views import NUDGES_PROJECTION
from .arms.walk import Walked, walk
from .arranging import Shown, arranged, in_order
from .asking import no_table, query_of
from .evidence.calibrating import Calibrations, no_embedder
from .evidence.calibration import Calibration
from .evidence.floors import kept_floors
from .evidence.judging import Judgement, judgement, weighed
from .evidence.names import names_in
from .hot.cache import HotCache
from .hot.index import HotIndex
from .hot.load import INDEXED_PROJECTIONS
from .hot.records import FETCH_SQL, EntryRecord
from .hot.scope import Scope, ScopeKind, resolve_scope
from .hot.scope_names import refuse_unknown
from .hot.scoped import ScopedDocuments
from .hot.token_store import Words
from .hot.vector_matrix import Vectors
from .query_embedding import (
    QUERY_TIMEOUT_S,
    EmbedderOf,
    Punctuality,
    QueryEmbedder,
    QueryVector,
    ignore_outcome,
)
from .recipes import Recipe, default_recipe, recipe_named
from .search import Found, Query, Searched, searched

SEARCHED_MOST: Final = 256
"""Most hits that are searched where repeats take the places of others."""
AMONG_EVIDENCE: Final = 64
"""Hits that are searched where the workspace has learned rules: a rule is as similar to the query as its evidence, which may
be dozens of entries, and is returned above it."""
DEEPER: Final = 4
"""Factor by which more hits are searched if repeats left too few."""
NEAR: Final = "near"
"""Reason of a hit without evidence."""
REPLACES: Final = 0.69
"""Most confidence that an entry takes over from the hit that it replaced: it is likely that it answers, not sure, because a
rule decided that it speaks of the same thing."""
FETCH_THREADS: Final = 2
"""Threads that read the winners' rows, each with its own cursor."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answered recall, with the values for its receipt.

    Attributes:
        principal: The caller.
        workspace_id: Its workspace.
        request: The request.
        scope: The searched scope.
        response: The answer.
        mean_cosine: Mean cosine of the hits that have a vector, None if none has.
        floor: The confidence below which hits were left out, None if there was none.
        near: Ids of the hits that have no evidence; empty unless they were asked for.
    """

    principal: Principal
    workspace_id: str
    request: RecallRequest
    scope: Scope
    response: RecallAnswer
    mean_cosine: float | None
    floor: float | None = None
    near: frozenset[str] = frozenset()


Record = Callable[[Answered, Sequence[str] | None], str | None]
"""``ReceiptLog.record``: records an answer, and which of its hits were rendered; returns the receipt or None."""


def no_receipts(_answered: Answered, _rendered: Sequence[str] | None) -> None:
    """The default if recalls are not recorded."""


class RecallService:
    """Answers recalls.

    Args:
        views: The DuckDB views.
        embedder: The embedder of a model on this node; None if there is none.
        analyzer: Turns the query into terms, as the full-text fold does.
        budget_bytes: Memory for the hot indexes.
        clock: The time now, for ages and for relative dates in a query.
        embed_timeout_s: Seconds to wait for a query's vector.
        punctuality: Called with whether a model answers queries in time.
        min_seq_wait_s: Seconds to wait for ``min_seq``.
        record: Records every answer before it is sent; must be quick.
        static_table: The present static table of late interaction, or None.
        calibrations: What the cosines of each model mean; closed here. None to measure no model.
    """

    def __init__(
        self,
        views: ViewReader,
        embedder: EmbedderOf,
        *,
        analyzer: Analyzer,
        budget_bytes: int,
        clock: Callable[[], datetime],
        embed_timeout_s: float = QUERY_TIMEOUT_S,
        punctuality: Punctuality = ignore_outcome,
        min_seq_wait_s: float = MIN_SEQ_WAIT_S,
        record: Record = no_receipts,
        static_table: Callable[[], Words | None] = no_table,
        calibrations: Calibrations | None = None,
    ) -> None:
        self.static_table = static_table
        self._views = views
        self.record = record
        self._cache = HotCache(views, budget_bytes)
        self._queries = QueryEmbedder(embedder, embed_timeout_s, punctuality)
        self._calibrations = calibrations or Calibrations(no_embedder)
        self._unsubscribe = views.subscribe(self._queries.follow)
        self._floors = kept_floors(views)
        self._analyzer = analyzer
        self._min_seq_wait_s = min_seq_wait_s
        self._clock = clock
        self._turn_taken = False
        self._executor = ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="crew-recall")

    def figures(self) -> dict[str, int]:
        """What the hot indexes hold, for ``status``: workspaces, documents, bytes, budget_bytes."""
        return asdict(self._cache.status)

    async def settled(self) -> None:
        """Wait until recalls use the vectors of the models that are active now."""
        await self._cache.settled()

    @property
    def indexes(self) -> HotCache:
        """The hot indexes, for other searches too."""
        return self._cache

    @property
    def queries(self) -> QueryEmbedder:
        """Embeds queries, for other searches too."""
        return self._queries

    @property
    def calibrations(self) -> Calibrations:
        """What the cosines of each model mean, for other searches too."""
        return self._calibrations

    async def embed(self, workspace_id: str, text: str) -> QueryVector | None:
        """The vector of a text by the active model of a workspace; None without one."""
        return await self._queries.embed(text, self._cache.model_of(workspace_id))

    async def warm(self, workspace_id: str) -> None:
        """Load a workspace's hot index ahead of its first query."""
        await self._cache.get(workspace_id)

    def close(self) -> None:
        """Free memory and threads; running recalls fail."""
        self._unsubscribe()
        self._floors.close()
        self._calibrations.close()
        self._queries.close()
        self._cache.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def recall(self, principal: Principal, request: RecallRequest) -> RecallAnswer:
        """``answer``, with its receipt."""
        answered = await self.answer(principal, request)
        return answered.response.model_copy(update={"receipt": self.record(answered, None)})

    async def answer(self, principal: Principal, request: RecallRequest, near: int = 0) -> Answered:
        """The entries in scope that answer the request's query best; not recorded yet.

        Args:
            principal: The caller.
            request: The request.
            near: Hits that are wanted even without evidence, the nearest ones; it takes the place of ``k`` if it is more.
                Repeats among them are not folded into one.

        Raises:
            NotAllowed: If the token may not see the workspace or scope.
            InvalidQuery: If the recipe is not known, or the scope lacks an agent or crew or has one too many.
            NotFound: If there is no workspace, agent or crew of that name.
            ViewsBehind: If ``min_seq`` was not reached in time.
        """
        workspace_id = principal.workspace(request.workspace_id)
        scope = resolve_scope(
            principal, ScopeKind(request.scope) if request.scope else None, request.agent_id, request.crew_id
        )
        scope = replace(scope, current=request.mode == INJECT)
        named = recipe_named(request.recipe)
        model = self._cache.model_of(workspace_id) if named.uses_vectors else None
        embedded = self._queries.remembered(request.query, model)
        min_seq = request.min_seq or 0
        injects = request.mode == INJECT
        embedding = None
        await self._take_turns()
        if model is not None and embedded is None:
            if min_seq or not self._cache.at_hand(
                workspace_id
            ):  # it works while the views catch up and the index is loaded
                embedding = asyncio.create_task(self._queries.embed(request.query, model))
            else:
                embedded = await self._queries.embed(request.query, model)
        try:
            if min_seq:
                settings = (NUDGES_PROJECTION,) if injects else ()  # the floor
                await self._views.wait_for(min_seq, self._min_seq_wait_s, *INDEXED_PROJECTIONS, *settings)
            await self._cache.get(workspace_id, min_seq)
            if embedding is not None:
                embedded = await embedding
            index = await self._cache.get(workspace_id, min_seq)
            while named.uses_vectors and index.model != model:  # it was switched meanwhile
                model = index.model
                embedded = await self._queries.embed(request.query, model)
                index = await self._cache.get(workspace_id, min_seq)
        finally:
            if embedding is not None:
                embedding.cancel()
        floor = await self._floors.of(workspace_id) if injects else None
        await refuse_unknown(self._views, principal, request, index)
        recipe = named if request.recipe else default_recipe(index.scoped(scope).turn_count)
        vector = _vector_for(index, embedded)
        tokens = embedded.tokens if embedded is not None and vector is not None else None
        now = self._clock()
        day = request.asked_day(now)
        calibration = self._calibrations.of(index.model, len(vector)) if vector is not None else None
        usual = None if calibration is None else calibration.usual
        query = query_of(request.query, self._analyzer, vector, tokens, self.static_table(), day=day, queries=usual)
        most = max(request.k, near)
        asked, now_ms = max(most, AMONG_EVIDENCE if index.documents.has_rules else 0), to_ms(now)
        moment = Moment.of(query.as_of_day, day, now_ms)
        while True:
            result = searched(index, scope, query, recipe, asked, explain=request.explain)
            found, view_seq, lacking = result.hits, index.seq, index.without_vectors(scope)
            judged, shown = await self._hits(
                index, workspace_id, scope, request, query, result, calibration, floor, moment, near=near > 0
            )
            hits = in_order(shown) if near else arranged(shown, self._analyzer)
            if request.mode == INJECT:
                hits = [hit for hit in hits if hit.below is None]
            direct = [hit for hit in hits if hit.via is None][:most]
            if near or len(direct) == most or len(found) < asked or not any(hit.repeats for hit in hits):
                break
            if asked >= SEARCHED_MOST:
                break
            asked = min(DEEPER * asked, SEARCHED_MOST)
        if len(direct) < len(hits):
            ids = {hit.record.entry_id for hit in direct}
            direct += [hit for hit in hits if hit.via and hit.via.entry_id in ids][:most]
        response = RecallAnswer(
            receipt=None,
            hits=[hit.fields(now_ms) for hit in direct],
            confidence=judged.answer,
            no_evidence=not judged.kept,
            recipe=recipe.name,
            scope=scope.kind.value,
            model=embedded.model if embedded is not None and vector is not None else None,
            degraded=_degraded(recipe, vector, result),
            without_vectors=lacking.entries,
            awaiting_vectors=lacking.awaiting if self._queries.runs(index.model) else None,
            view_seq=view_seq,
        )
        cosine = _mean_cosine([found[at] for at in judged.kept[: request.k]])
        without = frozenset(hit.record.entry_id for hit in direct if hit.reason == NEAR)
        return Answered(principal, workspace_id, request, scope, response, cosine, floor, without)

    async def _hits(
        self,
        index: HotIndex,
        workspace_id: str,
        scope: Scope,
        request: RecallRequest,
        query: Query,
        result: Searched,
        calibration: Calibration | None,
        floor: float | None,
        moment: Moment,
        *,
        near: bool = False,
    ) -> tuple[Judgement, list[Shown]]:
        """What was found and has evidence, what holds in its place, and its neighbours, with their records.

        ``near``: also what was found without evidence.
        """
        found = result.hits
        walked = _neighbours(index, scope, request, found)
        direct, beside = [hit.doc for hit in found], [hit.doc for hit in walked]
        holders = {doc: index.standings.holder(doc, moment.ms) for doc in (*direct, *beside)}
        brought = _brought(index.scoped(scope), found, holders)
        every: list[Found | Walked] = [*found, *walked, *brought]
        live = _live_priorities(index, every)
        standings = [index.standings.of(hit.doc) for hit in every]
        ways = [_via(index, neighbour) for neighbour in walked]
        shown = await self._records(index, workspace_id, [hit.doc for hit in every])
        records = [record for _, _, record in shown[: len(found)]]
        evidence = weighed(index, query, result, records, calibration, floor)
        payloads = [None if record is None else record.payload for record in records]
        judged = judgement(evidence, request.mode, names_in(request.query, payloads, self._analyzer))
        speaks: dict[int, tuple[float | None, str, Via | None]] = {
            at: (confidence, reason, None)
            for at, confidence, reason in zip(judged.kept, judged.confidence, judged.reasons, strict=True)
        }
        kept = {found[at].doc for at in judged.kept}
        if near:
            speaks |= {at: (evidence.confidence[at], NEAR, None) for at in range(len(found)) if at not in speaks}
        of_holder = {holders[found[place].doc]: place for place in reversed(judged.kept)}
        for at, hit in enumerate(every):
            if at not in speaks and hit.doc in of_holder:
                place = of_holder[hit.doc]
                own = evidence.confidence[at] if at < len(found) else 0.0
                replaced = shown[place][2]
                in_place = "a hit" if replaced is None else replaced.entry_id
                sure = max(own, min(speaks[place][0] or 0.0, REPLACES))
                speaks[at] = (sure, f"holds in the place of {in_place}", None)
        for at, (neighbour, via) in enumerate(zip(walked, ways, strict=True), len(found)):
            if neighbour.via in kept and at not in speaks:
                speaks[at] = (None, "similar to a hit", via)
        hits: list[Shown] = []
        for at in speaks:
            doc, record, standing = every[at].doc, shown[at][2], standings[at]
            if record is None:  # erased between the search and now: it must not be shown
                continue
            holder = holders.get(doc, doc)
            below = index.documents.id_of(holder) if holder != doc else None
            one = _shown(shown[at][0], shown[at][1], record, every[at], live[at], speaks[at], standing)
            hits.append(one._replace(below=below, held_then=below is None and _is_superseded(standing)))
        return judged, hits

    async def _take_turns(self) -> None:
        """Let the event loop run if a recall was answered since it last did.

        A recall may run without any other ``await``, so a caller that recalls in a loop would keep commits out. A single
        request has had its turn of the loop; a second one would cost milliseconds while entries are written.
        """
        if self._turn_taken:
            await asyncio.sleep(0)
        if not self._turn_taken:
            self._turn_taken = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_taken = False

    async def _records(
        self, index: HotIndex, workspace_id: str, docs: Sequence[int]
    ) -> list[tuple[int, int, EntryRecord | None]]:
        """Sequence, time and record of each hit: from memory, or from the views for older entries."""
        documents = index.documents
        places = np.array(docs, np.intp)
        seqs, times = documents.seq[places].tolist(), documents.ts_ms[places].tolist()
        shown = list(zip(seqs, times, index.records.of(docs), strict=True))
        missing = [seq for seq, _, record in shown if record is None]
        if not missing:
            return shown
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._executor, self._views.rows, FETCH_SQL, [missing, workspace_id])
        fetched = {int(seq): EntryRecord.parse(text) for seq, text in rows}
        return [(seq, ts_ms, record or fetched.get(seq)) for seq, ts_ms, record in shown]


def _vector_for(index: HotIndex, embedded: QueryVector | None) -> Vectors | None:
    """The query's vector, if it is of the workspace's active model: vectors of two models are never compared."""
    if embedded is None or index.vectors is None or index.vectors.model != embedded.model:
        return None
    return embedded.vector


def _mean_cosine(found: Sequence[Found]) -> float | None:
    cosines = [hit.cosine for hit in found if hit.cosine is not None]
    return sum(cosines) / len(cosines) if cosines else None


def _degraded(recipe: Recipe, vector: Vectors | None, found: Searched) -> Degraded | None:
    if recipe.needs_vectors:  # the dense arm finds something wherever there is a vector in scope
        return NO_VECTORS if vector is None or (found.scoped.size and not found.hits) else None
    return LEXICAL_ONLY if vector is None and recipe.uses_vectors else None


def _neighbours(index: HotIndex, scope: Scope, request: RecallRequest, found: Sequence[Found]) -> list[Walked]:
    """What a hop along edges adds, if the request or, failing that, the agent's registration wants one."""
    depth = request.walk_depth
    if depth is None and scope.agent_id is not None:
        depth = index.walk_depths.get(scope.agent_id, (0, 0))[0]
    most = max(request.k, len(found))
    return walk(index, scope, [hit.doc for hit in found], most) if depth else []


@dataclass(frozen=True, slots=True)
class Moment:
    """The time as of which a question is meant: milliseconds since 1970-01-01."""

    ms: int

    @classmethod
    def of(cls, as_of_day: int | None, asked_day: int | None, now_ms: int) -> Moment:
        """The end of the day that the question names or, failing that, of the day on which it is asked."""
        day = asked_day if as_of_day is None else as_of_day
        return cls(now_ms if day is None else (day + 1) * DAY_MS - 1)


def _is_superseded(standing: Standing | None) -> bool:
    return standing is not None and standing.state is State.SUPERSEDED


def _brought(scoped: ScopedDocuments, found: Sequence[Found], holders: Mapping[int, int]) -> list[Walked]:
    """What holds in the place of hits and is in scope, but was not found; with the score of the first such hit."""
    brought: dict[int, Walked] = {}
    for hit in found:
        holder = holders[hit.doc]
        in_scope = scoped.mask is None or (holder < scoped.count and bool(scoped.mask[holder]))
        if holder not in holders and in_scope:
            brought.setdefault(holder, Walked(holder, hit.doc, hit.score))
    return list(brought.values())


def _via(index: HotIndex, neighbour: Walked) -> Via:
    return Via(entry_id=index.documents.id_of(neighbour.via), relation=SIMILAR, weight=neighbour.weight)


def _live_priorities(index: HotIndex, hits: Sequence[Found | Walked]) -> list[str | None]:
    """The priority that operators gave each hit, None where they gave none."""
    if not index.priorities:
        return [None] * len(hits)
    return [index.priorities.get(index.documents.id_of(hit.doc)) for hit in hits]


def _shown(
    seq: int,
    ts_ms: int,
    record: EntryRecord,
    found: Found | Walked,
    live_priority: str | None,
    evidence: tuple[float | None, str, Via | None],
    standing: Standing | None,
) -> Shown:
    confidence, reason, via = evidence
    explanation, score = (found.explanation, found.score) if isinstance(found, Found) else (None, found.weight)
    live = live_priority or record.priority
    return Shown(record, seq, ts_ms, score, confidence, reason, live, explanation, via, standing)
