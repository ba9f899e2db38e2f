"""What `recall` prints of an answer."""

from __future__ import annotations

import pytest

from crew_journal.services.cli.main import main
from crew_journal.services.cli.recall import print_recall, print_render

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
    print_recall({"hits": [HIT], "recipe": "robust", "model": None, "receipt": "r_1", "view_seq": 3})
    assert "    score 1.00 of the best, lexical rank 1, shares lexical 0.500\n" in capsys.readouterr().out


def test_a_hit_shows_its_id_and_its_summary_in_full_whatever_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    """An id is what ``relate``, ``graph`` and ``priority`` ask for."""
    hit = {
        **HIT,
        "explain": None,
        "crew_id": "platform",
        "agent_id": "ada",
        "summary": "the disk is full " * 20 + "\x1b[2J",
    }
    print_recall({"hits": [hit], "recipe": "robust", "model": None, "receipt": "r_1", "view_seq": 3})
    head, summary, score = capsys.readouterr().out.splitlines()
    assert score == "    score 1.00 of the best"
    assert head == "#1  1 min  peer.escalation  platform/ada  e1"
    assert summary == "    " + "the disk is full " * 20 + "\\x1b[2J"
    for actor, said in (
        ({"actor_type": "agent", "actor_id": "ada"}, "platform/ada"),
        ({"actor_type": "user", "actor_id": "boss\x1b[2J"}, "platform/ada by user boss\\x1b[2J"),
        ({"actor_type": "keeper", "actor_id": None}, "platform/ada by keeper"),
    ):
        print_recall({"hits": [{**hit, **actor}], "recipe": "robust", "model": None, "receipt": "r_1", "view_seq": 3})
        assert capsys.readouterr().out.splitlines()[0] == f"#1  1 min  peer.escalation  {said}  e1"


def test_counts_follow_the_rule_of_the_plural_and_a_missing_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {
        "recipe": "dense",
        "model": None,
        "receipt": "r_1",
        "view_seq": 3,
        "omitted": 0,
        "redacted": 0,
        "text": "x",
    }
    print_render({**answer, "hits": [HIT], "without_vectors": 1, "awaiting_vectors": None})
    said = capsys.readouterr().err
    assert said.startswith("1 hit, 0 left out")
    assert "vector" not in said, "without a model none will get one, and `degraded` says so"
    print_render({**answer, "hits": [HIT, HIT], "without_vectors": 2, "awaiting_vectors": 1})
    said = capsys.readouterr().err
    assert said.startswith("2 hits, ")
    assert "1 entry waits for its vector" in said
    print_recall({**answer, "hits": [], "degraded": "no-vectors"})
    assert capsys.readouterr().err.startswith("memory could not be searched")


def test_a_number_of_hits_out_of_bounds_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recall", "x", "-k", "99", "--url", "http://127.0.0.1:1", "--token", "cj_x"]) == 2
    assert "-k: is an integer from 1 to 50" in capsys.readouterr().err
