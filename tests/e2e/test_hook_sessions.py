"""Hooks of a coding agent on a real node: what a session is given, what of it is captured, and what the next one recalls."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.cli import COMMAND, Cli, environment, eventually

from crew_journal.services.client import CrewJournal
from crew_journal.services.client.hook import run

RULE = "deploys on Fridays are frozen"
FACT = "The staging database is called marmot"


class Session:
    """A session of Claude Code in one repository: its events as the program sends them, and its transcript."""

    def __init__(self, folder: Path, name: str) -> None:
        self.transcript = folder / f"{name}.jsonl"
        self._common = {"session_id": name, "transcript_path": str(self.transcript), "cwd": str(folder)}

    def event(self, name: str, **more: Any) -> str:
        return json.dumps({**self._common, "hook_event_name": name, **more})

    def send(self, name: str, **more: Any) -> dict[str, Any]:
        out = io.StringIO()
        assert run(name, "claude-code", io.StringIO(self.event(name, **more)), out) == 0
        answer: dict[str, Any] = json.loads(out.getvalue())
        assert "systemMessage" not in answer, answer
        return answer

    def given(self, name: str, **more: Any) -> str:
        """What the session is given at an event."""
        return str(self.send(name, **more).get("hookSpecificOutput", {}).get("additionalContext", ""))

    def turn(self, uuid: str, role: str, content: Any) -> None:
        line = {"type": role, "uuid": uuid, "timestamp": "2026-11-20T10:00:00.000Z"}
        with self.transcript.open("a") as out:
            out.write(json.dumps({**line, "message": {"role": role, "content": content}}) + "\n")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setattr("crew_journal.services.client.hook.DEADLINE_S", 60.0)  # the machine may be busy
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("URL", "TOKEN", "CREW", "AGENT", "WORKSPACE"):
        monkeypatch.delenv(f"CREW_JOURNAL_{name}", raising=False)
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path / "data"))
    return folder


def test_a_session_is_given_memory_and_the_next_one_recalls_what_it_said(repository: Path, tmp_path: Path) -> None:
    with Cli(tmp_path / "data").up(), CrewJournal(data_dir=tmp_path / "data") as journal:
        journal.register_agent("claude-code", crew_id="shop", memory_enabled=True)
        journal.document_write("AGENT", "replace", f"- {RULE}", agent_id="claude-code")
        journal.remember(FACT, agent_id="claude-code", crew_id="shop")

        first = Session(repository, "first")
        block = first.given("SessionStart", source="startup")
        assert RULE in block
        prompt = "What is the staging database called?"
        recalled = eventually(lambda: first.given("UserPromptSubmit", prompt=prompt), "the fact is recalled")
        assert FACT in recalled

        first.turn("u1", "user", f"<system-reminder>\n{block}\n{recalled}\n</system-reminder>\n{prompt}")
        first.turn("u2", "assistant", [{"type": "text", "text": f"{recalled}\nI renamed the login queue to heron."}])
        first.send("Stop")
        first.turn("u3", "user", f"{block}\nThank you, that is all")
        first.send("PreCompact", trigger="auto")
        first.send("SessionEnd", reason="exit")

        def chat() -> list[Any]:
            return list(journal.list(types=["chat.user_message", "chat.agent_response"]).entries[::-1])

        eventually(lambda: len(chat()) >= 3, "the turns are captured")
        kept = {(entry.actor_id, entry.summary) for entry in chat()}
        assert kept == {
            ("user", prompt),
            ("claude-code", "I renamed the login queue to heron."),
            ("user", "Thank you, that is all"),
        }
        assert len(chat()) == 3
        assert {(entry.agent_id, entry.crew_id, entry.trace_id) for entry in chat()} == {
            ("claude-code", "shop", "first")
        }

        second = Session(repository, "second")
        asked = "What did we rename the login queue to?"
        answer = second.given("UserPromptSubmit", prompt=asked)
        assert "heron" in answer
        second.turn("v1", "user", f"{answer}\n{asked}")
        second.send("Stop")
        eventually(lambda: len(chat()) >= 4, "the turn of the second session is captured")
        assert [entry.summary for entry in chat() if "heron" in str(entry.payload) + entry.summary] == [
            "I renamed the login queue to heron."
        ]


def test_what_connect_wrote_into_a_fresh_home_exits_with_0_and_says_so_without_a_node(
    repository: Path, tmp_path: Path
) -> None:
    session = Session(repository, "alone")
    session.turn("u1", "user", "hello")
    env = environment(CREW_JOURNAL_DATA_DIR=str(tmp_path / "data"), XDG_STATE_HOME=str(tmp_path / "state"))
    home = tmp_path / "home"
    subprocess.run(
        [COMMAND, "connect", "claude-code", "--yes", "--home", home], capture_output=True, check=True, env=env
    )
    written = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert set(written) == {"SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"}
    for event, [group] in written.items():
        given = session.event(event, prompt="hello")
        command = group["hooks"][0]["command"]
        done = subprocess.run(command, shell=True, input=given, capture_output=True, text=True, check=True, env=env)
        assert "no service runs" in json.loads(done.stdout)["systemMessage"]
    assert not list((tmp_path / "state").rglob("alone")), "what was not captured is captured later"
