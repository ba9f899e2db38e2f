"""Recall with a model of one's choice, active or not: what a comparison of two models asks.

Invariant: the query's vector and the entries' are of the model that was named, or there is an error that says why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crew_journal.schemas.errors import EmbedderUnavailable, Unavailable
from crew_journal.schemas.rules.text import Analyzer
from crew_journal.services.query.hot_cache import HotCache
from crew_journal.services.query.query_embedding import EmbedderOf
from crew_journal.services.query.recipes import Recipe
from crew_journal.services.query.scope import Scope
from crew_journal.services.query.search import Query, search
from crew_journal.services.query.vector_matrix import query_vector

EMBED_TIMEOUT_S: Final = 20.0
"""Seconds one query may take: nobody waits for an answer here, and a server loads a large model from disk first."""
MAX_QUERY_TERMS: Final = 128
"""As in recall."""


@dataclass(frozen=True, slots=True)
class ModelRanking:
    """What a model finds.

    Attributes:
        entry_ids: Best first.
        cosines: Of the hits that have a vector.
    """

    entry_ids: Sequence[str]
    cosines: Sequence[float]


class ModelSearch:
    """Searches with any model.

    Args:
        cache: The hot indexes.
        embedder: What runs a model here.
        analyzer: Turns the query into terms.
    """

    def __init__(self, cache: HotCache, embedder: EmbedderOf, analyzer: Analyzer) -> None:
        self._cache = cache
        self._embedder = embedder
        self._analyzer = analyzer

    async def ranking(
        self, workspace_id: str, model: str, text: str, scope: Scope, recipe: Recipe, k: int
    ) -> ModelRanking:
        """The best ``k`` entries in scope under a model.

        Raises:
            Unavailable: If nothing here runs the model.
            EmbedderError: If it fails.
        """
        embedder = self._embedder(model)
        if embedder is None:
            raise Unavailable(f"nothing here runs {model}", hint="start `up` with another --embedder than none")
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                vector = query_vector(await embedder.embed_query(text))
        except TimeoutError:
            raise EmbedderUnavailable(
                f"{model} did not embed a query within {EMBED_TIMEOUT_S:g} s", hint="is its server busy?"
            ) from None
        terms = list(dict.fromkeys(self._analyzer.terms(text)))[:MAX_QUERY_TERMS]
        index, matrix = await self._cache.with_matrix(workspace_id, model)
        found = search(index.over(matrix), scope, Query(text, terms, vector), recipe, k)
        return ModelRanking(
            [index.documents.id_of(hit.doc) for hit in found],
            [hit.cosine for hit in found if hit.cosine is not None],
        )
