"""A fortnight of three agents that only call ``remember``, and of a person who corrects one in chats that hooks capture."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.cli import COMMAND, environment
from support.mcp_client import connected
from support.stack import DEADLINE_S, Stack, running_stack, until

from crew_journal.consumers.learning.reactor import ConsolidateReactor
from crew_journal.schemas.core.errors import ConsolidationRunning
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.services.client import AsyncCrewJournal, hook
from crew_journal.services.client.project import trust

NOTES = (
    (
        1,
        "ada",
        "The integration tests fail with port 5432 in use while the dev database container runs: stop it first.",
    ),
    (3, "bo", "Integration tests fail, port 5432 in use: stop the dev database container first."),
    (6, "cy", "Port 5432 is in use by the dev database container: stop it first, else the integration tests fail."),
    (2, "bo", "Staging deploys time out at the health check when the VPN is not connected."),
    (5, "cy", "The staging deploy timed out at the health check, the VPN was not connected."),
    (8, "ada", "A staging deploy times out at the health check when VPN is not connected."),
    (2, "cy", "Never edit the generated client code by hand, run make generate."),
    (7, "ada", "Generated client code: never edit it by hand, run make generate."),
    (11, "bo", "Run make generate, never edit generated client code by hand."),
    (4, "bo", "Reviewed pull request 84."),
    (6, "ada", "Reviewed pull request 91."),
    (9, "cy", "Reviewed pull request 95."),
    (3, "ada", "Finished the login page, all tests pass."),
    (7, "bo", "Finished the export page, all tests pass."),
    (10, "cy", "Finished the search page, all tests pass."),
    (5, "bo", "The audit log is kept for two years."),
    (12, "ada", "Maria is the product owner of the shop."),
)
CHAT = (
    (2, "No, use pnpm instead of npm."),
    (4, "Can you show me the failing test?"),
    (9, "Please never commit generated files to the repository."),
    (10, "Never mind, I found it."),
    (12, "Use the blue one today instead of the red one."),
)


class Calendar(dict[str, int]):
    """When messages are taken to have been received: at ``now_ms``, whatever their id."""

    now_ms: int

    def get(self, _entry_id: str, default: Any = None) -> Any:
        return getattr(self, "now_ms", default)


class ClaudeCode:
    """The hooks that ``connect`` wrote into a home, in a repository whose file names workspace and crew."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        home = folder / "home"
        connect: list[str | Path] = [COMMAND, "connect", "claude-code", "--yes", "--as", "maria", "--home", home]
        subprocess.run(connect, capture_output=True, check=True, env=environment(**env))
        groups = json.loads((home / ".claude" / "settings.json").read_text("utf-8"))["hooks"]
        self._commands = {event: shlex.split(group["hooks"][0]["command"]) for event, [group] in groups.items()}

    def send(self, event: str, session: str, *turns: str) -> str:
        """Run the hook of an event; what it gives the session."""
        transcript = self._folder / f"{session}.jsonl"
        for n, text in enumerate(turns):
            line = {
                "uuid": f"{session}-{n}",
                "message": {"role": "user", "content": text},
                "timestamp": "2026-11-20T10:00:00Z",
            }
            with transcript.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
        command = self._commands[event]
        named, program = command[command.index("hook") + 1], command[command.index("--program") + 1]
        out_, given = (
            io.StringIO(),
            {"cwd": str(self._folder), "session_id": session, "transcript_path": str(transcript)},
        )
        hook.run(named, program, io.StringIO(json.dumps(given)), out_)
        answer = json.loads(out_.getvalue())
        assert "systemMessage" not in answer, answer
        return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


async def learned_by(stack: Stack, owner: AsyncCrewJournal) -> Sequence[Any]:
    """The rules after a run on request; the node catches up on the runs of the days before first."""
    running = "SELECT 1 FROM memory_sweeps WHERE sweep = 'consolidation' AND coalesce(finished_due_ms < due_ms, true)"
    while True:
        await until(lambda: not stack.store.rows(running))
        with contextlib.suppress(ConsolidationRunning):
            await owner.consolidate(crew_id="shop", since="8w", workspace_id="acme")
            break
    await until(lambda: not stack.store.rows(running))
    return (await owner.learned_rules(workspace_id="acme")).rules


async def test_a_fortnight_of_tools_and_hooks_gives_three_rules_and_two_lessons_to_the_next_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calendar, begin = Calendar(), datetime.now(UTC) - timedelta(days=15)
    async with running_stack(tmp_path / "data", received=calendar) as stack:
        env = {
            "CREW_JOURNAL_URL": stack.url,
            "CREW_JOURNAL_TOKEN": stack.owner,
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(hook, "DEADLINE_S", DEADLINE_S)
        (tmp_path / ".crew-journal.json").write_text('{"crew": "shop", "agent": "ada", "workspace": "acme"}')
        trust(tmp_path)
        claude = await asyncio.to_thread(ClaudeCode, tmp_path, env)
        tokens = {name: await stack.token(Role.AGENT, "acme", agent=name, crew="shop") for name in ("ada", "bo", "cy")}
        reactor = ConsolidateReactor.create(stack.context())
        assert reactor is not None
        await reactor.start()
        tools = AsyncExitStack()
        clients = {who: await tools.enter_async_context(connected(stack, tokens[who].plaintext)) for who in tokens}
        try:
            for day in range(1, 15):
                calendar.now_ms = to_ms(begin + timedelta(days=day))
                for of_day, who, text in NOTES:
                    if of_day == day:
                        assert not (await clients[who].call_tool("remember", {"text": text})).is_error
                said = [text for of_day, text in CHAT if of_day == day]
                if said:
                    await asyncio.to_thread(claude.send, "Stop", f"day{day}", *said)
            del calendar.now_ms
            async with stack.client() as owner:
                rules = await learned_by(stack, owner)
        finally:
            await tools.aclose()
            await reactor.stop()
        block = await asyncio.to_thread(claude.send, "SessionStart", "next")
    assert len(rules) == 3, rules
    for word in ("port 5432", "stop", "health check", "VPN", "make generate", "Never edit"):
        assert word in block
    for lesson in ("Use pnpm instead of npm", "Never commit generated files to the repository"):
        assert lesson in block
    assert "[from user maria, " in block
    learned = block.partition("Learned rules")[2].partition("[REMEMBERED")[0]
    assert "port 5432" in learned
    assert "pull request" not in learned
    assert "blue one" not in block
