"""How people see rules, proposals and models of operators: a table, or a line that says there are none."""

from __future__ import annotations

from typing import Any

import pytest

from crew_journal.services.cli.printers import PRINTERS

RULE: dict[str, Any] = {
    "crew_id": "red",
    "pattern": "Deploys are denied",
    "action": "Attach a plan",
    "confidence": 0.714,
    "evidence": ["e1", "e2"],
    "days": 2,
    "authors": ["ada", "bruno"],
}
PROPOSAL: dict[str, Any] = {**RULE, "proposal_id": "d_2", "kind": "rule", "state": "pending"}


def printed(operation: str, answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    PRINTERS[operation](answer)
    out = capsys.readouterr()
    return out.out + out.err


def test_rules_and_proposals_are_tables_without_the_ids_of_their_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    rules = printed("learned_rules", {"rules": [{**RULE, "rule_id": "d_1", "promoted": True}]}, capsys)
    assert (
        " ".join(rules.split("\n")[2].split())
        == "d_1 red yes 2 2 0.71 [from ada, bruno] Deploys are denied → Attach a plan"
    )
    proposals = printed("proposals", {"proposals": [{**PROPOSAL, "action": "", "authors": []}]}, capsys)
    assert " ".join(proposals.split("\n")[2].split()) == "d_2 red rule pending 2 Deploys are denied"


def test_an_explanation_lists_the_entries_and_says_how_many_are_gone(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"entry_id": "e1", "entry_type": "peer.escalation", "author": "ada", "summary": "Denied"}
    entry |= {"ts": "2026-11-21T10:00:00.000Z", "received_at": "2026-11-22T10:00:00.000Z"}
    said = printed("explain_proposal", {"proposal": PROPOSAL, "entries": [entry], "gone": 1}, capsys)
    assert "state        pending" in said
    assert "evidence  " not in said
    [row] = [line for line in said.splitlines() if line.startswith("e1")]
    assert row.split() == ["e1", "peer.escalation", "ada", "2026-11-21", "2026-11-22", "Denied"]
    assert "1 entry of the evidence is gone" in said


@pytest.mark.parametrize(
    ("operation", "answer", "says"),
    [
        ("learned_rules", {"rules": []}, "there are no learned rules"),
        ("proposals", {"proposals": []}, "there are no proposals"),
        ("operators", {"operators": []}, "there are no operator models"),
        ("diff_proposal", {"diff": ""}, "an approval changes nothing"),
    ],
)
def test_an_empty_result_prints_a_message(
    operation: str, answer: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in printed(operation, answer, capsys)


def test_a_run_shows_its_counts_and_why_it_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    run = {"due": "2026-11-23T11:00:00.000Z", "since": "2026-11-22T11:00:00.000Z", "seq": 12, "finished": True}
    counts = {"crews": 1, "skipped": 1, "candidates": 4, "learned": 0}
    shown = printed("consolidate", {**run, "counts": counts, "skipped": "4 candidates: fewer than 10"}, capsys)
    assert "candidates  4" in shown
    assert "learned" not in shown
    assert "skipped: 4 candidates: fewer than 10" in shown
    shown = printed("consolidate", {**run, "finished": False, "counts": {}, "skipped": None}, capsys)
    assert "the run continues" in shown
