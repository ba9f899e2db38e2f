"""``calibrate`` replays a workspace's own receipts and proposes the highest floor that keeps what was used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.core.errors import InvalidEntry, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Role

TOPICS = ("parser", "billing", "restore", "deploy", "certificate", "queue", "cache", "invoice", "backup", "router",
          "printer", "ledger", "kernel", "gateway", "schema", "socket", "mailer", "tenant", "webhook", "cursor",
          "index", "shard")  # fmt: skip


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as running:
        yield running


async def test_the_proposed_floor_keeps_what_was_used(stack: Stack) -> None:
    async with stack.client() as owner:
        entries = [
            {
                "workspace_id": "c1",
                "agent_id": "a1",
                "entry_type": "summary.generated",
                "summary": f"The {topic} was {end}",
            }
            for topic in TOPICS
            for end in ("restarted by Ada this morning", "checked")
        ]
        seq = (await owner.append_batch(entries))[-1].seq
        before = await owner.calibrate(workspace_id="c1", min_seq=seq)
        assert (before.floor, before.receipts, before.floors) == (None, 0, ())
        for topic in TOPICS:
            found = await owner.recall(f"who restarted the {topic}?", workspace_id="c1", min_seq=seq)
            assert found.receipt is not None
            await owner.used(found.receipt, entry_ids=[found.hits[0].entry_id])
        last = await owner.append({"workspace_id": "c1", "entry_type": "run.completed", "summary": "done"})
        kept = await owner.calibrate(workspace_id="c1", min_seq=last.seq)
    assert (kept.receipts, kept.used) == (len(TOPICS), len(TOPICS))
    chosen = next(floor for floor in kept.floors if floor.floor == kept.floor)
    assert chosen.used_kept >= 0.95
    assert all(floor.used_kept < 0.95 for floor in kept.floors if floor.floor > chosen.floor)
    assert kept.floors[0].hits > chosen.hits  # the others were left out


async def test_lines_that_were_only_rendered_do_not_count_as_used(stack: Stack) -> None:
    async with stack.client() as owner:
        stored = await owner.append(
            {
                "workspace_id": "c2",
                "agent_id": "a1",
                "entry_type": "summary.generated",
                "summary": "The parser was restarted",
            }
        )
        shown = await owner.render("who restarted the parser?", mode="search", workspace_id="c2", min_seq=stored.seq)
        assert shown.receipt is not None
        assert (await owner.receipt(shown.receipt)).rendered  # waits until the view has it
        answer = await owner.calibrate(workspace_id="c2")
    assert (answer.receipts, answer.used, answer.rendered) == (1, 0, 1)


async def test_a_floor_that_was_set_can_be_taken_back(stack: Stack) -> None:
    async with stack.client() as owner:
        changed = await owner.configure_workspace(evidence_floor=0.2, cost_nudge_usd=3.0, workspace_id="c3")
        assert changed.evidence_floor == 0.2
        changed = await owner.configure_workspace(reset=["evidence_floor"], workspace_id="c3")
        assert (changed.evidence_floor, changed.cost_nudge_usd) == (None, 3.0)
        read = await owner.workspace_settings(workspace_id="c3", min_seq=changed.view_seq)
        assert (read.evidence_floor, read.cost_nudge_usd) == (None, 3.0)
        with pytest.raises(InvalidEntry, match="evidence_floor"):
            await owner.configure_workspace(reset=["floor"], workspace_id="c3")  # type: ignore[list-item]  # not a setting


async def test_a_workspace_that_does_not_exist_is_an_error_that_names_those_that_do(stack: Stack) -> None:
    async with stack.client() as owner:
        stored = await owner.append({"workspace_id": "c4", "entry_type": "run.completed", "summary": "done"})
        assert (await owner.calibrate(workspace_id="c4", min_seq=stored.seq)).receipts == 0
        assert (await owner.list(workspace_id="c4", types=["note.taken"])).entries == ()
        for asking in (owner.list, owner.count, owner.calibrate, owner.workspace_settings):
            with pytest.raises(NotFound, match="there is no workspace c5") as unknown:
                await asking(workspace_id="c5")
            assert "c4" in unknown.value.hint
        assert (await owner.list()).entries is not None  # the default workspace need not have entries


async def test_an_agent_may_not_calibrate(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "c1", agent="a1")
    async with stack.client(token.plaintext) as agent:
        with pytest.raises(NotAllowed):
            await agent.calibrate()
