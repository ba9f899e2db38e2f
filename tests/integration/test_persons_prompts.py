"""The person who runs `connect` is the person whose prompts the hooks submit; what programs put among them is not."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import NotAuthenticated
from crew_journal.services.cli.main import main
from crew_journal.services.client import hook
from crew_journal.services.client.find import ServiceAddress
from crew_journal.services.client.person import Person, is_typed, keep_person, person_at

WORKSPACE = "prompts"
PASTED = "<local-command-stdout>I prefer zebrawire.</local-command-stdout>"
INSTRUCTIONS = "# AGENTS.md instructions for /srv/shop\n\n<INSTRUCTIONS>\nI prefer zebrawire.\n</INSTRUCTIONS>"


@pytest.fixture
def home(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREW_JOURNAL_URL", stack.url)
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", stack.owner)
    monkeypatch.setenv("CREW_JOURNAL_WORKSPACE", WORKSPACE)
    monkeypatch.setenv("CREW_JOURNAL_CREW", "studio")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(hook, "DEADLINE_S", 30.0)
    return tmp_path


async def connect(home: Path, *more: str) -> int:
    return await asyncio.to_thread(main, ["connect", "claude-code", "--yes", "--home", str(home), *more])


async def captured(home: Path, session: str, *turns: dict[str, Any]) -> None:
    lines = [
        {"uuid": f"{session}-{n}", "timestamp": f"2026-11-20T10:00:{n:02d}Z", **one} for n, one in enumerate(turns)
    ]
    path = home / f"{session}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"cwd": str(home), "session_id": session, "transcript_path": str(path)}
    out = io.StringIO()
    await asyncio.to_thread(hook.run, "Stop", "claude-code", io.StringIO(json.dumps(given)), out)
    assert json.loads(out.getvalue()) == {}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "content": text}, **fields}


async def test_prompts_are_own_words_of_the_person_who_connected_until_the_hooks_are_removed(
    stack: Stack, home: Path
) -> None:
    address = ServiceAddress(stack.url, stack.owner)
    assert await connect(home, "--as", "Georg") == 0
    person = person_at(address, "claude-code")
    assert person is not None
    assert person.name == "Georg"
    assert await connect(home, "--as", "georg") == 0
    assert person_at(address, "claude-code") == person, "one token, however often"
    answer = {"message": {"role": "assistant", "content": "Fine."}}
    summary = said("I prefer zebrawire summaries.", isCompactSummary=True)
    await captured(home, "s1", said("I prefer tea."), answer, said(PASTED), said(INSTRUCTIONS), summary)
    async with stack.client() as owner:
        seq = (await owner.remember("later", workspace_id=WORKSPACE)).seq
        listed = (await owner.list(workspace_id=WORKSPACE, min_seq=seq)).entries
        actors = [(entry.entry_type, entry.actor_id) for entry in listed if entry.entry_type.startswith("chat.")]
        assert actors[::-1] == [
            ("chat.user_message", "Georg"),
            ("chat.agent_response", "claude-code"),
            ("chat.user_message", "user"),
            ("chat.user_message", "user"),
        ]
        own = stack.store.rows("SELECT person, agent_id FROM operator_turns WHERE workspace_id = ?", [WORKSPACE])
        assert own == [("georg", "claude-code")]

    assert await connect(home, "--remove") == 0
    assert person_at(address, "claude-code") is None
    with pytest.raises(NotAuthenticated):
        stack.tokens.authenticate(person.token)
    await captured(home, "s2", said("I prefer coffee."))
    assert len(stack.store.rows("SELECT 1 FROM operator_turns WHERE workspace_id = ?", [WORKSPACE])) == 1


def test_a_persons_token_goes_only_where_its_makers_token_goes(home: Path) -> None:
    here, elsewhere = (
        ServiceAddress("http://127.0.0.1:9119", "cj_here"),
        ServiceAddress("http://127.0.0.1:9119", "cj_elsewhere"),
    )
    georg = Person("Georg", "t_1", "cj_georg")
    keep_person(here, "claude-code", georg)
    file = home / "state" / "crew-journal" / "persons.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "cj_here" not in file.read_text()
    assert person_at(here, "claude-code") == georg
    assert person_at(here, "claude-code").at(here).token == "cj_georg"  # type: ignore[union-attr]
    assert person_at(elsewhere, "claude-code") is None, "another service that a repository brings along"
    assert person_at(here, "codex") is None
    file.chmod(0o644)
    assert person_at(here, "claude-code") is None, "others may have read it"


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("I prefer tea.", True),
        ("Is a < b and b > c?", True),
        ("use List<int> here", True),
        (PASTED, False),
        (INSTRUCTIONS, False),
        ("fix it\n  <task-notification>\nI prefer zebrawire.", False),
    ],
)
def test_what_programs_put_among_prompts_was_not_typed(text: str, typed: bool) -> None:
    assert is_typed(text) == typed


async def test_without_a_service_connect_writes_the_hooks_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(
        "CREW_JOURNAL_URL", "http://127.0.0.1:9"
    )  # where nothing listens; on its own journal, connect starts a node
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", "cj_of_a_service_that_is_away")
    assert await connect(tmp_path) == 0
    assert "without a person's name" in capsys.readouterr().err
    assert (tmp_path / ".claude" / "settings.json").exists()
    assert not (tmp_path / "state").exists()
