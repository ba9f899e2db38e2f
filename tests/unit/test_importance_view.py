"""The view ``memory_importance``: vectors, priorities, references and ticks, in stream order and at the events' time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control, entry, vector
from support.views import node

from crew_journal.consumers.host.transaction import ddl
from crew_journal.consumers.standing.importance_fold import DECAY_SQL, ImportanceProjection
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.timestamps import DAY_MS, format_ms
from crew_journal.schemas.recall.events import MemoryReferenced, PriorityChanged, ReferencedEntry
from crew_journal.schemas.standing.rules import base_importance, decayed
from crew_journal.schemas.standing.tables import IMPORTANCE
from crew_journal.schemas.sweeps.events import SweepTicked

ESCALATION = base_importance("peer.escalation", "warn", "normal")
"""What ``support.events.vector`` says of its entries."""
FIELDS = ("priority", "indexed_at", "base", "importance_score", "reference_count", "last_referenced_at")


def priority(target: str, new: str, name: str, workspace: str = "w1") -> OutgoingMessage:
    payload = {"target_entry_id": target, "previous_priority": "normal", "new_priority": new, "reason": "why"}
    return control(PriorityChanged.model_validate(payload), name, workspace=workspace)


def referenced(name: str, workspace: str = "w1", **counts: int) -> OutgoingMessage:
    entries = tuple(ReferencedEntry(entry_id=entry_id, count=count) for entry_id, count in counts.items())
    return control(MemoryReferenced(entries=entries), name, workspace=workspace)


def tick(days: float, name: str, workspace: str = "w1", sweep: str = "decay") -> OutgoingMessage:
    """A decay ``days`` after the stream's first message."""
    due = format_ms(round(EPOCH_MS + days * DAY_MS))
    return control(SweepTicked.model_validate({"sweep": sweep, "due": due}), name, workspace=workspace)


async def folded(path: Path, messages: list[OutgoingMessage], batch: int = 1_000) -> tuple[dict[str, dict], set[int]]:
    """Rows by ``workspace/entry``, and what was parked."""
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "v.duckdb", [ImportanceProjection()]) as live:
        for first in range(0, len(stream), batch):
            await live.host.fold(stream[first : first + batch])
        rows = live.store.rows(f"SELECT workspace_id || '/' || entry_id, {', '.join(FIELDS)} FROM memory_importance")
        found = {name: dict(zip(FIELDS, values, strict=True)) for name, *values in rows}
        assert len(found) == len(rows)
        return found, {parked.message.seq for parked in live.dead.parked}


async def row_of(path: Path, *messages: OutgoingMessage) -> dict:
    rows, parked = await folded(path, list(messages))
    assert not parked
    return rows["w1/e1"]


async def test_the_first_vector_gives_base_score_and_time_and_later_ones_change_nothing(tmp_path: Path) -> None:
    """Contract §3: re-embedding, here by a second model too, keeps importance and counters."""
    row = await row_of(
        tmp_path, entry("e1"), vector("e1"), referenced("r1", e1=3), tick(90, "t1"), vector("e1", model="nomic"),
        vector("e1", seed=5),
    )  # fmt: skip
    half = decayed(ESCALATION, EPOCH_MS + 20, EPOCH_MS + 90 * DAY_MS, 3)
    assert row == {
        "priority": "normal", "indexed_at": EPOCH_MS + 20, "base": ESCALATION, "importance_score": half,
        "reference_count": 3, "last_referenced_at": EPOCH_MS,
    }  # fmt: skip


async def test_a_tombstone_neither_adds_nor_removes_a_row(tmp_path: Path) -> None:
    rows, _ = await folded(tmp_path, [entry("e1"), vector("e1", dim=0), vector("e2"), vector("e2", dim=0)])
    assert list(rows) == ["w1/e2"]
    assert rows["w1/e2"]["importance_score"] == ESCALATION


async def test_a_pin_applies_at_the_next_decay_and_not_at_once(tmp_path: Path) -> None:
    """Contract §6."""
    change = [entry("e1", entry_type="mission.status_change"), vector("e1"), priority("e1", "permanent", "p1")]
    row = await row_of(tmp_path / "before", *change)
    assert (row["priority"], row["base"], row["importance_score"]) == ("permanent", 0.95, ESCALATION)
    row = await row_of(tmp_path / "after", *change, tick(0, "t1"))
    assert row["importance_score"] == 0.95


async def test_a_priority_given_before_the_vector_counts_from_the_start(tmp_path: Path) -> None:
    row = await row_of(
        tmp_path, entry("e1"), priority("e1", "pin", "p0"), priority("e1", "permanent", "p1"), vector("e1")
    )
    assert (row["base"], row["importance_score"]) == (0.95, 0.95)


async def test_a_pin_that_is_taken_back_leaves_the_plain_base(tmp_path: Path) -> None:
    row = await row_of(
        tmp_path, entry("e1"), vector("e1"), priority("e1", "permanent", "p1"), tick(0, "t1"),
        priority("e1", "normal", "p2"), tick(0, "t2"),
    )  # fmt: skip
    assert (row["priority"], row["base"], row["importance_score"]) == ("normal", ESCALATION, ESCALATION)


async def test_a_permanent_entry_decays_too(tmp_path: Path) -> None:
    row = await row_of(tmp_path, entry("e1"), vector("e1"), priority("e1", "permanent", "p1"), tick(400, "t1"))
    assert row["importance_score"] == pytest.approx(0.095)


async def test_references_count_with_and_without_a_vector_and_raise_the_score_at_the_next_decay(tmp_path: Path) -> None:
    rows, _ = await folded(
        tmp_path, [entry("e1"), referenced("r1", e1=1, e9=4), vector("e1"), referenced("r2", e1=2), tick(0, "t1")]
    )
    assert rows["w1/e1"]["reference_count"] == 3
    assert rows["w1/e1"]["importance_score"] == 1.0  # 1.0625, clamped
    assert rows["w1/e9"] == dict.fromkeys(FIELDS) | {"reference_count": 4, "last_referenced_at": EPOCH_MS}


async def test_a_tick_counts_where_it_stands_in_the_stream(tmp_path: Path) -> None:
    """What happens after the tick waits for the next one, in one batch or in many."""
    stream = [entry("e1"), vector("e1"), entry("e2"), tick(90, "t1"), vector("e2", entry_seq=3), referenced("r1", e1=9)]
    for batch in (1, 2, 1_000):
        rows, _ = await folded(tmp_path / str(batch), stream, batch)
        assert rows["w1/e1"]["importance_score"] == decayed(ESCALATION, EPOCH_MS + 20, EPOCH_MS + 90 * DAY_MS, 0)
        assert rows["w1/e2"]["importance_score"] == ESCALATION


async def test_only_a_decay_of_the_entrys_own_workspace_moves_it(tmp_path: Path) -> None:
    row = await row_of(
        tmp_path, entry("e1"), vector("e1"), tick(400, "t1", "w2"), tick(400, "t2", "_system"),
        tick(400, "t3", sweep="health"), referenced("r1", "w2", e1=5), priority("e1", "pin", "p1", "w2"),
    )  # fmt: skip
    assert row["importance_score"] == ESCALATION
    assert (row["reference_count"], row["priority"]) == (0, "normal")


async def test_a_skipped_night_leaves_no_trace(tmp_path: Path) -> None:
    ticks = [tick(day, f"t{day}") for day in (1, 2, 3, 50)]
    every = await row_of(tmp_path / "every", entry("e1"), vector("e1"), *ticks)
    last = await row_of(tmp_path / "last", entry("e1"), vector("e1"), ticks[-1])
    assert every == last


async def test_the_last_decay_of_each_workspace_is_kept_with_what_it_went_over(tmp_path: Path) -> None:
    messages = [entry("e1"), vector("e1"), vector("e2"), referenced("r1", e3=1), tick(1, "t1"), tick(2, "t2"),
                tick(1, "t1", "w2")]  # fmt: skip
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(tmp_path / "v.duckdb", [ImportanceProjection()]) as live:
        await live.host.fold(stream)
        found = live.store.rows("SELECT * FROM memory_decays ORDER BY workspace_id")
    assert found == [("w1", EPOCH_MS + 2 * DAY_MS, 2, 6), ("w2", EPOCH_MS + DAY_MS, 0, 7)]


@pytest.mark.parametrize(
    "wrong",
    [
        control({"sweep": "decay", "due": "yesterday"}, "n1", entry_type="sweep.ticked", workspace="w1"),
        control({"sweep": "decay"}, "n1", entry_type="sweep.ticked", workspace="w1"),
        control({"target_entry_id": "e1"}, "n1", entry_type="memory.priority_changed", workspace="w1"),
        control({"entries": []}, "n1", entry_type="memory.referenced", workspace="w1"),
    ],
)
async def test_an_invalid_event_is_parked_and_the_rest_counts(tmp_path: Path, wrong: OutgoingMessage) -> None:
    rows, parked = await folded(tmp_path, [entry("e1"), vector("e1"), wrong, referenced("r1", e1=1)])
    assert parked == {3}
    assert rows["w1/e1"]["reference_count"] == 1


async def test_counting_ends_before_a_column_overflows(tmp_path: Path) -> None:
    row = await row_of(
        tmp_path, entry("e1"), vector("e1"), referenced("r1", e1=2**80), referenced("r2", e1=5), tick(0, "t1")
    )
    assert row["reference_count"] == 2**53
    assert row["importance_score"] == 1.0


def test_agents_cannot_count_or_mark_their_own_output(tmp_path: Path) -> None:
    """Over NATS an agent publishes on ``journal.`` only: there such types are refused before any fold (contract §1)."""
    forged: list[ControlPayload] = [
        PriorityChanged.model_validate(
            {"target_entry_id": "e1", "previous_priority": "normal", "new_priority": "permanent", "reason": "mine"}
        ),
        MemoryReferenced(entries=(ReferencedEntry(entry_id="e1", count=99),)),
        SweepTicked(sweep="decay", due=format_ms(EPOCH_MS)),
    ]
    messages = [
        entry(f"f{i}", entry_type=payload.ENTRY_TYPE, payload=payload.model_dump(mode="json"))
        for i, payload in enumerate(forged)
    ]
    rows, parked = asyncio.run(folded(tmp_path, [entry("e1"), vector("e1"), *messages]))
    assert parked == {3, 4, 5}
    assert rows["w1/e1"]["priority"] == "normal"
    assert rows["w1/e1"]["reference_count"] == 0


@settings(max_examples=max(3, settings.default.max_examples // 3))
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 2**45), st.integers(0, 2**53)),
        min_size=1,
        max_size=40,
    ),
    st.integers(-(2**46), 2**46),
)
def test_the_statement_of_the_fold_is_the_rule_bit_by_bit(rows: list[tuple[float, int, int]], due: int) -> None:
    con = duckdb.connect()
    con.execute(ddl(IMPORTANCE))
    for number, (base, indexed, count) in enumerate(rows):
        con.execute(
            "INSERT INTO memory_importance (key, workspace_id, entry_id, indexed_at, base, reference_count) "
            "VALUES (?, 'w1', 'e', ?, ?, ?)",
            [number, indexed, base, count],
        )
    con.execute(DECAY_SQL, [due, "w1"])
    found = [
        score for (score,) in con.execute("SELECT importance_score FROM memory_importance ORDER BY key").fetchall()
    ]
    con.close()
    assert found == [decayed(base, indexed, due, count) for base, indexed, count in rows]
