"""Mistakes that people make at the command line: each is answered by one line that says what to type instead."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.cli import COMMAND, Cli, Up, environment, eventually

USAGE, DENIED, ABSENT, UNAVAILABLE = 2, 3, 4, 5
MISTAKES = [
    # a word that is nearly right
    ("recal ulm", USAGE, "type `crew-journal recall ulm`"),
    ("verfy", USAGE, "type `crew-journal verify`"),
    ("nonsense", USAGE, "`crew-journal --help` lists the commands"),
    ("token creat --agent ada", USAGE, "type `crew-journal token create --agent ada`"),
    ("list --limt 5", USAGE, "type `crew-journal list --limit 5`"),
    ("remember --to drawr hello", USAGE, "type `--to drawer`"),
    ("connect claude", USAGE, "use claude-code, codex, cursor"),
    ("import notes.jsonl --from slak", USAGE, "type `crew-journal import notes.jsonl --from slack`"),
    ("import note.jsonl", USAGE, "type `crew-journal import notes.jsonl`"),
    ("import elsewhere.csv", USAGE, "check the path of the file"),
    ("import .", USAGE, "`crew-journal palace import .` files notes in Markdown"),
    ("import . --from markdown", USAGE, "`crew-journal palace import .` files notes in Markdown"),
    # something is missing
    ("recall", USAGE, "type `crew-journal recall QUERY`"),
    ("connect", USAGE, "type `crew-journal connect PROGRAM`: claude-code, codex or cursor."),
    ("list --type", USAGE, "`crew-journal list --type VALUE`"),
    ("memory write AGENT hello", USAGE, "add --mode: `replace`"),
    ("remember --to AGENT hello", USAGE, "add --agent NAME"),
    ("remember --to fact only two", USAGE, "write `--to fact SUBJECT PREDICATE OBJECT`"),
    ("remember ''", USAGE, "give a text, or - to read it from stdin"),
    ("forget", USAGE, "name what to forget: ID…"),
    ("priority nope pin", USAGE, "add --reason"),
    # a value that is not valid
    ("list --limit many", USAGE, "`--limit 10`"),
    ("list --since yesterdayish", USAGE, "write it like 2h (ago), yesterday, 2026-11-21"),
    ("publish --ts 2026-13-01 hello", USAGE, "write it like 2026-11-21T09:30:00.000Z"),
    ("publish --type a.b --payload {x} hello", USAGE, """write it in single quotes: --payload '{"key": "value"}'"""),
    ("publish --type 'Bad Type' hello", USAGE, "like run.completed"),
    ("import notes.jsonl", USAGE, "write one JSON object per line"),
    ("recall x --scope all", USAGE, "use 'own', 'crew_shared' or 'workspace'"),
    ("recall x --as-of tomorrow", USAGE, "or a time like 2026-11-21T09:30:00Z"),
    ("why x --as-of 3", USAGE, "see `crew-journal why --help`"),
    ("token create --role BOSS", USAGE, "use 'OWNER', 'ADMIN', 'LEAD' or 'AGENT'"),
    ("memory write AGNT hello --mode append", USAGE, "use one of AGENT, CREW"),
    ("up --http 9119", USAGE, "write it like 127.0.0.1:9119"),
    ("up --here --http PORT", UNAVAILABLE, "choose another port with --http"),
    # what is named does not exist, or may not be used
    ("get nope", ABSENT, "`crew-journal recall` and `crew-journal list` show ids"),
    ("list -w nosuch", ABSENT, "workspaces that there are: default"),
    ("token revoke nope", ABSENT, "crew-journal token list shows them"),
    ("agent update nobody --memory", ABSENT, "`crew-journal agent create`"),
    ("journal use work", ABSENT, "`crew-journal journal add` makes one"),
    ("list --token wrong", DENIED, "give --token as `crew-journal token create` printed it"),
    ("token list --token AGENT", DENIED, "OWNER"),
    ("list --url http://127.0.0.1:1", DENIED, "give --token"),
    ("list --url 127.0.0.1:9119 --token x", USAGE, "write it like http://127.0.0.1:9119"),
    ("list --url http://127.0.0.1:1 --token x", UNAVAILABLE, "`crew-journal config show` says why this one"),
    ("list --data-dir nowhere", ABSENT, '`crew-journal remember "…"` or `crew-journal up` makes one'),
]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Up]]:
    cli = Cli(tmp_path_factory.mktemp("mistakes") / "data")
    with cli.up() as running:
        cli("publish", "the first entry makes the workspace")
        yield cli, running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes.jsonl").write_text('{"x":\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "code", "instead"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_answered_by_what_to_type_instead(
    line: str, code: int, instead: str, up: tuple[Cli, Up], folder: Path
) -> None:
    cli, _ = up
    here = Cli(folder, {"CREW_JOURNAL_DATA_DIR": str(cli.data_dir), "CREW_JOURNAL_CONFIG": str(folder / "none.toml")})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        words = shlex.split(line.replace("PORT", f"127.0.0.1:{other.getsockname()[1]}"))
        if "AGENT" in words[-1:] and words[0] == "token":
            words[-1] = cli("token", "create", "--agent", "ada", "--json").json["token"]
        done = here.in_this_process(*words, named="--url" not in words and "--here" not in words)
    assert done.code == code, done.err
    assert done.out == ""
    assert any(instead in each for each in done.err.splitlines()), done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 2, done.err


def test_a_second_up_names_the_first_and_how_to_stop_it(up: tuple[Cli, Up]) -> None:
    cli, running = up
    done = cli.in_this_process("up", "--http", "127.0.0.1:0", "--data-dir", str(cli.data_dir))
    assert done.code == UNAVAILABLE
    assert running.facts["http"] in done.err
    assert "`crew-journal down` stops it" in done.err


@pytest.mark.parametrize("moment", ["imports", "request"])
def test_ctrl_c_prints_no_traceback_and_exits_with_130(moment: str, tmp_path: Path) -> None:
    with socket.socket() as silent:  # accepts a connection and answers nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [COMMAND, "recall", "x", "--url", url, "--token", "cj_x"],
            preexec_fn=partial(
                signal.signal, signal.SIGINT, signal.SIG_DFL
            ),  # in the background of a shell it is ignored
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=tmp_path,
        )
        if moment == "request":
            silent.accept()
        else:
            maps = Path(f"/proc/{process.pid}/maps")
            eventually(lambda: "pydantic_core" in maps.read_text(), "the command imports its libraries")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
