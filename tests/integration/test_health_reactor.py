"""The health reactor over a real journal: a snapshot for each tick, once, as of its time, and the outage of an hour."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.embedding import until
from support.memory_node import MemoryNode, Themes

from crew_journal.schemas.core.timestamps import to_ms

SNAPSHOTS = "SELECT crew_id, band, score, reasons, next_step, measured_at FROM memory_health_snapshots ORDER BY ALL"


async def test_a_tick_gives_one_snapshot_of_the_workspace_and_of_each_crew(live: MemoryNode) -> None:
    for n in range(4):
        await live.append(f"e{n}", "the disk of the build host is full")
    await live.append("b1", "the queue is stuck", crew_id="blue")
    await live.append("n1", "ok", "exec.output_chunk", crew_id="noisy")
    await live.start_embed()
    await live.until_vectors(5)
    await live.start_health()
    live.advance(seconds=2)
    due = await live.tick("health")
    finished = await live.swept("health", due)
    assert finished["error"] is None
    assert finished["counts"]["measured"] == 3
    recorded = live.entries("memory.health_recorded")
    assert [entry["_crew"] for entry in recorded] == [None, "blue", "red"]
    whole = recorded[0]
    assert whole["metrics"]["coverage"] == 100.0
    assert whole["metrics"]["coherence"] == pytest.approx(100.0, abs=0.01)
    assert whole["metrics"]["efficiency"] is None
    assert whole["counts"]["embeddable"] == 5
    assert whole["model"] == "themes"
    assert {entry["_ts_ms"] for entry in recorded} == {to_ms(live.now)}, "the time is the tick's"


async def test_a_tick_that_comes_again_is_swept_once(live: MemoryNode) -> None:
    await live.append("e1", "the disk is full")
    reactor = await live.start_health()
    live.advance(seconds=2)
    due = await live.tick("health")
    await live.swept("health", due)
    await reactor.stop()
    await live.client.jetstream().delete_consumer("JOURNAL", "sweep-health-v1")  # it begins anew
    await reactor.start()
    later = await live.tick("health", live.now + timedelta(seconds=1))
    await live.swept("health", later)
    assert (await reactor.status()).counts["repeated"] == 1
    assert len(live.entries("sweep.finished")) == 2
    assert len(live.entries("memory.health_recorded")) == 4


async def test_nights_that_were_slept_through_are_measured_in_order_each_as_of_its_time(live: MemoryNode) -> None:
    early = live.now - timedelta(days=1)
    await live.append("e1", "the disk is full")
    live.advance(seconds=2)
    dues = [await live.tick("health", early), await live.tick("health")]
    await live.start_health()
    for due in dues:
        await live.swept("health", due)
    finished = live.entries("sweep.finished")
    assert [finish["due"] for finish in finished] == dues
    bands = {entry["date"]: entry["band"] for entry in live.entries("memory.health_recorded") if entry["_crew"] is None}
    assert list(bands.values()) == [None, "red"], "a day ago there was nothing to measure"


async def test_an_empty_workspace_has_no_data(live: MemoryNode) -> None:
    await live.start_health()
    due = await live.tick("health")
    assert (await live.swept("health", due))["counts"]["no_data"] == 1
    assert live.store.rows(SNAPSHOTS)[0][:3] == (None, None, None)


async def test_an_hour_without_the_embedder_stalls_nothing_and_health_says_so(live: MemoryNode, themes: Themes) -> None:
    """Issue 3, "It must show": with the embedder down for an hour of simulated time, nothing stalls …"""
    for n in range(8):
        await live.append(f"e{n}", "the disk of the build host is full")
    await live.start_embed()
    await live.until_vectors(8)
    await live.start_health()
    live.advance(seconds=2)
    before = await live.tick("health")
    await live.swept("health", before)

    async def noticed() -> object:
        return live.trouble()

    themes.down = True
    live.advance(seconds=1)
    began = live.now
    seq = 0
    for minute in range(0, 60, 10):
        seq = await live.append(f"d{minute}", f"the queue is stuck for {minute} minutes")
        if minute == 0:
            await until(noticed, "the embedder's failure")
        await live.caught_up(seq)
        answer = await live.recall("which queue is stuck?")
        assert answer.degraded == "lexical-only"
        assert f"d{minute}" in [hit.entry_id for hit in answer.hits]
        live.advance(minutes=10)
        due = await live.tick("health")
        assert (await live.swept("health", due))["error"] is None
    during = [entry for entry in live.entries("memory.health_recorded") if entry["_crew"] is None]
    assert during[0]["band"] == "green"
    assert during[0]["reasons"] == []
    bands = [one["band"] for one in during[1:]]
    assert len(bands) == 6
    assert set(bands) <= {"yellow", "red"}
    assert all("does not answer" in one["reasons"][0] for one in during[1:])
    since = began.strftime("%Y-%m-%dT%H:%M")
    assert all(f"since {since}" in one["reasons"][0] for one in during[1:]), "since when, not since the last failure"
    assert during[-1]["metrics"]["coverage"] == pytest.approx(100 * 8 / 14, abs=1e-3)

    themes.down = False
    await live.until_vectors(14)
    live.advance(minutes=1)
    await live.swept("health", await live.tick("health"))
    after = [entry for entry in live.entries("memory.health_recorded") if entry["_crew"] is None][-1]
    assert (after["band"], after["reasons"]) == ("green", [])
