"""Small workspaces in memory, a plain BM25 to compare with, and an embedder whose vectors a test chooses."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import Stemmer

from bench.folded import Folded
from crew_journal.schemas.core.entry import build_entry
from crew_journal.schemas.core.envelope import EntryRecorded, TokenBitsDerived, VectorDerived
from crew_journal.schemas.core.errors import EmbedderUnavailable
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.schemas.text.analyzer import Analyzer, indexed_text
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.entry_slot import extend
from crew_journal.services.index.vectors import VectorMatrix

MODEL = "test-model"
ModelFact = VectorDerived | TokenBitsDerived
ANALYZER = Analyzer(Stemmer.Stemmer)


def recorded(seq: int, summary: str, **fields: Any) -> EntryRecorded:
    """An entry as the fold sees it."""
    record = {
        "id": f"e{seq}",
        "workspace_id": "w1",
        "agent_id": "a1",
        "ts": "2026-11-21T09:00:00.000Z",
        "entry_type": "chat.user_message",
        "actor_type": "user",
        "summary": summary,
    }
    control = bool(fields.pop("control", False))
    entry = build_entry(record | fields)
    return EntryRecorded(seq, entry, to_ms(entry.ts), control, b"", b"", 0, 0)


def vector_fact(entry: EntryRecorded, values: Sequence[float], model: str = MODEL) -> VectorDerived:
    """The vector of an entry; no values are a tombstone."""
    data = np.asarray(values, "<f4").tobytes()
    body = entry.entry
    return VectorDerived(
        entry.seq + 100_000, body.workspace_id, body.id, entry.seq, model, len(values), data, "ab", body.entry_type,
        body.severity, body.priority, body.crew_id, body.agent_id, entry.ts_ms, 0, "embed@1",
    )  # fmt: skip


def token_fact(entry: EntryRecorded, seed: int, model: str = MODEL) -> TokenBitsDerived:
    """Tokens in context of an entry, drawn by a seed: three of 384 bits."""
    body = entry.entry
    bits = np.random.default_rng(seed).bytes(3 * 48)
    return TokenBitsDerived(
        entry.seq + 100_000, body.workspace_id, body.id, entry.seq, model, 1, 384, bits, 3, 0, "embed@1"
    )


_FOLDED: WeakKeyDictionary[HotIndex, Folded] = WeakKeyDictionary()


def extend_by(index: HotIndex, events: Sequence[EntryRecorded], facts: Sequence[ModelFact] = ()) -> None:
    """Fold one commit into an index."""
    last = max([e.seq for e in events] + [index.seq])
    folded = _FOLDED.setdefault(index, Folded())
    extend(index, folded.commit([*events, *facts], last))


def index_of(events: Sequence[EntryRecorded], facts: Sequence[ModelFact] = (), *, step: int | None = None) -> HotIndex:
    """An index of entries, extended ``step`` entries at a time (all at once if None)."""
    index = HotIndex("w1", VectorMatrix(MODEL), record_bytes=1 << 20)
    for first in range(0, len(events), step or max(1, len(events))):
        part = events[first : first + (step or len(events))]
        seqs = {event.seq for event in part}
        extend_by(index, part, [fact for fact in facts if fact.entry_seq in seqs])
    return index


def plain_bm25(events: Sequence[EntryRecorded], query: str, k1: float = 1.2, b: float = 0.75) -> dict[str, float]:
    """BM25 as the textbook has it: id → score of every entry that holds a term."""
    bags = {
        e.entry.id: Counter(ANALYZER.terms(indexed_text(e.ts_ms, e.entry.summary, e.entry.payload))) for e in events
    }
    lengths = {name: sum(bag.values()) for name, bag in bags.items()}
    average = sum(lengths.values()) / len(lengths) if lengths else 0.0
    scores: dict[str, float] = {}
    for term in dict.fromkeys(ANALYZER.terms(query)):
        frequency = sum(term in bag for bag in bags.values())
        idf = math.log(1 + (len(bags) - frequency + 0.5) / (frequency + 0.5))
        for name, bag in bags.items():
            if tf := bag[term]:
                norm = k1 * (1 - b + b * lengths[name] / average)
                scores[name] = scores.get(name, 0.0) + idf * tf * (k1 + 1) / (tf + norm)
    return scores


class ChosenEmbedder:
    """An embedder with a table of vectors; can be told to fail or to hang."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], model: str = MODEL) -> None:
        self.vectors = vectors
        self.model_id = model
        self.dim: int | None = 3
        self.default: Sequence[float] = (1.0, 0.0, 0.0)
        self.fails = False
        self.hangs = False
        self.calls = 0

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return [np.asarray(self.vectors[text], "<f4").tobytes() for text in texts]

    async def embed_query(self, text: str) -> bytes:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise EmbedderUnavailable("the model is away")
        return np.asarray(self.vectors.get(text, self.default), "<f4").tobytes()

    async def probe(self) -> None:
        return None

    async def close(self) -> None:
        return None
