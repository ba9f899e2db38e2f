"""``connect`` and the files of other programs: their mode, links, changes in between, and entries that are not ours."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.services.cli.connect import PROGRAMS, _config, _Started, _written
from crew_journal.services.cli.main import main

THEIRS = {"type": "command", "command": "echo hello"}


@pytest.fixture(autouse=True)
def no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service of the person who runs the tests gets a token."""
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path / "no-journal"))
    monkeypatch.delenv("CREW_JOURNAL_URL", raising=False)


def connect(home: Path, *more: str, program: str = "claude-code") -> int:
    return main(["connect", program, "--yes", "--home", str(home), *more])


def settings(home: Path, value: Any = None) -> Path:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    if value is not None:
        path.write_text(json.dumps(value, indent=2) + "\n")
    return path


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_a_file_keeps_its_mode_and_a_new_one_is_private(tmp_path: Path, mode: int) -> None:
    path = settings(tmp_path, {"model": "x"})
    path.chmod(mode)
    for more in ((), ("--remove",)):
        assert connect(tmp_path, *more) == 0
        assert path.stat().st_mode & 0o777 == mode
    connect(tmp_path)
    assert (tmp_path / ".claude.json").stat().st_mode & 0o777 == 0o600
    assert connect(tmp_path / "fresh") == 0
    for made in (tmp_path / "fresh").rglob("*"):
        assert made.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("linked", [".claude.json", ".claude/settings.json", ".claude"])
def test_a_link_is_not_followed_and_its_target_stays(
    tmp_path: Path, linked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home, target = tmp_path / "home", tmp_path / "target"
    (home / linked).parent.mkdir(parents=True)
    if linked == ".claude":
        target.mkdir()
        (target / "settings.json").write_text("{}\n")
    else:
        target.write_text("{}\n")
    (home / linked).symlink_to(target)
    assert connect(home) == 3
    assert f"{linked} is a link to {target}, which is not followed" in capsys.readouterr().err
    assert (home / linked).is_symlink()
    assert (target / "settings.json" if target.is_dir() else target).read_text() == "{}\n"


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".claude.json")
    assert connect(tmp_path) == 2
    (tmp_path / ".claude.json").unlink()
    (tmp_path / ".claude.json").mkdir()
    assert connect(tmp_path) == 2


@pytest.mark.parametrize("change", ["written", "replaced", "removed", "linked"])
def test_a_file_that_changes_while_a_person_is_asked_is_left_as_it_is(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings(tmp_path, {"model": "x"})
    other = json.dumps({"model": "y"})

    def confirm(*_: object, **__: object) -> bool:
        if change == "written":
            path.write_text(other)
        elif change == "replaced":
            (tmp_path / "other").write_text(other)
            (tmp_path / "other").replace(path)
        else:
            path.unlink()
            if change == "linked":
                (tmp_path / "other").write_text(other)
                path.symlink_to(tmp_path / "other")
        return True

    monkeypatch.setattr("click.confirm", confirm)
    assert main(["connect", "claude-code", "--home", str(tmp_path)]) == (3 if change == "linked" else 1)
    assert ("not followed" if change == "linked" else "changed by another program") in capsys.readouterr().err
    if change == "removed":
        assert not path.exists()
    else:
        assert path.read_text() == other
    assert [path.name for path in path.parent.iterdir() if "crew-journal" in path.name] == []


def test_hooks_and_servers_that_a_person_wrote_stay_even_if_they_call_our_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped = {"type": "command", "command": "crew-journal hook Stop --program claude-code | tee log"}
    named = {"type": "command", "command": "/opt/bin/crew-journal hook Stop --program other"}
    before: dict[str, Any] = {
        "hooks": {
            "Stop": [{"matcher": "*", "hooks": [wrapped, THEIRS]}],
            "PreCompact": [],
            "Notification": [{"hooks": []}],
        },
        "odd": {"hooks": 3},
    }
    before["hooks"]["SessionEnd"] = [{"hooks": [named]}]
    path = settings(tmp_path, before)
    servers = {"mcpServers": {"crew-journal": {"command": "crew-journal", "args": ["mcp", "--agent", "ada"]}}}
    (tmp_path / ".claude.json").write_text(json.dumps(servers))
    assert connect(tmp_path) == 0
    assert "was not written by `connect`: it stays as it is" in capsys.readouterr().err
    assert len(json.loads(path.read_text())["hooks"]["Stop"]) == 2
    assert connect(tmp_path, "--remove") == 0
    after = json.loads(path.read_text())
    assert (
        after["hooks"].pop("PreCompact", []) == []
    )  # an empty list that was there may go with the entry that was in it
    assert after["hooks"] == {name: value for name, value in before["hooks"].items() if name != "PreCompact"}
    assert json.loads((tmp_path / ".claude.json").read_text()) == servers


@pytest.mark.parametrize("start", [["/opt/bin/crew-journal"], [sys.executable, "-m", "crew_journal.services.cli"]])
def test_what_an_earlier_version_wrote_is_renewed_and_removed(tmp_path: Path, start: list[str]) -> None:
    former = {
        "type": "command",
        "command": shlex.join([*start, "hook", "Stop", "--program", "claude-code"]),
        "timeout": 5,
    }
    path = settings(tmp_path, {"hooks": {"Stop": [{"hooks": [THEIRS, former]}]}})
    entry = {"command": start[0], "args": [*start[1:], "mcp", "--project", "claude-code"], "env": {"A": "b"}}
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"crew-journal": entry}}))
    assert connect(tmp_path) == 0
    assert json.dumps(former["command"]) not in path.read_text()
    renewed = json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]["crew-journal"]
    assert renewed["env"] == {"A": "b"}
    assert "-P" in renewed["args"]
    assert connect(tmp_path, "--remove") == 0
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [THEIRS]}]}}
    assert json.loads((tmp_path / ".claude.json").read_text()) == {}


@pytest.mark.parametrize(
    "text", ['{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"a": 1, "a": 2}', "[]", "{", "\ufeff{}", "[" * 100_000]
)
def test_a_file_of_another_shape_is_named_and_left_alone(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings(tmp_path)
    path.write_text(text)
    assert connect(tmp_path) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == text


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings(tmp_path).write_bytes(b'{"a": "\xff"}')
    assert connect(tmp_path) == 2
    assert "is not UTF-8 (byte 7)" in capsys.readouterr().err


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abäß ", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["model", "permissions", "ünï"]), _JSON, min_size=1),
    st.sampled_from([None, 1, 2, 4, "\t"]),
    st.booleans(),
    st.sampled_from(["", "\n"]),
    st.sampled_from(sorted(PROGRAMS)),
    st.sampled_from([[], ["--data-dir", "/a b/.crew-journal"], ["--journal", "host-9119"]]),
)
def test_a_file_is_the_same_text_after_connect_and_remove(
    theirs: dict[str, Any], indent: int | str | None, ascii_only: bool, end: str, program: str, place: list[str]
) -> None:
    text = json.dumps(theirs, indent=indent, ensure_ascii=ascii_only) + end
    if indent is not None and not text.startswith("{\n"):
        return
    for file in PROGRAMS[program]:
        config = _config(Path("x"), text)
        file.add(config, _Started(["python", "-E", "-P", "-m", "crew_journal.services.cli"], place))
        connected = _written(config, text)
        assert connected != text
        config = _config(Path("x"), connected)
        file.remove(config)
        config.pop("version", None)  # of Cursor's format, not ours
        assert _written(config, connected) == text
