"""``palace import`` of a MemPalace store and of notes, on a real journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import Cli, Up
from support.mempalace import DECISION, DRAWERS, put, write_store

DONE = {"added": 0, "replaced": 0, "unchanged": 0, "deleted_here": 0, "noise": 0, "no_room": 0, "gone": 0}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Cli(tmp_path_factory.mktemp("from") / "data").up() as up:
        yield up


@pytest.fixture
def cli(running: Up, tmp_path: Path) -> Cli:
    return running.beside(tmp_path / "data")


def test_a_store_is_imported_once_and_what_changed_in_it_follows(cli: Cli, tmp_path: Path) -> None:
    root = write_store(tmp_path)
    into = ("palace", "import", str(root), "-w", "store", "--json")
    plan = cli(*into, "--dry-run").json
    assert (plan["drawers"], plan["facts"]["added"], plan["tunnels"]["added"]) == ({**DONE, "added": 5}, 2, 1)
    assert cli("palace", "status", "-w", "store", "--json").json["total_drawers"] == 0
    done = cli(*into).json
    assert {**done, "dry_run": True} == plan
    found = cli("palace", "search", "which writes were lost?", "-w", "store", "--json").json["results"]
    assert found[0]["content"] == DECISION
    diary = cli("palace", "diary", "Ada O'Neil", "-w", "store", "--json").json["entries"]
    assert [entry["filed_at"][:19] for entry in diary] == ["2025-01-16T08:00:00"]
    facts = cli("kg", "query", "backend", "-w", "store", "--json").json["results"]
    assert {(fact["object"], fact["valid_to"]) for fact in facts} == {("MongoDB", "2025-01-14"), ("PostgreSQL", None)}
    ends = cli("palace", "tunnel-follow", "web", "login", "-w", "store", "--json").json["connections"]
    assert [(one["room"], one["drawer_id"]) for one in ends] == [("storage", "drawer_api_storage_1")]
    again = cli(*into).json
    assert again["drawers"] == {**DONE, "unchanged": 5}
    assert (again["facts"], again["tunnels"]) == (
        {"added": 0, "ended": 0, "unchanged": 2},
        {"added": 0, "unchanged": 1},
    )
    put(
        root / "palace",
        "drawer_web_login_2",
        "The login page sends the form once now.",
        DRAWERS["drawer_web_login_2"][1],
    )
    put(root / "palace", "drawer_web_login_3", "The login page is short now.", DRAWERS["drawer_web_login_3"][1])
    cli("palace", "delete", "drawer_api_storage_1", "-w", "store")
    changed = {**DONE, "replaced": 2, "unchanged": 1, "deleted_here": 1, "gone": 1}
    assert cli(*into, "--dry-run").json["drawers"] == changed
    assert cli(*into).json["drawers"] == changed
    assert cli(*into, "--restore").json["drawers"] == {**DONE, "added": 1, "unchanged": 3}


def test_notes_follow_their_files(cli: Cli, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "plans.md").write_text("# Storage\nDuckDB needs no server.\n# Later\nWe look at Postgres again.\n")
    into = ("palace", "import", str(vault), "-w", "notes", "--json")
    assert cli(*into).json["drawers"] == {**DONE, "added": 2}
    assert cli(*into).json["drawers"] == {**DONE, "unchanged": 2}
    (vault / "plans.md").write_text("# Storage\nDuckDB needs no server.\n# Later\nWe stay with DuckDB.\n")
    assert cli(*into).json["drawers"] == {**DONE, "added": 1, "unchanged": 1, "gone": 1}
    listed = cli("palace", "list", "-w", "notes", "--json").json["drawers"]
    assert {entry["content"] for entry in listed} == {
        "# Storage\nDuckDB needs no server.",
        "# Later\nWe stay with DuckDB.",
    }
    said = cli("palace", "import", str(vault), "-w", "notes", "--dry-run").out
    assert "0 would be added, 0 replaced, 0 deleted because they are gone, 2 unchanged" in said
    (tmp_path / "empty").mkdir()
    assert "no note in" in cli("palace", "import", str(tmp_path / "empty"), "-w", "notes", code=4).err
