"""``crew-journal health`` as people read it."""

from __future__ import annotations

import pytest

from crew_journal.schemas.health.operations import HealthAnswer, HealthSnapshot, ProposedContradiction
from crew_journal.services.cli.printers import print_health

METRICS = {"freshness": 95.0, "coverage": 40.0, "coherence": None, "efficiency": None, "reachability": 0.0}


def shown(answer: HealthAnswer, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    print_health(answer.model_dump())
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_without_a_snapshot_it_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    answer = HealthAnswer(workspace_id="w1", status="no snapshot yet", hint="--recompute measures it now", view_seq=3)
    assert shown(answer, capsys) == ("", "no snapshot yet: --recompute measures it now\n")


def test_no_data_is_no_number_and_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    answer = HealthAnswer(workspace_id="w1", status="no data", metrics=dict.fromkeys(METRICS), view_seq=3)
    out, _ = shown(answer, capsys)
    assert "– (no data)" in out
    assert "next:" not in out


def test_a_red_one_gives_its_reasons_the_next_step_and_what_waits_to_be_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    day = HealthSnapshot(status="ok", date="2026-11-20", score=80.0, band="green", metrics=METRICS)
    answer = HealthAnswer(
        workspace_id="w1",
        status="ok",
        score=41.26,
        band="red",
        metrics=METRICS,
        reasons=("coverage 40: 6 of 10 embeddable entries have no vector yet",),
        next_step="embed the missing entries: `crew-journal embeddings sweep`",
        embedder={"mode": "vector-degraded"},
        crews=("core",),
        review=(ProposedContradiction(src="e2", dst="e1", weight=0.75, reason="1 and \x1b[31m2 GB"),),
        history=(day,),
        view_seq=3,
    )
    out, err = shown(answer, capsys)
    assert "41.3 (red)" in out
    assert "- coverage 40: 6 of 10" in out
    assert "next: embed the missing entries" in out
    assert "? e2 contradicts e1 (0.75)" in out
    assert "\x1b" not in out, "a memory cannot act on a terminal"
    assert "2026-11-20" in out
    assert "vector-degraded" in out
    assert "crews: core" in err
