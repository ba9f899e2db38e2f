"""Compares two embedding models on the logged queries of a workspace: how far their answers agree.

Why: every workspace has a log of recalls (``memory.searched``) as a test set. It holds no relevance judgements, so agreement
is measured, not quality; ``embeddings compare --eval`` measures quality on a set that has them.

Invariant: both models are asked the same queries in the scope they were asked in, over the same entries and with the same
recipe; nothing is recorded, and the active model stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from ...schemas.errors import NotFound
from ...schemas.ports import ViewReader
from ...schemas.views import RECEIPTS
from ..node import Node
from ..query.hot.scope import RecallScope, ScopeKind
from ..query.measures.agreement import PERSISTENCE, jaccard, rank_biased_overlap, same_first
from ..query.model_search import ModelRanking, ModelSearch
from ..query.recipes import Recipe, recipe_named

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
