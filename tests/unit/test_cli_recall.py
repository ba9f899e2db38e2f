"""What `recall` prints of an answer."""

from __future__ import annotations

import pytest

from crew_journal.services.cli.recall import print_recall

HIT = {
    "entry_id": "e1",
    "score": 0.5,
    "age_seconds": 60.0,
    "entry_type": "peer.escalation",
    "summary": "the disk is full",
    "explain": {
        "lexical": {"rank": 1, "score": 2.0},
        "dense": {"rank": None, "score": None},
        "importance": None,
        "shares": {"lexical": 0.5},
    },
}


def test_an_arm_that_did_not_find_a_hit_is_left_out_of_its_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    print_recall({"hits": [HIT], "recipe": "robust", "model": None, "view_seq": 3}, explain=True)
    assert "#1 e1: lexical rank 1, score 2.000, shares lexical 0.500\n" in capsys.readouterr().out
