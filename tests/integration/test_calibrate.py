"""``calibrate`` replays a workspace's own receipts and proposes the highest floor that keeps what was used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.errors import NotAllowed
from crew_journal.schemas.principal import Role

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
    chosen = next(one for one in kept.floors if one.floor == kept.floor)
    assert chosen.used_kept >= 0.95
    assert all(one.used_kept < 0.95 for one in kept.floors if one.floor > chosen.floor)
    assert kept.floors[0].hits > chosen.hits  # the others were left out


async def test_an_agent_may_not_calibrate(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "c1", agent="a1")
    async with stack.client(token.plaintext) as agent:
        with pytest.raises(NotAllowed):
            await agent.calibrate()
