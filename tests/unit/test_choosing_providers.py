"""Which memory provider serves a workspace: settings, the file, and what stops a start."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.disk_provider import DiskProvider

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.documents.provider import MemoryProvider, ProviderScope
from crew_journal.schemas.settings import Settings
from crew_journal.services.documents.choosing import DocumentStores, factory_of, read_choices


def settings(**given: Any) -> Settings:
    return Settings.model_validate(given)


def config(folder: Path, text: str) -> Path:
    path = folder / "memory.toml"
    path.write_text(text, "utf-8")
    return path


def test_without_a_choice_the_journal_serves_every_workspace() -> None:
    assert read_choices(settings()).of("acme").provider == "journal"


def test_a_workspace_of_the_file_has_its_own_provider_and_the_others_that_of_the_settings(tmp_path: Path) -> None:
    path = config(tmp_path, '[workspace.acme.memory]\nprovider = "disk"\nroot = "/srv/memory"\n')
    choices = read_choices(
        settings(
            memory_provider="http", memory_provider_url="http://x", memory_provider_token="cj_x", memory_file=str(path)
        )
    )
    assert (choices.of("acme").provider, choices.of("acme").root) == ("disk", Path("/srv/memory"))
    assert (choices.of("other").provider, choices.of("other").url) == ("http", "http://x")


def test_the_memory_table_of_the_file_replaces_the_settings(tmp_path: Path) -> None:
    path = config(tmp_path, '[memory]\nprovider = "journal"\n')
    choices = read_choices(settings(memory_provider="disk", memory_file=str(path)))
    assert choices.default.provider == "journal"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"memory_provider": "disk"}, "CREW_JOURNAL_MEMORY_PROVIDER_ROOT"),
        ({"memory_provider": "http"}, "CREW_JOURNAL_MEMORY_PROVIDER_URL"),
        ({"memory_provider": "http", "memory_provider_url": "http://x"}, "CREW_JOURNAL_MEMORY_PROVIDER_TOKEN"),
        ({"memory_provider": "Disk"}, "CREW_JOURNAL_MEMORY_PROVIDER"),
        ({"memory_provider": "module:"}, "CREW_JOURNAL_MEMORY_PROVIDER"),
    ],
)
def test_an_incomplete_setting_is_named_by_its_variable(given: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        read_choices(settings(**given))
    assert refused.value.field == field
    assert field in refused.value.message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[workspace.acme.memory]\nprovider = "disk"\n', "workspace.acme.memory.root is missing"),
        ('[memory]\nprovider = "sqlite"\n', "memory.provider 'sqlite' is not a memory provider"),
        ('[memory]\nprovidr = "disk"\n', "memory.providr"),
        ('[workspace."../x".memory]\nprovider = "journal"\n', "'../x' is not a workspace"),
        ("[memory\n", "is not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery) as refused:
        read_choices(settings(memory_file=str(config(tmp_path, text))))
    assert named in refused.value.message


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery, match=r"memory\.toml cannot be read: No such file"):
        read_choices(settings(memory_file=str(tmp_path / "memory.toml")))


def test_a_token_is_in_no_message_and_no_representation(tmp_path: Path) -> None:
    path = config(tmp_path, '[memory]\nprovider = "http"\nurl = 3\ntoken = "cj_secret"\n')
    with pytest.raises(InvalidQuery) as refused:
        read_choices(settings(memory_file=str(path)))
    assert "cj_secret" not in str(refused.value)
    assert "cj_secret" not in repr(settings(memory_provider_token="cj_secret"))


def made_on_disk(scope: ProviderScope) -> MemoryProvider:
    return DiskProvider(None, scope)


async def test_a_provider_of_ones_own_is_made_by_its_factory() -> None:
    choices = read_choices(settings(memory_provider=f"{__name__}:made_on_disk"))
    assert factory_of(choices.of("acme").provider) is made_on_disk
    stores = DocumentStores(choices, Mock(), clock=lambda: datetime(2026, 5, 21, tzinfo=UTC))
    shown = await stores.health("acme")
    assert shown["provider"] == f"{__name__}:made_on_disk"
    assert (shown["ok"], shown["checked_at"]) == (False, "2026-05-21T00:00:00.000Z")
    assert "no root is set" in shown["message"]


@pytest.mark.parametrize("named", ["no_such_module:factory", f"{__name__}:missing", f"{__name__}:__name__"])
def test_a_factory_that_cannot_be_had_stops_the_start(named: str) -> None:
    with pytest.raises(InvalidQuery, match="cannot be"):
        factory_of(named)
