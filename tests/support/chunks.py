"""Memory documents folded into real views, and searched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from support.events import at, document
from support.recall import ANALYZER
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.services.documents.search import DocumentIndex, document_indexes, find_chunks
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.shelf import TextSlot
from crew_journal.services.recall.asking import query_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
Hit = tuple[str, str, int]
"""Owner, label and first line."""


class Documents:
    """Views of documents, and the cache of their chunks."""

    def __init__(self, store: ViewStore, host: Host, cache: HotCache) -> None:
        self.store, self.host, self.hot = store, host, cache
        self.cache = document_indexes(cache)
        self.seq = 0
        self.writes = 0

    async def fold(self, *messages: OutgoingMessage) -> int:
        """Fold messages in one batch; returns the last sequence."""
        made = [at(self.seq + number, message) for number, message in enumerate(messages, 1)]
        self.seq = made[-1].seq
        await self.host.fold(made)
        return self.seq

    def write(
        self, owner: str, tier: str, content: str, key: str | None = None, action: str = "replace", **fields: str
    ) -> OutgoingMessage:
        """A write of a document."""
        self.writes += 1
        return document(f"w{self.writes}", owner=owner, tier=tier, key=key, action=action, content=content, **fields)

    async def index(self, workspace_id: str = "w1") -> DocumentIndex:
        """The hot index as the cache has it."""
        return await self.cache.get(workspace_id, self.seq)

    async def find(
        self,
        query: str,
        *owners: str,
        workspace_id: str = "w1",
        vector: Sequence[float] | None = None,
        tier: str | None = None,
        limit: int = 50,
    ) -> list[Hit]:
        """What a search finds."""
        return found_in(await self.index(workspace_id), query, *owners, vector=vector, tier=tier, limit=limit)


def found_in(
    index: DocumentIndex,
    query: str,
    *owners: str,
    vector: Sequence[float] | None = None,
    tier: str | None = None,
    limit: int = 50,
) -> list[Hit]:
    """Owner, label and line of each hit in an index."""
    asked = query_of(query, ANALYZER, None if vector is None else np.array(vector, np.float32), None, None)
    hits = find_chunks(index, asked, limit, owners=owners, tier=tier, analyzer=ANALYZER)
    return [(hit.owner, hit.label, hit.first_line) for hit in hits]


def loaded(store: ViewStore, workspace_id: str) -> DocumentIndex:
    """The hot index as a load gives it."""
    cache = HotCache(store, 1 << 26)
    try:
        return TextSlot(cache, workspace_id, make=DocumentIndex).read()
    finally:
        cache.close()


def live_texts(index: DocumentIndex, owner: str) -> list[str]:
    """The texts of an owner that count, sorted."""
    mask = index.scoped((owner,)).mask
    slots = range(len(index)) if mask is None else mask.nonzero()[0].tolist()
    return sorted(index.text_of(slot).text for slot in slots)


@asynccontextmanager
async def documents(path: Path, budget_bytes: int = 64 << 20) -> AsyncIterator[Documents]:
    """Empty views with a cache on them."""
    async with node(path / "views.duckdb", discover_projections()) as made:
        cache = HotCache(made.store, budget_bytes, lambda: NOW)
        try:
            yield Documents(made.store, made.host, cache)
        finally:
            cache.close()
