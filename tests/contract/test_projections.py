"""Every discovered projection keeps the laws of ``projection_contract``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.deliveries import Cut
from support.events import at, entry
from support.old_journal import messages
from support.projection_contract import broken_law, check, outcome

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host import folding
from crew_journal.consumers.host.admission import insert_admitted
from crew_journal.consumers.host.transaction import (
    CHECKPOINT_DDL,
    ProjectionTransaction,
    create_tables,
    transaction,
    write_checkpoints,
)
from crew_journal.consumers.projection import Batch, FoldTransaction, Projection
from crew_journal.schemas.access.events import TokenCreated
from crew_journal.schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    ErasedReceived,
    Event,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.decode import decode

PROJECTIONS = [type(projection) for projection in discover_projections()]
BOUNDED = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
GOLDEN = Path(__file__).parents[1] / "golden" / "events"
FULL = settings(max_examples=1200, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda p: p.name)
@BOUNDED
@given(data=st.data())
def test_any_way_a_stream_is_delivered_gives_the_same_rows(projection: type[Projection], data: st.DataObject) -> None:
    check(projection, data, max_messages=15)


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


# what a projection declares to fold


class NotDeclared(Exception):
    """A fold reads events of its batch beside the accessors, which say what is read."""


ACCESSORS: dict[str, type[Event]] = {
    "entries": EntryRecorded,
    "vectors": VectorDerived,
    "links": LinkDerived,
    "token_bits": TokenBitsDerived,
    "chunk_vectors": ChunkVectorDerived,
    "documents": DocumentWritten,
    "late": ErasedReceived,
}


class WatchedBatch:
    """A batch that notes which payloads and events a fold reads."""

    def __init__(self, batch: Batch, read: set[type]) -> None:
        self._batch = batch
        self._read = read

    def control(self, *payloads: type[ControlPayload]) -> list[EntryRecorded]:
        self._read.update(payloads)
        return self._batch.control(*payloads)

    def __getattr__(self, name: str) -> Any:
        if name == "events":
            raise NotDeclared
        if name in ACCESSORS:
            self._read.add(ACCESSORS[name])
        return getattr(self._batch, name)


@pytest.fixture(scope="module")
def recorded() -> list[Event]:
    """One event of each kind and version, then a journal of a real service."""
    events = []
    for message in (*map(_golden, sorted(GOLDEN.glob("*.json"))), *messages()):
        with contextlib.suppress(FoldError):
            events.append(decode(message.seq, message.subject, message.headers, message.data, message.published_ms))
    return events


def _golden(file: Path) -> RawMessage:
    record = json.loads(file.read_text("utf-8"))
    body = bytes.fromhex(record["body_hex"]) if "body_hex" in record else json.dumps(record["body"]).encode()
    return RawMessage(42, record["subject"], record["headers"], body, 1_763_700_000_000)


def read_by(projection: Projection, events: Sequence[Event]) -> set[type]:
    """The kinds of events that a projection reads of them, folded one by one."""
    read: set[type] = set()
    with duckdb.connect() as con:
        con.execute(CHECKPOINT_DDL)
        create_tables(con, projection, ())
        for event in events:
            with contextlib.suppress(FoldError), transaction(con):
                batch: Any = WatchedBatch(Batch([event], event.seq, event.seq), read)
                projection.apply(batch, ProjectionTransaction(con, projection))
    return read


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda p: p.name)
def test_a_fold_reads_what_its_projection_declares_and_nothing_else(
    projection: type[Projection], recorded: list[Event]
) -> None:
    declared = projection().folds
    assert read_by(projection(), recorded) == set(declared)
    assert len(declared) == len(set(declared))


def test_a_fold_that_reads_what_it_does_not_declare_is_noticed(recorded: list[Event]) -> None:
    tunnels = next(projection for projection in PROJECTIONS if projection.name == "tunnels")

    class Greedy(tunnels):  # type: ignore[misc, valid-type]
        def apply(self, batch: Batch, tx: FoldTransaction) -> None:
            super().apply(batch, tx)
            batch.control(TokenCreated)

    assert read_by(Greedy(), recorded) - set(Greedy.folds) == {TokenCreated}

    class Sly(tunnels):  # type: ignore[misc, valid-type]
        def apply(self, batch: Batch, tx: FoldTransaction) -> None:
            list(batch.events)

    with pytest.raises(NotDeclared):
        read_by(Sly(), recorded)
