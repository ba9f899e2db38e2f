"""A fortnight of three agents that only remember what they found out, and of a person who corrects them in the chat."""

from __future__ import annotations

from datetime import timedelta

from support.memory_node import WORKSPACE, MemoryNode, agent

from crew_journal.consumers.learning.reactor import ConsolidateReactor
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.timestamps import format_ts, to_ms
from crew_journal.schemas.learning.lessons import lessons_text, rules_text
from crew_journal.services.documents.learned import PromptLearning

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


async def test_a_fortnight_of_notes_and_corrections_gives_three_rules_and_two_lessons(live: MemoryNode) -> None:
    await live.react(ConsolidateReactor)
    begin = live.now
    maria = Principal(token_id="t_own", role=Role.ADMIN, workspace_id=WORKSPACE, speaks_for=("user:maria",))
    for day in range(1, 15):
        live.now = begin + timedelta(days=day)
        seq = 0
        for n, (of_day, who, text) in enumerate(NOTES):
            if of_day == day:
                live.received[f"note{n}"] = to_ms(live.now)
                seq = await live.append_as(agent(who), f"note{n}", text, "memory.remembered", ts=format_ts(live.now))
        for n, (of_day, text) in enumerate(CHAT):
            if of_day == day:
                seq = await live.append_as(
                    maria, f"turn{n}", text, "chat.user_message", agent_id="ada", actor_type="user", actor_id="maria",
                    payload={"text": text}, ts=format_ts(live.now),
                )  # fmt: skip
        await live.caught_up(seq)
        live.advance(hours=1)
        done = await live.swept("consolidation", await live.tick("consolidation"))
        assert done["error"] is None
    learning = PromptLearning(live.store)
    learned = learning.at(WORKSPACE, "red", live.store.view_seq())
    text = rules_text(learned.rules)
    assert len(learned.rules) == 3, text
    assert all(word in text for word in ("port 5432", "stop", "health check", "VPN", "make generate", "Never edit")), (
        text
    )
    assert "pull request" not in text
    assert {lesson.rule for lesson in learned.lessons} == {
        "Use pnpm instead of npm",
        "Never commit generated files to the repository",
    }
    assert "[from user maria, " in lessons_text(learned.lessons)
    learning.close()
