"""A view file is opened for the stream it was folded from, and for no other, however alike their sequences are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from support.events import at, entry
from support.views import MEMORY_MB, file_names, node, source_of, stream_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.opening import STREAM_TABLE, PutAside, StreamAtHand, open_views
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.schemas.core.errors import BrokerUnavailable

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry {seq}")) for seq in range(1, 8)]
OTHER = [at(seq, entry(f"o{seq}", summary=f"other {seq}")) for seq in range(1, 10)]
LATER = "2026-02-02T00:00:00Z"


async def folded(path: Path, stream: StreamAtHand, messages: list[RawMessage]) -> PutAside | None:
    """Open the views as a node does and fold what they lack; what was put aside for them."""
    store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream)
    store.close()
    async with node(path, discover_projections()) as live:
        await live.host.fold(messages)
    return aside


def without_stamp(path: Path) -> None:
    """As a version wrote it that knew of no stamp."""
    with duckdb.connect(str(path)) as con:
        con.execute(f"DROP TABLE {STREAM_TABLE}")


def opened(path: Path, stream: StreamAtHand) -> PutAside | None:
    store, aside = open_views(path, memory_mb=MEMORY_MB, stream=stream)
    store.close()
    return aside


async def test_views_of_another_stream_are_put_aside_though_it_is_longer(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    assert await folded(path, stream_of(STREAM), STREAM) is None
    assert opened(path, stream_of(STREAM)) is None
    aside = opened(path, stream_of(OTHER, LATER))
    assert aside is not None
    assert LATER in aside.reason
    assert file_names(tmp_path) == ["v.duckdb", "v.duckdb.of-7"]
    assert opened(path, stream_of(OTHER, LATER)) is None


async def test_in_its_own_directory_a_recreated_stream_is_a_loss_and_the_file_of_another_journal_is_not(
    tmp_path: Path,
) -> None:
    for journal, ahead in (("ours", True), ("theirs", False)):
        path = tmp_path / f"{journal}.duckdb"
        await folded(path, replace(stream_of(STREAM), own=True, journal=journal), STREAM)
        aside = opened(path, replace(stream_of(OTHER, LATER), own=True, journal="ours"))
        assert aside is not None
        assert aside.ahead is ahead, aside.reason


async def test_a_stream_grown_from_an_older_copy_is_recognised_by_its_message(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)
    restored = [*STREAM[:4], *OTHER[4:]]
    aside = opened(path, stream_of(restored))
    assert aside is not None
    assert "restored" in aside.reason


async def test_a_file_of_before_the_stamp_takes_it_only_if_its_newest_entry_is_there(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)
    without_stamp(path)
    assert opened(path, stream_of(STREAM, LATER)) is None
    assert opened(path, stream_of(STREAM, LATER)) is None, "it bears the stamp now"
    aside = opened(path, stream_of(OTHER))
    assert aside is not None, "and of no other"
    await folded(path, stream_of(STREAM), STREAM)
    without_stamp(path)
    assert opened(path, stream_of(OTHER)) is not None


async def test_an_entry_deleted_from_the_stream_identifies_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)
    lacking = [message for message in OTHER if message.seq != STREAM[-1].seq]
    assert opened(path, stream_of(lacking)) is None, "the stamp is enough"
    without_stamp(path)
    assert opened(path, stream_of(lacking)) is not None


async def test_views_without_entries_fit_any_stream(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    assert opened(path, stream_of([])) is None
    async with node(path, discover_projections()):
        pass
    assert opened(path, stream_of(OTHER, LATER)) is None
    assert file_names(tmp_path) == ["v.duckdb"]


async def test_a_broker_that_does_not_answer_puts_no_views_aside(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)

    def away(_: int) -> None:
        raise BrokerUnavailable("no answer")

    with pytest.raises(BrokerUnavailable):
        open_views(path, memory_mb=MEMORY_MB, stream=StreamAtHand(stream_of(STREAM).made, len(STREAM), away))
    assert file_names(tmp_path) == ["v.duckdb"]
    assert opened(path, stream_of(STREAM)) is None


async def test_a_rebuild_keeps_the_stamp_and_changes_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    async with node(tmp_path / "plain.duckdb", discover_projections()) as plain:
        await plain.host.fold(STREAM)
        digests = plain.digests()
    store, _ = open_views(path, memory_mb=MEMORY_MB, stream=stream_of(STREAM))

    async def park(_: object) -> None:
        raise AssertionError("nothing is to be parked")

    host = Host(store, discover_projections(), park=park, housekeeping=False)
    await host.open()
    await host.fold(STREAM)
    await rebuild(host, source_of(STREAM), memory_mb=MEMORY_MB)
    verified = {one.projection: one for one in await verify(host, source_of(STREAM), memory_mb=MEMORY_MB)}
    assert all(value.equal for value in verified.values())
    assert {name: verified[name].live.digest for name in digests} == digests
    await host.close()
    store.close()
    assert opened(path, stream_of(STREAM)) is None
    with duckdb.connect(str(path), read_only=True) as con:
        assert con.execute(f"SELECT made FROM {STREAM_TABLE}").fetchall() == [(stream_of(STREAM).made,)]


async def test_a_recreated_stream_with_the_same_messages_fits_the_views(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)
    assert opened(path, stream_of([m for m in STREAM if m.seq not in (1, 5)], LATER)) is None
    assert opened(path, stream_of(STREAM, LATER)) is None, "it bears the new stamp"


async def test_views_that_know_what_the_stream_has_lost_are_kept_each_under_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    shorter = stream_of(STREAM[:4])
    for count in (1, 2):
        await folded(path, stream_of(STREAM), STREAM)
        aside = opened(path, shorter)
        assert aside is not None
        assert aside.ahead
        assert "lost its end" in aside.reason
        assert len([name for name in file_names(tmp_path) if ".ahead-" in name]) == count


async def test_another_stream_in_the_nodes_own_directory_is_one_that_lost_everything(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    await folded(path, stream_of(STREAM), STREAM)
    aside = opened(path, replace(stream_of([], LATER), own=True))
    assert aside is not None
    assert aside.ahead
