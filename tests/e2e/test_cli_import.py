"""`import` on a real journal: every line counts once, whatever happens in between."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import RUN_S, Cli, Up, end, eventually

from crew_journal.services.cli.importing import command

LINES = 20_000
"""Enough that an import takes a few seconds, and is in the middle when the service is killed."""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `up` for the tests that only send it lines."""
    with Cli(tmp_path_factory.mktemp("running") / "data").up() as up:
        yield up


@pytest.fixture
def owner(running: Up, tmp_path: Path) -> Cli:
    """Commands with the owner's token and progress files of the test's own."""
    return running.beside(tmp_path / "data")


@pytest.fixture
def member(running: Up, owner: Cli, tmp_path: Path) -> Cli:
    """The same with a token of a workspace of the test's own."""
    made = owner("token", "create", "--role", "ADMIN", "--workspace", tmp_path.name, "--json").json
    return running.beside(tmp_path / "data", made["token"])


def write(path: Path, count: int, start: int = 0) -> Path:
    with path.open("a") as file:
        for n in range(start, start + count):
            file.write(json.dumps({"entry_type": "import.line", "summary": f"line {n}", "agent_id": "ada"}) + "\n")
    return path


def total(cli: Cli, last_seq: int = 0) -> int:
    return int(cli("list", "--type", "import.line", "--count", "--min-seq", str(last_seq)).out)


def test_an_import_repeated_resumed_or_from_a_grown_file_counts_each_line_once(member: Cli, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", 600)
    first = member("import", str(source), "--json").json
    assert (first["imported"], first["repeated"], first["last_line"]) == (600, 0, 600)
    assert first["views_behind"] is not None
    if not first["views_behind"]:  # half a minute may be too short for a machine, which it then says
        assert int(member("list", "--type", "import.line", "--count").out) == 600, "without --min-seq"
    again = member("import", str(source), "--json").json
    assert (again["imported"], again["repeated"], again["resumed_from_line"]) == (0, 0, 601)
    assert again["views_behind"] == 0, "nothing was sent, nothing is waited for"
    anew = member("import", str(source), "--restart", "--json").json
    assert (anew["imported"], anew["repeated"]) == (0, 600)
    write(source, 10, 600)
    more = member("import", str(source), "--json").json
    assert (more["imported"], more["repeated"], more["last_line"]) == (10, 0, 610)
    piped = member("import", "-", "--json", stdin=source.read_text()).json
    assert (piped["imported"], piped["repeated"]) == (0, 610)
    assert total(member, more["last_seq"]) == 610


def test_an_import_into_a_journal_restored_from_an_older_copy_sends_again_what_that_lost(
    cli: Cli, tmp_path: Path
) -> None:
    old, new = write(tmp_path / "old.jsonl", 5), write(tmp_path / "new.jsonl", 7, 5)
    copy = tmp_path / "copy"
    cli("import", str(old))
    shutil.copytree(cli.data_dir / "nats", copy)
    assert cli("import", str(new), "--json").json["imported"] == 7
    shutil.rmtree(cli.data_dir / "nats")
    copy.rename(cli.data_dir / "nats")
    refilled = cli("import", str(new), "--json")
    assert "starting again" in refilled.err
    assert (refilled.json["imported"], refilled.json["repeated"]) == (7, 0)
    unharmed = cli("import", str(old), "--json")
    assert (unharmed.json["imported"], unharmed.json["repeated"]) == (0, 0), "it is there, and nothing is sent"
    again = cli("import", str(new), "--json")
    assert (again.json["resumed_from_line"], again.json["imported"]) == (8, 0)
    assert "starting again" not in again.err
    assert total(cli, refilled.json["last_seq"]) == 12


def test_a_file_imported_with_the_token_of_another_workspace_goes_there_too(owner: Cli, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", 3)
    for workspace in ("here", "there", "here"):
        made = owner("token", "create", "--role", "ADMIN", "--workspace", workspace, "--json").json["token"]
        last = owner("import", str(source), "--token", made, "--json").json["last_seq"]
        assert owner("list", "-w", workspace, "--type", "import.line", "--count", "--min-seq", str(last)).out == "3\n"


def test_lines_that_from_line_passed_over_are_sent_by_the_next_import(member: Cli, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", 10)
    last = member("import", str(source), "--from-line", "6", "--json").json
    assert (last["imported"], last["last_line"]) == (5, 10)
    rest = member("import", str(source), "--json").json
    assert (rest["imported"], rest["repeated"], rest["resumed_from_line"]) == (5, 5, None)
    again = member("import", str(source), "--from-line", "4", "--json").json
    assert (again["imported"], again["repeated"]) == (0, 7)
    assert member("import", str(source), "--json").json["resumed_from_line"] == 11, "all of them were sent by now"
    assert total(member, last["last_seq"]) == 10


def test_lines_left_out_are_named_by_the_screen_and_counted(member: Cli, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    text = '{"id": "n%d", "entry_type": "import.line", "summary": "%s"}\n'
    source.write_text("".join(text % (n, "first") for n in range(50)))
    member("import", str(source))
    source.write_text("".join(text % (n, "other") for n in range(50)))
    aside = tmp_path / "aside.jsonl"
    left_out = member("import", str(source), "--skip-invalid", str(aside)).err
    assert left_out.count("\nline ") + left_out.startswith("line ") == 20
    assert "and 30 more lines" in left_out
    assert len(aside.read_text().splitlines()) == 50
    again = member("import", str(source), code=1).err
    assert "took nothing of what was sent before" in again, "perhaps the journal has lost those entries since"
    assert "and 30 more lines" in again


def test_a_line_with_the_id_of_another_entry_is_named_and_left_out_and_the_rest_arrives(
    member: Cli, tmp_path: Path
) -> None:
    source = write(tmp_path / "a.jsonl", 30)
    with source.open("a") as file:
        file.write('{"id": "mine", "entry_type": "import.line", "summary": "another text"}\n')
    write(source, 600, 31)
    member("publish", "--type", "import.line", "--id", "mine", "the first text")
    left_out = member("import", str(source), "--json", code=1)
    assert "line 31: in the journal already with other content: mine" in left_out.err
    report = json.loads(left_out.out)
    assert (report["imported"], report["taken"], report["skipped"], report["last_line"]) == (630, 1, 1, 631)
    assert total(member, report["last_seq"]) == 631
    again = member("import", str(source), "--json").json
    assert (again["imported"], again["repeated"], again["resumed_from_line"]) == (0, 0, 632)


def test_a_bad_line_keeps_its_file_out_and_every_problem_of_its_batch_is_named(member: Cli, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", 500)
    with source.open("a") as file:
        file.write(
            '{"entry_type": "import.line", "summary": "fine"}\n{broken\n{"entry_type": "Bad", "severity": "x"}\n'
        )
    refused = member("import", str(source), "--json", code=2)
    fields = {problem["field"] for problem in json.loads(refused.err)["error"]["problems"]}
    assert fields == {"line 502: entry", "line 503: entry_type", "line 503: severity", "line 503: summary"}
    behind = member("publish", "--type", "import.end", "nothing was sent", "--json").json["entries"][0]["seq"]
    assert total(member, behind) == 0
    aside = tmp_path / "bad.jsonl"
    report = member("import", str(source), "--skip-invalid", str(aside), "--json").json
    assert (report["imported"], report["skipped"], report["resumed_from_line"]) == (501, 2, None)
    assert aside.read_text().splitlines() == source.read_text().splitlines()[-2:]


def test_a_line_goes_where_it_says_or_where_the_option_says(owner: Cli, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"id": "x", "workspace_id": "theirs", "entry_type": "import.line", "summary": "s"}\n')
    last = owner("import", str(source), "--json").json["last_seq"]
    assert owner("list", "-w", "theirs", "--count", "--min-seq", str(last)).out.strip() == "1"
    last = owner("import", str(source), "--workspace", "ours", "--json").json["last_seq"]
    assert owner("list", "-w", "ours", "--count", "--min-seq", str(last)).out.strip() == "1"
    assert owner("list", "--type", "import.line", "--count").out.strip() == "0"


def test_what_did_not_count_any_more_at_the_source_does_not_come_back_as_current(owner: Cli, tmp_path: Path) -> None:
    here = ("--workspace", f"{tmp_path.name}-a")

    def said(entry_id: str, agent: str, text: str, *more: str) -> int:
        stored = owner("remember", text, "--entry-id", entry_id, "--agent", agent, *more, *here, "--json")
        return int(stored.json["seq"])

    said("wrong", "ada", "The gate opens at 8")
    said("theirs", "ada", "Bruno keeps the keys")
    said("newer", "bruno", "Carla keeps the keys")
    said("named", "ada", "The van is blue")
    said("later", "ada", "The van is red", "--supersedes", "named")
    seen = ("--min-seq", str(said("gone", "ada", "The kiosk sells stamps")), *here)
    right = owner("correct", "wrong", "The gate opens at 9", "--reason", "seen", *seen, "--json").json["replaced_by"]
    owner("retract", "theirs", "--superseded-by", "newer", "--reason", "asked both", *seen)
    owner("retract", "gone", "--stale", "--reason", "closed", *seen)
    listed = owner("list", "--all", "--json", *here).out
    first = next(one for one in map(json.loads, listed.splitlines()) if one["id"] == "later")
    consolidated = {**first, "id": f"d_{'0' * 12}5{'0' * 3}8{'0' * 15}", "entry_type": "memory.consolidated"}
    listing = tmp_path / "list.jsonl"
    listing.write_text(listed + json.dumps(consolidated) + "\n")

    there = ("--workspace", f"{tmp_path.name}-b")
    report = owner("import", str(listing), *there, "--json").json
    assert report["retired"] == 4, "a listing is newest first, so what an entry names in `supersedes` came after it"
    entries = [json.loads(line) for line in owner("list", "--all", "--json", *there).out.splitlines()]
    standing = {one["id"]: one["standing"] and (one["standing"]["state"], one["standing"]["by"]) for one in entries}
    assert {name: standing[name] for name in ("wrong", "theirs", "named", right, "newer", "later")} == {
        "wrong": ("superseded", right),
        "theirs": ("superseded", "newer"),
        "named": ("superseded", "later"),
        **dict.fromkeys((right, "newer", "later")),
    }
    assert standing["gone"][0] == "stale"
    again = owner("import", str(listing), *there, "--restart", "--json").json
    assert (again["imported"], again["retired"]) == (0, 0)


def test_an_import_while_the_views_do_not_fold_ends_and_names_what_is_to_be_retracted(
    owner: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--workspace", f"{tmp_path.name}-c")
    published = owner("publish", "The kiosk is open", "--id", "kiosk", "--json", *here).json["entries"][0]["seq"]
    done = ("--stale", "--reason", "closed", "--json", "--min-seq", str(published))
    retracted = owner("retract", "kiosk", *done, *here).json["seq"]
    listing = tmp_path / "list.jsonl"
    listing.write_text(owner("list", "--all", "--json", "--min-seq", str(retracted), *here).out)
    monkeypatch.setattr(command, "_behind", lambda *_: 7)
    imported = owner("import", str(listing), "--workspace", f"{tmp_path.name}-d", "--json").json
    assert (imported["views_behind"], imported["retired"], imported["to_retract"]) == (7, 0, ["kiosk"])


@pytest.mark.nightly
def test_a_service_killed_in_the_middle_of_an_import_loses_nothing(cli: Cli, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", LINES)
    with cli.up() as up:
        importing = cli.start("import", str(source), "--json")
        try:
            interrupt(cli, up, importing)
            for _ in range(2):
                with cli.up() as again:
                    interrupt(cli, again, importing)
            with cli.up():
                out, err = importing.communicate(timeout=RUN_S)
                assert importing.returncode == 0, err
                report = json.loads(out)
                assert report["imported"] + report["repeated"] == LINES
                assert total(cli, report["last_seq"]) == LINES
                assert cli("verify", "--json").json["equal"] is True
        finally:
            end(importing)


def interrupt(cli: Cli, up: Up, importing: subprocess.Popen[str]) -> None:
    """``kill -9`` the service as soon as the import has come further."""
    before = progress(cli)
    eventually(lambda: progress(cli) > before or importing.poll() is not None, "the import goes on")
    up.kill()


def progress(cli: Cli) -> int:
    """Lines acked so far, as the progress file has it."""
    for path in (cli.data_dir / "imports").glob("[!.]*.json"):
        return int(json.loads(path.read_text())["line"])
    return 0
