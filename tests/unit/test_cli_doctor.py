"""Each check of `doctor` finds what it looks for and says the next step."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli import checks
from crew_journal.services.cli.checks import CheckFinding, CheckVerdict
from crew_journal.services.cli.main import main
from crew_journal.services.cli.options import Where
from crew_journal.services.data_dir import lock


def find(check: checks.Check, settings: Settings) -> list[CheckFinding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "CHECKS", (check,))
        return checks.run_checks(settings, Where(settings.data_dir))


def settings(tmp_path: Path, **given: object) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache", **given})


def test_a_taken_port_is_a_failure_and_a_free_one_is_not(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (found,) = find(checks.check_port, settings(tmp_path, http=f"127.0.0.1:{taken.getsockname()[1]}"))
    assert found.verdict is CheckVerdict.FAIL
    assert "--http" in found.next_step
    (found,) = find(checks.check_port, settings(tmp_path, http="127.0.0.1:0"))
    assert found.verdict is CheckVerdict.OK


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1:x"])
def test_an_invalid_port_is_a_failure(tmp_path: Path, text: str) -> None:
    (found,) = find(checks.check_port, settings(tmp_path, http=text))
    assert found.verdict is CheckVerdict.FAIL


@pytest.mark.parametrize("name", ["admin.token", "views.duckdb", "views.duckdb.wal"])
def test_a_secret_that_others_may_read_is_a_failure(tmp_path: Path, name: str) -> None:
    given = settings(tmp_path)
    given.data_dir.mkdir()
    token = given.data_dir / name
    token.write_text("cj_x")
    token.chmod(0o600)
    assert [f.verdict for f in find(checks.check_data_dir, given)] == [CheckVerdict.OK, CheckVerdict.OK]
    token.chmod(0o644)
    found = find(checks.check_data_dir, given)[-1]
    assert found.verdict is CheckVerdict.FAIL
    assert found.next_step == f"chmod 600 {token}"


def test_a_data_directory_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    (found,) = find(checks.check_data_dir, settings(tmp_path))
    assert found.verdict is CheckVerdict.OK
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("free", "verdict"), [(100 << 20, CheckVerdict.FAIL), (1 << 30, CheckVerdict.WARN), (100 << 30, CheckVerdict.OK)]
)
def test_little_disk_is_a_warning_and_too_little_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, verdict: CheckVerdict
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, free))  # type: ignore[attr-defined]  # the type it returns
    (found,) = find(checks.check_disk, settings(tmp_path))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("version", "verdict"), [("2.9.0", CheckVerdict.FAIL), ("2.10.27", CheckVerdict.WARN), ("2.12.1", CheckVerdict.OK)]
)
def test_the_age_of_the_server_is_judged(tmp_path: Path, version: str, verdict: CheckVerdict) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text(f"#!/bin/sh\necho nats-server: v{version}\n")
    binary.chmod(0o755)
    (found,) = find(checks.check_nats_server, settings(tmp_path, nats_server=binary))
    assert found.verdict is verdict
    assert bool(found.next_step) is (verdict is not CheckVerdict.OK)


def test_an_embedder_that_is_not_there_is_a_failure_only_if_it_was_asked_for(tmp_path: Path) -> None:
    away = {"ollama_host": "http://127.0.0.1:1"}
    for check, name in ((checks.check_ollama, "ollama"), (checks.check_minilm, "minilm")):
        (found,) = find(check, settings(tmp_path, **away))
        assert found.verdict is CheckVerdict.WARN
        (found,) = find(check, settings(tmp_path, **away, embedder=name))
        assert found.verdict is CheckVerdict.FAIL


def test_a_process_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    import os

    given = settings(tmp_path)
    given.data_dir.mkdir()
    release = lock(given.data_dir)
    (given.data_dir / "runtime.json").write_text(
        json.dumps({"http": "http://127.0.0.1:1", "nats": "x", "pid": os.getpid()})
    )
    (found,) = find(checks.check_running, given)
    assert found.verdict is CheckVerdict.FAIL
    release()
    (found,) = find(checks.check_running, given)
    assert (found.verdict, found.found) == (CheckVerdict.WARN, "it ended without cleaning up")


def test_a_check_that_breaks_is_itself_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_breaks(given: Settings, where: Where) -> list[CheckFinding]:
        raise PermissionError(13, "denied", "/somewhere")

    monkeypatch.setattr(checks, "CHECKS", (check_breaks,))
    (found,) = checks.run_checks(settings(tmp_path), Where(tmp_path))
    assert (found.check, found.verdict) == ("breaks", CheckVerdict.FAIL)


def test_the_exit_code_is_1_if_a_check_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for verdict, code in ((CheckVerdict.FAIL, 1), (CheckVerdict.WARN, 0), (CheckVerdict.OK, 0)):
        finding = CheckFinding("x", verdict, "found \x1b", "do that")
        monkeypatch.setattr(checks, "CHECKS", (lambda s, w, finding=finding: [finding],))
        assert main(["doctor", "--data-dir", str(tmp_path), "--json"]) == code
        said = json.loads(capsys.readouterr().out)
        assert said["ok"] is (code == 0)
        assert said["checks"][0]["verdict"] == verdict.value
        assert main(["doctor", "--data-dir", str(tmp_path)]) == code
        assert "\x1b" not in capsys.readouterr().out


def test_views_that_cannot_be_opened_are_a_failure_and_old_ones_a_warning(tmp_path: Path) -> None:
    given = settings(tmp_path)
    given.data_dir.mkdir()
    assert find(checks.check_views, given) == []
    path = given.data_dir / "views.duckdb"
    ViewStore.open(path, memory_mb=64).close()
    assert [found.verdict for found in find(checks.check_views, given)] == [CheckVerdict.OK]
    path.write_text("hello")
    (given.data_dir / "views.duckdb.damaged-1").write_text("older")
    old, broken = find(checks.check_views, given)
    assert (old.verdict, broken.verdict) == (CheckVerdict.WARN, CheckVerdict.FAIL)
    assert "views.duckdb.damaged-1" in old.found
    assert "not a valid DuckDB" in broken.found
    assert "crew-journal up" in broken.next_step
    assert path.read_text() == "hello"


def test_views_of_an_up_that_is_starting_are_its_own_affair(tmp_path: Path) -> None:
    given = settings(tmp_path)
    given.data_dir.mkdir()
    release = lock(given.data_dir)
    store = ViewStore.open(given.data_dir / "views.duckdb", memory_mb=64)
    try:
        assert find(checks.check_views, given) == []
    finally:
        store.close()
        release()
    assert [found.verdict for found in find(checks.check_views, given)] == [CheckVerdict.OK]
