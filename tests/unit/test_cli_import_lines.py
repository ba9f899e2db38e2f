"""A JSONL file becomes batches in which every line keeps its number."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.entry import MAX_ENTRY_BYTES
from crew_journal.schemas.core.errors import FieldProblem, InvalidEntry
from crew_journal.services.cli.importing.lines import (
    BATCH_LINES,
    MAX_LINE_BYTES,
    BadLine,
    Line,
    bad_lines_of,
    line_id,
    read_batches,
    read_line,
    refusal,
    with_line_numbers,
)

GOOD = {"entry_type": "run.completed", "summary": "done"}


def lines(*records: object) -> bytes:
    return b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records)


def read(data: bytes, **options: str) -> list[Line | BadLine]:
    batches = list(read_batches(io.BytesIO(data), workspace=options.get("workspace")))
    found: list[Line | BadLine] = [line for batch in batches for line in (*batch.good, *batch.bad)]
    return sorted(found, key=lambda line: line.number)


def test_an_entry_without_an_id_gets_the_same_one_each_time() -> None:
    first, second = read(lines(GOOD, GOOD)), read(lines(GOOD, GOOD))
    ids = [line.record["id"] for line in first if isinstance(line, Line)]
    assert ids == [line.record["id"] for line in second if isinstance(line, Line)]
    assert len(set(ids)) == 2
    assert all(id_.startswith("i_") and len(id_) <= 64 for id_ in ids)


def test_the_id_follows_from_workspace_number_and_content() -> None:
    known = line_id("a", 1, b"x")
    assert known != line_id("b", 1, b"x")
    assert known != line_id("a", 2, b"x")
    assert known != line_id("a", 1, b"y")


def test_an_id_that_is_there_is_kept() -> None:
    (line,) = read(lines({**GOOD, "id": "mine"}))
    assert isinstance(line, Line)
    assert line.record["id"] == "mine"


def test_blank_lines_are_passed_over_and_counted() -> None:
    found = read(lines(GOOD, b"\n", b"  \r\n", GOOD))
    assert [line.number for line in found] == [1, 4]


def test_a_file_may_begin_with_a_byte_order_mark_and_end_without_a_line_break() -> None:
    found = read(b"\xef\xbb\xbf" + lines(GOOD) + json.dumps(GOOD).encode())
    assert all(isinstance(line, Line) for line in found)
    assert len(found) == 2


def test_every_bad_line_is_named_with_all_its_problems() -> None:
    data = lines(
        GOOD,
        b"{broken\n",
        b"[1]\n",
        b"\xff\xfe\n",
        {"entry_type": "Bad Type", "severity": "loud"},
        {**GOOD, "ts": "2026-01-01T00:00:00"},
        b'{"entry_type": "a", "summary": NaN}\n',
    )
    found = read(data)
    bad = {line.number: {p.field for p in line.problems} for line in found if isinstance(line, BadLine)}
    assert set(bad) == {2, 3, 4, 5, 6, 7}
    assert bad[5] == {"entry_type", "severity", "summary"}
    assert bad[6] == {"ts"}


def test_a_line_too_long_is_refused_without_being_read_whole_and_the_next_is_read() -> None:
    data = b"[" + b"1" * (2 * MAX_LINE_BYTES) + b"\n" + lines(GOOD)
    found = read(data)
    assert [type(line) for line in found] == [BadLine, Line]
    assert [line.number for line in found] == [1, 2]


def test_the_largest_entry_passes_even_if_written_in_escapes() -> None:
    record = {**GOOD, "payload": {"text": "\u00e9" * (MAX_ENTRY_BYTES // 2 - 400)}}
    (line,) = read(lines(record))
    assert isinstance(line, Line)


def test_a_workspace_option_replaces_what_the_lines_name() -> None:
    (line,) = read(lines({**GOOD, "workspace_id": "theirs"}), workspace="ours")
    assert isinstance(line, Line)
    assert line.record["workspace_id"] == "ours"


@given(st.integers(0, 3 * BATCH_LINES), st.integers(0, 3 * BATCH_LINES))
def test_reading_on_from_any_batch_gives_the_same_lines(count: int, skip: int) -> None:
    data = b"".join(b'{"entry_type":"a","summary":"%d"}\n' % i for i in range(count))
    whole = list(read_batches(io.BytesIO(data)))
    assert sum(len(batch.good) for batch in whole) == count
    assert all(len(batch.good) <= BATCH_LINES for batch in whole)
    done = whole[: skip // BATCH_LINES]
    offset, line = (done[-1].end_offset, done[-1].end_line) if done else (0, 0)
    file = io.BytesIO(data)
    file.seek(offset)
    rest = list(read_batches(file, offset=offset, line=line))
    again = [line.record["id"] for batch in (*done, *rest) for line in batch.good]
    assert again == [line.record["id"] for batch in whole for line in batch.good]


def test_what_the_service_refuses_is_reported_by_line() -> None:
    sent = [Line(7, b"a", {}), Line(9, b"b", {})]
    error = InvalidEntry((FieldProblem("entries[1].summary", "is odd"), FieldProblem("entries[0]", "is late")))
    assert bad_lines_of(error, sent) == [
        BadLine(7, b"a", (FieldProblem("entry", "is late"),)),
        BadLine(9, b"b", (FieldProblem("summary", "is odd"),)),
    ]
    assert bad_lines_of(InvalidEntry((FieldProblem("entries", "too many"),)), sent) == []
    assert with_line_numbers("entries[1].id is taken", sent) == "line 9: id is taken"
    assert with_line_numbers("the id of entries[0] again", sent) == "the id of line 7 again"


def test_a_refusal_names_line_and_field() -> None:
    error = refusal([BadLine(3, b"", (FieldProblem("ts", "is naive", "add Z"),))])
    assert error.problems == (FieldProblem("line 3: ts", "is naive", "add Z"),)
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"n": NaN}', "JSON has no number NaN"),
        ('{"n": -Infinity}', "JSON has no number -Infinity"),
        ("[" * 200_000, "nested too deeply"),
        ('{"n": ' + "1" * 5_000 + "}", "more than 64 bits"),
        ("{", "Expecting property name"),
    ],
)
def test_what_is_wrong_with_a_line_that_is_no_json_is_said(text: str, said: str) -> None:
    bad = read_line(1, text.encode(), None)
    assert isinstance(bad, BadLine)
    assert said in bad.problems[0].problem
