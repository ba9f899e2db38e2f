"""Recall with a given model, active or not, for the comparison of models.

Invariant: query and entries are compared by vectors of that model, or an error says why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from ...schemas.core.errors import EmbedderUnavailable, NotFound, Unavailable
from ...schemas.core.ports import TokenEmbedder, ViewReader
from ...schemas.models.tables import EMBEDDINGS
from ...schemas.recall.tables import RECEIPTS
from ...schemas.text.analyzer import Analyzer
from ..index.entry_slot import EntryIndexes
from ..index.query_embedding import EmbedderOf
from ..index.scope import RecallScope, ScopeKind
from ..index.vectors import Words, query_vector
from ..node import Node
from .asking import no_table, query_of
from .recipes import Recipe, recipe_named
from .search import search

EMBED_TIMEOUT_S: Final = 20.0
"""Most seconds to embed one query; a server may have to load a large model first."""


@dataclass(frozen=True, slots=True)
class ModelRanking:
    """The ranking of a model."""

    entry_ids: Sequence[str]
    cosines: Sequence[float]


class ModelSearch:
    """Searches with a given model."""

    def __init__(
        self,
        cache: EntryIndexes,
        embedder: EmbedderOf,
        analyzer: Analyzer,
        static_table: Callable[[], Words | None] = no_table,
    ) -> None:
        self._static_table = static_table
        self._cache = cache
        self._embedder = embedder
        self._analyzer = analyzer

    async def ranking(
        self, workspace_id: str, model: str, text: str, scope: RecallScope, recipe: Recipe, k: int
    ) -> ModelRanking:
        """The best ``k`` entries in scope under a model.

        Raises:
            Unavailable: If this node does not run the model.
            EmbedderError: If it fails.
        """
        embedder = self._embedder(model)
        if embedder is None:
            raise Unavailable(f"this node does not run {model}", hint="start `up` with an --embedder other than none")
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                tokens = None
                if isinstance(embedder, TokenEmbedder):
                    data, tokens = await embedder.embed_query_tokens(text)
                else:
                    data = await embedder.embed_query(text)
        except TimeoutError:
            raise EmbedderUnavailable(
                f"{model} did not embed a query within {EMBED_TIMEOUT_S:g} s", hint="check whether its server is busy"
            ) from None
        query = query_of(text, self._analyzer, query_vector(data), tokens, self._static_table())
        index, matrix = await self._cache.with_matrix(workspace_id, model)
        hits = search(index.over(matrix), scope, query, recipe, k)
        return ModelRanking(
            [index.documents.id_of(hit.doc) for hit in hits],
            [hit.cosine for hit in hits if hit.cosine is not None],
        )


_WITH_VECTORS: Final = f"SELECT DISTINCT model FROM {EMBEDDINGS} WHERE workspace_id = ? AND dim > 0 ORDER BY model"


async def model_on_trial(node: Node, workspace_id: str, model: str) -> str:
    """The whole name of a model with which recalls of a workspace can be tried.

    Raises:
        NotFound: If the workspace has no vectors of it: recalls would find by words alone, whatever the model.
    """
    name = node.embedders.aliases.get(model, model)
    known = [str(row[0]) for row in await asyncio.to_thread(node.views.rows, _WITH_VECTORS, [workspace_id])]
    if name not in known:
        raise NotFound(
            f"there are no vectors of {name[:96]} in the workspace {workspace_id}",
            hint=f"there are vectors of {', '.join(known) or 'no model'}; `model add NAME` fills another",
            field="model",
        )
    return name


# Agreement of two rankings of the same question, as pure functions of ranked ids.


PERSISTENCE: Final = 0.9
"""``p`` of the rank-biased overlap; the first ten ranks have 86 % of the weight (Webber et al. 2010)."""


def jaccard(first: Sequence[str], second: Sequence[str]) -> float:
    """``|A ∩ B| / |A ∪ B|`` of two rankings as sets; 1 if both are empty."""
    a, b = set(first), set(second)
    return len(a & b) / len(a | b) if a or b else 1.0


def rank_biased_overlap(first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE) -> float:
    """Extrapolated rank-biased overlap of two rankings without repeats, in [0, 1]; 1 if both are empty.

    Formula 32 of Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", TOIS 28 (2010), for rankings
    of lengths s ≤ l: the agreement at depth d, weighted with ``p^d`` and extrapolated beyond both.
    """
    short, long = sorted((first, second), key=len)
    if not short:
        return 0.0 if long else 1.0
    s, l_ = len(short), len(long)
    seen_short: set[str] = set()
    seen_long: set[str] = set()
    overlap = overlap_at_s = 0
    total = 0.0
    for depth, name in enumerate(long, 1):
        seen_long.add(name)
        if depth <= s:
            other_name = short[depth - 1]
            seen_short.add(other_name)
            overlap += int(name == other_name) + int(name != other_name) * (
                int(name in seen_short) + int(other_name in seen_long)
            )
        else:
            overlap += int(name in seen_short)
        total += overlap / depth * p**depth
        if depth == s:
            overlap_at_s = overlap
        if depth > s:
            total += overlap_at_s * (depth - s) / (s * depth) * p**depth
    rest = (overlap - overlap_at_s) / l_ + overlap_at_s / s
    return min(1.0, (1 - p) / p * total + rest * p**l_)


def same_first(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether both rankings have the same first id, or both are empty."""
    return list(first[:1]) == list(second[:1])


# Compares two embedding models on the logged queries of a workspace: how far their answers agree.


DIFFERING_SHOWN: Final = 5
"""Queries named in the report: those that the models answer most differently."""
_LOGGED: Final = f"""SELECT query, scope, of_agent_id, of_crew_id FROM {RECEIPTS} WHERE workspace_id = ?
    GROUP BY ALL ORDER BY max(seq) DESC LIMIT ?"""


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A query and its scope."""

    text: str
    scope: RecallScope


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of two models to one query."""

    query: LoggedQuery
    one: ModelRanking
    other: ModelRanking

    @property
    def overlap(self) -> float:
        """Rank-biased overlap of the two rankings."""
        return rank_biased_overlap(self.one.entry_ids, self.other.entry_ids)


def logged_queries(views: ViewReader, workspace_id: str, limit: int) -> list[LoggedQuery]:
    """The latest distinct queries of a workspace, newest first; blocking."""
    rows = views.rows(_LOGGED, [workspace_id, limit])
    return [LoggedQuery(query, RecallScope(ScopeKind(scope), agent, crew)) for query, scope, agent, crew in rows]


class ModelComparison:
    """Compares models."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._search = ModelSearch(node.recall.indexes, node.embedders.running, node.analyzer, node.recall.static_table)

    async def begin(
        self, workspace_id: str, models: tuple[str, str], *, queries: int, k: int, recipe: str | None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Read the queries and try each model on the first one; the rest follows as the records are taken.

        Returns:
            Progress records, the last one with key ``result``.

        Raises:
            NotFound: If nothing was logged in the workspace.
            InvalidQuery: If there is no such recipe.
            EmbedderError: If a model does not work.
        """
        chosen = recipe_named(recipe)
        logged = await asyncio.to_thread(logged_queries, self._views, workspace_id, queries)
        if not logged:
            raise NotFound(
                f"no recall was logged in the workspace {workspace_id} yet",
                hint="recall something first, or compare on a set of questions with --eval DIR",
            )
        first = await self._compare(workspace_id, models, logged[0], chosen, k)
        return self._records(workspace_id, models, logged, first, chosen, k)

    async def _records(
        self,
        workspace_id: str,
        models: tuple[str, str],
        logged_queries: Sequence[LoggedQuery],
        first: Compared,
        recipe: Recipe,
        k: int,
    ) -> AsyncIterator[Mapping[str, Any]]:
        compared = [first]
        for query in logged_queries[1:]:
            yield {"done": len(compared), "total": len(logged_queries)}
            compared.append(await self._compare(workspace_id, models, query, recipe, k))
        yield {"done": len(compared), "total": len(logged_queries)}
        yield {"result": {"workspace_id": workspace_id, "recipe": recipe.name, **report(models, compared, k)}}

    async def _compare(
        self, workspace_id: str, models: tuple[str, str], query: LoggedQuery, recipe: Recipe, k: int
    ) -> Compared:
        first, second = [
            await self._search.ranking(workspace_id, model, query.text, query.scope, recipe, k) for model in models
        ]
        return Compared(query, first, second)


def report(models: tuple[str, str], compared: Sequence[Compared], k: int) -> dict[str, Any]:
    """The figures of a comparison: means over the queries."""
    different = sorted(
        (comparison for comparison in compared if comparison.overlap < 1.0), key=lambda comparison: comparison.overlap
    )
    return {
        "queries": len(compared),
        "k": k,
        "jaccard": _mean([jaccard(comparison.one.entry_ids, comparison.other.entry_ids) for comparison in compared]),
        "rank_biased_overlap": _mean([comparison.overlap for comparison in compared]),
        "persistence": PERSISTENCE,
        "same_first": _mean(
            [float(same_first(comparison.one.entry_ids, comparison.other.entry_ids)) for comparison in compared]
        ),
        "mean_cosine": {
            model: _mean(
                [cosine for comparison in compared for cosine in (comparison.one, comparison.other)[place].cosines]
            )
            for place, model in enumerate(models)
        },
        "most_different": [
            {"query": compared.query.text, "rank_biased_overlap": round(compared.overlap, 4)}
            for compared in different[:DIFFERING_SHOWN]
        ],
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 4) if values else None
