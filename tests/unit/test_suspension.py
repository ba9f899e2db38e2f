"""A projection that fails on everything is suspended, not answered with parkings without end; a fixed one comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
from support.events import at, control, entry
from support.views import MEMORY_MB, Node, node, source_of

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host import faults as leniency
from crew_journal.consumers.host.bulk import catch_up
from crew_journal.consumers.host.folding import Parked
from crew_journal.consumers.host.rebuild import ViewNotRebuilt, rebuild, verify
from crew_journal.consumers.projection import Batch, FoldTransaction, Projection
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.core.table import Seq, Table, Tables
from crew_journal.schemas.operate.events import EventParked
from crew_journal.schemas.settings import PARKINGS_LIMIT

HEALTHY = 8


class SeqRow(NamedTuple):
    seq: Seq


WHOLE = Table("whole", SeqRow, "whole")
RAISING = Table("raising", SeqRow, "raising")


class Whole:
    """Folds everything."""

    name: ClassVar[str] = "whole"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (WHOLE,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        tx.insert(WHOLE, {"seq": [event.seq for event in batch.events]})


class Raising:
    """Fails on every entry, as a view with a bug does."""

    name: ClassVar[str] = "raising"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (RAISING,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        tx.insert(RAISING, {"seq": [event.seq for event in batch.events if self.takes(event)]})

    def takes(self, event: object) -> bool:
        """Whether there is to be a row of the event."""
        assert isinstance(event, EntryRecorded)
        return bool(event.entry.payload["foo"])


class OnOneType(Raising):
    """Fails on the entries of one type and passes over all others, records of parkings among them."""

    def takes(self, event: object) -> bool:
        assert isinstance(event, EntryRecorded)
        return event.entry.entry_type == "cost.incurred" and bool(event.entry.payload["foo"])


class Strict(OnOneType):
    """Refuses that type in so many words."""

    def takes(self, event: object) -> bool:
        assert isinstance(event, EntryRecorded)
        if event.entry.entry_type == "cost.incurred":
            raise FoldError("no foo")
        return False


class Fixed(Raising):
    """The same code without the bug."""

    def takes(self, event: object) -> bool:
        return True


class Fixed2(Fixed):
    """The same as a new version."""

    version: ClassVar[int] = 2


class Journal:
    """A stream that grows by what is recorded of parkings, as the service's does."""

    def __init__(self, messages: Sequence[RawMessage]) -> None:
        self.messages = list(messages)
        self.parked: dict[tuple[str, int, int], Parked] = {}

    def append(self, message: RawMessage) -> None:
        self.messages.append(message)

    @property
    def head(self) -> int:
        return len(self.messages)

    async def __call__(self, parked: Parked) -> None:
        """Park: once, however often it is said."""
        name = (parked.projection, parked.version, parked.message.seq)
        if name in self.parked:
            return
        self.parked[name] = parked
        record = EventParked(
            projection=parked.projection,
            version=parked.version,
            seq=parked.message.seq,
            subject=parked.message.subject,
            reason=parked.reason,
        )
        self.append(at(self.head + 1, control(record, f"p{self.head + 1}", workspace="w1")))

    async def folded_to_its_end(self, live: Node, batch: int) -> None:
        """Feed the host until it has folded all there is, what it causes itself included."""
        for _ in range(10_000):
            if live.host.checkpoint == self.head:
                return
            await live.host.fold(self.messages[live.host.checkpoint :][:batch])
        raise AssertionError(f"the journal does not come to rest: {self.head} messages")


def journal_of(count: int, entry_type: str = "note", every: int = 1) -> Journal:
    types = [entry_type if seq % every == 0 else "note" for seq in range(1, count + 1)]
    return Journal([at(seq, entry(f"e{seq}", entry_type=kind)) for seq, kind in enumerate(types, 1)])


def seqs(live: Node, table: str) -> list[int]:
    return [row[0] for row in live.store.rows(f"SELECT seq FROM {table} ORDER BY seq")]


def opened(path: Path, journal: Journal, *projections: Projection):  # type: ignore[no-untyped-def]
    return node(path, projections, journal)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 5, 1_000])
async def test_a_view_that_fails_on_the_record_of_its_own_parking_is_suspended_and_the_journal_comes_to_rest(
    tmp_path: Path, batch: int
) -> None:
    journal = journal_of(HEALTHY)
    async with opened(tmp_path / "v.duckdb", journal, Raising(), Whole()) as live:
        await journal.folded_to_its_end(live, batch)
        at_rest = journal.head
        assert at_rest <= 2 * HEALTHY
        assert seqs(live, "whole") == list(range(1, at_rest + 1))
        assert live.host.laggards == ("raising",)
        [lag] = live.host.status().laggards
        assert lag.error == f"KeyError in the fold of the parking recorded at {HEALTHY + 1}"
        assert lag.since is not None
        for _ in range(3):  # it is tried again and again beside the feed
            assert await catch_up(live.host, source_of(journal.messages)) == ("raising",)
        assert journal.head == at_rest
        assert live.host.status().laggards == (lag,), "since when it was, not when it was last tried"


async def test_another_attempt_that_fails_again_does_not_read_the_rest_of_the_journal(tmp_path: Path) -> None:
    journal = journal_of(700, "cost.incurred", every=2)
    read: list[int] = []

    async def source(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
        async for batch in source_of(journal.messages)(first, last):
            read.append(len(batch))
            yield batch

    async with opened(tmp_path / "v.duckdb", journal, OnOneType(), Whole()) as live:
        await journal.folded_to_its_end(live, 700)
        left = journal.head - live.host.status().laggards[0].seq
        assert await catch_up(live.host, source) == ("raising",)
    assert sum(read) < left / 4, "a few batches, which are read ahead"


@pytest.mark.parametrize("fixed", [Fixed, Fixed2])
async def test_a_suspended_view_that_is_mended_catches_up_after_a_restart(
    tmp_path: Path, fixed: type[Projection]
) -> None:
    journal = journal_of(HEALTHY)
    async with opened(tmp_path / "v.duckdb", journal, Raising(), Whole()) as live:
        await journal.folded_to_its_end(live, 5)
    head = journal.head
    async with opened(tmp_path / "v.duckdb", journal, fixed(), Whole()) as live:
        assert await catch_up(live.host, source_of(journal.messages)) == ()
        assert live.host.status().laggards == ()
        first = 1 if fixed is Fixed2 else HEALTHY + 1  # what one version parked stays parked for it
        assert seqs(live, "raising") == list(range(first, head + 1))
        journal.append(at(head + 1, entry("new")))
        await journal.folded_to_its_end(live, 5)
        assert seqs(live, "raising")[-1] == head + 1
    assert journal.head == head + 1


@pytest.mark.parametrize(
    ("batch", "every"),
    [(700, 1), *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 1), (64, 5), (700, 5)))],
)
async def test_a_view_that_fails_on_a_share_of_a_long_journal_parks_no_more_than_the_limit(
    tmp_path: Path, batch: int, every: int
) -> None:
    count = 140 * every
    journal = journal_of(count, "cost.incurred", every)
    path = tmp_path / "v.duckdb"
    async with opened(path, journal, OnOneType(), Whole()) as live:
        await journal.folded_to_its_end(live, batch)
        parked = len(journal.parked)
        assert PARKINGS_LIMIT <= parked <= PARKINGS_LIMIT + 10
        [lag] = live.host.status().laggards
        assert lag.error == (
            f"more than {PARKINGS_LIMIT} events and one in a hundred could not be folded: "
            f"KeyError in the fold at {lag.seq + 1}"
        )
        assert seqs(live, "whole") == list(range(1, count + parked + 1))
        results = await verify(live.host, source_of(journal.messages), memory_mb=MEMORY_MB)
        assert all(result.equal for result in results), "a rebuild comes to a halt at the same event"
    for _ in range(2):  # a restart buys no further parkings
        async with opened(path, journal, OnOneType(), Whole()) as live:
            assert await catch_up(live.host, source_of(journal.messages)) == ("raising",)
            assert len(journal.parked) == parked
    async with opened(path, journal, Fixed(), Whole()) as live:
        assert await catch_up(live.host, source_of(journal.messages)) == ()
        assert live.host.laggards == ()


async def test_a_few_odd_events_among_many_are_parked_however_many_they_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leniency, "LIMIT", 200)
    journal = journal_of(1_500, "cost.incurred", every=150)
    async with opened(tmp_path / "v.duckdb", journal, OnOneType(), Whole()) as live:
        await journal.folded_to_its_end(live, 100)
        assert len(journal.parked) == 10
        assert live.host.laggards == ()


async def test_what_a_fold_refuses_in_so_many_words_does_not_suspend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leniency, "LIMIT", 200)
    journal = journal_of(20, "cost.incurred")
    async with opened(tmp_path / "v.duckdb", journal, Strict(), Whole()) as live:
        await journal.folded_to_its_end(live, 7)
        assert len(journal.parked) == 20
        assert live.host.laggards == ()


async def test_a_rebuild_of_a_view_that_still_fails_leaves_it_where_it_is_and_names_it(tmp_path: Path) -> None:
    journal = journal_of(HEALTHY)
    async with opened(tmp_path / "v.duckdb", journal, Raising(), Whole()) as live:
        await journal.folded_to_its_end(live, 5)
        before, head = live.store.view_seq("raising"), journal.head
        for names in (["raising", "whole"], None):
            found = await rebuild(live.host, source_of(journal.messages), memory_mb=MEMORY_MB, names=names)
            assert found.projections == ("whole",)
            assert set(found.failed) == {"raising"}
            assert live.store.view_seq("raising") == before
            assert live.host.laggards == ("raising",)
            assert live.host.status().laggards[0].since is not None
            assert seqs(live, "whole") == list(range(1, head + 1))
        assert journal.head == head


async def test_a_rebuild_does_not_replace_a_working_view_by_one_that_came_to_a_halt(tmp_path: Path) -> None:
    journal = journal_of(HEALTHY)
    path = tmp_path / "v.duckdb"
    async with opened(path, journal, Fixed(), Whole()) as live:
        await journal.folded_to_its_end(live, 5)

    class Worse(Raising):
        """A changed fold without a new version."""

        def takes(self, event: object) -> bool:
            raise RuntimeError

    async with opened(path, journal, Worse(), Whole()) as live:
        with pytest.raises(ViewNotRebuilt, match="raising works, but"):
            await rebuild(live.host, source_of(journal.messages), memory_mb=MEMORY_MB)
        assert seqs(live, "raising") == list(range(1, HEALTHY + 1))
        assert live.host.laggards == ()


async def test_a_rebuild_brings_a_suspended_view_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_of(HEALTHY)
    async with opened(tmp_path / "v.duckdb", journal, Raising(), Whole()) as live:
        await journal.folded_to_its_end(live, 5)
        monkeypatch.setattr(Raising, "takes", lambda _self, _event: True)
        found = await rebuild(live.host, source_of(journal.messages), memory_mb=MEMORY_MB, names=["raising"])
        assert found.failed == {}
        assert live.host.laggards == ()
        assert seqs(live, "raising") == list(range(1, journal.head + 1))
