"""The use-case recall: the memories that answer a question, within the rights of a token.

Invariant: the workspace and the scope come from the token; an answer is that of exactly ``view_seq``; without a working
model, recall answers without the dense arm.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import numpy as np

from ...schemas.access.tables import NUDGES_PROJECTION
from ...schemas.core.limits import COLLECTED_MOST
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import DAY_MS, to_ms
from ...schemas.learning.events import RuleLearned
from ...schemas.recall.operations import (
    COLLECTED_TOKENS,
    ENTRIES_ALONE,
    INJECT,
    LEXICAL_ONLY,
    NO_VECTORS,
    RECALL_KINDS,
    Degraded,
    RecallAnswer,
    RecallRequest,
)
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.text.analyzer import Analyzer
from ..index.cache import HotCache
from ..index.entry_index import HotIndex
from ..index.entry_slot import EntryIndexes
from ..index.query_embedding import (
    QUERY_TIMEOUT_S,
    EmbedderOf,
    Punctuality,
    QueryEmbedder,
    QueryVector,
    ignore_outcome,
)
from ..index.records import FETCH_SQL, HitRecord
from ..index.scope import Among, RecallScope, ScopeKind, resolve_scope
from ..index.take import INDEXED_PROJECTIONS
from ..index.unknown_names import refuse_unknown
from ..index.vectors import Words
from .arranging import NO_EVIDENCE, Shown, arranged, candidates_of, first_hits, hits_of, in_order, walk
from .asking import no_table, query_of
from .calibration import Calibration, Calibrations, no_embedder
from .evidence import entries_as_rivals, judged, judged_texts, kept_floors, names_in, texts_as_rivals
from .kinds import (
    EVERY_COSINE,
    LEAST_FOUND,
    NOTHING_FOUND,
    OtherKinds,
    RankedText,
    TextQuery,
    collected,
    ranked_together,
    shown_texts,
)
from .naming import NamedQuery, kept_aliases, unknown_names, with_known_names
from .recipes import default_recipe, recipe_named
from .search import searched

SEARCHED_MOST: Final = 256
"""Most hits that are searched where repeats, or retracted entries, take the places of others."""
AMONG_EVIDENCE: Final = 64
"""Hits that are searched where the workspace has learned rules: a rule is as similar to the query as its evidence, which may
be dozens of entries, and is returned above it."""
DEEPER: Final = 4
"""Factor by which more hits are searched if repeats and retracted entries left too few others."""
FETCH_THREADS: Final = 2
"""Threads that read the winners' rows, each with its own cursor."""


@dataclass(frozen=True, slots=True)
class AnsweredRecall:
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
    scope: RecallScope
    response: RecallAnswer
    mean_cosine: float | None
    floor: float | None = None
    near: frozenset[str] = frozenset()


Record = Callable[[AnsweredRecall, Sequence[str] | None], str | None]
"""``ReceiptLog.record``: records an answer, and which of its hits were rendered; returns the receipt or None."""


def no_receipts(_answered: AnsweredRecall, _rendered: Sequence[str] | None) -> None:
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

    Attributes:
        others: The kinds of memory beside entries; None to recall entries alone.
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
        self.others: OtherKinds | None = None
        self._views = views
        self.record = record
        self.cache = HotCache(views, budget_bytes, clock)
        self._cache = EntryIndexes(self.cache)
        self._queries = QueryEmbedder(embedder, embed_timeout_s, punctuality)
        self._calibrations = calibrations or Calibrations(no_embedder)
        self._unsubscribe = views.subscribe(self._queries.follow)
        self._floors = kept_floors(views)
        self._aliases = kept_aliases(views)
        self._analyzer = analyzer
        self._min_seq_wait_s = min_seq_wait_s
        self._clock = clock
        self._turn_taken = False
        self._executor = ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="crew-recall")

    def figures(self) -> dict[str, int]:
        """What the hot indexes hold, for ``status``: workspaces, documents, bytes, budget_bytes."""
        return self._cache.figures("documents")

    async def settled(self) -> None:
        """Wait until recalls use the vectors of the models that are active now."""
        await self._cache.settled()

    @property
    def indexes(self) -> EntryIndexes:
        """The hot indexes of entries, for other searches too."""
        return self._cache

    @property
    def queries(self) -> QueryEmbedder:
        """Embeds queries, for other searches too."""
        return self._queries

    async def embed(self, workspace_id: str, text: str) -> QueryVector | None:
        """The vector of a text by the active model of a workspace; None without one."""
        return await self._queries.embed(text, self._cache.model_of(workspace_id))

    def close(self) -> None:
        """Free memory and threads; running recalls fail."""
        self._unsubscribe()
        if self.others is not None:
            self.others.close()
        self._floors.close()
        self._aliases.close()
        self._calibrations.close()
        self._queries.close()
        self.cache.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def recall(self, principal: Principal, request: RecallRequest) -> RecallAnswer:
        """``answer``, with its receipt."""
        answered = await self.answer(principal, request)
        receipt = self.record(answered, None)
        return answered.response if receipt is None else answered.response.model_copy(update={"receipt": receipt})

    async def answer(
        self,
        principal: Principal,
        request: RecallRequest,
        near: int = 0,
        now_ms: int | None = None,
        trial: str | None = None,
        vectors: bool = True,
    ) -> AnsweredRecall:
        """The memories in scope that answer the request's query best; not recorded yet.

        Args:
            principal: The caller.
            request: The request.
            near: Entries that are wanted even without evidence, the nearest ones; it takes the place of ``k`` if it is more.
                Repeats among them are not folded into one. No other kind is searched then.
            now_ms: The time from which ages and relative dates count, milliseconds since 1970-01-01; None for now.
            trial: Search the vectors of this embedding model in place of the active one's; texts of other kinds than entries
                are then found by their words alone. None for the active model.
            vectors: False to answer as if no model embedded the query.

        Raises:
            NotAllowed: If the token may not see the workspace or scope.
            InvalidQuery: If the recipe is not known, or the scope lacks an agent or crew or has one too many.
            NotFound: If there is no workspace, agent or crew of that name.
            ViewsBehind: If ``min_seq`` was not reached in time.
        """
        workspace_id = principal.workspace(request.workspace_id)
        injects = request.mode == INJECT
        kind = ScopeKind(request.scope) if request.scope else None
        scope = resolve_scope(
            principal, kind, request.agent_id, request.crew_id, current=injects, crew_only=request.crew_only
        )
        kinds = ENTRIES_ALONE if near else request.kinds or RECALL_KINDS
        if "entries" not in kinds:
            scope = replace(scope, among=Among.RULES if "rules" in kinds else Among.NONE)
        others = None if kinds == ENTRIES_ALONE else self.others
        named = recipe_named(request.recipe)
        embeds = named.uses_vectors and vectors
        model = (trial or self._cache.model_of(workspace_id)) if embeds else None
        min_seq = request.min_seq or 0
        embedded = embedding = None
        await self._take_turns()
        if not min_seq and self._cache.at_hand(workspace_id):
            embedded = await self._queries.embed(request.query, model)
        else:  # the model works while the views catch up and the index is loaded
            embedding = asyncio.create_task(self._queries.embed(request.query, model))
        try:
            if min_seq:
                settings = (NUDGES_PROJECTION,) if injects else ()  # the floor
                also = () if others is None else others.views_of(kinds)
                await self._views.wait_for(min_seq, self._min_seq_wait_s, *INDEXED_PROJECTIONS, *settings, *also)
            await self._cache.get(workspace_id, min_seq)
            if embedding is not None:
                embedded = await embedding
            index = await self._index(workspace_id, min_seq, trial)
            while embeds and index.model != model:  # it was switched meanwhile
                model = index.model
                embedded = await self._queries.embed(request.query, model)
                index = await self._index(workspace_id, min_seq, trial)
        finally:
            if embedding is not None:
                embedding.cancel()
        floor = await self._floors.of(workspace_id) if injects else None
        await refuse_unknown(self._views, principal, request, index)
        called = await self._with_known_names(index, workspace_id, scope, request.query)
        if called.text != request.query:
            embedded = await self._queries.embed(called.text, index.model) if named.uses_vectors else None
            index = await self._index(workspace_id, min_seq, trial)
        now_ms = to_ms(self._clock()) if now_ms is None else now_ms
        asked_ms = now_ms if request.asked_at is None else request.asked_ms
        day = None if asked_ms is None else asked_ms // DAY_MS
        found = NOTHING_FOUND
        if others is not None and (sources := await others.holding(workspace_id, kinds)):
            plain_query = query_of(called.text, self._analyzer, None, None, None, day=day, also=called.also)
            at_ms = asked_ms or now_ms
            if plain_query.as_of_day is not None:
                at_ms = (plain_query.as_of_day + 1) * DAY_MS - 1
            found = await others.find(
                sources,
                TextQuery(
                    principal,
                    workspace_id,
                    scope,
                    scope.kind is ScopeKind.OWN and (kind is ScopeKind.OWN or principal.role.administers),
                    plain_query,
                    embedded,
                    COLLECTED_MOST if request.collect else max(LEAST_FOUND, request.k),
                    min_seq,
                    now_ms,
                    at_ms,
                    ended=not injects,
                    least=EVERY_COSINE if self._calibration(embedded) else None,
                ),
            )
            index = await self._index(workspace_id, min_seq, trial)
        if embedded is not None and embedded.model != index.model:  # vectors of two models are never compared
            embedded = None

        calibration = self._calibration(embedded)
        recipe = named if request.recipe else default_recipe(index.scoped(scope).turn_count)
        query = query_of(
            called.text,
            self._analyzer,
            None if embedded is None else embedded.vector,
            None if embedded is None or recipe.turns is None else embedded.tokens,
            self.static_table() if recipe.turns is not None else None,
            day=day,
            queries=None if calibration is None else calibration.usual,
            also=called.also,
        )
        as_of_day = day if query.as_of_day is None else query.as_of_day
        as_of_ms = now_ms if as_of_day is None else (as_of_day + 1) * DAY_MS - 1  # the end of that day
        walks = request.walk_depth
        if walks is None and scope.agent_id is not None:
            walks = index.walk_depths.get(scope.agent_id, (0, 0))[0]

        own_rivals = texts_as_rivals(query, found.texts, calibration)
        k = COLLECTED_MOST if request.collect else request.k
        most = max(k, near)
        wanted = max(most, AMONG_EVIDENCE if index.documents.has_rules else 0)
        while True:
            result = searched(index, scope, query, recipe, wanted, explain=request.explain)
            view_seq, lacking = index.seq, index.without_vectors(scope)
            docs = [hit.doc for hit in result.hits]
            walked = walk(index, scope, docs, max(k, len(docs))) if walks and not request.collect else []
            beside = [neighbour.doc for neighbour in walked]
            holders = {doc: index.standings.holder(doc, as_of_ms) for doc in (*docs, *beside)}
            candidates = candidates_of(index, result.scoped, result.hits, walked, holders)
            records = await self._records(index, workspace_id, [candidate.doc for candidate in candidates])
            entries = [record for _, _, record in records[: len(docs)]]
            payloads = [None if record is None else record.payload for record in entries]
            names = names_in(query, payloads, self._analyzer)
            judgement = judged(index, query, result, entries, names, calibration, floor, request.mode, own_rivals)
            shown = hits_of(index, candidates, records, judgement, near=near > 0)
            hits = in_order(shown) if near else arranged(shown, self._analyzer)
            if injects:
                hits = [hit for hit in hits if hit.below is None]
            elif not near:
                hits = [hit for hit in hits if not hit.never_held]
            direct = first_hits(hits, most)
            retracted = sum(hit.comes_last for hit in direct) > most // 2
            too_few = len(direct) < most and any(hit.repeats for hit in hits)
            if near or len(docs) < wanted or not (retracted or too_few):
                break
            if wanted >= SEARCHED_MOST:
                break
            wanted = min(DEEPER * wanted, SEARCHED_MOST)
        shown_hits: list[Shown | RankedText] = [*direct]
        best_text: float | None = None
        if found.texts:
            frequencies = Counter(result.lexical.frequencies)
            frequencies.update(found.frequencies)
            rivals = entries_as_rivals(index, result, calibration)
            size = result.scoped.size + found.size
            of_texts = judged_texts(query, found.texts, frequencies, size, own_rivals, rivals, floor, request.mode)
            best_text = of_texts.answer
            shown_hits = ranked_together(direct, shown_texts(found.texts, of_texts), self._analyzer, k)
            direct = [hit for hit in shown_hits if isinstance(hit, Shown)]
        if any(hit.via for hit in hits):
            ids = {hit.record.entry_id for hit in direct}
            neighbours = [hit for hit in hits if hit.via and hit.via.entry_id in ids][:most]
            direct += neighbours
            shown_hits += neighbours
        if request.collect:
            shown_hits = collected(shown_hits, query, self._analyzer, request.max_tokens or COLLECTED_TOKENS)

        degraded: Degraded | None = None
        if recipe.needs_vectors:  # the dense arm finds something wherever there is a vector in scope
            degraded = NO_VECTORS if embedded is None or (result.scoped.size and not docs) else None
        elif recipe.uses_vectors and embedded is None:
            degraded = LEXICAL_ONLY
        response = RecallAnswer(
            receipt=None,
            hits=_fields_of(shown_hits, now_ms, with_kind=others is not None),
            confidence=max((sure for sure in (judgement.answer, best_text) if sure is not None), default=None),
            no_evidence=not judgement.kept and not any(isinstance(hit, RankedText) for hit in shown_hits),
            recipe=recipe.name,
            scope=scope.kind.value,
            model=None if embedded is None else embedded.model,
            degraded=degraded,
            without_vectors=lacking.entries,
            awaiting_vectors=lacking.awaiting if self._queries.runs(index.model) else None,
            view_seq=view_seq if found.seq is None else min(view_seq, found.seq),
        )
        best = [result.hits[at].cosine for at in judgement.kept[:k]]
        cosines = [cosine for cosine in best if cosine is not None]
        mean_cosine = sum(cosines) / len(cosines) if cosines else None
        without = frozenset(hit.record.entry_id for hit in direct if hit.reason == NO_EVIDENCE)
        return AnsweredRecall(principal, workspace_id, request, scope, response, mean_cosine, floor, without)

    async def _with_known_names(self, index: HotIndex, workspace_id: str, scope: RecallScope, text: str) -> NamedQuery:
        """The query with the names that the memory has."""
        aliases = await self._aliases.of(workspace_id)
        if not aliases and text.islower():  # no word is a name
            return NamedQuery(text, {})
        scoped = index.scoped(scope)
        names = unknown_names(index, scoped, text, self._analyzer)
        if not names and not aliases:
            return NamedQuery(text, {})
        docs = [doc for name in names for doc in name.stating]
        records = await self._records(index, workspace_id, docs) if docs else []
        stating = {doc: record for doc, (_, _, record) in zip(docs, records, strict=True)}
        return with_known_names(index, scoped, text, names, stating, aliases, self._analyzer)

    async def _index(self, workspace_id: str, min_seq: int, trial: str | None) -> HotIndex:
        """The index of a workspace, over the vectors of a model on trial."""
        if trial is None:
            return await self._cache.get(workspace_id, min_seq)
        index, matrix = await self._cache.with_matrix(workspace_id, trial)
        return index.over(matrix)

    def _calibration(self, embedded: QueryVector | None) -> Calibration | None:
        """What the cosines of a query's vector mean; None while that is not measured."""
        return None if embedded is None else self._calibrations.of(embedded.model, len(embedded.vector))

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
    ) -> list[tuple[int, int, HitRecord | None]]:
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
        fetched = {int(seq): HitRecord.parse(text) for seq, text in rows}
        return [(seq, ts_ms, record or fetched.get(seq)) for seq, ts_ms, record in shown]


def _fields_of(hits: Sequence[Shown | RankedText], now_ms: int, *, with_kind: bool) -> list[dict[str, Any]]:
    every = [hit.fields(now_ms) for hit in hits]
    for hit, fields in zip(hits, every, strict=True) if with_kind else ():
        if isinstance(hit, Shown):
            fields["kind"] = "rule" if hit.record.entry_type == RuleLearned.ENTRY_TYPE else "entry"
    return every
