"""The fold of drawers: filing, deciding, removing, restoring, and reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.events import at, control
from support.views import DeadLetters, node

from crew_journal.consumers.palace.fold import DrawersProjection
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.table import as_of
from crew_journal.schemas.palace.events import (
    DrawerClassified,
    DrawerDeleted,
    DrawerFiled,
    DrawerMerged,
    DrawerPruned,
    DrawerRestored,
    DrawerSuperseded,
    DrawerUpdated,
    PipelineTier,
)
from crew_journal.schemas.palace.tables import DRAWER_USES, DRAWERS, LIVE_DRAWER
from crew_journal.schemas.recall.events import MemoryReferenced, MemorySearched, ReferencedEntry


def filed(name: str = "d1", content: str = "the parser is green") -> DrawerFiled:
    return DrawerFiled(drawer_id=name, wing="w", room="r", content=content, memory_type="general")


async def folded(path: Path, *payloads: ControlPayload, sql: str) -> list[tuple]:
    """The rows of a query after these events, one a sequence from 1; the id of entry n is ``n<n>``."""
    messages = [at(seq, control(payload, f"n{seq}", workspace="w1")) for seq, payload in enumerate(payloads, 1)]
    async with node(path / "views.duckdb", [DrawersProjection()], DeadLetters()) as live:
        await live.host.fold(messages)
        return live.host.store.rows(sql)


LIVE = f"SELECT drawer_id, entry_id, room, state, importance FROM {DRAWERS} WHERE {LIVE_DRAWER} ORDER BY drawer_id"


async def test_the_first_of_two_filings_counts_and_after_a_deletion_the_next(tmp_path: Path) -> None:
    rows = await folded(tmp_path, filed(), filed(), DrawerDeleted(drawer_id="d1"), filed(), filed(), sql=LIVE)
    assert rows == [("d1", "n4", "r", "raw", 3.0)]


async def test_what_counted_at_a_sequence_can_be_asked(tmp_path: Path) -> None:
    moved = DrawerUpdated(drawer_id="d1", room="attic")
    sql = " UNION ALL ".join(f"SELECT {seq}, room FROM {DRAWERS} WHERE {as_of(seq)}" for seq in (1, 2, 3))
    rows = await folded(tmp_path, filed(), moved, DrawerDeleted(drawer_id="d1"), sql=sql)
    assert sorted(rows) == [(1, "r"), (2, "attic")]


@pytest.mark.parametrize(
    "removal",
    [
        DrawerDeleted(drawer_id="d1"),
        DrawerPruned(drawer_ids=("d1",)),
        DrawerMerged(into="d2", drawer_ids=("d1", "d2"), summary="both"),
        DrawerSuperseded(drawer_id="d1", superseded_by="d2"),
    ],
    ids=lambda one: one.ENTRY_TYPE,
)
async def test_a_drawer_that_was_removed_in_any_way_can_be_restored(tmp_path: Path, removal: ControlPayload) -> None:
    before = [filed(), filed("d2")]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert [row[0] for row in await folded(tmp_path / "a", *before, removal, sql=LIVE)] == ["d2"]
    restored = DrawerRestored(drawer_id="d1")
    assert [row[0] for row in await folded(tmp_path / "b", *before, removal, restored, sql=LIVE)] == ["d1", "d2"]


async def test_a_model_decides_type_and_importance_and_keeps_the_room_unless_it_names_one(tmp_path: Path) -> None:
    said = DrawerClassified(drawer_id="d1", memory_type="fact", importance=4.5, pipeline_tier=PipelineTier.LLM)
    assert await folded(tmp_path, filed(), said, sql=LIVE) == [("d1", "n1", "r", "processed", 4.5)]


async def test_reads_count_for_the_filing_that_was_read(tmp_path: Path) -> None:
    used = MemoryReferenced(entries=(ReferencedEntry(entry_id="n1", count=2), ReferencedEntry(entry_id="x", count=1)))
    found = MemorySearched(query="q", scope="workspace", recipe="palace", hit_ids=("n1",), rendered=("n1",))
    listed = MemorySearched(query="q", scope="workspace", recipe="palace", hit_ids=("n1",))
    sql = f"SELECT entry_id, access_count FROM {DRAWER_USES}"
    assert await folded(tmp_path, filed(), used, found, listed, sql=sql) == [("n1", 3)]


@pytest.mark.parametrize(
    "removal",
    [
        DrawerMerged(into="d2", drawer_ids=("d1", "d2"), summary="both"),
        DrawerSuperseded(drawer_id="d1", superseded_by="d2"),
    ],
    ids=lambda one: one.ENTRY_TYPE,
)
@pytest.mark.parametrize(("other", "live"), [("agent", ["d1", "d2"]), ("system", ["d1", "d2"]), ("user", ["d2"])])
async def test_what_an_operator_filed_is_replaced_by_what_an_operator_filed_alone(
    tmp_path: Path, removal: ControlPayload, other: str, live: list[str]
) -> None:
    messages = [
        at(1, control(filed(), "n1", workspace="w1", actor_type="user")),
        at(2, control(filed("d2"), "n2", workspace="w1", actor_type=other)),
        at(3, control(removal, "n3", workspace="w1")),
    ]
    async with node(tmp_path / "views.duckdb", [DrawersProjection()], DeadLetters()) as running:
        await running.host.fold(messages)
        assert [row[0] for row in running.host.store.rows(LIVE)] == live
