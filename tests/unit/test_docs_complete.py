"""Every setting, route, filter, command, client method and field of an entry is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli.main import app
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.entries.filters import FILTER_PARAMETERS
from crew_journal.services.http.operations import document, operation_routes
from crew_journal.services.http.routes_journal import JOURNAL_ROUTES
from crew_journal.services.http.routes_status import ADMIN_ROUTES, HIDDEN_ROUTES, STATUS_ROUTES

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.name: page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
METHODS = ("get", "post", "put", "delete")


def routes() -> Iterator[str]:
    """Every route as OpenAPI describes it."""
    described = (*JOURNAL_ROUTES, *operation_routes(), *ADMIN_ROUTES, *STATUS_ROUTES, *HIDDEN_ROUTES)
    for path, methods in document(described, title="", version="", summary="")["paths"].items():
        yield from (f"{method.upper()} {path}" for method in METHODS if method in methods)


def commands() -> Iterator[str]:
    """Every command by its full name."""
    for name, command in app.commands.items():
        if isinstance(command, click.Group):
            yield from (f"{name} {below}" for below in command.commands)
        else:
            yield name


def methods() -> list[str]:
    """Every public method of the client, blocking or not."""
    return sorted({name for flavour in (CrewJournal, AsyncCrewJournal) for name in dir(flavour) if name[0] != "_"})


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_has_a_row_with_its_variable(name: str) -> None:
    rows = re.findall(rf"^\| `CREW_JOURNAL_{name.upper()}` \| .+ \| .+ \|$", PAGES["settings.md"], re.MULTILINE)
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("name", "default"),
    [(name, field.default) for name, field in Settings.model_fields.items() if field.default not in (None, "")],
)
def test_a_row_of_a_setting_names_its_default(name: str, default: object) -> None:
    if Settings.model_fields[name].default_factory is not None:
        pytest.skip("the default depends on the environment")
    row = re.search(rf"^\| `CREW_JOURNAL_{name.upper()}` \| (.+?) \|", PAGES["settings.md"], re.MULTILINE)
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    assert row is not None
    assert row[1].rpartition(", else ")[2] == f"`{shown}`"


def test_the_page_of_settings_names_no_variable_that_does_not_exist() -> None:
    known = {f"CREW_JOURNAL_{name.upper()}" for name in Settings.model_fields}
    named = set(re.findall(r"^\| `(\w+)`", PAGES["settings.md"], re.MULTILINE))
    assert named - known == {f"CREW_JOURNAL_{name}" for name in ("URL", "TOKEN", "CONFIG", "CONTEXT", "WORKSPACE")}, (
        "of the client and the command line"
    )


@pytest.mark.parametrize("route", sorted(routes()))
def test_every_route_is_documented(route: str) -> None:
    assert any(f"`{route}`" in text for text in PAGES.values())


@pytest.mark.parametrize("name", sorted(FILTER_PARAMETERS))
def test_every_filter_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGES["http.md"]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_is_documented(name: str) -> None:
    section = rf"^### `{re.escape(name)}[ `]"
    generated = f"- Command: `crew-journal {name}`"
    assert re.search(section, PAGES["cli.md"], re.MULTILINE) or generated in PAGES["operations.md"]


@pytest.mark.parametrize("name", methods())
def test_every_method_of_the_client_is_documented(name: str) -> None:
    assert f"`{name}(" in PAGES["python.md"] or f"- Python: `{name}()`" in PAGES["operations.md"]


@pytest.mark.parametrize("name", list(JournalEntry.model_fields))
def test_every_field_of_an_entry_has_a_row(name: str) -> None:
    assert re.search(rf"^\| `{name}` \| .+ \| .+ \| .+ \|$", PAGES["entry.md"], re.MULTILINE)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_page_is_in_the_index(page: str) -> None:
    assert page == "README.md" or f"({page})" in PAGES["README.md"]


def test_every_test_that_the_page_of_the_palace_names_exists() -> None:
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", PAGES["palace.md"]))
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), flags=re.MULTILINE)
    }
    assert len(named) > 20
    assert named <= there
