"""The questions `eval` reads, and the figures it makes of the answers."""

import json
from pathlib import Path

import pytest
import typer

from crew_journal.services.cli.compare_models import _print_measured
from crew_journal.services.cli.evaluate import averaged_reports
from crew_journal.services.cli.exam import Answered, Question, figure, read_questions, scores

ENTRY = {"id": "a1", "workspace_id": "w", "agent_id": "ada", "entry_type": "x", "summary": "s"}
ASKED = {"qid": "q", "agent_id": "ada", "category": "single", "query": "what?", "relevant_ids": ["a1"]}


def folder(tmp_path: Path, *questions: object) -> Path:
    (tmp_path / "journal.jsonl").write_text(json.dumps(ENTRY) + "\n")
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(q) + "\n\n" for q in questions))
    return tmp_path


def question(category: str, *relevant: str) -> Question:
    return Question("q", "ada", None, category, "what?", relevant)


def test_a_question_is_asked_in_the_workspace_of_its_agents_entries(tmp_path: Path) -> None:
    assert read_questions(folder(tmp_path, ASKED)) == [Question("q", "ada", "w", "single", "what?", ("a1",))]


def test_a_named_workspace_goes_before_that(tmp_path: Path) -> None:
    assert read_questions(folder(tmp_path, ASKED), "mine")[0].workspace_id == "mine"


@pytest.mark.parametrize("line", [{"agent_id": "a"}, [1], 3])
def test_a_line_that_is_no_question_is_wrong_usage_and_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(typer.BadParameter, match="line 3"):
        read_questions(folder(tmp_path, ASKED, line))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({**ASKED, "relevant_ids": "a1"}, "relevant_ids is no array"),
        ({"agent_id": "ada", "query": "what?"}, "relevant_ids is missing"),
    ],
)
def test_what_a_question_lacks_is_named_and_an_id_is_not_read_letter_by_letter(
    tmp_path: Path, line: object, why: str
) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        read_questions(folder(tmp_path, line))


def test_a_question_may_say_when_it_is_asked_and_else_nobody_knows(tmp_path: Path) -> None:
    """Figures must not depend on the day they are measured."""
    found = read_questions(folder(tmp_path, ASKED, {**ASKED, "asked_at": "2023-05-10T01:00:00+02:00"}))
    assert [one.asked_at for one in found] == ["unknown", "2023-05-09T23:00:00.000Z"]
    with pytest.raises(typer.BadParameter, match="line 1 is no question: not an RFC 3339 time"):
        read_questions(folder(tmp_path, {**ASKED, "asked_at": "yesterday"}))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_questions_is_wrong_usage_and_named(tmp_path: Path, text: str) -> None:
    """It measured nothing and exited 0."""
    folder(tmp_path)
    (tmp_path / "queries.jsonl").write_text(text)
    with pytest.raises(typer.BadParameter, match=r"queries\.jsonl holds no question: write one a line"):
        read_questions(tmp_path)


def test_of_several_draws_vectors_and_what_could_have_one_are_both_means() -> None:
    """Each draw flags other entries: the vectors of one beside the entries of another came to 139 of 133."""
    draws = [{"model": "m", "embeddable": n, "vectors": n, "recipes": {}} for n in (133, 140, 144)]
    found = averaged_reports(draws, [])
    assert (found["model"], found["embeddable"], found["vectors"]) == ("m", 139, 139)


def test_figures_are_means_over_questions_by_category_and_overall() -> None:
    sessions = {"a": "s1", "b": "s2", "c": "s3"}
    answered = [
        Answered(question("one", "a"), ["a", "b"], ["a", "b"]),
        Answered(question("two", "b"), ["c", "a"], ["c", "a", "b"]),
    ]
    found = scores(answered, 2, sessions)
    assert found["overall"] == {
        "questions": 2, "recall": 0.5, "recall_at_5": 0.5, "ndcg": 0.5, "mrr": 0.5, "session_recall": 1.0,
    }  # fmt: skip
    assert list(found["categories"]) == ["one", "two"]
    assert found["categories"]["two"]["recall"] == 0.0


def test_no_question_gives_no_figure_instead_of_a_zero() -> None:
    assert scores([], 10, {})["overall"]["recall"] is None


def test_session_recall_is_the_mean_over_questions_that_a_session_answers_and_a_dash_without_any() -> None:
    """A set without sessions was shown as session@5 0.000."""
    answered = [Answered(question("one", "a"), ["a"], ["a"]), Answered(question("two", "b"), ["b"], ["b"])]
    found = scores(answered, 2, {"a": "s1"})
    assert found["overall"]["session_recall"] == 1.0
    assert found["categories"]["two"]["session_recall"] is None
    assert (figure(None), figure(0.0)) == ("-", "0.000")


def test_a_comparison_of_models_on_a_set_without_sessions_shows_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    measured = scores([Answered(question("one", "a"), ["a"], ["a"])], 10, {})
    models = {"m": {"vectors": 1, "embeddable": 1, "recipes": {"robust": measured}}}
    _print_measured({"questions": 1, "models": models}, 10)
    shown = capsys.readouterr().out.split()
    assert shown[-5:] == ["1/1", "1.000", "1.000", "1.000", "-"]
