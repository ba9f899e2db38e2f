"""Recall with a given model, active or not, for the comparison of models.

Invariant: query and entries are compared by vectors of that model, or an error says why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...schemas.errors import EmbedderUnavailable, Unavailable
from ...schemas.ports import TokenEmbedder
from ...schemas.rules.text import Analyzer
from .asking import no_table, query_of
from .hot.cache import HotCache
from .hot.scope import RecallScope
from .hot.token_store import Words
from .hot.vector_matrix import query_vector
from .query_embedding import EmbedderOf
from .recipes import Recipe
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
        cache: HotCache,
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
