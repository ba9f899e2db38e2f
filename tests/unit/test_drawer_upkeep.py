"""Decay, pruning and centroids of drawers: the rules and the fold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control
from support.views import DeadLetters, node

from crew_journal.consumers.palace.fold import DrawersProjection
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.timestamps import DAY_MS, format_ms, parse_ts, to_ms
from crew_journal.schemas.palace.events import (
    CentroidComputed,
    DrawerAnswerRejected,
    DrawerDeleted,
    DrawerFiled,
    DrawerReinforced,
    DrawerRestored,
    DrawerState,
    DrawerSuperseded,
    DrawerUpdated,
)
from crew_journal.schemas.palace.rules import KEPT, Fading, decayed, pruned, source_hash
from crew_journal.schemas.palace.tables import DRAWERS, IMPORTANCE_NOW, LIVE_DRAWER, UPKEEP
from crew_journal.schemas.recall.events import MemoryReferenced, ReferencedEntry
from crew_journal.schemas.sweeps.events import SweepTicked

NOW = f"""SELECT drawer_id, round({IMPORTANCE_NOW}, 4), state FROM {DRAWERS} {UPKEEP}
    WHERE {LIVE_DRAWER} AND wing = 'w' ORDER BY 1"""


def filed(name: str = "d1", **fields: Any) -> DrawerFiled:
    said = {"memory_type": "fact", "importance": 3.0, "state": DrawerState.PROCESSED, **fields}
    return DrawerFiled.model_validate({"drawer_id": name, "wing": "w", "room": "r", "content": "the parser", **said})


def night(day: float, sweep: str = "decay") -> SweepTicked:
    return SweepTicked.model_validate({"sweep": sweep, "due": format_ms(int(EPOCH_MS + day * DAY_MS))})


def busy(night: SweepTicked) -> DrawerFiled:
    """A page of a diary that was filed an hour before a night's sweep."""
    return DrawerFiled(
        drawer_id=f"busy {night.due}",
        wing="diary",
        room="r",
        content="still here",
        memory_type="diary",
        filed_ms=to_ms(parse_ts(night.due)) - 3_600_000,
    )


async def folded(path: Path, *payloads: ControlPayload, sql: str = NOW, silent: bool = False) -> list[tuple]:
    """The rows after these events; a read happens 36 days after the filing.

    Unless it is ``silent``, a diary is written in the workspace before each sweep.
    """
    messages: list[OutgoingMessage] = []
    for n, payload in enumerate(payloads, 1):
        if isinstance(payload, SweepTicked) and not silent:
            messages.append(control(busy(payload), f"busy{n}", workspace="w1", ts_ms=EPOCH_MS))
        ts_ms = EPOCH_MS + 36 * DAY_MS * isinstance(payload, MemoryReferenced)
        messages.append(control(payload, f"n{n}", workspace="w1", ts_ms=ts_ms))
    async with node(path / "views.duckdb", [DrawersProjection()], DeadLetters()) as live:
        await live.host.fold([at(seq, message) for seq, message in enumerate(messages, 1)])
        return live.host.store.rows(sql)


async def test_a_drawer_of_thirty_days_decays_once_a_night_down_to_the_floor(tmp_path: Path) -> None:
    nights = [night(29), night(31), night(31.5), night(31, "health"), night(32), night(30)]
    assert await folded(tmp_path, filed(), *nights) == [("d1", 2.8812, "processed")]


async def test_drawers_of_a_silent_workspace_do_not_decay(tmp_path: Path) -> None:
    nights = [night(31), night(32)]
    assert await folded(tmp_path / "silent", filed(), *nights, silent=True) == [("d1", 3.0, "processed")]
    late = filed("d2", filed_ms=int(EPOCH_MS + 31.5 * DAY_MS))
    rows = await folded(tmp_path / "filed", filed(), nights[0], late, nights[1], silent=True)
    assert rows == [("d1", 2.94, "processed"), ("d2", 3.0, "processed")], "something was filed before the second night"
    read = MemoryReferenced.model_validate({"entries": [ReferencedEntry(entry_id="n2", count=1).model_dump()]})
    days = (night(36), night(36.5), night(38))
    rows = await folded(tmp_path / "read", filed("d1"), filed("d2"), days[0], read, *days[1:], silent=True)
    assert rows == [("d1", 2.94, "processed"), ("d2", 3.0, "processed")], "d2 was read half a day before one night"


async def test_a_drawer_does_not_fall_below_the_floor_nor_rise_to_it(tmp_path: Path) -> None:
    nights = [night(31 + n) for n in range(200)]
    rows = await folded(tmp_path, filed("d1"), filed("d2", importance=0.2), *nights)
    assert rows == [("d1", 0.3, "processed"), ("d2", 0.2, "processed")]


@pytest.mark.parametrize("fields", [{"state": DrawerState.RAW}, {"memory_type": "diary"}])
async def test_raw_drawers_and_diaries_do_not_decay(tmp_path: Path, fields: dict[str, Any]) -> None:
    [(_, importance, _)] = await folded(tmp_path, filed(**fields), night(40))
    assert importance == 3.0


async def test_what_was_read_within_seven_days_does_not_decay(tmp_path: Path) -> None:
    read = MemoryReferenced.model_validate({"entries": [ReferencedEntry(entry_id="n1", count=1).model_dump()]})
    rows = await folded(tmp_path, filed(), night(31), read, night(37), night(42.9), night(44))
    assert rows == [("d1", 2.8812, "processed")]


@pytest.mark.parametrize("again", [DrawerUpdated(drawer_id="d1", importance=2.0), DrawerRestored(drawer_id="d1")])
async def test_an_importance_that_is_set_again_begins_without_decays(tmp_path: Path, again: ControlPayload) -> None:
    removed = [DrawerDeleted(drawer_id="d1")] if isinstance(again, DrawerRestored) else []
    [(_, importance, _)] = await folded(tmp_path, filed(), night(31), night(32), *removed, again)
    assert importance == (2.0 if isinstance(again, DrawerUpdated) else 3.0)


async def test_a_reinforcement_adds_to_what_decay_left_up_to_five_and_leaves_what_does_not_count(
    tmp_path: Path,
) -> None:
    gone = DrawerSuperseded(drawer_id="old", superseded_by="top")
    more = DrawerReinforced(added="new", drawer_ids=("d1", "top", "old", "none", "d1"), boost=0.5)
    drawers = (filed("d1"), filed("top", importance=4.8), filed("old"), gone)
    rows = await folded(tmp_path, *drawers, night(31), night(32), more)
    assert rows == [("d1", 3.3812, "processed"), ("top", 5.0, "processed")]


async def test_three_unusable_answers_alone_fail_a_raw_drawer_and_refiling_resets_the_count(tmp_path: Path) -> None:
    alone = DrawerAnswerRejected(drawer_ids=("d1",), alone=True)
    raw = filed(state=DrawerState.RAW)
    together = DrawerAnswerRejected(drawer_ids=("d1",), alone=False)
    assert (await folded(tmp_path / "a", raw, together, alone, alone))[0][2] == "raw"
    assert (await folded(tmp_path / "b", raw, together, alone, alone, alone))[0][2] == "failed"
    again = [DrawerDeleted(drawer_id="d1"), raw]
    assert (await folded(tmp_path / "c", raw, alone, alone, *again, alone))[0][2] == "raw"


async def test_the_last_centroid_of_a_type_and_model_counts(tmp_path: Path) -> None:
    said = {"memory_type": "fact", "model": "m", "samples": 50, "source_hash": "0" * 64}
    first, last = (CentroidComputed.model_validate({**said, "vector": one}) for one in ("AACAPw==", "AAAAQA=="))
    rows = await folded(tmp_path, first, last, sql="SELECT memory_type, vector, samples FROM drawer_centroids")
    assert rows == [("fact", b"\x00\x00\x00@", 50)]


def test_a_centroid_is_base64_of_floats() -> None:
    with pytest.raises(ValueError, match="float32"):
        CentroidComputed(memory_type="fact", model="m", vector="AAA=", samples=50, source_hash="0" * 64)


@given(st.floats(0, 5), st.integers(0, 500))
def test_a_decay_never_lifts_an_importance_and_stops_at_the_floor(importance: float, decays: int) -> None:
    after = decayed(importance, decays)
    assert min(importance, 0.3) <= after <= importance


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 5)), max_size=150), st.integers(0, 150))
def test_pruning_takes_the_least_important_and_leaves_a_hundred_live_drawers(
    drawers: list[tuple[float, int]], others: int
) -> None:
    fading = [Fading(f"d{at}", *one) for at, one in enumerate(drawers)]
    live = len(fading) + others
    gone = set(pruned(fading, live))
    assert live - len(gone) >= min(live, KEPT)
    weak = [one for one in fading if one.importance < 0.5 and one.access_count < 3]
    assert gone <= {one.drawer_id for one in weak}
    kept = [one.importance for one in weak if one.drawer_id not in gone]
    assert len(gone) == min(len(weak), max(live - KEPT, 0))
    assert all(one.importance <= min(kept, default=5) for one in weak if one.drawer_id in gone)


def test_the_hash_of_a_centroids_drawers_does_not_depend_on_their_order() -> None:
    assert source_hash(["b", "a"]) == source_hash(["a", "b"]) != source_hash(["ab"])
