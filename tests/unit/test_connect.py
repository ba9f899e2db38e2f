"""``connect`` adds and removes its own entries only."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from crew_journal.services.cli.main import main


@pytest.fixture(autouse=True)
def no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node is started on the journal that stands for the user's own."""
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path / "no-journal"))


@pytest.mark.parametrize("program", ["claude-code", "codex", "cursor"])
def test_what_connect_writes_it_removes_and_nothing_else(program: str, tmp_path: Path) -> None:
    theirs = {"type": "command", "command": "echo hello"}
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    before = {"model": "x", "hooks": {"Stop": [{"hooks": [theirs]}]}}
    settings.write_text(json.dumps(before, indent=2) + "\n")
    assert main(["connect", program, "--yes", "--home", str(tmp_path)]) == 0
    written = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.json")}
    assert any("hook " in text for text in written.values())
    assert main(["connect", program, "--yes", "--home", str(tmp_path)]) == 0
    assert written == {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.json")}
    assert main(["connect", program, "--yes", "--remove", "--home", str(tmp_path)]) == 0
    assert json.loads(settings.read_text()) == before
    for path in tmp_path.rglob("*.json"):
        assert "crew" not in path.read_text()


def test_a_question_without_an_answer_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["connect", "claude-code", "--home", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("nothing was changed\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_json_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{broken")
    assert main(["connect", "claude-code", "--yes", "--home", str(tmp_path)]) == 2
    assert "is not a JSON object" in capsys.readouterr().err
    assert settings.read_text() == "{broken"
