"""Drawers that are added reinforce similar ones: once, five at most, and never beyond an importance of 5."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.embedding import QUICK_TIMES, until
from support.flaky_publisher import Flaky
from support.memory_node import WORKSPACE, MemoryNode, Themes

from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.consumers.palace.upkeep_reactor import PalaceReinforceReactor, ReinforceLimits
from crew_journal.consumers.reacting.pull import remaining
from crew_journal.schemas.core.errors import EmbedderBadAnswer
from crew_journal.schemas.palace.events import DrawerDeleted, DrawerFiled, DrawerState

QUICK = ReinforceLimits(
    **{name: value for name, value in QUICK_TIMES.items() if not name.startswith("retry")}, stop_s=3.0, retry_s=0.05
)


async def start(live: MemoryNode, publisher: Any = None, limits: ReinforceLimits = QUICK) -> PalaceReinforceReactor:
    await live.react(EmbedChunksReactor, limits=None)
    return await live.react(PalaceReinforceReactor, limits=limits, publisher=publisher or live.writer)


async def add(live: MemoryNode, name: str, text: str, **fields: Any) -> None:
    said: dict[str, Any] = {"wing": "w", "room": "r", "memory_type": "general", "added_by": "ada", **fields}
    done = await live.journal.record(WORKSPACE, DrawerFiled(drawer_id=name, content=text, **said), summary="filed")
    await live.caught_up(done.seq)


async def settled(live: MemoryNode, reactor: PalaceReinforceReactor) -> None:
    async def done() -> object:
        left = await remaining(live.client, reactor.durable)
        return left.acked and not left.unacked and not left.to_come

    await until(done, "every drawer to be compared")
    await live.caught_up(await live.append(f"after{len(live.entries('peer.escalation'))}", "after"))


def importances(live: MemoryNode) -> dict[str, float]:
    return dict(live.store.rows("SELECT drawer_id, importance FROM drawers WHERE until_seq IS NULL"))


async def test_what_is_added_reinforces_similar_drawers_once_and_itself_never(live: MemoryNode) -> None:
    await add(live, "old", "the disk ran over")
    await add(live, "top", "a disk is full", importance=4.8)
    await add(live, "far", "the queue is long")
    await add(live, "said", "the disk in my diary", memory_type="diary", state=DrawerState.PROCESSED)
    reactor = await start(live)
    await settled(live, reactor)
    # ``old`` was reinforced by ``top``, and the diary reinforces nothing
    assert importances(live) == {"old": 3.5, "top": 4.8, "far": 3.0, "said": 3.0}
    await add(live, "new", "the disk is slow")
    await settled(live, reactor)
    assert importances(live) == {"old": 4.0, "top": 5.0, "far": 3.0, "said": 3.0, "new": 3.0}
    assert [(entry["added"], sorted(entry["drawer_ids"])) for entry in live.entries("drawer.reinforced")] == [
        ("top", ["old"]),
        ("new", ["old", "top"]),
    ]
    deleted = await live.journal.record(WORKSPACE, DrawerDeleted(drawer_id="new"), summary="deleted")
    await live.caught_up(deleted.seq)
    await add(live, "new", "the disk is slow")  # filed again: it has reinforced before
    await settled(live, reactor)
    assert importances(live)["old"] == 4.0


@pytest.mark.parametrize(
    "fields",
    [{"added_by": "auto-ingest"}, {"added_by": "mobile"}, {"imported_from": "notes"}, {"memory_type": "diary"}],
)
async def test_only_what_somebody_adds_reinforces(live: MemoryNode, fields: dict[str, Any]) -> None:
    await add(live, "old", "the disk ran over")
    await add(live, "new", "the disk is slow", **fields)
    await settled(live, await start(live))
    assert live.entries("drawer.reinforced") == []


async def test_of_many_similar_drawers_the_five_nearest_gain(live: MemoryNode) -> None:
    for count in range(1, 8):
        await add(live, f"d{count}", "disk " * count + "queue", added_by="auto-ingest")
    await add(live, "new", "disk " * 7 + "queue")
    await settled(live, await start(live))
    [said] = live.entries("drawer.reinforced")
    assert sorted(said["drawer_ids"]) == ["d3", "d4", "d5", "d6", "d7"]


async def test_a_text_that_the_model_breaks_on_is_not_waited_for(live: MemoryNode, themes: Themes) -> None:
    themes.refuse = lambda text: EmbedderBadAnswer("NaN") if "broken" in text else None
    await add(live, "broken", "a broken disk", added_by="auto-ingest")
    await add(live, "old", "the disk ran over", added_by="auto-ingest")
    await add(live, "new", "the disk is slow")
    await settled(live, await start(live, limits=replace(QUICK, retry_s=0.001)))
    assert importances(live) == {"broken": 3.0, "old": 3.5, "new": 3.0}


async def test_a_model_that_is_away_is_waited_for_and_a_crash_reinforces_once(live: MemoryNode, themes: Themes) -> None:
    await add(live, "old", "the disk ran over", added_by="auto-ingest")
    await add(live, "new", "the disk is slow")
    themes.down = True
    publisher = Flaky(live)
    publisher.left = 0
    reactor = await start(live, publisher)

    async def waits() -> object:
        return (await reactor.status()).state == "waiting"

    themes.down = False
    await until(waits, "the reactor to notice that it cannot publish")
    publisher.left = 1_000
    await settled(live, reactor)
    assert importances(live) == {"old": 3.5, "new": 3.0}
    await live.client.jetstream().delete_consumer("JOURNAL", reactor.durable)
    await reactor.stop()
    await settled(live, await start(live))  # from the beginning
    assert importances(live) == {"old": 3.5, "new": 3.0}
