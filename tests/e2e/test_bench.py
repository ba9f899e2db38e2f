"""The benchmark harness works: one small bench end to end, its JSON complete; no figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.processes import PROJECT

from bench.corpus import BLOCK, EMBEDDED, WORDS, Corpus
from bench.figures import Report, at_least, at_most, percentile
from crew_journal.schemas.core.entry import build_entry
from crew_journal.schemas.models.rules import is_embedded


def test_a_quick_bench_prints_one_json_document_with_baselines_figures_and_targets() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "freshness", "--quick"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["bench"] == "freshness"
    assert report["quick"] is True
    assert report["machine"]["cores"] >= 1
    assert report["baselines"]
    assert all(figure["unit"] and figure["value"] > 0 for figure in report["baselines"])
    assert {figure["name"] for figure in report["figures"]} >= {
        "publish to recallable, polling every 5 ms, p50",
        "publish to recallable, min_seq, p99",
    }
    judged = [figure for figure in report["figures"] if "target" in figure]
    assert judged
    for figure in judged:
        bound = figure["target"]["value"]
        inside = figure["value"] <= bound if figure["target"]["kind"] == "at most" else figure["value"] >= bound
        assert figure["met"] is inside


def test_the_corpus_is_the_same_in_any_order_of_asking() -> None:
    forward, backward = Corpus(3 * BLOCK, workspaces=3), Corpus(3 * BLOCK, workspaces=3)
    numbers = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 7]
    expected = [forward.submission(n) for n in numbers]
    assert [backward.submission(n) for n in reversed(numbers)] == expected[::-1]
    assert len({submission["id"] for submission in expected}) == len(numbers)


def test_every_entry_of_the_corpus_is_valid_and_the_policy_embeds_what_the_corpus_says() -> None:
    corpus = Corpus(200)
    for n in range(corpus.entries):
        submission = corpus.submission(n) | {"workspace_id": corpus.workspace(n)}
        entry = build_entry(submission)
        assert len(entry.summary.split()) + len(entry.payload["text"].split()) == WORDS
        assert is_embedded(entry.entry_type, entry.severity.value, entry.payload, entry.refs) is corpus.is_embedded(n)
        assert corpus.is_embedded(n) is (entry.entry_type in EMBEDDED)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_percentile_is_a_measured_value(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_a_report_says_whether_a_target_is_met() -> None:
    report = Report("x", quick=True)
    report.figure("fast enough", 5.0, "ms", at_most(5.0))
    report.figure("too slow", 4.9, "entries/s", at_least(5.0))
    assert [figure["met"] for figure in report.as_dict()["figures"]] == [True, False]
