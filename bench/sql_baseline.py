"""The baseline of recall: the same question as one SQL query over the postings, and one numpy product.

Invariant: no fusion, no rules, no scope and no fetch of the winners; what recall does beyond this is what it costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from crew_journal.schemas.core.ids import hash64
from crew_journal.schemas.core.ports import ViewReader
from crew_journal.schemas.text.analyzer import Analyzer

BM25: Final = """
WITH scope AS (SELECT count(*) AS n, avg(words) AS length FROM journal_entries WHERE workspace_id = $1),
hit AS (
  SELECT term, doc, tf, dl FROM postings WHERE ws = $2 AND term IN (SELECT unnest($3::UBIGINT[]))
  UNION ALL
  SELECT term, doc, tf, dl FROM postings_tail WHERE ws = $2 AND term IN (SELECT unnest($3::UBIGINT[]))
),
df AS (SELECT term, count(*) AS df FROM hit GROUP BY term)
SELECT doc, sum(ln(1 + (n - df + 0.5) / (df + 0.5)) * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * dl / length))) AS score
FROM hit JOIN df USING (term), scope GROUP BY doc ORDER BY score DESC, doc DESC LIMIT 100
"""
BEST: Final = 100


def sql_bm25(views: ViewReader, analyzer: Analyzer, workspace: str, queries: Sequence[str]) -> list[float]:
    """Seconds of each query as one SQL statement."""
    times = []
    key = hash64(workspace)
    for query in queries:
        terms = sorted(set(analyzer.terms(query)))
        began = time.perf_counter()
        rows = views.rows(BM25, [workspace, key, terms])
        times.append(time.perf_counter() - began)
        if not rows:
            raise RuntimeError("the SQL baseline finds nothing")
    return times


def numpy_cosine(matrix: np.ndarray, queries: np.ndarray) -> list[float]:
    """Seconds of each query over an ``(n, d) float32`` matrix, best 100."""
    times = []
    for query in queries:
        began = time.perf_counter()
        scores = matrix @ query
        best = np.argpartition(scores, -min(BEST, len(scores)))[-BEST:]
        best[np.argsort(scores[best])]
        times.append(time.perf_counter() - began)
    return times
