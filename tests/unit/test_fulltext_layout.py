"""Tail, runs and merged runs hold the same postings, whatever the batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.events import at, entry
from support.views import Node, node

from crew_journal.consumers.entries import fulltext_fold as fulltext
from crew_journal.consumers.entries.fulltext_fold import FulltextProjection
from crew_journal.consumers.host.host import Tidying

STREAM = [at(seq, entry(f"e{seq}", summary=f"word{seq % 7} other{seq} again again")) for seq in range(1, 241)]


def layout(live: Node) -> tuple[int, int, int]:
    [row] = live.store.rows(
        "SELECT (SELECT count(*) FROM postings), (SELECT count(*) FROM postings_tail), (SELECT count(*) FROM postings_runs)"
    )
    return row[0], row[1], row[2]


async def test_sealing_and_merging_change_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path / "tail.duckdb", [FulltextProjection()]) as live:
        await live.host.fold(STREAM)
        expected = live.digests()
        sealed, tail, runs = layout(live)
        assert (sealed, runs) == (0, 0)
        assert tail > 0
    monkeypatch.setattr(fulltext, "SEAL_POSTINGS", 40)
    monkeypatch.setattr(fulltext, "SEAL_CHECK", 4)
    async with node(tmp_path / "runs.duckdb", [FulltextProjection()]) as live:
        for start in range(0, 240, 4):
            await live.host.fold(STREAM[start : start + 4])
        sealed, tail, runs = layout(live)
        assert sealed > 0
        assert runs > 10
        assert live.digests() == expected
        await Tidying(live.host).tidy()
        assert layout(live)[2] < runs
        assert live.digests() == expected
        [(unsorted,)] = live.store.rows(
            "WITH r AS (SELECT first_doc, last_doc FROM postings_runs ORDER BY last_doc - first_doc DESC LIMIT 1), "
            "p AS (SELECT ws, term, doc, p.rowid AS at, "
            "lag((ws, term, doc)) OVER (ORDER BY p.rowid) AS before "
            "FROM postings p, r WHERE doc BETWEEN first_doc AND last_doc) "
            "SELECT count(*) FROM p WHERE before > (ws, term, doc)"
        )
        assert unsorted == 0
    monkeypatch.setattr(fulltext, "RUNS_BOUND", 12)
    async with node(tmp_path / "bound.duckdb", [FulltextProjection()]) as live:
        for start in range(0, 240, 8):
            await live.host.fold(STREAM[start : start + 8])
        assert layout(live)[2] <= 12
        assert live.digests() == expected
