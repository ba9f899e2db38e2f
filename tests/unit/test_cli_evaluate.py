"""The questions `eval` reads, and the figures it makes of the answers."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from crew_journal.services.cli import evaluate
from crew_journal.services.cli.embeddings import _print_measured
from crew_journal.services.cli.exam import (
    ExamAnswer,
    ExamQuestion,
    ExamSet,
    Remark,
    averaged,
    figure,
    read_set,
    recipes_named,
    report_unanswerable,
    scores,
    with_share_embedded,
)
from crew_journal.services.cli.main import main

ENTRY = {"id": "a1", "workspace_id": "w", "agent_id": "ada", "entry_type": "x", "summary": "s"}
ASKED = {"qid": "q", "agent_id": "ada", "category": "single", "query": "what?", "relevant_ids": ["a1"]}


def folder(tmp_path: Path, *questions: object, entries: Sequence[object] = (ENTRY,)) -> Path:
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(q) + "\n\n" for q in questions))
    return tmp_path


def question(category: str, *relevant: str) -> ExamQuestion:
    return ExamQuestion(qid="q", agent_id="ada", category=category, query="what?", relevant_ids=relevant)


def test_a_question_is_asked_in_the_workspace_of_its_agents_entries(tmp_path: Path) -> None:
    assert read_set(folder(tmp_path, ASKED)).questions == [
        question("single", "a1").model_copy(update={"workspace_id": "w"})
    ]


def test_a_named_workspace_goes_before_that(tmp_path: Path) -> None:
    assert read_set(folder(tmp_path, ASKED), "mine").questions[0].workspace_id == "mine"


@pytest.mark.parametrize("line", [{"agent_id": "a"}, [1], 3])
def test_a_line_that_is_no_question_is_wrong_usage_and_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(click.BadParameter, match="line 3"):
        read_set(folder(tmp_path, ASKED, line))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({**ASKED, "relevant_ids": "a1"}, "relevant_ids: .*send a JSON array"),
        ({"agent_id": "ada", "query": "what?"}, "relevant_ids is required.*add relevant_ids"),
        ({**ASKED, "relevant_ids": ["a1", None]}, r"relevant_ids\.1: "),
        ({**ASKED, "agent_id": None}, "agent_id: .*use 1 to 64 of"),
        ({**ASKED, "agent_id": "no id"}, "agent_id: .*use 1 to 64 of"),
        ({**ASKED, "query": None}, "query: .*valid string"),
        ({**ASKED, "query": ["what?"]}, "query: .*valid string"),
        ({**ASKED, "query": " "}, "query must not be blank"),
        ({**ASKED, "query": "\ud800"}, "query: "),
        ({**ASKED, "asked_at": 7}, "asked_at: .*valid string"),
        ({**ASKED, "category": ["single"]}, "category: .*send a string"),
        ({**ASKED, "workspace_id": "_system"}, "workspace_id: .*not starting with _"),
    ],
)
def test_what_a_question_lacks_is_named_and_an_id_is_not_read_letter_by_letter(
    tmp_path: Path, line: object, why: str
) -> None:
    with pytest.raises(click.BadParameter, match=f"line 1 is not a valid question: {why}") as caught:
        read_set(folder(tmp_path, line))
    assert caught.value.param_hint == "queries.jsonl"


def test_a_question_without_a_time_is_undated(tmp_path: Path) -> None:
    """Figures must not depend on the day they are measured."""
    found = read_set(folder(tmp_path, ASKED, {**ASKED, "asked_at": "2023-05-10T01:00:00+02:00"}))
    assert [one.asked_at for one in found.questions] == ["unknown", "2023-05-10T01:00:00+02:00"]
    with pytest.raises(click.BadParameter, match="line 1 is not a valid question: asked_at: not an RFC 3339 time"):
        read_set(folder(tmp_path, {**ASKED, "asked_at": "yesterday"}))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_questions_is_wrong_usage_and_named(tmp_path: Path, text: str) -> None:
    """It measured nothing and exited 0."""
    folder(tmp_path)
    (tmp_path / "queries.jsonl").write_text(text)
    with pytest.raises(click.BadParameter, match=r"queries\.jsonl holds no question: write one a line"):
        read_set(tmp_path)


def test_of_several_draws_vectors_and_what_could_have_one_are_both_means() -> None:
    """Each draw flags other entries: the vectors of one beside the entries of another came to 139 of 133."""
    draws = [{"model": "m", "embeddable": n, "vectors": n, "recipes": {}} for n in (133, 140, 144)]
    found = averaged(draws)
    assert (found["model"], found["embeddable"], found["vectors"]) == ("m", 139, 139)


def test_figures_are_means_over_questions_by_category_and_overall() -> None:
    sessions: dict[str | None, dict[str, str]] = {None: {"a": "s1", "b": "s2", "c": "s3"}}
    answered = [
        ExamAnswer(question("one", "a"), ["a", "b"], ["a", "b"]),
        ExamAnswer(question("two", "b"), ["c", "a"], ["c", "a", "b"]),
    ]
    found = scores(answered, 2, sessions)
    assert found["overall"] == {
        "questions": 2, "recall": 0.5, "recall_at_5": 0.5, "ndcg": 0.5, "mrr": 0.5, "session_recall": 1.0,
        "precision": None, "inject_recall": None, "inject_hits": None, "silence": None, "wrongly_silent": None,
    }  # fmt: skip
    assert list(found["categories"]) == ["one", "two"]
    assert found["categories"]["two"]["recall"] == 0.0


def test_precision_recall_and_silence_of_inject_are_reported_together() -> None:
    answered = [
        ExamAnswer(question("one", "a"), ["a", "b"], ["a", "b"], ["a", "b"], []),
        ExamAnswer(question("two", "b"), ["b"], ["b"], [], ["c"]),
    ]
    found = scores(answered, 2, {})["overall"]
    names = ("precision", "inject_recall", "inject_hits", "silence", "wrongly_silent")
    assert [found[name] for name in names] == [0.5, 0.5, 1.0, 0.5, 0.5]


def test_no_question_gives_no_figure_instead_of_a_zero() -> None:
    assert scores([], 10, {})["overall"]["recall"] is None


def test_session_recall_is_the_mean_over_questions_that_a_session_answers_and_a_dash_without_any() -> None:
    """A set without sessions was shown as session@5 0.000."""
    answered = [ExamAnswer(question("one", "a"), ["a"], ["a"]), ExamAnswer(question("two", "b"), ["b"], ["b"])]
    found = scores(answered, 2, {None: {"a": "s1"}})
    assert found["overall"]["session_recall"] == 1.0
    assert found["categories"]["two"]["session_recall"] is None
    assert (figure(None), figure(0.0)) == ("-", "0.000")


def test_a_comparison_of_models_on_a_set_without_sessions_shows_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    measured = scores([ExamAnswer(question("one", "a"), ["a"], ["a"])], 10, {})
    models = {"m": {"vectors": 1, "embeddable": 1, "recipes": {"robust": measured}}}
    _print_measured({"questions": 1, "k": 10, "models": models})
    shown = capsys.readouterr().out.split()
    assert shown[-5:] == ["1/1", "1.000", "1.000", "1.000", "-"]


LATIN_1 = '{"summary": "queue \xe9"}\n'.encode("latin-1")


@pytest.mark.parametrize("name", ["queries.jsonl", "journal.jsonl"])
@pytest.mark.parametrize("content", [LATIN_1, b"{\n", b"[" * 100_000 + b"\n"], ids=["latin-1", "no JSON", "too deep"])
def test_a_line_that_cannot_be_read_is_wrong_usage_named_with_its_file(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """Latin-1 was "a defect", and a broken entry was named only by the import."""
    path = folder(tmp_path, ASKED) / name
    path.write_bytes(path.read_bytes().rstrip() + b"\n" + content)
    with pytest.raises(click.BadParameter, match="line 2") as caught:
        read_set(tmp_path)
    assert caught.value.param_hint == name


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    plain = read_set(folder(tmp_path, ASKED))
    for name in ("queries.jsonl", "journal.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_set(tmp_path) == plain
    (copy := tmp_path / "copy").mkdir()
    with_share_embedded(tmp_path, copy, 0.5, 1)
    assert json.loads((copy / "journal.jsonl").read_text()) == ENTRY


def test_an_entry_that_the_import_would_refuse_is_named_before_anything_is_imported(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="line 2: entry_type"):
        read_set(folder(tmp_path, ASKED, entries=[ENTRY, {**ENTRY, "id": "a2", "entry_type": "Not A Type"}]))


def test_an_id_of_two_entries_is_refused_and_the_same_line_twice_is_not(tmp_path: Path) -> None:
    assert len(read_set(folder(tmp_path, ASKED, entries=[ENTRY, ENTRY])).questions) == 1
    with pytest.raises(click.BadParameter, match="line 2: the id a1 is that of another entry, in line 1"):
        read_set(folder(tmp_path, ASKED, entries=[ENTRY, {**ENTRY, "summary": "another"}]))


def test_a_question_that_no_entry_of_its_agent_answers_is_left_out_with_a_reason(tmp_path: Path) -> None:
    """Each counted as a recall of 0, without a word."""
    others = [{**ASKED, "relevant_ids": []}, {**ASKED, "relevant_ids": ["a9", "a8"]}, {**ASKED, "agent_id": "bob"}]
    found = read_set(folder(tmp_path, *others, ASKED))
    assert [question.qid for question in found.questions] == ["q"]
    assert [(one.line, one.why) for one in found.left_out] == [
        (1, "relevant_ids is empty"),
        (3, "a9 and 1 more are not entries of ada in journal.jsonl"),
        (5, "a1 is not an entry of bob in journal.jsonl"),
    ]
    assert found.as_dict()["questions"] == 1
    assert found.as_dict()["left_out"][0] == {"line": 1, "qid": "q", "why": "relevant_ids is empty"}


def test_of_a_question_that_is_answered_in_part_what_is_missing_stays_in_the_denominator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_set(folder(tmp_path, {**ASKED, "relevant_ids": ["a1", "a9", "a1"]}))
    assert found.questions[0].relevant_ids == ("a1", "a9")
    assert found.partly == [Remark(1, "q", "a9 is not an entry of ada in journal.jsonl, workspace w")]
    assert scores([ExamAnswer(found.questions[0], ["a1"], ["a1"])], 10, {})["overall"]["recall"] == 0.5
    report_unanswerable(found)
    said = capsys.readouterr()
    assert said.out == ""
    assert "as not found" in said.err
    assert "line 1: a9 is not an entry of ada" in said.err


def test_only_the_first_of_many_questions_left_out_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    report_unanswerable(ExamSet([], {}, [Remark(line, "q", "relevant_ids is empty") for line in range(1, 1_008)]))
    said = capsys.readouterr().err
    assert "1,007: line 1: relevant_ids is empty" in said
    assert "line 5: relevant_ids is empty; and 1,002 more" in said
    assert "line 6" not in said


def test_a_set_without_a_question_that_can_be_answered_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="no question can be answered: line 1: relevant_ids is empty"):
        read_set(folder(tmp_path, {**ASKED, "relevant_ids": []}))


def test_an_agent_in_several_workspaces_is_asked_where_the_answer_is(tmp_path: Path) -> None:
    """It was asked in the last one only, and found nothing."""
    entries = [
        {**ENTRY, "workspace_id": home, "id": name, "trace_id": f"s-{name}"}
        for home, name in [("w", "a1"), ("v", "a2"), ("default", "a3"), (None, "a4")]
    ]
    asked = [{**ASKED, "relevant_ids": names} for names in (["a1"], ["a2"], ["a3", "a4"])]
    found = read_set(folder(tmp_path, *asked, entries=entries))
    assert [question.workspace_id for question in found.questions] == ["w", "v", None]
    assert found.sessions["v"] == {"a2": "s-a2"}
    assert [question.workspace_id for question in read_set(tmp_path, "mine").questions] == ["mine"] * 3


def test_a_question_whose_answers_are_in_two_workspaces_must_name_one(tmp_path: Path) -> None:
    entries = [ENTRY, {**ENTRY, "workspace_id": "default"}]
    with pytest.raises(click.BadParameter, match=r"several workspaces \(default and w\).*name it as workspace_id"):
        read_set(folder(tmp_path, ASKED, entries=entries))
    named = [{**ASKED, "workspace_id": "default"}, {**ASKED, "workspace_id": "w"}]
    assert [question.workspace_id for question in read_set(folder(tmp_path, *named, entries=entries)).questions] == [
        None,
        "w",
    ]


def test_sessions_are_those_of_the_questions_workspace() -> None:
    asked = question("one", "a").model_copy(update={"workspace_id": "w"})
    sessions: dict[str | None, dict[str, str]] = {"v": {"a": "s1", "b": "s1"}, "w": {"a": "s1", "b": "s2"}}
    assert scores([ExamAnswer(asked, ["b"], ["b"])], 2, sessions)["overall"]["session_recall"] == 0.0


@pytest.mark.parametrize(("names", "why"), [(",", "names no recipe"), ("rrf,robst", "recipe robst is not known")])
def test_recipes_that_are_not_known_are_wrong_usage(names: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        recipes_named(names, "--recipes")


def test_a_recipe_named_twice_is_measured_once_in_its_order() -> None:
    assert recipes_named("rrf, robust,rrf", "--recipes") == ["rrf", "robust"]


@pytest.mark.parametrize(
    "wrong",
    [("--recipes", "robst"), ("--recipes", ","), ()],
    ids=["unknown recipe", "no recipe", "a line that is no question"],
)
def test_eval_refuses_what_is_wrong_before_it_starts_a_journal(
    tmp_path: Path, wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped recipe was refused when all was imported and embedded."""
    started = []
    monkeypatch.setattr(evaluate, "scratch_journal", lambda **_: started.append(1))
    folder(tmp_path, ASKED if wrong else {**ASKED, "query": None})
    assert main(["eval", str(tmp_path), "--embedder", "none", *wrong]) == 2
    assert not started
