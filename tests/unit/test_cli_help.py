"""Every command explains itself, has its section in the documentation, and starts without the heavy libraries."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from crew_journal.schemas.operations import ALL
from crew_journal.services.cli import tree
from crew_journal.services.cli.lazy import CommandNode, described, index, loaded, root
from crew_journal.services.cli.main import app, main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    for name, command in app.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", it) for below, it in command.commands.items())
        else:
            yield name, command


def parameters(command: click.Command) -> list[Any]:
    """The arguments and options of a command, ``--help`` among them."""
    return command.get_params(click.Context(command))


COMMANDS = dict(leaves())
GENERATED = {operation.command for operation in ALL if operation.command}
"""Documented in docs/operations.md, which is generated."""


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - GENERATED))
def test_every_command_has_its_section_and_every_option_is_in_it(name: str) -> None:
    page = PAGE.read_text("utf-8")
    sections = re.split(r"^#{2,3} ", page, flags=re.MULTILINE)
    own = [section for section in sections if re.match(rf"`{re.escape(name)}[ `]", section)]
    assert own, f"docs/cli.md has no section for `{name}`"
    shared = sections[0]
    for parameter in parameters(COMMANDS[name]):
        if parameter.param_type_name == "option":
            longest = max(parameter.opts, key=len)
            assert longest in own[0] + shared, f"{longest} of `{name}` is not documented"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert main([*name.split(), "--help"]) == 0
    assert all(getattr(parameter, "help", None) for parameter in parameters(command))


@pytest.mark.parametrize("group", ["", *tree.GROUPS, "learn proposal", "node dlq"])
def test_a_list_of_commands_cuts_no_line_in_80_columns(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("ommands:" if group else "Every day:")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_takes_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in parameters(COMMANDS[name]))


def test_the_page_names_no_command_that_is_not_there() -> None:
    named = re.findall(r"^### `([a-z-]+(?: [a-z][a-z-]*)*)", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    names = {re.sub(r" minilm$", "", name) for name in named}
    assert names <= set(COMMANDS)
    assert set(COMMANDS) - GENERATED <= names


def test_the_index_describes_each_command_as_it_describes_itself() -> None:
    for name, command in COMMANDS.items():
        record = index()["commands"][name]
        short = name.rpartition(" ")[2]
        texts = [
            it.get_help(click.Context(it, info_name=name, show_default=True))
            .partition("-help  ")[0]
            .rpartition("\n")[0]
            for it in (command, described(short, record))
        ]
        own, of_index = (
            text.split() for text in texts
        )  # a command that ran before keeps ``-h``, which widens the column
        assert own == of_index
        assert type(loaded(short, record)) is type(command)


def test_every_command_is_in_a_group_and_keeps_its_short_and_its_former_names() -> None:
    reached: set[str] = set()

    def walk(node: CommandNode) -> None:
        for target in node.commands.values():
            walk(target) if isinstance(target, CommandNode) else reached.add(target)

    walk(root())
    assert reached == set(COMMANDS) - {"model reindex"}
    assert list(root().commands) == [*tree.EVERYDAY, *tree.GROUPS]
    former = ("kg add", "embedder status", "embeddings list", "embedder activate", "context use", "bundle export")
    fixed = ("publish", "tail", "doctor", "rebuild", "verify", "dlq retry", "health", "agent create", "token revoke")
    more = ("eval", "demo", "mcp", "work", "correct", "who-saw", "why", "test", "prove", "learn exam", "cluster status")
    for name in (*former, *fixed, *more, *COMMANDS):
        assert main([*name.split(), "--help"]) == 0, name
    for guess, name in tree.GUESSES.items():
        assert root().find(guess) == root().find(name), f"{guess} is no other name of {name}"


def test_help_and_completion_import_neither_models_nor_clients() -> None:
    code = (
        "import sys; from crew_journal.services.cli.entry import main; sys.argv[1:] = {}; main(); print(*sys.modules)"
    )
    heavy = {"pydantic", "httpx", "duckdb", "nats", "numpy", "rich.console", "crew_journal.schemas.operations"}
    for arguments in (["--help"], ["recall", "--help"], ["model"], ["memory", "write", "-h"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=True
        )
        assert heavy.isdisjoint(done.stdout.split()), arguments


def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_CREW_JOURNAL_COMPLETE": "bash_complete",
        "COMP_WORDS": "crew-journal re",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['crew-journal']; from crew_journal.services.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert {"recall"} <= {line.partition(",")[2] for line in done.stdout.split()}


@pytest.mark.parametrize(
    ("shell", "file"), [("bash", ".bashrc"), ("fish", ".config/fish/completions/crew-journal.fish")]
)
def test_installing_completion_twice_writes_it_once(
    shell: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    (tmp_path / ".bashrc").write_text("export EDITOR=vi\n")
    assert main(["--install-completion"]) == 0
    first = (tmp_path / file).read_text()
    assert main(["--install-completion"]) == 0
    assert (tmp_path / file).read_text() == first
    assert f"_CREW_JOURNAL_COMPLETE={shell}_" in first
    assert (tmp_path / ".bashrc").read_text().startswith("export EDITOR=vi\n")


def test_completion_of_an_unknown_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert main(["--show-completion"]) == 2
    assert "use bash, zsh or fish" in capsys.readouterr().err


def test_help_of_a_group_whose_reader_left_fails_nothing() -> None:
    code = "import sys; from crew_journal.services.cli.entry import main; sys.argv[1:] = ['memory']; sys.exit(main())"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
