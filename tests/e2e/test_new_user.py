"""A new user's coding agent remembers in any repository: two commands, a home of its own, a node in the background."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli import COMMAND, end, environment, eventually

from crew_journal.services.data_dir import is_owned, read_running


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with two repositories; the node that was started in the background is stopped at the end."""
    for name in ("shop", "depot"):
        (tmp_path / name / ".git").mkdir(parents=True)
    yield tmp_path
    if (node := read_running(own(tmp_path))) is not None:
        os.kill(node.pid, signal.SIGTERM)
        eventually(lambda: not is_owned(own(tmp_path)), "the node has stopped")


def own(home: Path) -> Path:
    return home / ".local" / "state" / "crew-journal" / "journal"


def ran(home: Path, folder: str, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    kept = environment(HOME=str(home), CREW_JOURNAL_EMBEDDER="none")
    env = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        argv, cwd=home / folder, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done


def test_an_agent_remembers_across_sessions_in_each_repository(home: Path) -> None:
    connected = ran(home, "shop", COMMAND, "connect", "claude-code", "--yes")
    assert "started one in the background" in connected.stderr
    assert "tried the hook SessionStart from another folder: it answered" in connected.stderr
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert read_running(own(home)) is not None
    assert (own(home) / ".gitignore").read_text() == "*\n"

    def hook(event: str, folder: str, **given: Any) -> dict[str, Any]:
        command = shlex.split(hooks[event][0]["hooks"][0]["command"])
        body = {"cwd": str(home / folder), "session_id": "s", **given}
        answer: dict[str, Any] = json.loads(ran(home, folder, *command, stdin=json.dumps(body)).stdout)
        return answer

    def recalled(folder: str, prompt: str) -> str:
        answer = hook("UserPromptSubmit", folder, prompt=prompt, session_id="second")
        return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

    said = ran(home, "shop", COMMAND, "remember", "The", "staging", "database", "is", "called", "heron")
    assert "for the sessions in this repository (crew shop)" in said.stderr
    asked = "what is the staging database called?"
    assert "heron" in recalled("shop", asked), "the first prompt finds it, though no session has recorded anything yet"
    assert "heron" in json.dumps(hook("SessionStart", "shop"))

    transcript = home / "t.jsonl"
    message = {"role": "user", "content": "We renamed the login queue to kestrel"}
    transcript.write_text(json.dumps({"type": "user", "uuid": "u1", "message": message}) + "\n")
    hook("Stop", "depot", transcript_path=str(transcript))
    prompt = "What did we rename the login queue to?"
    eventually(lambda: "kestrel" in recalled("depot", prompt), "the second session recalls the first")
    assert "kestrel" not in recalled("shop", prompt), "it was said in another repository"

    stopped = ran(home, "depot", COMMAND, "down")
    assert stopped.stdout.startswith("stopped")
    assert read_running(own(home)) is None
    once = ran(home, "depot", COMMAND, "recall", asked)
    assert "no node runs on" in once.stderr
    assert "heron" in once.stdout


def test_connect_in_a_folder_with_its_own_journal_names_it_for_every_repository(home: Path) -> None:
    argv = [COMMAND, "up", "--here", "--http", "127.0.0.1:0", "--durability", "interval"]
    kept = environment(HOME=str(home), CREW_JOURNAL_EMBEDDER="none")
    env = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    journal = home / "shop" / ".crew-journal"
    with (home / "up.log").open("wb") as log:
        node = subprocess.Popen(argv, cwd=home / "shop", env=env, stdout=log, stderr=log)
    try:
        eventually(lambda: read_running(journal), "a running node")
        connected = ran(home, "shop", COMMAND, "connect", "claude-code", "--yes")
        assert "it answered in" in connected.stderr
        command = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
        assert shlex.split(command["command"])[-2:] == ["--data-dir", str(journal)]
        tools = json.loads((home / ".claude.json").read_text())["mcpServers"]["crew-journal"]["args"]
        assert tools[-2:] == ["--data-dir", str(journal)]
        ran(home, "shop", COMMAND, "connect", "claude-code", "--remove", "--yes")
        assert json.loads((home / ".claude.json").read_text()) == {}
    finally:
        end(node)
