"""Cutting a batch at once gives what the analyser gives text by text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import Stemmer
from hypothesis import given
from hypothesis import strategies as st
from support.events import at, entry
from support.strategies import entries

from crew_journal.consumers.entries.fulltext_fold import FulltextProjection
from crew_journal.consumers.folds.words import DATE_TOKENS, batch_tokens
from crew_journal.consumers.projection import Batch
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.decode import decode
from crew_journal.schemas.text.analyzer import MAX_TOKENS, Analyzer, indexed_text, words_of


def batch_of(messages: list[OutgoingMessage]) -> Batch:
    events = []
    for seq, message in enumerate(messages, 1):
        raw = at(seq, message)
        try:
            events.append(decode(raw.seq, raw.subject, raw.headers, raw.data, raw.published_ms))
        except FoldError:
            continue
    return Batch(events, 1, len(messages))


@given(st.lists(entries(), max_size=8))
def test_tokens_and_postings_are_those_of_the_analyser(messages: list[OutgoingMessage]) -> None:
    batch = batch_of(messages)
    if not batch.entries:
        return
    tokens = batch_tokens(batch)
    analyzer = Analyzer(Stemmer.Stemmer)
    projection = FulltextProjection()
    projection.prepare(batch)
    columns: dict[str, Any] = batch.shared["postings"]
    start = 0
    for event, count in zip(batch.entries, tokens.counts.tolist(), strict=True):
        text = indexed_text(event.ts_ms, event.entry.summary, event.entry.payload)
        mine = [tokens.words[i] for i in tokens.word[start : start + count]]
        assert mine == words_of(text)
        start += count
        terms = analyzer.terms(text)[:MAX_TOKENS]
        here = columns["doc"] == event.seq
        assert dict(zip(columns["term"][here].tolist(), columns["tf"][here].tolist(), strict=True)) == Counter(
            terms + analyzer.further_terms(text)[:MAX_TOKENS]
        )
        assert set(columns["dl"][here].tolist()) <= {len(terms)}


def test_words_leave_out_the_date() -> None:
    batch = batch_of([entry("e1", summary="one two the", payload={"a": ["three", {"b": "four"}], "n": 5})])
    assert (batch_tokens(batch).counts - DATE_TOKENS).tolist() == [5]


def test_a_full_cache_of_the_analyser_keeps_the_tokens_of_the_call() -> None:
    analyzer = Analyzer(Stemmer.Stemmer, cache_size=200)
    fresh = Analyzer(Stemmer.Stemmer)
    for n in range(0, 300, 10):
        text = " ".join(f"word{i}" for i in range(max(0, n - 10), n + 10))
        assert analyzer.terms(text) == fresh.terms(text)
