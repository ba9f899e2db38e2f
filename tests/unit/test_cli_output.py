"""What reaches a terminal from an agent's text, and how a failure is told."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.errors import EntryConflict, FieldProblem, InvalidEntry
from crew_journal.services.cli.output import (
    age,
    emit,
    entry_line,
    plain,
    print_entry,
    print_folded,
    print_pairs,
    print_table,
    progress_bar,
    report_error,
    say,
    size_text,
)
from crew_journal.services.printable import safe

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]x[/] \u202egpj.exe\u2028 \x9b31m \x00 \r\n\x7f"


def is_harmless(text: str) -> bool:
    return all(c in "\n\u200c\u200d" or unicodedata.category(c) not in {"Cc", "Cf", "Zl", "Zp", "Cs"} for c in text)


@given(st.text())
def test_no_text_can_act_on_a_terminal(text: str) -> None:
    assert is_harmless(safe(text))
    assert "\n" not in safe(text)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "M"])))
def test_text_that_can_be_printed_is_left_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_an_escape_sequence_is_shown_and_not_performed() -> None:
    assert safe("\x1b[2J") == "\\x1b[2J"
    assert safe("\u202e") == "\\u202e"


def test_a_table_that_is_wider_than_the_page_cuts_no_cell(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{letter * 40}-end" for letter in "abcde"]
    print_table(cells, [cells])
    header, _, row = [line for line in capsys.readouterr().out.splitlines() if line.strip()][:3]
    for cell in cells[:-1]:
        assert cell in header
        assert cell in row


def test_on_a_terminal_a_long_text_continues_below_its_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "one-word " * 12 + "x" * 70
    print_folded(text, "name  ")
    assert capsys.readouterr().out == f"name  {text}\n"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_folded(text, "name  ")
    first, *rest, last = capsys.readouterr().out.splitlines()
    assert first == "name  " + " ".join(["one-word"] * 6)
    assert rest == ["      " + " ".join(["one-word"] * 6)]
    assert last == "      " + "x" * 70, "an id is not broken"


def test_a_word_that_does_not_fit_beside_its_name_is_printed_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_pairs([("models_dir", "/" + "d" * 50), ("http", "127.0.0.1:9119")])
    assert capsys.readouterr().out == f"models_dir\n    /{'d' * 50}\nhttp        127.0.0.1:9119\n"


def test_on_a_narrow_terminal_the_last_column_is_below_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("id", "type", "summary"), [("i" * 40, "t" * 30, "a summary of twenty words " * 4)])
    lines = capsys.readouterr().out.splitlines()
    assert "i" * 40 in lines[1]
    assert lines[2].startswith("    a summary")
    assert max(map(len, lines)) < 80


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "type"), [])
    assert capsys.readouterr() == ("", "there are none\n")


def hostile_entry() -> dict[str, object]:
    return {
        "id": HOSTILE,
        "ts": HOSTILE,
        "severity": "warn",
        "entry_type": HOSTILE,
        "crew_id": HOSTILE,
        "priority": HOSTILE,
        "summary": HOSTILE,
    }


def test_a_line_shows_the_live_priority_of_an_entry() -> None:
    entry = {"summary": "the queue is stuck", "priority": "normal", "live_priority": "permanent"}
    assert "the queue is stuck [permanent]" in entry_line(entry)
    assert "[" not in entry_line({**entry, "priority": "high", "live_priority": "normal"})
    assert "[high]" in entry_line({"summary": "just published", "priority": "high"})


def test_a_hostile_entry_is_one_harmless_line() -> None:
    line = entry_line(hostile_entry())
    assert is_harmless(line)
    assert "\n" not in line
    assert "[bold red]x[/]" in line


def test_a_hostile_entry_is_printed_without_effect_and_markup_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_entry(hostile_entry())
    print_table((HOSTILE, "b"), [(HOSTILE, HOSTILE)])
    print_pairs([("a", HOSTILE)])
    shown = capsys.readouterr().out
    assert is_harmless(shown.replace("\n", ""))
    assert shown.count("[bold red]x[/]") >= 3


def test_a_hostile_error_is_one_harmless_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(EntryConflict(HOSTILE, hint=HOSTILE), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]
    assert all(is_harmless(line) for line in lines)


def test_an_error_as_json_names_every_problem_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(InvalidEntry((FieldProblem("summary", "is missing", "add it"),)), as_json=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)["error"]
    assert error["type"] == "InvalidEntry"
    assert error["problems"] == [{"field": "summary", "problem": "is missing", "fix": "add it"}]


def test_every_problem_of_an_entry_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(InvalidEntry((FieldProblem("a", "x"), FieldProblem("b", "y", "z"))), as_json=False)
    assert capsys.readouterr().err.splitlines() == ["error: a: x", "error: b: y", "hint: z"]


def test_a_document_is_one_line_of_json_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"summary": "größer\u2028\x1b"})
    out = capsys.readouterr().out
    assert len(out.splitlines()) in (1, 2)  # U+2028 counts as a line break for Python, not for JSON
    assert json.loads(out) == {"summary": "größer\u2028\x1b"}


def test_a_progress_bar_prints_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("import", 10) as bar:
        bar(5)
        bar(10, 10, "done")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "now"), (0.5, "now"), (1, "1 s"), (61, "1 min"), (7_300, "2 h"), (86_400 * 3 + 5, "3 d")],
)
def test_an_age_is_printed_in_its_largest_unit(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_sizes_are_printed_in_binary_units() -> None:
    assert [size_text(n) for n in (5, 2_048, 3 * 1024**2, 2_500 * 1024**3)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "2500.0 GiB",
    ]


def test_models_become_plain_json_and_dicts_stay() -> None:
    problem = FieldProblem("a", "b")
    assert plain(problem) == {"field": "a", "problem": "b", "fix": ""}
    assert plain({"a": 1}) == {"a": 1}


def test_a_message_shows_characters_that_act_on_a_terminal_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 28.13: the name of a file of another person reached the terminal with its bidi override."""
    say("conflict: notes\u202etxt.exe\x1b[2J, kept\nas before")
    assert capsys.readouterr().err == "conflict: notes\\u202etxt.exe\\x1b[2J, kept\nas before\n"


def test_an_entry_keeps_within_the_width_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    summary = "the nightly order backup was denied " * 5
    print_entry({"ts": "2026-11-28T10:00:00Z", "entry_type": "memory.remembered", "id": "j_1", "summary": summary})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count(summary.strip()) == 1
