"""``postings``: the frequency of each term in each entry, in plain tables (facts/duckdb.md, "Full text").

Invariant: the set of postings is a function of the entries; their distribution over tail, sealed runs and merged runs
is only layout and not part of the digest. A term is a 64-bit hash, so no dictionary remembers erased words.

Small batches go to ``postings_tail``. When the tail is long enough, it becomes a run of ``postings``, sorted by (ws,
term, doc); a large batch becomes a run at once. Ten runs of one size are merged when the host is idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.ids import hash64
from ...schemas.core.table import Table, Tables
from ...schemas.entries.events import MemoryCompacted
from ...schemas.entries.tables import FULLTEXT_PROJECTION, POSTINGS, POSTINGS_TAIL, RUNS
from ...schemas.text import analyzer as text
from ...schemas.text.analyzer import MAX_TOKENS
from ...schemas.text.stop_words import CLEARLY_SHOWN
from ..folds.payloads import compactions
from ..folds.words import BatchTokens, KnownWords, batch_tokens, batch_words
from ..projection import SHARED_POSTINGS, Batch, FoldTransaction

SEAL_POSTINGS: Final = 150_000
"""Number of postings at which the tail is sealed: 4,000 entries of 40 words; sorting them takes 25 ms."""
SEAL_CHECK: Final = 256
"""Number of sequences between checks of the tail's length; a check costs 0.6 ms, as much as writing a small batch."""
MERGE_FACTOR: Final = 10
"""Number of runs of one level that are merged (facts/duckdb.md: a query over ten runs costs twice as much as over one)."""
MERGE_POSTINGS: Final = 4_000_000
"""Maximum postings of a merge, about 2 s of the writer thread; a larger merge would delay new entries too long."""
RUNS_BOUND: Final = 60
"""Number of runs at which a fold merges although the host is not idle: 250,000 entries without a pause."""

_COLUMNS: Final = POSTINGS.names
_MERGED: Final = "merged_postings"
"""Temporary table in which a merge is sorted."""
Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_workspace_hash = lru_cache(maxsize=4_096)(hash64)


class FulltextProjection:
    """Folds the texts of entries into postings."""

    name: ClassVar = FULLTEXT_PROJECTION
    version: ClassVar = 100 + text.VERSION
    tables: ClassVar[Tables] = (POSTINGS, POSTINGS_TAIL, RUNS)
    folds: ClassVar = (EntryRecorded, MemoryCompacted)
    scratch: ClassVar = (_MERGED,)

    def prepare(self, batch: Batch) -> None:
        """Compute the batch's postings ahead of the transaction."""
        if batch.entries:
            self._postings(batch)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append the batch's postings to the tail or as a run; delete those of archived entries."""
        if not batch.entries:
            return
        self._append(batch, tx)
        archived: dict[str, list[int]] = {}
        for one in compactions(batch):
            archived.setdefault(one.event.workspace_id, []).extend(one.sequences)
        for workspace, docs in archived.items():
            for table in (POSTINGS, POSTINGS_TAIL):
                tx.execute(
                    f"DELETE FROM {table} WHERE ws = ? AND doc IN (SELECT unnest(?::UBIGINT[]))",
                    [_workspace_hash(workspace), docs],
                )

    def _append(self, batch: Batch, tx: FoldTransaction) -> None:
        columns = self._postings(batch)
        size = len(columns["doc"])
        first, last = batch.entries[0].seq, batch.entries[-1].seq
        if size >= SEAL_POSTINGS:
            self._seal_tail(tx)
            tx.insert(POSTINGS, columns)
            self._add_run(tx, first, last, size)
        else:
            tx.insert(POSTINGS_TAIL, columns)
            if last // SEAL_CHECK == (batch.first_seq - 1) // SEAL_CHECK or _count(tx, POSTINGS_TAIL) < SEAL_POSTINGS:
                return
            self._seal_tail(tx)
        if _count(tx, RUNS) >= RUNS_BOUND:
            self._merge(tx)

    def tidy(self, tx: FoldTransaction) -> None:
        """Merge what can be merged; called while the host is idle."""
        while self._merge(tx):
            pass

    # terms

    def _postings(self, batch: Batch) -> Mapping[str, Any]:
        known = batch.shared.get(SHARED_POSTINGS)
        if known is None:
            known = batch.shared[SHARED_POSTINGS] = self._count_terms(batch)
        columns: Mapping[str, Any] = known
        return columns

    def _count_terms(self, batch: Batch) -> Mapping[str, Any]:
        tokens, words = batch_tokens(batch), batch_words(batch)
        n = len(batch.entries)
        further, of_entry = _further_terms(tokens, words)
        terms, term_of = np.unique(np.concatenate((words.keys, further)), return_inverse=True)
        term = term_of[tokens.word]
        entry = np.repeat(np.arange(n, dtype=np.int64), tokens.counts)
        if len(terms) and terms[0] == 0:  # stop words
            indexed = term != 0
            term, entry = term[indexed], entry[indexed]
        term, entry, lengths = _bounded(term, entry, n)
        if len(further):
            further_term, of_entry, _ = _bounded(term_of[len(words.keys) :], of_entry, n)
            term, entry = np.concatenate((term, further_term)), np.concatenate((entry, of_entry))
        doc = np.fromiter((event.seq for event in batch.entries), np.uint64, n)
        workspaces, workspace = np.unique(
            np.fromiter((_workspace_hash(e.workspace_id) for e in batch.entries), np.uint64, n), return_inverse=True
        )
        # sorting by one integer gives the order of a sealed run: (ws, term, doc)
        width = max(len(terms), 1)
        keys = (workspace[entry] * width + term) * n + entry
        keys.sort()
        heads = np.flatnonzero(np.diff(keys, prepend=-1))
        rest, entry = np.divmod(keys[heads], n)
        return {
            "ws": workspaces[workspace[entry]],
            "term": terms[rest % width],
            "doc": doc[entry],
            "tf": np.diff(heads, append=len(keys)).astype(np.uint16),
            "dl": lengths[entry].astype(np.uint16),
        }

    # layout

    def _seal_tail(self, tx: FoldTransaction) -> None:
        [(size, first, last)] = tx.rows(f"SELECT count(*), min(doc), max(doc) FROM {POSTINGS_TAIL}")
        if not size:
            return
        tx.execute(f"INSERT INTO {POSTINGS} SELECT {_COLUMNS} FROM {POSTINGS_TAIL} ORDER BY ws, term, doc")
        tx.execute(f"DELETE FROM {POSTINGS_TAIL}")
        self._add_run(tx, first, last, size)

    def _add_run(self, tx: FoldTransaction, first: int, last: int, size: int) -> None:
        tx.execute(f"INSERT INTO {RUNS} VALUES (?, ?, ?)", [first, last, size])

    def _merge(self, tx: FoldTransaction) -> bool:
        """Merge the newest ``MERGE_FACTOR`` runs unless one is ten times as large as the newest; whether it merged."""
        runs = tx.rows(f"SELECT first_doc, last_doc, size FROM {RUNS} ORDER BY first_doc DESC LIMIT {MERGE_FACTOR}")
        if len(runs) < MERGE_FACTOR or max(run[2] for run in runs) >= MERGE_FACTOR * runs[0][2]:
            return False
        size = sum(run[2] for run in runs)
        if size > MERGE_POSTINGS:
            return False
        first, last = runs[-1][0], runs[0][1]
        tx.execute(
            f"CREATE OR REPLACE TEMP TABLE {_MERGED} AS SELECT {_COLUMNS} FROM {POSTINGS} "
            "WHERE doc BETWEEN ? AND ? ORDER BY ws, term, doc",
            [first, last],
        )
        tx.execute(f"DELETE FROM {POSTINGS} WHERE doc BETWEEN ? AND ?", [first, last])
        tx.execute(f"INSERT INTO {POSTINGS} SELECT {_COLUMNS} FROM {_MERGED}")
        tx.execute(f"DROP TABLE {_MERGED}")
        tx.execute(f"DELETE FROM {RUNS} WHERE first_doc BETWEEN ? AND ?", [first, last])
        self._add_run(tx, first, last, size)
        return True


def _bounded(term: Ints, entry: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """The first ``MAX_TOKENS`` terms of each of ``n`` ascending entries, and their numbers."""
    lengths = np.bincount(entry, minlength=n)
    if len(lengths) and lengths.max() > MAX_TOKENS:
        starts = np.cumsum(lengths) - lengths
        kept = np.arange(len(entry)) - starts[entry] < MAX_TOKENS
        term, entry = term[kept], entry[kept]
        lengths = np.minimum(lengths, MAX_TOKENS)
    return term, entry, lengths


def _further_terms(tokens: BatchTokens, words: KnownWords) -> tuple[U64, Ints]:
    """The further terms of every entry (``schemas.text.analyzer``), and the entry of each, ascending."""
    starts = np.cumsum(tokens.counts) - tokens.counts
    at = words.part_sizes[tokens.word].nonzero()[0]
    of_parts = tokens.word[at]
    keys = [words.part_keys(of_parts)]
    entry = [np.repeat(starts.searchsorted(at, side="right") - 1, words.part_sizes[of_parts])]
    shown = words.is_foreign[tokens.word].nonzero()[0]
    counts = np.bincount(starts.searchsorted(shown, side="right") - 1, minlength=len(starts))
    for one in (counts >= CLEARLY_SHOWN).nonzero()[0].tolist():
        stems = words.foreign_keys(tokens.word[starts[one] : starts[one] + tokens.counts[one]])
        keys.append(np.array(stems, np.uint64))
        entry.append(np.full(len(stems), one))
    every = np.concatenate(entry)
    order = every.argsort(kind="stable")
    return np.concatenate(keys)[order], every[order]


def _count(tx: FoldTransaction, table: Table[Any]) -> int:
    count: int = tx.rows(f"SELECT count(*) FROM {table}")[0][0]
    return count


PROJECTION = FulltextProjection
