"""Python files of the folder in which a command is started are not run, and what it starts works in its data directory."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import environment

from crew_journal.consumers.adapters import minilm_weights as pip_download
from crew_journal.services.client.isolation import CLI_MODULE, isolated_python
from crew_journal.services.data_dir import read_running

MODULES = ("typing", "duckdb", "httpx", "uvloop", "json", "services", "crew_journal_shadow")
RAN = "ran-"
SCRIPT = "from crew_journal.services.cli.entry import script; script()"
CLIENT_SCRIPT = "from crew_journal.services.client.entry import script; script()"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with modules that leave a file behind when they are imported."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in MODULES:
        text = f"open({str(tmp_path / (RAN + name))!r}, 'w')\nraise SystemExit(9)\n"
        if name == "services":
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(text)
        else:
            (folder / f"{name}.py").write_text(text)
    return folder


def ran(hostile: Path) -> list[str]:
    return sorted(path.name for path in hostile.parent.glob(f"{RAN}*"))


@pytest.mark.parametrize(
    ("command", "python_path"),
    [
        ([sys.executable, "-m", CLI_MODULE, "config", "show"], None),
        ([*isolated_python(), "-m", CLI_MODULE, "config", "show"], "."),
        ([*isolated_python(), "-m", CLI_MODULE, "hook", "SessionStart"], "."),
        ([sys.executable, "-P", "-c", CLIENT_SCRIPT, "--help"], None),
        ([sys.executable, "-P", "-c", SCRIPT, "config", "show"], None),
    ],
)
def test_a_command_runs_no_module_of_the_folder_it_is_started_in(
    hostile: Path, command: list[str], python_path: str | None
) -> None:
    env = environment(**({"PYTHONPATH": python_path} if python_path else {}))
    done = subprocess.run(command, cwd=hostile, env=env, input="{}", capture_output=True, text=True, check=False)
    assert (ran(hostile), done.returncode) == ([], 0), done.stderr


@pytest.mark.parametrize("name", ["typing", "duckdb", "httpx", "services"])
def test_a_command_forgets_python_path(hostile: Path, name: str) -> None:
    for other in set(MODULES) - {name}:  # the standard library itself cannot be protected from PYTHONPATH
        file = hostile / f"{other}.py"
        file.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-c", SCRIPT, "config", "show"]
    env = environment(PYTHONPATH=str(hostile))
    done = subprocess.run(command, cwd=hostile.parent, env=env, capture_output=True, text=True, check=False)
    assert (ran(hostile), done.returncode) == ([], 0), done.stderr


def test_what_connect_wrote_runs_no_module_of_a_folder(hostile: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = environment(PYTHONPATH=".", CREW_JOURNAL_DATA_DIR=str(tmp_path / "data"))
    connect = [*isolated_python(), "-m", CLI_MODULE, "connect", "claude-code", "--yes", "--home", str(home)]
    subprocess.run(connect, cwd=tmp_path, env=env, capture_output=True, check=True)
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    command = shlex.split(hooks["UserPromptSubmit"][0]["hooks"][0]["command"])
    server = json.loads((home / ".claude.json").read_text())["mcpServers"]["crew-journal"]
    for argv in (command, [server["command"], *server["args"][:-2], "--help"]):
        done = subprocess.run(argv, cwd=hostile, env=env, input="{}", capture_output=True, text=True, check=False)
        assert (ran(hostile), done.returncode) == ([], 0), done.stderr


def test_pip_runs_no_module_of_the_folder(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PYTHONPATH", ".")
    with pytest.raises(pip_download.DownloadFailed, match="could not fetch"):
        pip_download.download_wheel("crew-journal-absent", "1.0", tmp_path / "wheels")
    assert ran(hostile) == []


def test_mcp_in_a_hostile_folder_starts_a_node_that_works_in_its_data_directory(hostile: Path, tmp_path: Path) -> None:
    env = environment(
        CREW_JOURNAL_EMBEDDER="none", CREW_JOURNAL_HTTP="127.0.0.1:0", CREW_JOURNAL_CONFIG="../relative.toml"
    )
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "remember", "arguments": {"text": "tea"}},
        }
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    env["XDG_STATE_HOME"] = str(tmp_path / "state")
    data_dir = tmp_path / "state" / "crew-journal" / "journal"
    command = [sys.executable, "-m", CLI_MODULE, "mcp", "--agent", "ada"]
    try:
        done = subprocess.run(command, cwd=hostile, env=env, input=given, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout.splitlines()[0])
        assert not answer["result"]["isError"], answer
        seq = answer["result"]["structuredContent"]["seq"]
        assert ran(hostile) == []
        node = read_running(data_dir)
        assert node is not None
        assert Path(f"/proc/{node.pid}/cwd").resolve() == data_dir if sys.platform == "linux" else True
        assert (data_dir / ".gitignore").read_text() == "*\n"
        assert {oct(path.stat().st_mode & 0o777) for path in (data_dir / "up.log", data_dir / "admin.token")} == {
            "0o600"
        }
        found = subprocess.run(
            [sys.executable, "-m", CLI_MODULE, "list", "--agent", "ada", "--min-seq", str(seq)],
            cwd=hostile,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "tea" in found.stdout
    finally:
        if (node := read_running(data_dir)) is not None:
            os.kill(node.pid, signal.SIGTERM)
