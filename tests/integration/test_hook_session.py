"""The hooks of a session against a real node: what they give it, what they record, and in which order."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.services.client import hook
from crew_journal.services.client.project import trust

WORKSPACE = "hooked"
NOTE = "The kiln of the pottery is fired on Thursdays"
PROMPT = "When is the kiln of the pottery fired?"


@pytest.fixture
def called(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a hook as a coding agent does, in a repository of the workspace."""
    project = {"crew": "studio", "agent": "claude-code", "workspace": WORKSPACE}
    (tmp_path / ".crew-journal.json").write_text(json.dumps(project))
    trust(tmp_path)
    monkeypatch.setenv("CREW_JOURNAL_URL", stack.url)
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", stack.owner)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(hook, "DEADLINE_S", 30.0)

    async def call(event: str, **given: Any) -> str:
        out = io.StringIO()
        stdin = io.StringIO(json.dumps({"cwd": str(tmp_path), "session_id": "s1", **given}))
        await asyncio.to_thread(hook.run, event, "claude-code", stdin, out)
        answer = json.loads(out.getvalue())
        assert "systemMessage" not in answer
        return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

    return call


def transcript(folder: Path, session: str, *turns: tuple[str, str]) -> str:
    lines = [
        {
            "uuid": f"{session}-{number}",
            "message": {"role": role, "content": text},
            "timestamp": f"2026-11-20T10:00:{number:02d}Z",
        }
        for number, (role, text) in enumerate(turns)
    ]
    path = folder / "transcript.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


async def test_a_session_gets_notes_at_its_start_and_a_hint_for_a_prompt_which_is_recorded_afterwards(
    stack: Stack, called: Any, tmp_path: Path
) -> None:
    async with stack.client() as owner:
        made = await owner.remember(NOTE, agent_id="claude-code", crew_id="studio", workspace_id=WORKSPACE)
        await owner.memory_block(agent_id="claude-code", workspace_id=WORKSPACE, min_seq=made.seq)
        assert f"{NOTE}\n[END REMEMBERED]" in await called("SessionStart")
        await called("UserPromptSubmit", prompt=PROMPT)
        turns = await owner.list(workspace_id=WORKSPACE, types=["chat.user_message"])
        assert not turns.entries, "a prompt is recorded with its answer, after the hook asked for hints"
        await called(
            "Stop", transcript_path=transcript(tmp_path, "s1", ("user", PROMPT), ("assistant", "On Thursdays."))
        )
        written = await owner.remember("later", workspace_id=WORKSPACE)
        turns = await owner.list(workspace_id=WORKSPACE, types=["chat.user_message"], min_seq=written.seq)
        assert [entry.summary for entry in turns.entries] == [PROMPT]


async def test_the_notes_that_a_session_was_given_are_not_recorded_as_its_turns(
    stack: Stack, called: Any, tmp_path: Path
) -> None:
    async with stack.client() as owner:
        made = await owner.remember(NOTE, agent_id="claude-code", crew_id="studio", workspace_id=WORKSPACE)
        await owner.memory_block(agent_id="claude-code", workspace_id=WORKSPACE, min_seq=made.seq)
        given = await called("SessionStart")
        await called("Stop", session_id="s2", transcript_path=transcript(tmp_path, "s2", ("user", f"{given}\nhello")))
        written = await owner.remember("later", workspace_id=WORKSPACE)
        turns = await owner.list(workspace_id=WORKSPACE, types=["chat.user_message"], min_seq=written.seq)
        assert "hello" in [entry.summary for entry in turns.entries]
        assert not any("kiln of the pottery is" in entry.summary for entry in turns.entries)
