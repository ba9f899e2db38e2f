"""A journal and its questions in one hot index, embedded by MiniLM in this process: what ``quality`` asks.

Invariant: entries pass through the same rules, the same columns and the same search as in a running node; only broker and
DuckDB are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import Stemmer

from bench.folded import Folded
from bench.kept_vectors import Embedded, KeptVectors
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, ensure_static_table
from crew_journal.schemas.core.entry import build_entry
from crew_journal.schemas.core.envelope import EntryRecorded, TokenBitsDerived, VectorDerived
from crew_journal.schemas.core.ports import TokenBits
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.schemas.models.rules import embedded_text
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.cli.exam import Ranking
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.entry_slot import extend
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import VectorMatrix, query_vector
from crew_journal.services.recall.asking import Query, query_of
from crew_journal.services.recall.calibration import known_calibration
from crew_journal.services.recall.recipes import Fusion, Recipe
from crew_journal.services.recall.search import search

K: Final = 10
DEPTH: Final = 50
"""Ranks that sessions are taken from."""
ANALYZER: Final = Analyzer(Stemmer.Stemmer)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question.

    Attributes:
        text: As it is asked.
        scope: Whose memory is asked.
        cluster: The conversation it is about.
        category: Its kind.
        relevant: Ids of the entries that answer it.
        day: The day on which it is asked, days since 1970-01-01; None to ignore relative dates.
        before: Entries that are stored when it is asked; None for all.
    """

    text: str
    scope: RecallScope
    cluster: str
    category: str
    relevant: frozenset[str]
    day: int | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """A journal with questions, everything embedded once.

    Attributes:
        events: The entries.
        made: Vector and tokens of each, None for one that is not to have any.
        questions: The questions.
        queries: The same as the arms take them.
        sessions: Entry id → session.
    """

    events: Sequence[EntryRecorded]
    made: Sequence[Embedded | None]
    questions: Sequence[Asked]
    queries: Sequence[Query]
    sessions: Mapping[str, str]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def recorded(records: Iterable[Mapping[str, Any]], workspace: str, first_seq: int = 1) -> list[EntryRecorded]:
    """Entries as the fold sees them, all in one workspace, from a sequence on."""
    events = []
    for seq, record in enumerate(records, first_seq):
        entry = build_entry({"ts": "2026-01-01T00:00:00Z", **record, "workspace_id": workspace})
        events.append(EntryRecorded(seq, entry, to_ms(entry.ts), False, b"", b"", 0, 0))
    return events


async def embedded_set(
    events: Sequence[EntryRecorded], questions: Sequence[Asked], wanted: Sequence[bool] | None = None
) -> Set:
    """Embed entries (those ``wanted``) and questions with MiniLM, which is installed if need be."""
    chosen = [at for at in range(len(events)) if wanted is None or wanted[at]]
    texts = [embedded_text(events[at].entry.summary, events[at].entry.payload) for at in chosen]
    embedded: list[Embedded | None] = [None] * len(events)
    async with KeptVectors() as kept:
        for at, result in zip(chosen, await kept.documents(texts), strict=True):
            embedded[at] = result
        asked = await kept.documents([question.text for question in questions])
    table = ensure_static_table(Settings().models_dir)
    words = None if table is None else table.view(np.uint64)
    calibration = known_calibration(MODEL_ID)
    usual = None if calibration is None else calibration.usual
    queries = [
        query_of(question.text, ANALYZER, query_vector(data), tokens, words, day=question.day, queries=usual)
        for question, (data, tokens) in zip(questions, asked, strict=True)
    ]
    sessions = {event.entry.id: event.entry.trace_id for event in events if event.entry.trace_id is not None}
    return Set(events, embedded, questions, queries, sessions)


def index_of(journal: Set, kept: npt.NDArray[np.bool_] | None = None) -> HotIndex:
    """The hot index, with the vectors and tokens of the entries ``kept``."""
    events = list(journal.events)
    workspace = events[0].entry.workspace_id
    index = HotIndex(workspace, VectorMatrix(MODEL_ID))
    facts: list[VectorDerived | TokenBitsDerived] = []
    for at, (event, embedded) in enumerate(zip(events, journal.made, strict=True)):
        if embedded is not None and (kept is None or kept[at]):
            facts += _facts(event, *embedded)
    extend(index, Folded().commit([*events, *facts], len(events)))
    index.sort()
    return index


def growing(journal: Set) -> Iterator[tuple[HotIndex, int]]:
    """Each question's place, and the index as it is when it is asked; in the order in which they are asked."""
    events = list(journal.events)
    index = HotIndex(events[0].entry.workspace_id, VectorMatrix(MODEL_ID))
    folded, stored = Folded(), 0
    befores = [len(events) if question.before is None else question.before for question in journal.questions]
    for at in sorted(range(len(befores)), key=lambda at: befores[at]):
        end = befores[at]
        if end > stored:
            facts: list[VectorDerived | TokenBitsDerived] = []
            for event, embedded in zip(events[stored:end], journal.made[stored:end], strict=True):
                facts += () if embedded is None else _facts(event, *embedded)
            extend(index, folded.commit([*events[stored:end], *facts], end))
            index.sort()
            stored = end
        yield index, at


def rankings(index: HotIndex, journal: Set, recipe: Recipe) -> list[Ranking]:
    """What a recipe finds for every question."""
    rankings_ = []
    for question, query in zip(journal.questions, journal.queries, strict=True):
        ids = [index.documents.id_of(hit.doc) for hit in search(index, question.scope, query, recipe, DEPTH)]
        if recipe.fusion is Fusion.RECIPROCAL_RANK:  # its lanes depend on k
            first = [index.documents.id_of(hit.doc) for hit in search(index, question.scope, query, recipe, K)]
            ids = list(dict.fromkeys([*first, *ids]))
        rankings_.append(Ranking(question.category, ids, question.relevant))
    return rankings_


def own(agent: str) -> RecallScope:
    """The scope of an agent's own entries."""
    return RecallScope(ScopeKind.OWN, agent)


def _facts(event: EntryRecorded, vector: bytes, tokens: TokenBits) -> list[VectorDerived | TokenBitsDerived]:
    entry, seq = event.entry, event.seq + 1
    facts: list[VectorDerived | TokenBitsDerived] = [
        VectorDerived(
            seq, entry.workspace_id, entry.id, event.seq, MODEL_ID, len(vector) // 4, vector, "", entry.entry_type,
            entry.severity.value, entry.priority.value, entry.crew_id, entry.agent_id, event.ts_ms, 0, "bench",
        )
    ]  # fmt: skip
    if tokens.bits:
        bits, first = tokens.bits, tokens.first_passage
        facts.append(
            TokenBitsDerived(
                seq,
                entry.workspace_id,
                entry.id,
                event.seq,
                MODEL_ID,
                tokens.quantiser,
                tokens.dim,
                bits,
                first,
                0,
                "bench",
            )
        )
    return facts
