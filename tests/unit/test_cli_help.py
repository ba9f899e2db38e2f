"""Every command explains itself, has its section in the documentation, and starts without the heavy libraries."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from crew_journal.schemas.operations import ALL
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli.main import GROUPS, app, main
from crew_journal.services.cli.options import FALLBACK_DATA_DIR

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {below}", it) for below, it in command.commands.items())
        else:
            yield name, command


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
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            longest = max(parameter.opts, key=len)
            assert longest in own[0] + shared, f"{longest} of `{name}` is not documented"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert main([*name.split(), "--help"]) == 0
    assert all(getattr(parameter, "help", None) for parameter in command.params)


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_a_list_of_commands_cuts_no_line_in_80_columns(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_takes_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


def test_the_page_names_no_command_that_is_not_there() -> None:
    named = re.findall(r"^### `([a-z-]+(?: [a-z]+)*)", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    names = {re.sub(r" minilm$", "", name) for name in named}
    assert names <= set(COMMANDS)
    assert set(COMMANDS) - GENERATED <= names


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = "import sys; from crew_journal.services.cli import main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"httpx", "duckdb", "nats", "starlette", "numpy", "pyarrow", "rich.console"}
    assert heavy.isdisjoint(done.stdout.split())


def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_CREW_JOURNAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "crew-journal re",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['crew-journal']; from crew_journal.services.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert {"recall", "rebuild"} <= set(done.stdout.split())


def test_the_default_data_directory_is_the_settings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREW_JOURNAL_DATA_DIR", raising=False)
    assert Settings().data_dir == FALLBACK_DATA_DIR
