"""Times as people write them, contexts and the configuration file, completion, and what `clean` lists."""

from __future__ import annotations

import json
import os
import socket
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.entries.operations import REMEMBER
from crew_journal.schemas.learning.operations import ADD_LESSON
from crew_journal.schemas.recall.operations import RECALL
from crew_journal.schemas.sweeps.operations import SWEEP
from crew_journal.services.cli import administration, completion, options
from crew_journal.services.cli.configuration import CliContext, Configuration, configured, load, save
from crew_journal.services.cli.main import main
from crew_journal.services.cli.options import Fields, completion_of
from crew_journal.services.client.find import config_file
from crew_journal.services.printable import moment_of, past_moment_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", "2026-11-22T10:00:00.000Z"),
        ("30m", "2026-11-22T11:30:00.000Z"),
        ("7d", "2026-11-15T12:00:00.000Z"),
        ("2026-11-21", "2026-11-21T00:00:00.000Z"),
        ("yesterday", "2026-11-21T00:00:00.000Z"),
        ("2026-11-21 09:30", "2026-11-21T09:30:00.000Z"),
        ("2026-11-21T09:30:00+02:00", "2026-11-21T09:30:00+02:00"),
        ("2026-11-21T09:30:00+01:00", "2026-11-21T09:30:00+01:00"),
    ],
)
def test_a_time_may_be_ago_or_a_day(text: str, moment: str) -> None:
    assert moment_of(text, "since", NOW) == moment


def test_a_past_moment_is_a_sequence_or_at_the_latest_now() -> None:
    moments = ("41250", "2026-11-21", "today", "2h", "soon")
    assert [past_moment_of(text, NOW) for text in moments] == [
        "41250",
        "2026-11-21T23:59:59.999Z",
        "2026-11-22T12:00:00.000Z",
        "2026-11-22T10:00:00.000Z",
        "soon",
    ]


def test_the_workspace_of_the_environment_is_the_one_that_is_written_and_read() -> None:
    for operation in (REMEMBER, RECALL, ADD_LESSON):
        option = next(known for known in Fields(operation).parameters() if known.name == "workspace_id")
        assert option.envvar == "CREW_JOURNAL_WORKSPACE", operation.name


@pytest.mark.parametrize("text", ["soon", "2026-13-41", "2026-02-30", "999999w", "2026-11-21T09:30:00+99:00"])
def test_what_is_no_time_is_an_error_that_names_the_field_and_the_forms(text: str) -> None:
    with pytest.raises(InvalidQuery) as raised:
        moment_of(text, "since", NOW)
    assert raised.value.field == "since"
    assert "2h (ago)" in str(raised.value.hint)


def test_until_a_day_includes_that_day() -> None:
    assert moment_of("2026-11-21", "until", NOW, end=True) == "2026-11-21T23:59:59.999Z"
    assert moment_of("today", "until", NOW, end=True) == "2026-11-22T23:59:59.999Z"
    assert moment_of("2h", "until", NOW, end=True) == "2026-11-22T10:00:00.000Z"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("CREW_JOURNAL_CONFIG", str(path))
    for name in ("URL", "TOKEN", "DATA_DIR", "WORKSPACE", "CONTEXT", "EMBEDDER"):
        monkeypatch.delenv(f"CREW_JOURNAL_{name}", raising=False)
    return path


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_contexts_are_added_used_listed_and_removed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "context", "add", "work", "--url", "http://127.0.0.1:1/", "--token", "cj_secret", "-w", "acme")
    shown(capsys, "context", "add", "home", "--data-dir", str(config.parent))
    listed = shown(capsys, "context", "use", "home")
    assert [(one["name"], one["used"]) for one in listed["contexts"]] == [("home", True), ("work", False)]
    assert "cj_secret" not in json.dumps(listed)
    assert config.stat().st_mode & 0o077 == 0
    assert load().contexts["work"] == CliContext("http://127.0.0.1:1", "cj_secret", None, "acme")
    assert [one["name"] for one in shown(capsys, "context", "remove", "home")["contexts"]] == ["work"]
    assert load().context is None
    assert main(["context", "use", "nowhere"]) == 4
    assert "there are: work" in capsys.readouterr().err


def test_a_context_that_names_no_journal_or_no_token_is_refused(config: Path) -> None:
    assert main(["context", "add", "x"]) == 2
    assert main(["context", "add", "x", "--url", "http://h"]) == 2
    assert not config.exists()


def test_what_a_file_holds_survives_being_written_and_read(config: Path) -> None:
    given = Configuration("a b", {"a b": CliContext("http://h", 'quote " and é', None, "w")}, {"hot_index_mb": 64})
    save(given)
    assert load() == given


def test_options_count_before_the_environment_the_context_and_the_file(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Configuration("work", {"work": CliContext("http://h", "cj_t", None, "acme")}, {"embedder": "none"}))

    def origins() -> dict[str, tuple[str | None, str]]:
        rows = shown(capsys, "config", "show")["settings"]
        return {row["name"]: (row["value"], row["from"]) for row in rows}

    found = origins()
    assert found["embedder"] == ("none", "[settings] of the file")
    assert found["workspace"] == ("acme", "context work")
    assert found["token"] == ("(set)", "context work")
    assert found["replicas"] == (None, "default")
    monkeypatch.setenv("CREW_JOURNAL_EMBEDDER", "minilm")
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(config.parent))
    found = origins()
    assert found["embedder"] == ("minilm", "environment")
    assert found["token"] == (None, "default"), "no token goes where the environment points"
    with configured(["list", "--url", "http://other"]):
        assert "CREW_JOURNAL_TOKEN" not in os.environ


def test_a_data_directory_that_a_command_names_counts_before_the_address_of_the_environment(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = config.parent / "own"
    save(Configuration(None, {"own": CliContext(None, None, str(folder))}))
    monkeypatch.setenv("CREW_JOURNAL_URL", "http://other")
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", "cj_other")

    def applied(*arguments: str) -> tuple[str | None, ...]:
        with configured(arguments):
            return tuple(os.environ.get(f"CREW_JOURNAL_{name}") for name in ("URL", "TOKEN", "DATA_DIR"))

    assert applied("list") == ("http://other", "cj_other", None)
    assert applied("list", "--data-dir", str(folder)) == (None, None, None), "the option names the folder"
    assert applied("list", f"--data-dir={folder}", "--url", "http://third") == ("http://other", "cj_other", None)
    assert applied("list", "--journal", "own") == (None, None, str(folder))
    assert os.environ["CREW_JOURNAL_TOKEN"] == "cj_other", "afterwards, all is as before"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("context = ", "is not TOML"),
        ("[settings]\nembeder = 'x'", "no setting embeder"),
        ("[contexts.a]\nport = 1", "unexpected keyword"),
        ("context = 'gone'", "there is no context gone"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, wrong: str
) -> None:
    config.write_text(text)
    assert main(["schema"]) != 0
    assert wrong in capsys.readouterr().err
    assert config_file() == config


def test_completion_gives_values_and_stays_silent_without_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options.complete_recipe("ro") == ["robust"]
    assert "fulltext" in options.complete_view("f")
    assert (complete := completion_of(SWEEP, "sweep")) is not None
    assert complete("de") == ["decay"]
    assert options.complete_role("O") == ["OWNER"]
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path))
    assert completion.workspaces("") == []


def test_clean_lists_what_is_kept_and_removes_only_what_is_named_with_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CREW_JOURNAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CREW_JOURNAL_CONFIG", str(tmp_path / "none.toml"))
    data = tmp_path / "data"
    for path in ("data/imports/a.json", "data/views.duckdb", "data/views.duckdb.of-3", "cache/models/m/weights"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("12345")
    where = ("--data-dir", str(data))
    names = [one["name"] for one in shown(capsys, "clean", *where)["kept"]]
    assert names == ["models", "imports", "old-views", "journal"]
    assert shown(capsys, "clean", "old-views", *where)["removed"] is False
    assert shown(capsys, "clean", "old-views", "models", "--yes", *where)["removed"] is True
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["data/imports/a.json", "data/views.duckdb"]
    assert main(["clean", "attic", *where]) == 2
    kept = [tmp_path / "state" / "crew-journal" / name for name in ("hooks/s", "persons.json", "journal/views.duckdb")]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    shown(capsys, "clean", "hooks", "--yes", *where)
    assert [file.exists() for file in kept] == [False, False, True], "the user's own journal is beside them"


def test_up_says_that_its_port_is_taken_before_it_makes_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["up", "--http", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]) == 5
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_switches_that_are_not_given_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    class Service:
        def workspace_settings(self, **fields: Any) -> dict[str, Any]:
            sent.append(fields)
            return {}

        def configure_workspace(self, **fields: Any) -> dict[str, Any]:
            sent.append(fields)
            return {}

    monkeypatch.setattr(administration, "client", lambda _where: nullcontext(Service()))
    assert main(["workspace", "settings"]) == 0
    assert main(["workspace", "settings", "--no-embed-chat"]) == 0
    assert sent == [{"as_of": None, "workspace_id": None}, {"workspace_id": None, "embed_chat": False}]
