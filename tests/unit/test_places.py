"""Where a journal is looked for: one order for `up`, commands, hooks and the client, and what explains it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import NotAllowed, NotFound
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli import connection
from crew_journal.services.cli.configuration import CliContext, Configuration, save
from crew_journal.services.cli.main import main
from crew_journal.services.cli.options import Where
from crew_journal.services.client.find import address_of, data_dir_of, located, located_context, places
from crew_journal.services.client.project import claim_journal, trust, untrust


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder inside a repository, with a home of its own and nothing that names a journal."""
    for name in [name for name in os.environ if name.startswith("CREW_JOURNAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    inside = tmp_path / "shop" / "src"
    inside.mkdir()
    monkeypatch.chdir(inside)
    return inside


def _with_context(_: pytest.MonkeyPatch, folder: Path) -> str:
    save(Configuration("work", {"work": CliContext("http://work:1", "cj_work", None, "acme")}))
    return "http://work:1"


def _with_data_dir(patch: pytest.MonkeyPatch, folder: Path) -> str:
    patch.setenv("CREW_JOURNAL_DATA_DIR", str(folder / "named"))
    return str(folder / "named")


def _with_url(patch: pytest.MonkeyPatch, _: Path) -> str:
    patch.setenv("CREW_JOURNAL_URL", "http://env:1")
    return "http://env:1"


def _here(_: pytest.MonkeyPatch, folder: Path) -> str:
    claim_journal(folder / ".crew-journal")
    return str(folder / ".crew-journal")


def _in_the_repository(_: pytest.MonkeyPatch, folder: Path) -> str:
    claim_journal(folder.parent / ".crew-journal")
    return str(folder.parent / ".crew-journal")


ORDER: list[Callable[[pytest.MonkeyPatch, Path], str]] = [
    _in_the_repository,
    _here,
    _with_context,
    _with_data_dir,
    _with_url,
]


def test_each_place_comes_before_the_last_and_the_users_own_journal_is_the_last_of_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = located()
    assert (own.is_own, own.data_dir) == (True, folder.parents[1] / "state" / "crew-journal" / "journal")
    assert Settings().data_dir == own.data_dir == data_dir_of(None) == Where().folder
    for add in ORDER:
        expected = add(monkeypatch, folder)
        place = located()
        assert (place.url or str((place.data_dir or Path()).absolute())) == expected, place.origin
    assert located(data_dir="given").data_dir == Path("given"), "an argument comes before the environment"
    assert located("http://given:1", "given").url == "http://given:1"
    assert data_dir_of(None) == folder / "named", "`up` uses no address"


def test_the_token_of_the_environment_goes_to_the_address_there_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", "cj_env")
    save(Configuration("work", {"work": CliContext("http://work:1", "cj_work", None, "acme")}))
    assert address_of(located_context("work")).token == "cj_env", "no address is set to which it would belong"
    monkeypatch.setenv("CREW_JOURNAL_URL", "http://env:1")
    assert address_of(located_context("work")).token == "cj_work"
    assert address_of(located()).token == "cj_env"
    assert address_of(located("http://given:1")).token == "cj_env"


def test_the_usual_port_is_the_one_of_the_settings() -> None:
    host, port = connection.USUAL_PLACE
    assert Settings(http=f"{host}:{port}").http == Settings.model_fields["http"].default


def test_a_journal_that_came_with_the_repository_is_refused_or_ignored_but_never_replaced_silently(
    folder: Path,
) -> None:
    journal = folder.parent / ".crew-journal"
    (journal / "nats").mkdir(parents=True)
    with pytest.raises(NotAllowed, match="is not trusted") as refused:
        located()
    assert f"crew-journal untrust {journal}" in refused.value.hint
    untrust(journal)
    assert located().is_own
    trust(journal)
    assert located().data_dir == journal


def test_without_a_home_directory_the_error_says_what_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(NotFound, match="no home directory") as error:
        located()
    assert "CREW_JOURNAL_DATA_DIR" in error.value.hint


def test_config_show_says_which_journal_is_used_and_why_the_others_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _in_the_repository(monkeypatch, folder)
    save(Configuration(None, {}, {"embedder": "none"}))
    assert main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 20
    [used] = [line for line in shown.splitlines() if line.startswith("*")]
    assert str(folder.parent / ".crew-journal") in used
    assert "CREW_JOURNAL_URL" in shown
    assert "(this repository comes first)" in shown
    assert "embedder" in shown
    assert main(["config", "show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["journal"]
    assert [row["place"] for row in rows] == [place.origin for place in places()]
    assert [row["place"] for row in rows if row["used"]] == ["this repository"]
    assert {row["why_not"] for row in rows if not row["used"]} == {
        "not given", "none is in use", "it does not exist", "this repository comes first",
    }  # fmt: skip


def test_a_context_of_the_command_comes_before_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _with_context(monkeypatch, folder)
    _with_data_dir(monkeypatch, folder)
    assert main(["list", "--journal", "work", "--json"]) == 5
    assert "http://work:1" in capsys.readouterr().err
    assert os.environ["CREW_JOURNAL_DATA_DIR"] == str(folder / "named")
    assert main(["list", "--journal", "play"]) == 4
    assert "there are: work" in capsys.readouterr().err
