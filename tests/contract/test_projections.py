"""Every discovered projection keeps the laws of ``projection_contract``."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.deliveries import Cut
from support.events import at, entry
from support.projection_contract import broken_law, check, outcome

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host import folding
from crew_journal.consumers.host.admission import insert_admitted
from crew_journal.consumers.host.transaction import ProjectionTransaction, transaction, write_checkpoints
from crew_journal.consumers.projection import Batch, Projection

PROJECTIONS = [type(projection) for projection in discover_projections()]
BOUNDED = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
FULL = settings(max_examples=1200, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda p: p.name)
@BOUNDED
@given(data=st.data())
def test_any_way_a_stream_is_delivered_gives_the_same_rows(projection: type[Projection], data: st.DataObject) -> None:
    check(projection, data, max_messages=25)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda p: p.name)
@FULL
@given(data=st.data())
def test_any_way_a_long_stream_is_delivered_gives_the_same_rows(
    projection: type[Projection], data: st.DataObject
) -> None:
    check(projection, data, max_messages=120)


def _without_checkpoint(
    con: duckdb.DuckDBPyConnection, projections: Sequence[Projection], batch: Batch, *_: object
) -> None:
    """A broken host: rows are committed, the checkpoint in a transaction of its own, which a crash loses."""
    with transaction(con):
        for projection in projections:
            projection.apply(batch, ProjectionTransaction(con, projection))
    with transaction(con):
        insert_admitted(con, batch.entries)
        write_checkpoints(con, ["admission", *(p.name for p in projections)], batch.last_seq)


def _applies_twice(con: duckdb.DuckDBPyConnection, projections: Sequence[Projection], batch: Batch, *_: object) -> None:
    """A broken host: a batch with more than one event is folded twice."""
    with transaction(con):
        insert_admitted(con, batch.entries)
        for projection in projections:
            for _time in range(1 + (len(batch.events) > 1)):
                projection.apply(batch, ProjectionTransaction(con, projection))
        write_checkpoints(con, ["admission", *(p.name for p in projections)], batch.last_seq)


def _passes_the_last_event(
    con: duckdb.DuckDBPyConnection, projections: Sequence[Projection], batch: Batch, *_: object
) -> None:
    """A broken host: the checkpoint passes an event that no fold saw."""
    seen = Batch(batch.events[:-1], batch.first_seq, batch.last_seq)
    with transaction(con):
        insert_admitted(con, batch.entries)
        for projection in projections:
            projection.apply(seen, ProjectionTransaction(con, projection))
        write_checkpoints(con, ["admission", *(p.name for p in projections)], batch.last_seq)


STREAM = [at(1, entry("e1")), at(2, entry("e2")), at(5, entry("e1", summary="another")), at(6, entry("e3"))]
ENTRIES = next(p for p in PROJECTIONS if p.name == "entries")


def test_the_sound_host_keeps_every_law_on_the_fixed_stream() -> None:
    assert broken_law(ENTRIES, STREAM, outcome(ENTRIES, [Cut(STREAM)])) is None


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (_without_checkpoint, "crashed after the commit"),
        (_applies_twice, "replayed"),
        (_passes_the_last_event, "replayed"),
    ],
)
def test_a_host_that_is_broken_on_purpose_is_caught(broken: object, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcome(ENTRIES, [Cut(STREAM)])
    monkeypatch.setattr(folding, "commit", broken)
    assert broken_law(ENTRIES, STREAM, expected) == law
