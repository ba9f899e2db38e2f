"""The nightly work of the palace: weak drawers are pruned, types get centroids, and the hot path uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.embedding import until
from support.memory_node import WORKSPACE, MemoryNode

from crew_journal.consumers.palace import classify_reads as palace_classify_reads
from crew_journal.consumers.palace.exchange_filing import centroids_in
from crew_journal.consumers.palace.upkeep_reactor import PalaceMaintainReactor
from crew_journal.consumers.reacting.pull import remaining
from crew_journal.consumers.reacting.pull_reactor import encode_control
from crew_journal.schemas.core.envelope import ChunkVectorDerived
from crew_journal.schemas.core.ids import derived_id, hash64
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.schemas.models.events import encode_chunk_vector
from crew_journal.schemas.palace.events import DrawerFiled, DrawerRestored, DrawerState, PipelineTier

WEDNESDAY, SUNDAY = 2, 6


async def started(live: MemoryNode) -> PalaceMaintainReactor:
    return await live.react(PalaceMaintainReactor)


def night(weekday: int, weeks: int = 6) -> datetime:
    """03:00 of a weekday, some weeks from now."""
    then = datetime.now(UTC).replace(hour=3, minute=0, second=0, microsecond=0) + timedelta(weeks=weeks)
    return then + timedelta(days=(weekday - then.weekday()) % 7)


async def swept(live: MemoryNode, reactor: PalaceMaintainReactor, due: datetime) -> None:
    await live.tick("decay", due)

    async def done() -> object:
        left = await remaining(live.client, reactor.durable)
        return left.acked and not left.unacked and not left.to_come

    await until(done, "the night's work")
    await live.caught_up(await live.append(f"after-{due:%Y%m%d%H%M}", "after"))


async def file(live: MemoryNode, count: int, importance: float, word: str = "disk", **fields: Any) -> list[str]:
    """File drawers that a model classified as facts, with vectors."""
    ids = []
    said = {"memory_type": "fact", "state": DrawerState.PROCESSED, "pipeline_tier": PipelineTier.LLM, **fields}
    for n in range(count):
        text = f"{word} {importance} number {n}"
        payload = DrawerFiled(
            drawer_id=f"drawer_w_r_{hash64(text):016x}", wing="w", room="r", content=text, importance=importance, **said
        )
        fact_id = derived_id("test", 1, WORKSPACE, text)
        message = encode_control(
            WORKSPACE, payload, fact_id=fact_id, cause=fact_id, reactor="palace_ingest@1", summary="filed"
        )
        [vector] = await live.embedder.embed_documents([word])
        fact = ChunkVectorDerived(
            seq=0,
            workspace_id=WORKSPACE,
            model="themes",
            text_hash=hash64(text),
            dim=4,
            vector=vector,
            write_id=fact_id,
            published_ms=0,
            reactor="embed_chunks@1",
        )
        for one in (encode_chunk_vector(fact, 1, 0), message):
            done = await live.writer.publish(one.subject, one.body, one.headers)
        ids.append(payload.drawer_id)
    await live.caught_up(done.seq)
    return ids


async def test_the_weakest_old_drawers_are_pruned_once_down_to_a_hundred_and_can_be_restored(
    live: MemoryNode,
) -> None:
    weakest = await file(live, 2, 0.31)
    weak = await file(live, 2, 0.4)
    await file(live, 98, 3.0, "queue")
    reactor = await started(live)
    await swept(live, reactor, night(WEDNESDAY, weeks=1))
    assert live.entries("drawer.pruned") == [], "they are younger than 30 days"
    await swept(live, reactor, night(WEDNESDAY))
    assert live.entries("drawer.pruned") == [], "no drawer was filed or read within the day before"
    later = night(WEDNESDAY, weeks=7)
    await file(live, 1, 3.0, "token", filed_ms=to_ms(later - timedelta(hours=1)))
    await swept(live, reactor, later)
    [pruned] = live.entries("drawer.pruned")
    assert sorted(pruned["drawer_ids"][:2]) == sorted(weakest)
    assert set(pruned["drawer_ids"][2:]) < set(weak)
    await swept(live, reactor, later + timedelta(minutes=5))
    assert len(live.entries("drawer.pruned")) == 1
    done = await live.journal.record(WORKSPACE, DrawerRestored(drawer_id=weakest[0]), summary="back")
    await live.caught_up(done.seq)
    sql = "SELECT importance FROM drawers WHERE until_seq IS NULL AND drawer_id = ?"
    [(importance,)] = live.store.rows(sql, [weakest[0]])
    assert importance == pytest.approx(0.31)


async def test_on_sundays_types_with_enough_drawers_of_a_model_get_a_centroid_once(
    live: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(palace_classify_reads, "CENTROID_LEAST", 3)
    await file(live, 3, 3.0, "disk")
    await file(live, 3, 2.0, "queue", memory_type="task", pipeline_tier=PipelineTier.CENTROID)
    await file(live, 2, 1.0, "token", memory_type="problem")
    reactor = await started(live)
    await swept(live, reactor, night(WEDNESDAY))
    assert live.entries("drawer.centroid_computed") == []
    await swept(live, reactor, night(SUNDAY))
    await swept(live, reactor, night(SUNDAY, weeks=7))
    [one] = live.entries("drawer.centroid_computed")
    assert (one["memory_type"], one["model"], one["samples"]) == ("fact", "themes", 3)
    [vector] = centroids_in(live.store, WORKSPACE, "themes").values()
    [expected] = await live.embedder.embed_documents(["disk"])
    import numpy as np

    assert float(vector @ np.frombuffer(expected, "<f4")) == pytest.approx(1.0)
