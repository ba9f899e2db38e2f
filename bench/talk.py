"""Recall over a workspace of nothing but turns, in process: every arm of ``conversational``, the embedding excluded.

One turn in ten has a vector and its tokens in context, of random directions and bits: they cost what real ones cost.
Recipes take turns query by query, so that they meet the same machine; CPU time is that of the thread that answers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import Stemmer

from bench.corpus import Corpus
from bench.figures import MIB, MS, Report, at_most, percentile, say
from bench.journals import DIM, MODEL, OWNER, vector_messages
from bench.recall import K, ReadyEmbedder, fold_all, folded_views
from crew_journal.consumers.adapters.minilm import QUANTISER
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.envelope import TokenBitsDerived
from crew_journal.schemas.core.ports import TokenBits
from crew_journal.schemas.models.events import encode_token_bits
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.index.vectors import Words
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.recall.recipes import CONVERSATIONAL, CONVERSATIONAL_STATIC, ROBUST

TALK_P50_MS: Final = 5.0
EMBEDDED_EACH: Final = 10
TOKENS: Final = 47
"""Tokens in context of an entry: 40 words of 1.17 pieces."""
ROUNDS: Final = 3
RECIPES: Final = (ROBUST.name, CONVERSATIONAL.name, CONVERSATIONAL_STATIC.name)


class TokenReadyEmbedder(ReadyEmbedder):
    """An embedder that has tokens in context ready too: as many as the query has word pieces."""

    token_quantiser: Final = QUANTISER

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._rng = np.random.default_rng(11)

    async def embed_documents_tokens(self, texts: Sequence[str]) -> list[tuple[bytes, TokenBits | None]]:
        """One vector and tokens per text."""
        return [await self.embed_query_tokens(text) for text in texts]

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        """The next vector, and random bits for each of the query's pieces."""
        late = query_of(text, self._analyzer, None, None, np.zeros((1, DIM // 64), np.uint64)).late
        count = len(late.pieces) if late is not None else 0
        return await self.embed_query(text), TokenBits(QUANTISER, self._rng.bytes(count * DIM // 8), DIM, count)


def _token_facts(corpus: Corpus, seqs: dict[int, int]) -> list[OutgoingMessage]:
    rng = np.random.default_rng(12)
    return [
        encode_token_bits(
            TokenBitsDerived(
                seq=0,
                workspace_id=corpus.workspace(n),
                entry_id=corpus.entry_id(n),
                entry_seq=seq,
                model=MODEL,
                quantiser=QUANTISER,
                dim=DIM,
                bits=rng.bytes(TOKENS * DIM // 8),
                first_passage=TOKENS,
                published_ms=0,
                reactor="embed@1",
            ),
            1,
        )
        for n, seq in seqs.items()
    ]


@asynccontextmanager
async def _views(path: Path, corpus: Corpus) -> AsyncIterator[ViewStore]:
    """Views of the corpus; one entry in ten has a vector and tokens."""
    async with folded_views(path, corpus) as (store, host, seqs):
        chosen = dict(list(seqs.items())[::EMBEDDED_EACH])
        await fold_all(host, list(vector_messages(corpus, chosen, MODEL, DIM)))
        await fold_all(host, _token_facts(corpus, chosen))
        yield store


def _random_table() -> Words:
    """The size of the static table; which pieces are alike does not matter for the time it takes."""
    return np.random.default_rng(13).integers(0, 1 << 63, (30_522, DIM // 64), np.uint64)


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    entries, query_count = (10_000, 60) if quick else (100_000, 500)
    report = Report(
        "talk", quick, {"turns": entries, "with vectors and tokens": entries // EMBEDDED_EACH, "queries": query_count}
    )
    corpus, table = Corpus(entries, talk=True), _random_table()
    say("talk: folding turns")
    async with _views(folder / "views.duckdb", corpus) as store:
        analyzer = Analyzer(Stemmer.Stemmer)
        embedder = TokenReadyEmbedder(analyzer)
        service = RecallService(
            store,
            lambda _: embedder,
            analyzer=analyzer,
            budget_bytes=Settings().hot_index_mb << 20,
            clock=lambda: datetime.now(UTC),
            static_table=lambda: table,
        )
        await service.indexes.get(corpus.workspace(0))
        report.figure("hot index", service.figures()["bytes"] / MIB, "MiB")
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in RECIPES}
        say("talk: asking")
        for round_ in range(ROUNDS):
            for query in corpus.queries(query_count, seed=20 + round_):
                for name in RECIPES:
                    request = RecallRequest(query=query, k=K, workspace_id=corpus.workspace(0), recipe=name)
                    began, cpu = time.perf_counter(), time.thread_time()
                    answer = await service.recall(OWNER, request)
                    took[name].append((time.perf_counter() - began, time.thread_time() - cpu))
                    if answer.degraded is not None or not answer.hits:
                        raise RuntimeError(f"recall is degraded ({answer.degraded}) or finds nothing")
        service.close()
    note = f"embedding excluded, n={query_count * ROUNDS}"
    for name, times in took.items():
        wall, busy = [seconds for seconds, _ in times], [seconds for _, seconds in times]
        bound = at_most(TALK_P50_MS) if name != ROBUST.name else None
        report.figure(f"{name}, p50", percentile(wall, 0.5) * MS, "ms", bound, note)
        report.figure(f"{name}, p99", percentile(wall, 0.99) * MS, "ms", None, note)
        report.figure(f"{name}, CPU p50", percentile(busy, 0.5) * MS, "ms", None, note)
    return report
