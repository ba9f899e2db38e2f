"""A completed run makes a consolidation of its crew due, at most one in 30 minutes."""

from __future__ import annotations

from support.memory_node import MemoryNode

from crew_journal.services.sweeps.scheduler import AfterRuns

from .test_consolidation import plant, started


def ticked(node: MemoryNode) -> list[str | None]:
    return [entry.get("crew_id") for entry in node.entries("sweep.ticked")]


async def caught_up(node: MemoryNode) -> None:
    await node.caught_up((await node.client.jetstream().stream_info("JOURNAL")).state.last_seq)


async def test_a_completed_run_is_consolidated_once_in_thirty_minutes(live: MemoryNode) -> None:
    after = AfterRuns(live.shared)
    await plant(live)
    assert await after.check() == 0
    await live.append("r1", "Run failed", "run.failed")
    await live.append("m1", "Mission failed", "mission.status_change", payload={"to": "FAILED"}, mission_id="m1")
    await live.append("r0", "Run without a crew", "run.completed", crew_id=None, agent_id="ada")
    await caught_up(live)
    assert await after.check() == 0
    await live.append("r2", "Run done", "run.completed")
    await caught_up(live)
    assert await after.check() == 1
    await caught_up(live)
    assert ticked(live) == ["red"]

    await live.append("r3", "Run done", "run.completed", priority="high")
    await caught_up(live)
    assert await after.check() == 0
    live.advance(minutes=31)
    assert await after.check() == 0, "the first has not finished: it is refused, and its 30 minutes do not begin"
    await started(live)
    finished = await live.swept("consolidation", live.entries("sweep.ticked")[0]["due"])
    assert finished["error"] is None
    assert finished["counts"]["learned"] == 1
    assert await after.check() == 1
    await caught_up(live)
    assert ticked(live) == ["red", "red"]
    live.advance(minutes=31)
    assert await after.check() == 0, "nothing completed since"
