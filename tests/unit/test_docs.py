"""What README and docs tell people to type exists, and what they link to is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from crew_journal.services.cli.lazy import lazy_app

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
MIN_COMMANDS = 15
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def commands(page: Path) -> list[str]:
    """Every ``crew-journal …`` that stands on lines of its own, continuation lines joined."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    begun = re.finditer(r"^(?: {4})?(crew-journal [a-z].*)$", text, re.MULTILINE)
    return [_whole(match[1], text[match.end() :]) for match in begun]


def _whole(line: str, rest: str) -> str:
    """A command up to the end of the quotation that its first line may begin."""
    while True:
        try:
            shlex.split(line, comments=True)
        except ValueError:
            further, _, rest = rest.removeprefix("\n").partition("\n")
            line, rest = f"{line}\n{further}", f"\n{rest}"
        else:
            return line


TYPED = [pytest.param(line, id=f"{page.name}: {line[:60]}") for page in PAGES for line in commands(page)]


def test_the_pages_hold_commands_to_check() -> None:
    assert len(TYPED) >= MIN_COMMANDS


@pytest.mark.parametrize("line", TYPED)
def test_a_command_of_the_docs_exists_with_its_options(line: str) -> None:
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    command: click.Command | None = lazy_app(["--help"])
    while isinstance(command, click.Group) and words:
        command = command.get_command(click.Context(command), words[0])
        assert command is not None, f"there is no command {words[0]!r}"
        words.pop(0)
    assert command is not None
    known = {
        name for param in command.get_params(click.Context(command)) for name in (*param.opts, *param.secondary_opts)
    }
    words = words[: words.index("--")] if "--" in words else words
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_docs_lead_to_existing_targets(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert missing == []
