"""Speech is embedded unless a workspace turns it off: live, older entries by the sweep, nothing twice, nothing shared."""

from __future__ import annotations

from typing import Any, get_origin

import pytest
from support.embedding import until
from support.memory_node import ADMIN, WORKSPACE, MemoryNode, Themes

from crew_journal.schemas.access.operations import (
    CONFIGURE_WORKSPACE,
    ConfigureWorkspaceRequest,
    WorkspaceSettingsAnswer,
    WorkspaceSettingsRequest,
)
from crew_journal.schemas.core.operation import plain_types
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.recorded_settings import WorkspaceSettings
from crew_journal.schemas.recall.operations import RECALL
from crew_journal.services.access.use_cases import WorkspaceSettingsService
from crew_journal.services.cli.options import Fields
from crew_journal.services.desk import Caller, parse

LEAD = Principal(token_id="t", role=Role.LEAD, workspace_id=WORKSPACE, agent_id="boss", crew_id="red")


@pytest.fixture
def settings(live: MemoryNode) -> WorkspaceSettingsService:
    return WorkspaceSettingsService(live.shared)


async def configure(settings: WorkspaceSettingsService, **given: Any) -> WorkspaceSettingsAnswer:
    return await settings.put(Caller.of(ADMIN), ConfigureWorkspaceRequest(**given))


async def say(live: MemoryNode, entry_id: str, text: str, **fields: Any) -> int:
    return await live.append(entry_id, text, "chat.user_message", agent_id="ada", **fields)


async def recall(live: MemoryNode, query: str, principal: Principal = ADMIN, **asked: Any) -> Any:
    asked = {"query": query, "min_seq": await caught_up(live), **asked}
    return await live.recall_service.recall(principal, parse(RECALL, asked))


async def caught_up(live: MemoryNode) -> int:
    head: int = (await live.client.jetstream().stream_info("JOURNAL")).state.last_seq
    await live.caught_up(head)
    return head


async def vectors(live: MemoryNode) -> list[tuple[str, int]]:
    await caught_up(live)
    return live.store.rows("SELECT entry_id, seq FROM journal_embeddings ORDER BY entry_id")


async def test_speech_gets_vectors_without_any_setting_and_other_conversations_as_the_policy_says(
    live: MemoryNode, settings: WorkspaceSettingsService
) -> None:
    await say(live, "turn", "the disk is full")
    await live.append("reply", "the disk is empty again", "chat.agent_response", agent_id="ada")
    await live.append("slack", "the token is lost", "message.posted", agent_id="slack")
    await live.append("peers", "the queue is long", "peer.conversation", agent_id="ada")
    await live.append("cast", "the queue is short", "message.broadcast", agent_id="ada")
    await live.start_embed()
    await live.until_vectors(3)
    assert [name for name, _ in await vectors(live)] == ["reply", "slack", "turn"]
    assert (await settings.get(Caller.of(ADMIN), WorkspaceSettingsRequest())).embed_chat
    await configure(settings, cost_nudge_usd=2.5)
    await say(live, "later", "the token is found")
    await live.until_vectors(4)


async def test_speech_gets_no_vectors_while_it_is_switched_off_and_older_speech_by_the_sweep_afterwards(
    live: MemoryNode, themes: Themes, settings: WorkspaceSettingsService
) -> None:
    assert not (await configure(settings, embed_chat=False)).embed_chat
    await say(live, "before", "the disk is full")
    await live.append("esc", "the queue is stuck")
    embed = await live.start_embed()
    await live.start_index()
    await live.until_vectors(1)
    before = await vectors(live)
    assert [name for name, _ in before] == ["esc"]
    answer = await recall(live, "disk")
    assert (answer.without_vectors, answer.awaiting_vectors) == (1, 0), "chat has none, and is to get none"

    assert (await configure(settings, reset=["embed_chat"])).embed_chat, "the default"
    await say(live, "after", "the token is lost")
    await live.until_vectors(3)
    after = await vectors(live)
    assert [name for name, _ in after] == ["after", "before", "esc"]
    assert set(before) < set(after), "what had a vector was not embedded again"
    assert sorted(themes.asked) == ["the disk is full", "the queue is stuck", "the token is lost"]
    answer = await recall(live, "token")
    assert (answer.without_vectors, answer.awaiting_vectors) == (0, 0)

    await configure(settings, embed_chat=False)
    await say(live, "late", "the disk is full again")

    async def idle() -> bool:
        return (await embed.status()).pending == 0

    await until(idle, "an embed reactor with nothing to do")
    assert [name for name, _ in await vectors(live)] == ["after", "before", "esc"], "off: kept, and no more are made"
    answer = await recall(live, "disk")
    assert (answer.without_vectors, answer.awaiting_vectors) == (1, 0)
    live.advance(seconds=1)
    await configure(settings, embed_chat=True)
    await live.until_vectors(4)
    assert set(after) < set(await vectors(live)), "on again: only what has none is embedded"


async def test_an_answer_counts_the_entries_in_scope_that_only_words_find(
    live: MemoryNode, settings: WorkspaceSettingsService
) -> None:
    await configure(settings, embed_chat=True)
    await say(live, "c1", "the disk is full")
    await live.append("run", "the queue was drained", "run.completed", agent_id="ada")
    await live.append("esc", "the queue is stuck", agent_id="bob")
    for agent, expected in ((None, (2, 2)), ("ada", (1, 1)), ("bob", (1, 1))):
        answer = await recall(live, "disk", agent_id=agent)
        assert (answer.without_vectors, answer.awaiting_vectors) == expected
    await live.start_embed()
    await live.until_vectors(2)
    answer = await recall(live, "disk")
    assert (answer.without_vectors, answer.awaiting_vectors) == (0, 0)


async def test_chat_that_has_vectors_is_not_shared_with_the_crew_for_that(
    live: MemoryNode, settings: WorkspaceSettingsService
) -> None:
    await configure(settings, embed_chat=True)
    await say(live, "c1", "the disk is full")
    await live.append("esc", "the disk is stuck", agent_id="ada")
    await live.start_embed()
    await live.until_vectors(2)
    found = {hit.entry_id for hit in (await recall(live, "disk")).hits}
    shared = {hit.entry_id for hit in (await recall(live, "disk", LEAD)).hits}
    assert (found, shared) == ({"c1", "esc"}, {"esc"})


async def test_a_setting_that_is_not_given_stays_however_soon_another_follows(
    live: MemoryNode, settings: WorkspaceSettingsService
) -> None:
    await configure(settings, cost_nudge_usd=2.5)
    await configure(settings, embed_chat=True)
    last = await configure(settings, cost_nudge_usd=3.0)
    assert last.view_seq <= await caught_up(live)
    found = await settings.get(Caller.of(ADMIN), WorkspaceSettingsRequest())
    assert (found.cost_nudge_usd, found.embed_chat) == (3.0, True)


GIVEN: dict[type, Any] = {bool: True, int: 500, float: 0.5, dict: {"recency": 0.5}}
SUITE = {"colour": {"query": "which colour?", "must_contain": ["blue"]}}
"""A good value of ``expectations``."""


async def test_every_setting_has_an_option_and_is_answered_and_reset(
    live: MemoryNode, settings: WorkspaceSettingsService
) -> None:
    options = {one.name: "/".join((*one.opts, *one.secondary_opts)) for one in Fields(CONFIGURE_WORKSPACE).parameters()}

    async def answered(name: str) -> Any:
        await caught_up(live)
        return getattr(await settings.get(Caller.of(ADMIN), WorkspaceSettingsRequest()), name)

    for name, field in WorkspaceSettings.model_fields.items():
        kinds = [get_origin(kind) or kind for kind in plain_types(field.annotation)]
        [given] = [SUITE] if name == "expectations" else [value for kind, value in GIVEN.items() if kind in kinds]
        word = name.replace("_", "-")
        assert (f"--{word}/--no-{word}" if isinstance(given, bool) else f"--{word}") in options[name]
        default = await answered(name)
        given = (not default) if given is True else given
        assert default != given
        assert getattr(await configure(settings, **{name: given}), name) == given == await answered(name)
        assert getattr(await configure(settings, reset=[name]), name) == default
