"""No malformed file crashes an importer, hangs it or is imported in part: each is named, with its line or member.

Every format meets every fault: of bytes, of types (each value of its sample replaced by others), of its archive, and of what
is in the place of a file. The bounds are lowered for these tests, so that files are large against them alone.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import sqlite3
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.malformed import ARCHIVES, FAULTS, FORMATS, SPECIALS, Sample, type_faults
from support.mempalace import write_store

from crew_journal.schemas.core.errors import EntryTooLarge, InvalidFile
from crew_journal.services.cli import bundles, foreign_files
from crew_journal.services.cli import palace_sources as mempalace
from crew_journal.services.cli.importing import command
from crew_journal.services.cli.importing.command import SOURCES, Plan, Selection
from crew_journal.services.cli.importing.lines import MAX_LINE_BYTES
from crew_journal.services.cli.importing.sources import conversations
from crew_journal.services.cli.main import main
from crew_journal.services.cli.palace_sources import PalaceSource, palace_folder, read_mempalace, read_notes

CHARS = 2_000_000
PARTS = 200_000
ids = [f"{one.name}-{one.inside.rpartition('/')[2]}" if one.name == "slack" else one.name for one in FORMATS]
every_format = pytest.mark.parametrize("sample", FORMATS, ids=ids)
packed = pytest.mark.parametrize("sample", [one for one in FORMATS if one.archive], ids=lambda one: one.archive)
folders = pytest.mark.parametrize("sample", [one for one in FORMATS if one.inside], ids=lambda one: one.inside)
of_any_json = {"a number", "a text", "an empty object", "an empty list", "a list of lists", "a list of everything"}
of_texts = {"an escaped NUL", "half a surrogate pair"}
of_lines = {"nothing", "blanks alone", "the first half", "all but the last byte"}
"""Faults that some formats read: they may hold a text with such characters, nothing, or a part of their lines."""
torn = {"a byte that is not UTF-8", "an encoded surrogate", "UTF-16", "random bytes", "NUL bytes", "another format"} | {
    "a NUL within a text"
}
"""Lines that Claude Code's reader leaves out and counts, as a crash of that program leaves them."""


@pytest.fixture(autouse=True)
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MAX_VALUE_CHARS", CHARS)
    monkeypatch.setattr(foreign_files, "MAX_PARTS", PARTS)
    monkeypatch.setattr(foreign_files, "RATIO_FROM_BYTES", 1 << 20)
    monkeypatch.setattr(mempalace, "MAX_STEPS", 20)


def refusal_of(call: Callable[[], object]) -> str:
    """What a reader refuses, empty if it does not; any other error fails the test."""
    try:
        call()
    except (InvalidFile, EntryTooLarge) as error:
        return error.message
    return ""


@contextmanager
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if an import gets as far as looking for a service."""

    def reached(*_: object, **__: object) -> None:
        raise AssertionError("the import went on to the service")

    with monkeypatch.context() as patch:
        patch.setattr(command, "target", reached)
        yield


@pytest.mark.parametrize("fault", FAULTS)
@every_format
def test_a_malformed_file_is_named_and_ends_the_import_before_it_begins(
    sample: Sample, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample.made(tmp_path, FAULTS[fault](sample.data))
    read = (
        of_any_json
        | of_texts
        | (of_lines if sample.lines else set())
        | (torn if sample.name == "claude-code" else set())
    )
    dry = ("--dry-run",) if fault in read else ()
    with nothing_is_sent(monkeypatch):
        code = main(["import", "--from", sample.name, str(path), *dry])
    said = capsys.readouterr().err
    assert code == 2 or (code == 0 and fault in read), said
    if code == 2:
        assert Path(sample.inside or path).name in said
        assert re.search(r", line \d+", said), "and its line"


@every_format
def test_a_value_of_another_type_at_any_level_is_read_or_named(sample: Sample, tmp_path: Path) -> None:
    read = refused = 0
    plans: list[Plan] = []
    path = sample.made(tmp_path, sample.data)
    file = path / sample.inside if sample.inside else path
    faults = [fault for value in sample.values() for fault in type_faults(value)]
    for where, value in faults[:: len(faults) // 500 + 1]:  # the nodes of a long sample are alike
        file.write_bytes(sample.written([value]))
        said = refusal_of(lambda: plans.append(Plan.of(Selection(sample.name, SOURCES[sample.name], path))))
        if said:
            assert f"{Path(sample.inside or path).name}, line " in said, where
            refused += 1
        else:
            assert all(", line " in bad.name for bad in plans[-1].bad), where
            read += 1
    assert read > 10
    assert refused > 10


@every_format
def test_a_fault_in_the_last_of_many_values_keeps_the_first_ones_out(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = sample.values() * 100
    data = sample.written(many)
    bad = b'{"type": NaN}'
    path = sample.made(tmp_path, data + b"\n" + bad if sample.lines else data[:-1] + b",\n" + bad + b"]")
    with nothing_is_sent(monkeypatch):
        assert main(["import", "--from", sample.name, str(path)]) == 2
    assert f", line {len(many) + 1 if sample.lines else 2}" in capsys.readouterr().err


def test_a_submission_that_is_no_valid_entry_is_named_by_its_line_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spans.jsonl"
    spans = [{"name": "fine", "traceId": "a" * 32}, {"name": "long", "traceId": "b" * 300}]
    path.write_text("\n".join(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}) for one in spans))
    with nothing_is_sent(monkeypatch):
        assert main(["import", "--from", "otel", str(path)]) == 2
    assert f"{path}, line 2: trace_id" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ARCHIVES)
@packed
def test_a_malformed_archive_is_named_or_gives_what_it_holds(
    sample: Sample, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "export.zip"
    ARCHIVES[fault](path, str(sample.archive), sample.data)
    readable = {"with names that lead out"}
    if sample.name == "slack":
        readable |= {"without members", "with other members", "with a link"}
    dry = ("--dry-run",) if fault in readable else ()
    with nothing_is_sent(monkeypatch):
        code = main(["import", "--from", sample.name, str(path), *dry])
    said = capsys.readouterr().err
    assert code == (0 if fault in readable else 2), said
    assert "export.zip" in said or code == 0
    assert "\x1b" not in said
    assert list(tmp_path.rglob("*")) == [path], "nothing is unpacked"


@pytest.mark.parametrize("special", ["a pipe", "a socket", "a link to a device", "a link to itself"])
@every_format
def test_what_is_no_regular_file_is_refused_without_being_opened(
    sample: Sample, special: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "export.json"
    SPECIALS[special](path)
    with nothing_is_sent(monkeypatch):
        assert main(["import", "--from", sample.name, str(path)]) == 2
    assert "export.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "special", ["a pipe", "a socket", "a link to a device", "a link out of the folder", "a link to itself"]
)
@folders
def test_what_is_no_regular_file_in_a_folder_is_left_out_and_counted(
    sample: Sample, special: str, tmp_path: Path
) -> None:
    path = sample.made(tmp_path, sample.data)
    whole = Plan.of(Selection(sample.name, SOURCES[sample.name], path)).entries
    beside = {"slack": "general/2026-10-21.json"}.get(sample.name, "other.jsonl")
    SPECIALS[special](path / beside)
    (path / "loop").symlink_to(path)
    plan = Plan.of(Selection(sample.name, SOURCES[sample.name], path))
    assert plan.entries == whole
    reason = foreign_files.LINKED if special.startswith("a link") else foreign_files.SPECIAL
    assert plan.notes.left_out[reason] == 1


def test_folders_have_a_depth_and_a_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "deep" / "/".join(["d"] * 40)
    deep.mkdir(parents=True)
    wide = tmp_path / "wide"
    wide.mkdir()
    for number in range(30):
        (wide / f"{number}.md").write_text("# Title\nA text of a note.\n")
    monkeypatch.setattr(foreign_files, "MAX_FILES", 20)
    monkeypatch.setattr(foreign_files, "MAX_DEPTH", 10)
    for folder, said in ((tmp_path / "deep", "deeper than 10 levels"), (wide, "more than 20 files")):
        with pytest.raises(InvalidFile, match=said):
            read_notes(folder, None)
        with pytest.raises(InvalidFile, match=said):
            bundles._read(folder)
        with pytest.raises(InvalidFile, match=said):
            Plan.of(Selection("codex", SOURCES["codex"], folder))


def test_archives_have_a_number_of_members_and_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(30):
            archive.writestr(f"{number}/conversations.json", "[]")

    def read() -> Plan:
        return Plan.of(Selection("claude", SOURCES["claude"], path))

    assert read().entries == 0
    with monkeypatch.context() as patch:
        patch.setattr(foreign_files, "MAX_UNPACKED_BYTES", 50)
        with pytest.raises(InvalidFile, match="unpacks to more than 50 bytes"):
            read()
    monkeypatch.setattr(foreign_files, "MAX_FILES", 20)
    with pytest.raises(InvalidFile, match="30 of at most 20 members"):
        read()
    monkeypatch.setattr(foreign_files, "MAX_FILES", 4)
    with pytest.raises(InvalidFile, match="too many members"):
        read()


def test_a_long_export_is_read_one_conversation_at_a_time(tmp_path: Path) -> None:
    chance = random.Random(1)
    messages = [{"uuid": f"m{n}", "sender": "human", "text": chance.randbytes(2_000).hex()} for n in range(40)]
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("conversations.json", "w") as member:
            chats = (json.dumps({"uuid": f"c{n}", "chat_messages": messages}).encode() for n in range(60))
            member.write(b"[" + next(chats))
            for chat in chats:
                member.write(b",\n" + chat)
            member.write(b"]")
        unpacked = archive.getinfo("conversations.json").file_size
    assert unpacked > 9_000_000
    tracemalloc.start()
    try:
        count = 0
        for file in foreign_files.files_of(path, lambda _inside: True, lambda *_: None, archives=True):
            with file.open() as opened:
                for _line, chat in foreign_files._Text(opened, "x").values():
                    count += len(chat["chat_messages"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 60 * 40
    assert peak < 6_000_000, "a few parts of 1 MiB, whatever the size of the export"


def test_a_list_of_many_small_members_is_read_whatever_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MAX_PARTS", 1_000)
    monkeypatch.setattr(foreign_files, "CHUNK_BYTES", 500)
    text = "[" + "{}," * 100_000 + "{}]"
    assert sum(1 for _ in foreign_files._Text(io.BytesIO(text.encode()), "x").values()) == 100_001
    with pytest.raises(InvalidFile, match="more than 1,000 members"):
        list(foreign_files._Text(io.BytesIO(b"[" + text.encode() + b"]"), "x").values())


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]\n",
        "[1]\n[2]\n",
        '{"a": 1}\n{"a": 2}',
        ' {"a": [1,\n 2]} ',
        "[]",
        '[{"a": 1},\n {"a": "\\ud83d\\ude00 \\ud83d"}]',
        '{"a": 12.5e3}\n-7\n',
        "\ufeff[true, null]",
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_parts_of_any_size_give_the_same_values(text: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(foreign_files._Text(io.BytesIO(text.encode()), "x").values())
    monkeypatch.setattr(foreign_files, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(foreign_files, "_ONE_LINE_CHARS", 1_000)
    assert list(foreign_files._Text(io.BytesIO(text.encode()), "x").values()) == whole
    plain = text.lstrip("\ufeff")
    try:
        value = json.loads(plain)
    except ValueError:
        expected = [json.loads(line) for line in plain.splitlines()]
    else:
        expected = value if isinstance(value, list) else [value]
    assert [one for _, one in whole] == json.loads(json.dumps(expected).replace('\\ud83d"', '\\ufffd"'))


def test_half_of_a_surrogate_pair_becomes_a_replacement_character(tmp_path: Path) -> None:
    path = tmp_path / "memories.json"
    path.write_bytes(rb'[{"id": "1", "memory": "tea \ud83c\udf75 and half \ud83c"}]')
    (record,) = Selection("mem0", SOURCES["mem0"], path).records(Plan().notes)
    assert record["summary"] == "tea \U0001f375 and half \ufffd"


def test_a_cycle_of_messages_and_a_long_chain_of_them_end() -> None:
    ring: dict[str, Any] = {
        f"n{n}": {"parent": f"n{n - 1}" if n else "n9", "children": [f"n{(n + 1) % 10}"]} for n in range(10)
    }
    rootless: dict[str, Any] = {**ring, "n0": {**ring["n0"], "parent": None}}
    chain: dict[str, Any] = {
        f"n{n}": {"parent": f"n{n - 1}" if n else None, "children": [f"n{n + 1}"]} for n in range(30_000)
    }
    for mapping, end, turns in ((ring, "n3", 10), (ring, None, 0), (rootless, None, 10), (chain, None, 30_000)):
        assert len(conversations._path(mapping, end)) == turns


def test_a_folder_that_a_transcript_names_need_not_be_a_name(tmp_path: Path) -> None:
    for name in ("a\x00b", "x" * 5_000, "/" + "y/" * 3_000, "\ud800"):
        line = {"type": "user", "cwd": name, "uuid": "u", "message": {"role": "user", "content": "Use port 7421."}}
        (tmp_path / "s.jsonl").write_text(json.dumps(line))
        assert Plan.of(Selection("claude-code", SOURCES["claude-code"], tmp_path)).entries == 1


# files of entries


def test_a_pipe_is_not_a_file_of_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "entries.jsonl"
    os.mkfifo(path)
    assert main(["import", str(path), "--data-dir", str(tmp_path / "data")]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_a_question_set_with_a_long_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"id": "e1", "entry_type": "note", "agent_id": "ada", "summary": "x"}
    (tmp_path / "journal.jsonl").write_text(json.dumps(entry) + "\n")
    for text, said in (
        ('{"query": "' + "x" * MAX_LINE_BYTES + '"}', "line 1 is longer than"),
        ("[" * 100_000, "nested too deeply"),
        ('{"query": NaN}', "no number NaN"),
    ):
        (tmp_path / "queries.jsonl").write_text(text)
        assert main(["eval", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


# bundles

BUNDLE = {"format": "okf", "documents": [{"path": "AGENT.md", "content": "Ada prefers tea."}]}


@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_malformed_bundle_is_named(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    path.write_bytes(FAULTS[fault](json.dumps(BUNDLE).encode()))
    said = refusal_of(lambda: bundles._read(path))
    assert "bundle.json" in said or fault in of_texts


def test_a_bundle_with_values_of_other_types_is_read_or_named(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    for _where, value in type_faults(BUNDLE):
        path.write_text(json.dumps(value))
        read: list[tuple[Any, Any]] = []
        said = refusal_of(lambda: read.append(bundles._read(path)))  # noqa: B023  # called at once
        assert "bundle.json" in said or all(isinstance(text, str) for one in read[0][0] for text in one.values())


@pytest.mark.parametrize("fault", ARCHIVES)
def test_a_malformed_archive_of_a_bundle_is_named(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    ARCHIVES[fault](path, "AGENT.md", b"Ada prefers tea.")
    readable = fault in ("with names that lead out", "with other members")
    assert ("bundle.zip" in refusal_of(lambda: bundles._read(path))) is not readable


@pytest.mark.parametrize("special", SPECIALS)
def test_special_files_of_a_bundle_are_skipped_and_named(special: str, tmp_path: Path) -> None:
    (tmp_path / "AGENT.md").write_text("Ada prefers tea.")
    SPECIALS[special](tmp_path / "CREW.md")
    documents, skipped = bundles._read(tmp_path)
    if special not in ("a folder of that name", "a file without rights"):
        assert [one["path"] for one in skipped] == ["CREW.md"]
        assert [document["path"] for document in documents] == ["AGENT.md"]


# the palace


@pytest.mark.parametrize("special", SPECIALS)
def test_special_files_among_notes_are_left_out_and_counted(special: str, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Storage\nDuckDB needs no server.\n")
    SPECIALS[special](tmp_path / "other.md")
    (tmp_path / os.fsdecode(b"n\xffme.md")).write_text("# Tea\nAda prefers tea in the morning.\n")
    source = read_notes(tmp_path, None)
    assert len(source.drawers) == 2
    assert all(
        json.dumps(value.model_dump(mode="json"), ensure_ascii=False).encode() for value in source.drawers.values()
    )
    if special not in ("a folder of that name", "a file without rights"):
        assert sum(source.left_out.values()) == 1


def test_a_note_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note.md").write_text("x" * (foreign_files.MAX_TEXT_BYTES + 1))
    with pytest.raises(InvalidFile, match=r"note\.md has more than"):
        read_notes(tmp_path, None)


def _store(tmp_path: Path) -> Path:
    folder = palace_folder(write_store(tmp_path))
    assert folder is not None
    return folder


ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT x AS id, 'k' AS key, 'v' AS string_value, 1 AS int_value, 1.0 AS float_value FROM n"
)
SPOILED = {
    "an endless view": f"DROP TABLE embedding_metadata; CREATE VIEW embedding_metadata AS {ENDLESS}",
    "texts that are bytes": "UPDATE embedding_metadata SET string_value = x'fffe00', int_value = NULL",
    "texts that are numbers": "UPDATE embedding_metadata SET string_value = 7",
    "keys that are bytes": "UPDATE embedding_metadata SET key = CAST(rowid AS BLOB)",
    "no texts": "UPDATE embedding_metadata SET string_value = NULL, int_value = NULL, float_value = NULL",
    "ids that are bytes": "UPDATE embeddings SET embedding_id = CAST(rowid AS BLOB)",
    "times of no clock": "UPDATE embedding_metadata SET string_value = '0001-01-01T00:00:00+23:59' WHERE key = 'filed_at'",
    "no metadata": "DROP TABLE embedding_metadata",
    "another table": "DROP TABLE collections; CREATE TABLE collections (other TEXT)",
}


@pytest.mark.parametrize("sql", SPOILED.values(), ids=SPOILED)
def test_a_malformed_store_is_read_or_named(sql: str, tmp_path: Path) -> None:
    folder = _store(tmp_path)
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as db:
        db.executescript(sql)
    read: list[PalaceSource] = []
    said = refusal_of(lambda: read.append(read_mempalace(folder)))
    assert "chroma.sqlite3" in said or all(value.model_dump_json() for value in read[0].drawers.values())


def test_a_query_of_a_store_has_a_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempalace, "_STEPS_AT_ONCE", 1_000)
    folder = _store(tmp_path)
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as db:
        db.executescript(
            "WITH RECURSIVE n(x) AS (SELECT 100 UNION ALL SELECT x + 1 FROM n WHERE x < 2000) "
            "INSERT INTO segments SELECT 's' || x, 'u', 'METADATA', 'c1' FROM n; "
            "WITH RECURSIVE n(x) AS (SELECT 100 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) "
            "INSERT INTO embeddings (id, segment_id, embedding_id, seq_id) "
            "SELECT x, 's' || (x % 2000), 'e' || x, x'00' FROM n"
        )
    with pytest.raises(InvalidFile, match=r"chroma\.sqlite3 cannot be read: interrupted"):
        read_mempalace(folder)


@pytest.mark.parametrize("fault", [*FAULTS])
def test_malformed_tunnels_are_named(fault: str, tmp_path: Path) -> None:
    folder = _store(tmp_path)
    file = folder.parent / "tunnels.json"
    file.write_bytes(FAULTS[fault](file.read_bytes()))
    said = refusal_of(lambda: read_mempalace(folder))
    assert "tunnels.json" in said or fault in of_texts | of_any_json


def test_tunnels_and_databases_that_are_links_or_of_other_types_are_named(tmp_path: Path) -> None:
    folder = _store(tmp_path)
    file = folder.parent / "tunnels.json"
    source = read_mempalace(folder)
    for _where, other in type_faults(json.loads(file.read_text())):
        file.write_text(json.dumps(other))
        said = refusal_of(lambda: mempalace._read_tunnels(file, source))
        assert not said or "tunnels.json" in said
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidFile, match="not a regular file"):
        read_mempalace(folder)
    file.unlink()
    (folder / "chroma.sqlite3").rename(tmp_path / "elsewhere")
    (folder / "chroma.sqlite3").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidFile, match="is a link"):
        read_mempalace(folder)


def test_a_graph_without_its_columns_is_named(tmp_path: Path) -> None:
    folder = _store(tmp_path)
    graph = next(tmp_path.rglob("knowledge_graph.sqlite3"))
    with closing(sqlite3.connect(graph)) as db:
        db.execute("ALTER TABLE triples DROP COLUMN valid_to")
        db.commit()
    with pytest.raises(InvalidFile, match=r"no column 'valid_to'"):
        read_mempalace(folder)
