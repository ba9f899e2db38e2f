"""An import goes on where it stopped, and only if the file is still the one it knows."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from crew_journal.services.cli.importing.run import HEAD_BYTES, ImportState, StateFile

LINE = b'{"entry_type":"a","summary":"%06d"}\n'


def write(path: Path, count: int) -> None:
    path.write_bytes(b"".join(LINE % i for i in range(count)))


def after(path: Path, directory: Path, lines: int) -> StateFile:
    """The progress file of an import that has come so far."""
    kept = StateFile(directory, path, "")
    with path.open("rb") as file:
        state = replace(kept.fresh(), offset=lines * len(LINE % 0), line=lines)
        kept.save(state, file, now=True)
    return StateFile(directory, path, "")


def load(kept: StateFile, path: Path) -> ImportState:
    with path.open("rb") as file:
        return kept.load(file)


def test_an_import_goes_on_after_the_last_acked_line(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    state = load(after(source, tmp_path / "imports", 40), source)
    assert (state.line, state.offset) == (40, 40 * len(LINE % 0))


@pytest.mark.parametrize("lines", [10, 5_000], ids=["shorter than the head", "longer than the head"])
def test_a_file_that_has_grown_is_imported_from_where_it_ended(tmp_path: Path, lines: int) -> None:
    source = tmp_path / "a.jsonl"
    write(source, lines)
    assert (source.stat().st_size > HEAD_BYTES) == (lines > 1_000)
    kept = after(source, tmp_path, lines)
    write(source, lines + 10)
    assert load(kept, source).line == lines


def test_a_file_with_another_beginning_is_imported_again(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    kept = after(source, tmp_path, 40)
    source.write_bytes(b"x" + source.read_bytes()[1:])
    assert load(kept, source).line == 0


def test_a_file_rewritten_just_before_the_offset_is_imported_again(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 5_000)
    kept = after(source, tmp_path, 4_000)
    data = bytearray(source.read_bytes())
    data[4_000 * len(LINE % 0) - 5] ^= 1
    source.write_bytes(data)
    assert load(kept, source).line == 0


def test_a_file_that_has_shrunk_is_imported_again(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 5_000)
    kept = after(source, tmp_path, 5_000)
    write(source, 4_000)
    assert load(kept, source).line == 0


def test_each_target_has_a_progress_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    after(source, tmp_path, 40)
    assert load(StateFile(tmp_path, source, "http://elsewhere"), source).line == 0


def test_a_torn_progress_file_restarts_the_import(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    kept = after(source, tmp_path / "imports", 40)
    (only,) = (tmp_path / "imports").iterdir()
    only.write_text(only.read_text()[:30])
    assert load(kept, source).line == 0


def test_the_progress_file_is_for_its_owner_only(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    after(source, tmp_path / "imports", 40)
    (only,) = (tmp_path / "imports").iterdir()
    assert only.stat().st_mode & 0o777 == 0o600


def test_saving_leaves_the_reader_where_it_is(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write(source, 100)
    kept = StateFile(tmp_path, source, "")
    with source.open("rb") as file:
        file.seek(7)
        kept.save(replace(kept.fresh(), offset=50), file, now=True)
        assert file.seek(0, io.SEEK_CUR) == 7
