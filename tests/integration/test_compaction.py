"""Compaction over a real journal: archived entries are found on request only, permanent ones stay, restarts catch up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.memory_node import ADMIN, WORKSPACE, MemoryNode
from support.stack import running_stack

from crew_journal.consumers.entries.reactor import CompactReactor
from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.errors import InvalidQuery, NotFound
from crew_journal.schemas.core.timestamps import format_ts
from crew_journal.schemas.recall.events import PriorityChanged
from crew_journal.schemas.standing.operations import PriorityRequest
from crew_journal.services.desk import Caller
from crew_journal.services.entries.filters import Cursor, EntryFilters, parse_filters
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.standing.use_cases import Priorities

NOISE = "exec.output_chunk"
LONG = "compiling " * 100


@pytest.fixture
def queries(live: MemoryNode) -> Iterator[JournalQueries]:
    made = JournalQueries(live.store)
    yield made
    made.close()


async def append(live: MemoryNode, entries: list[dict[str, Any]]) -> None:
    for start in range(0, len(entries), 1_000):
        done = await live.journal.append_batch(ADMIN, entries[start : start + 1_000])
    await live.caught_up(done[-1].seq)


def noise(name: str, count: int, day: datetime, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{name}-{n}",
            "ts": format_ts(day + timedelta(seconds=n)),
            "entry_type": NOISE,
            "summary": f"chunk {n} of {name}",
            "payload": {"data": LONG},
            "crew_id": "red",
            **fields,
        }
        for n in range(count)
    ]


async def prioritise(live: MemoryNode, entry_id: str, priority: Priority) -> None:
    changed = PriorityChanged(
        target_entry_id=entry_id, previous_priority=Priority.NORMAL, new_priority=priority, reason="keep"
    )
    await live.caught_up(
        (await live.journal.record(WORKSPACE, changed, summary="priority", entry_id=f"p-{entry_id}")).seq
    )


async def compact(live: MemoryNode) -> dict[str, Any]:
    live.advance(seconds=2)
    finished = await live.swept("compaction", await live.tick("compaction"))
    assert finished["error"] is None
    counts: dict[str, Any] = finished["counts"]
    return counts


def old_day(live: MemoryNode, days: int) -> datetime:
    return (live.now - timedelta(days=days)).replace(hour=1, minute=0, second=0, microsecond=0)


async def test_what_was_published_pinned_or_high_is_archived_like_any_other(
    live: MemoryNode, queries: JournalQueries
) -> None:
    late = old_day(live, 40)
    pinned = [*noise("pinned", 5, late, priority="pin"), *noise("high", 5, late, priority="high")]
    await append(live, [*pinned, *noise("forever", 5, late, priority="permanent")])
    await prioritise(live, "forever-0", Priority.NORMAL)
    await live.react(CompactReactor)
    assert (await compact(live))["entries_archived"] == 10
    left = await pages(queries, parse_filters([("types", NOISE)]), archive=False)
    assert {one.id for one in left} == {f"forever-{n}" for n in range(5)}, "also the one whose live priority is normal"


async def test_two_thousand_old_entries_are_archived_and_the_rest_stays(
    live: MemoryNode, queries: JournalQueries
) -> None:
    late = old_day(live, 40)
    entries = [one for day in range(4) for one in noise(f"d{day}", 500, late + timedelta(days=day))]
    kept = [
        *noise("forever", 10, late, priority="permanent", crew_id="blue"),
        *noise("few", 9, late, crew_id="green"),
        *noise("young", 12, old_day(live, 20)),
        *noise("telling", 12, late, entry_type="run.completed"),
    ]
    await append(live, [*entries, *kept])
    await prioritise(live, "d0-0", Priority.PERMANENT)
    await prioritise(live, "d0-1", Priority.HIGH)
    await live.recall("chunk")
    await live.react(CompactReactor)
    before = (await queries.count(ADMIN, EntryFilters())).count
    counts = await compact(live)
    assert (counts["entries_archived"], counts["buckets_created"], counts["entries_left"]) == (1_999, 4, 0)
    assert counts["bytes_freed"] > 1_999 * 600
    buckets = live.entries("memory.compacted")
    assert [bucket["count"] for bucket in buckets] == [499, 500, 500, 500]
    assert [bucket["bucket_date"] for bucket in buckets] == [f"{late + timedelta(days=n):%Y-%m-%d}" for n in range(4)]
    assert {bucket["_crew"] for bucket in buckets} == {"red"}
    assert [bucket["_ts_ms"] % 86_400_000 for bucket in buckets] == [86_399_000] * 4
    assert live.entries("sweep.finished")[-1]["_severity"] == "notice"

    of_noise = parse_filters([("types", NOISE)])
    assert (await queries.count(ADMIN, of_noise)).count == 1 + 10 + 9 + 12
    assert (await queries.count(ADMIN, of_noise, include_archive=True)).count == 2_031
    after = (await queries.count(ADMIN, EntryFilters(), include_archive=True)).count
    assert after == before + 2 + 4, "a tick, its end and four compactions"
    assert {page.id for page in await pages(queries, of_noise, archive=True)} == {
        one["id"] for one in [*entries, *kept] if one["entry_type"] == NOISE
    }
    assert not [page for page in await pages(queries, of_noise, archive=False) if page.id.startswith("d1")]

    found = orjson.loads((await queries.get(ADMIN, "d0-1")).entry.to_json())
    assert (found["archived"], found["live_priority"], found["bucket_id"]) == (True, "high", buckets[0]["_id"])
    assert found["payload"] == {"truncated": ('{"data":"' + LONG)[:400]}
    assert found["original_bytes"] > 1_000
    assert "archived" not in orjson.loads((await queries.get(ADMIN, "d0-0")).entry.to_json())
    with pytest.raises(NotFound):
        await queries.get(ADMIN, "d0-1", include_archive=False)
    phrase = parse_filters([("q", "chunk 7 of d2")])
    assert (await queries.count(ADMIN, phrase)).count == 0
    assert (await queries.count(ADMIN, phrase, include_archive=True)).count == 1
    assert [entry.id for entry in (await queries.list(ADMIN, phrase, include_archive=True)).entries] == ["d2-7"]
    assert (await live.recall("telling")).hits, "recall goes on without the archive"


async def pages(queries: JournalQueries, filters: EntryFilters, *, archive: bool) -> list[Any]:
    found: list[Any] = []
    cursor: Cursor | None = None
    while True:
        page = await queries.list(ADMIN, filters, cursor=cursor, limit=500, include_archive=archive)
        found += page.entries
        if (cursor := page.next_cursor) is None:
            return found


async def test_a_sweep_again_archives_nothing_and_a_downtime_is_caught_up(live: MemoryNode) -> None:
    await append(live, noise("old", 20, old_day(live, 40)))
    reactor = await live.react(CompactReactor)
    assert (await compact(live))["entries_archived"] == 20
    assert (await compact(live))["entries_archived"] == 0
    await reactor.stop()
    await append(live, noise("older", 15, old_day(live, 50)))
    missed = [await live.tick("compaction", live.now + timedelta(days=n)) for n in (1, 2)]
    await live.react(CompactReactor)
    caught_up = [(await live.swept("compaction", due))["counts"]["entries_archived"] for due in missed]
    assert caught_up == [15, 0]
    assert len(live.entries("memory.compacted")) == 2


async def test_a_tick_that_comes_again_after_its_events_archives_once(live: MemoryNode) -> None:
    await append(live, noise("old", 20, old_day(live, 40)))
    reactor = await live.react(CompactReactor)
    due = await live.tick("compaction")
    await live.swept("compaction", due)
    await reactor.stop()
    await live.client.jetstream().delete_consumer("JOURNAL", "sweep-compact-v1")  # it begins anew
    await reactor.start()
    assert (await compact(live))["entries_archived"] == 0
    assert len(live.entries("memory.compacted")) == 1
    assert len(live.entries("sweep.finished")) == 2


async def test_efficiency_of_the_legacy_health_counts_the_archive(live: MemoryNode) -> None:
    await append(live, noise("old", 30, old_day(live, 40)))
    await append(live, noise("new", 70, old_day(live, 2)))
    await live.react(CompactReactor)
    await live.start_health()
    await compact(live)
    due = await live.tick("health")
    await live.swept("health", due)
    whole = next(entry for entry in live.entries("memory.health_recorded") if entry["_crew"] is None)
    assert (whole["counts"]["archived"], whole["counts"]["entries"]) == (30, 70)
    assert whole["legacy"]["efficiency"] == pytest.approx(100 * 0.3 / 0.5)


async def test_over_http_include_archive_is_true_or_false(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack, stack.client() as client:
        receipt = await client.append({"workspace_id": "w1", "entry_type": NOISE, "summary": "a chunk"})
        asked: dict[str, Any] = {"workspace_id": "w1", "min_seq": receipt.seq}
        for archive in (True, False, None):
            assert (await client.count(**asked, include_archive=archive)).count == 1
            page = await client.list(**asked, include_archive=archive)
            assert [(entry.id, entry.archived) for entry in page.entries] == [(receipt.id, False)]
            assert (await client.get(receipt.id, **asked, include_archive=archive)).id == receipt.id
        with pytest.raises(InvalidQuery, match="include_archive must be true or false"):
            await client.count(**asked, include_archive="perhaps")  # type: ignore[arg-type]  # what curl may send


async def test_a_priority_on_an_archived_entry_is_set_and_can_be_read(live: MemoryNode) -> None:
    """Issue 28.7: it was "no entry"."""
    await append(live, noise("old", 10, old_day(live, 40)))
    await live.react(CompactReactor)
    await compact(live)
    [(archived,)] = live.store.rows("SELECT count(*) FROM journal_entries_archived WHERE id = 'old-3'")
    assert archived == 1
    priorities = Priorities(live.shared)
    asked = PriorityRequest(entry_id="old-3", priority=Priority.PIN, reason="it explains the outage")
    assert (await priorities.set(Caller.of(ADMIN), asked)).changed
    assert not (await priorities.set(Caller.of(ADMIN), asked)).changed
