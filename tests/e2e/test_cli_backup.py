"""`backup`, `restore` and `export` on a real broker: one file, made while it runs, and the same journal again."""

import json
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow.parquet as pq
import pytest
from support.cli import Cli

from crew_journal.schemas.core.subjects import JOURNAL_STREAM

WORDS = "correct horse battery staple"
ENTRIES = 700
"""More than a chunk of the broker's copy holds."""


def fill(cli: Cli, folder: Path) -> None:
    source = folder / "a.jsonl"
    with source.open("w") as file:
        for n in range(ENTRIES):
            entry = {"entry_type": "note.taken", "summary": f"note {n}", "workspace_id": ("acme", "globex")[n % 2]}
            file.write(json.dumps({**entry, "payload": {"text": f"{n} " * 240}}) + "\n")
    cli("import", str(source))
    cli("remember", "the spare key is under the third pot", "--agent", "ada", "-w", "acme")
    cli("token", "create", "--role", "ADMIN", "-w", "acme", "--label", "kept")
    link = cli("invite", "maria", "-w", "acme").out.strip()
    assert httpx.post(link, data={"password": WORDS, "again": WORDS}, trust_env=False).status_code == 303


def entries(cli: Cli, last_seq: int) -> dict[str, list[Any]]:
    """Of each workspace those up to a sequence: a sweep may record some at any time."""
    found = {}
    for workspace in ("acme", "globex"):
        done = cli("list", "--all", "--json", "-w", workspace)
        found[workspace] = [line for line in done.lines if line["seq"] <= last_seq]
    return found


def exports_take_back_what_they_wrote(cli: Cli, folder: Path) -> None:
    made = cli("export", str(folder / "jsonl"), "--json").json["files"]
    assert {one["workspace"]: one["entries"] for one in made}.keys() >= {"acme", "globex"}
    lines = [json.loads(line) for line in (folder / "jsonl" / "globex.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines), "in the order of the journal"
    table = pq.read_table(cli_export(cli, folder)).to_pylist()
    assert [row["id"] for row in table] == [line["id"] for line in lines]
    assert json.loads(table[0]["payload"]) == lines[0]["payload"]
    again = cli("import", str(folder / "jsonl" / "globex.jsonl"), "-w", "copy", "--json").json
    assert (again["imported"], again["skipped"]) == (len(lines), 0)


def cli_export(cli: Cli, folder: Path) -> str:
    files = cli("export", str(folder / "parquet"), "--format", "parquet", "-w", "globex", "--json").json["files"]
    return str(files[0]["file"])


def test_a_backup_of_a_running_journal_becomes_the_same_journal_elsewhere(tmp_path: Path) -> None:
    cli, file = Cli(tmp_path / "data"), tmp_path / "journal.backup"
    with cli.up() as up:
        here = up.beside(tmp_path / "none")
        fill(here, tmp_path)
        made = cli("backup", str(file), "--json").json
        assert made["bytes"] == file.stat().st_size
        assert file.stat().st_mode & 0o077 == 0
        before = entries(cli, made["last_seq"])
        assert sum(map(len, before.values())) > ENTRIES
        exports_take_back_what_they_wrote(cli, tmp_path)
        cli("publish", "--type", "note.taken", "written after the backup")
        assert cli("backup", str(file), code=2).err.startswith("error: Invalid value for FILE")

    other = Cli(tmp_path / "other")
    done = other("restore", str(file), "--json").json
    assert (done["sha256"], done["last_seq"]) == (made["sha256"], made["last_seq"])
    assert done["recorded_at"] == made["last_seq"] + 1
    with other.up() as restored:
        assert other("verify", "--json").json["equal"]
        assert entries(other, made["last_seq"]) == before
        signed_in = httpx.post(
            f"{restored.facts['http']}/ui/login", data={"name": "maria", "password": WORDS}, trust_env=False, timeout=60
        )
        assert signed_in.status_code == 303
        assert "third pot" in other("recall", "where is the spare key", "-w", "acme").out
        labels = [token["label"] for token in other("token", "list", "--json").json["tokens"]]
        assert labels == ["kept"]
        assert (other.data_dir / "admin.token").read_text() != (cli.data_dir / "admin.token").read_text()
    again = other("restore", str(file), code=2)
    assert "holds a journal already" in again.err


def test_restore_of_an_older_backup_applies_the_erasures_that_came_after_it(tmp_path: Path) -> None:
    cli, file, erasures = Cli(tmp_path / "data"), tmp_path / "old.backup", tmp_path / "erasures.jsonl"
    with cli.up():
        for workspace in ("default", "acme"):
            cli("remember", f"the {workspace} badge word is quetzal", "--entry-id", "j_note", "-w", workspace)
        cli("remember", "Ana drinks quetzal tea", "--data-subject-id", "ana")
        cli("remember", "Ben drinks green tea", "--data-subject-id", "ana.b")
        cli("backup", str(file))
        cli("forget", "--id", "j_note", "-w", "acme", "--reason", "r", "--yes")
        cli("forget", "--subject", "ana", "--reason", "r", "--yes")
        of_erasures = "--type", "erasure.requested", "--type", "erasure.scoped"
        records = [cli("list", "--all", "--json", *of_erasures, "-w", name).out for name in ("default", "acme")]
        erasures.write_text("".join(records))

    other = Cli(tmp_path / "other")
    done = other("restore", str(file), "--erasures", str(erasures), "--json").json
    assert (done["erasures"], done["erased"] >= 2) == (2, True)
    with other.up():
        found = {name: other("list", "-w", name, "--type", "memory.remembered").out for name in ("default", "acme")}
        assert "default badge word" in found["default"]
        assert "green tea" in found["default"]
        assert "quetzal tea" not in found["default"]
        assert "quetzal" not in found["acme"]
        assert other("verify", "--json").json["equal"]
        assert other("forget", "--prove", "quetzal tea", "--json").json["files"] == {}
        refused = other("remember", "again", "--entry-id", "j_note", "-w", "acme", code=None)
        assert "was erased" in refused.err
        kept = {one["state"] for one in other("erasures", "--json").json["erasures"]}
        assert kept == {"completed"}

    erasures.write_text('{"entry_type": "erasure.requested"}\n')
    wrong = Cli(tmp_path / "wrong")
    assert "line 1" in wrong("restore", str(file), "--erasures", str(erasures), code=1).err
    assert not wrong.data_dir.exists()


def damaged(file: Path, target: Path) -> Path:
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(target, "w") as made:
        for name in archive.namelist():
            raw = bytearray(archive.read(name))
            if name == JOURNAL_STREAM:
                raw[len(raw) // 2] ^= 1
            made.writestr(name, bytes(raw))
    return target


def test_a_damaged_or_foreign_file_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    cli, file = Cli(tmp_path / "data"), tmp_path / "journal.backup"
    cli("publish", "--type", "note.taken", "kept")
    cli("backup", str(file))
    foreign = tmp_path / "foreign.zip"
    foreign.write_text("not an archive")
    cut = tmp_path / "cut.backup"
    cut.write_bytes(file.read_bytes()[:-200])
    other = Cli(tmp_path / "other")
    assert "another hash" in other("restore", str(damaged(file, tmp_path / "damaged")), code=1).err
    assert "is not a complete backup" in other("restore", str(foreign), code=1).err
    assert "is not a complete backup" in other("restore", str(cut), code=1).err
    assert not other.data_dir.exists()


@pytest.mark.nightly
def test_a_large_journal_is_backed_up_while_it_is_written(tmp_path: Path) -> None:
    cli, file = Cli(tmp_path / "data"), tmp_path / "journal.backup"
    source = tmp_path / "large.jsonl"
    line = {"entry_type": "note.taken", "payload": {"text": "x" * 400}}
    source.write_text("".join(json.dumps({**line, "summary": f"note {n}"}) + "\n" for n in range(200_000)))
    with cli.up():
        writing = cli.start("import", str(source), "--json")
        made = [cli("backup", str(tmp_path / f"{n}.backup"), "--json").json for n in range(3)]
        assert writing.wait() == 0
        file = tmp_path / "2.backup"
    assert made[0]["last_seq"] <= made[2]["last_seq"]
    other = Cli(tmp_path / "other")
    assert other("restore", str(file), "--json").json["last_seq"] == made[2]["last_seq"]
    with other.up():
        assert other("verify", "--json").json["equal"]


def test_an_export_by_hour_follows_the_journal_and_its_erasures(tmp_path: Path) -> None:
    cli, tree = Cli(tmp_path / "data"), tmp_path / "lake"
    canary = "the vault code is quartz-7731"

    def one_pass() -> tuple[int, int, int]:
        done = cli("export", str(tree), "--format", "parquet", "--follow", "--every", "0", "-w", "acme", "--json").json
        return done["entries"], done["files"], done["erased"]

    def rows() -> list[tuple[Any, ...]]:
        tables = str(tree / "**" / "*.parquet")
        query = "SELECT summary, workspace, hour FROM read_parquet(?, hive_partitioning = true)"
        return duckdb.execute(f"{query} WHERE entry_type = 'note.written' ORDER BY seq", [tables]).fetchall()

    def publish(summary: str, hour: int) -> str:
        at = f"2026-11-20T{hour:02}:30:00Z"
        entry = cli("publish", summary, "--ts", at, "-w", "acme", "--json").json["entries"][0]
        cli("list", "-w", "acme", "--count", "--min-seq", str(entry["seq"]))
        return str(entry["id"])

    with cli.up():
        publish("first", 9)
        erased = publish(canary, 9)
        assert one_pass() == (2, 1, 0)
        assert one_pass() == (0, 0, 0), "nothing new, so nothing is written"
        publish("late", 9)
        publish("next hour", 10)
        (tree / "_export.json").unlink()  # a run that was interrupted before it noted how far it is
        assert one_pass() == (2, 2, 0)
        assert rows() == [
            ("first", "acme", "09"),
            (canary, "acme", "09"),
            ("late", "acme", "09"),
            ("next hour", "acme", "10"),
        ]
        cli("forget", "--id", erased, "--reason", "asked", "--yes", "-w", "acme")
        assert one_pass()[2] == 1
    assert [row[0] for row in rows()] == ["first", "late", "next hour"]
    assert not any(b"quartz-7731" in file.read_bytes() for file in tree.rglob("*") if file.is_file())
    refused = cli("export", str(tree), "--follow", code=2)
    assert "--format parquet" in refused.err
