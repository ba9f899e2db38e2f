"""What is read from a MemPalace store and from notes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mempalace import DECISION, write_store

from crew_journal.schemas.core.errors import CrewJournalError, NotFound
from crew_journal.schemas.core.timestamps import parse_ts
from crew_journal.services.cli.palace_sources import palace_folder, read_mempalace, read_notes, sections_of

NOTE = """---
title: Plans
---
# Plans

## Storage
DuckDB needs no server.
```
# a comment
```
## Later
We look at Postgres again.
"""


def test_a_store_is_found_by_its_folder_or_by_the_one_above_it(tmp_path: Path) -> None:
    root = write_store(tmp_path)
    assert palace_folder(root) == palace_folder(root / "palace") == root / "palace"
    assert palace_folder(tmp_path) is None


def test_a_store_gives_its_drawers_with_place_origin_and_time(tmp_path: Path) -> None:
    read = read_mempalace(write_store(tmp_path) / "palace")
    one = read.drawers["drawer_api_storage_1"]
    assert (one.wing, one.room, one.hall, one.content) == ("api", "storage", "hall_technical", DECISION)
    assert (one.source_file, one.added_by) == ("/p/a.md", "mempalace")
    local = parse_ts(one.filed_at).astimezone().replace(tzinfo=None)
    assert local.isoformat(timespec="seconds") == "2025-01-15T10:20:30", "a time without a zone is local"
    diary = read.drawers["diary_wing_ada_20250116_1"]
    assert (diary.wing, diary.hall, diary.room, diary.memory_type) == ("diary", "ada_oneil", "importer", "diary")
    assert read.name == f"mempalace:{(tmp_path / '.mempalace' / 'palace').resolve()}"


def test_a_store_is_read_in_whole_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    read = read_mempalace(write_store(tmp_path) / "palace")
    long = [read.drawers[name].content for name in ("drawer_web_login_3", "drawer_web_login_3_part2")]
    assert "".join(long) == "line\n" * 3_000
    assert len(read.drawers) == 5
    assert [(fact.subject, fact.object, fact.valid_to, fact.subject_type) for fact in read.facts] == [
        ("Backend", "MongoDB", "2025-01-14", "project"),
        ("Backend", "PostgreSQL", None, "project"),
    ]
    assert read.facts[1].source_closet == "drawer_api_storage_1"
    assert [tunnel["label"] for tunnel in read.tunnels] == ["sessions are stored"]
    (fact,) = (reason for reason in read.left_out if reason.startswith("facts: valid_from"))
    assert dict(read.left_out) == {
        "rows that only say that a file was read": 1,
        "drawers without a text": 1,
        "tunnels to rooms without drawers": 1,
        fact: 1,
    }


def test_a_knowledge_graph_of_an_early_version_is_read(tmp_path: Path) -> None:
    root = write_store(tmp_path)
    with closing(sqlite3.connect(root / "knowledge_graph.sqlite3")) as db:
        for column in ("source_drawer_id", "adapter_name"):
            db.execute(f"ALTER TABLE triples DROP COLUMN {column}")
        db.commit()
    assert len(read_mempalace(root / "palace").facts) == 2


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").write_text("not a database, only a text of some length" * 10)
    with pytest.raises(CrewJournalError, match=r"chroma\.sqlite3 cannot be read"):
        read_mempalace(tmp_path)


def test_notes_become_a_drawer_for_each_section_in_the_room_of_their_folder(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    (root / "work" / "deep").mkdir(parents=True)
    (root / ".obsidian").mkdir()
    (root / ".obsidian" / "x.md").write_text("settings of the program")
    (root / "plans.md").write_text(NOTE)
    (root / "work" / "deep" / "a.MD").write_text("The parser is green.\n")
    (root / "bad.md").write_bytes(b"\xff\xfe\x00 no text at all")
    (root / "short.md").write_text("# ok")
    os.utime(root / "plans.md", (1_700_000_000, 1_700_000_000))
    read = read_notes(root, None)
    found = {value.content: value for value in read.drawers.values()}
    assert len(found) == 3
    later = found["## Later\nWe look at Postgres again."]
    assert (later.wing, later.room, later.source_file, later.filed_at) == (
        "vault",
        "plans",
        "plans.md",
        "2023-11-14T22:13:20.000Z",
    )
    assert found["The parser is green."].room == "work"
    assert read.left_out.total() == 2
    assert {value.wing for value in read_notes(root, "mine").drawers.values()} == {"mine"}


def test_a_folder_without_notes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no note in"):
        read_notes(tmp_path, None)


def test_a_heading_without_a_text_begins_the_section_that_follows_and_code_has_no_headings() -> None:
    storage, later = sections_of(NOTE)
    assert storage.startswith("---\ntitle: Plans\n---\n# Plans\n\n## Storage\n")
    assert "# a comment" in storage
    assert later == "## Later\nWe look at Postgres again."


@given(st.text(alphabet="#` \nab~-", max_size=200))
def test_sections_lose_no_line_that_is_not_blank(text: str) -> None:
    lines = [line for section in sections_of(text) for line in section.splitlines() if line.strip()]
    assert lines == [line for line in text.splitlines() if line.strip()]
