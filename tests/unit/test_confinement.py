"""DuckDB reaches the files of its views and no other, and others reach none of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from support.views import MEMORY_MB

from crew_journal.consumers.host.faults import REBUILD_SUFFIX
from crew_journal.consumers.host.store import ViewStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    (tmp_path / "admin.token").write_text("secret\n")
    (tmp_path / "data.csv").write_text("a\n1\n")
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    opened = ViewStore.open(tmp_path / "it's v.duckdb", memory_mb=MEMORY_MB)
    opened.write_blocking(lambda con: con.execute("CREATE TABLE t AS SELECT range AS i FROM range(1000)"))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('{folder}/admin.token')",
        "SELECT * FROM '{folder}/data.csv'",
        "SELECT * FROM glob('{folder}/*')",
        "COPY t TO '/tmp/t.csv'",
        "COPY t TO '{folder}/t.csv'",
        "COPY t FROM '{folder}/data.csv'",
        "EXPORT DATABASE '{folder}/export'",
        "ATTACH '{folder}/other.duckdb' AS other",
        "ATTACH '{folder}/new.duckdb' AS new",
        "INSTALL fts",
        "LOAD fts",
        "SET temp_directory = '{folder}/elsewhere'",
        "SET allowed_paths = ['/etc/passwd']",
        "SET allowed_directories = ['/']",
        "SET enable_external_access = true",
    ],
)
def test_a_statement_that_reaches_for_another_file_is_refused(store: ViewStore, statement: str) -> None:
    asked = statement.format(folder=store.path.parent)
    with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
        store.rows(asked)
    with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
        store.write_blocking(lambda con: con.execute(asked))
    assert sorted(path.name for path in store.path.parent.iterdir()) == sorted(
        ["admin.token", "data.csv", "it's v.duckdb", "it's v.duckdb.wal", "other.duckdb"]
    )


def test_the_file_of_a_rebuild_can_be_attached_for_reading(store: ViewStore) -> None:
    rebuilt = store.path.with_name(store.path.name + REBUILD_SUFFIX)
    with duckdb.connect(str(rebuilt)) as con:
        con.execute("CREATE TABLE t AS SELECT 7 AS i")
    quoted = str(rebuilt).replace("'", "''")
    store.write_blocking(lambda con: con.execute(f"ATTACH '{quoted}' AS fresh (READ_ONLY)"))
    assert store.rows("SELECT i FROM fresh.t") == [(7,)]
    store.write_blocking(lambda con: con.execute("DETACH fresh"))


def test_what_does_not_fit_into_memory_is_spilled_beside_the_file(tmp_path: Path) -> None:
    store = ViewStore.open(tmp_path / "v.duckdb", memory_mb=64)
    big = "CREATE TABLE big AS SELECT i, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS s FROM range(1000000) AS r(i)"
    store.write_blocking(lambda con: con.execute(big))
    store.write_blocking(lambda con: con.execute("CREATE TABLE ordered AS SELECT * FROM big ORDER BY s"))
    assert store.rows("SELECT count(*) FROM ordered") == [(1_000_000,)]
    assert (tmp_path / "v.duckdb.tmp").is_dir()
    store.close()


def test_rights_that_an_earlier_version_left_to_others_are_taken_away(tmp_path: Path) -> None:
    path, log = tmp_path / "v.duckdb", tmp_path / "v.duckdb.wal"
    before = os.umask(0o022)
    try:
        with duckdb.connect(str(path), config={"checkpoint_threshold": "1TB"}) as con:
            con.execute("PRAGMA disable_checkpoint_on_shutdown")
            con.execute("CREATE TABLE t AS SELECT 7 AS i")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(log.stat().st_mode) == 0o644
    store = ViewStore.open(path, memory_mb=MEMORY_MB)
    assert store.rows("SELECT i FROM t") == [(7,)]
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(log.stat().st_mode) == 0o600
    store.close()
