"""Batches are sent several at once, acked in order, and sent again while the service is away."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from crew_journal.schemas.api import Receipt
from crew_journal.schemas.core.errors import EntryConflict, FieldProblem, InvalidEntry, NotAllowed, Unavailable
from crew_journal.services.cli.importing import run as import_run
from crew_journal.services.cli.importing.lines import BadLine, Line, LineBatch
from crew_journal.services.cli.importing.run import BatchAck, ImportRun

PROBLEM = (FieldProblem("summary", "is missing"),)


def batches(count: int, size: int = 3, bad: dict[int, int] | None = None) -> list[LineBatch]:
    """``count`` batches of ``size`` lines; ``bad`` names lines that are bad, by batch."""
    found = []
    for place in range(count):
        first = place * size + 1
        lines = [Line(first + i, b"line %d" % (first + i), {"n": first + i}) for i in range(size)]
        wrong = [BadLine(lines[i].number, lines[i].raw, PROBLEM) for p, i in (bad or {}).items() if p == place]
        good = [line for line in lines if line.number not in {w.number for w in wrong}]
        found.append(LineBatch(good, wrong, end_offset=(first + size) * 10, end_line=first + size - 1))
    return found


class Service:
    """Acks batches; the first tries of some fail, and the odd ones are slow."""

    def __init__(self, fail: dict[int, list[Exception]] | None = None) -> None:
        self.fail = fail or {}
        self.received: list[int] = []
        self.at_once = 0
        self.most_at_once = 0

    async def send(self, records: Sequence[dict[str, Any]]) -> Sequence[Receipt]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            first = records[0]["n"]
            for _ in range(5 if first % 2 else 1):
                await asyncio.sleep(0)
            waiting = self.fail.get(first)
            if waiting:
                raise waiting.pop(0)
            self.received += [record["n"] for record in records]
            return [Receipt(seq=record["n"], id=str(record["n"])) for record in records]
        finally:
            self.at_once -= 1


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_run, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(import_run, "BACKOFF_LAST_S", 0.002)


async def run(service: Service, given: list[LineBatch], **options: Any) -> list[BatchAck]:
    acks: list[BatchAck] = []
    await ImportRun(service.send, timeout_s=options.pop("timeout_s", 60.0), **options).run(given, acks.append)
    return acks


def last_lines(acks: list[BatchAck]) -> list[int]:
    return [ack.batch.end_line for ack in acks]


async def test_batches_are_acked_in_the_order_of_the_file_though_several_are_under_way() -> None:
    service = Service()
    acks = await run(service, batches(20))
    assert last_lines(acks) == [3 * i for i in range(1, 21)]
    assert sorted(service.received) == list(range(1, 61))
    assert 1 < service.most_at_once <= import_run.IN_FLIGHT


async def test_a_service_that_is_away_is_waited_for() -> None:
    service = Service({4: [Unavailable("away"), Unavailable("away")]})
    told: list[str] = []
    acks = await run(service, batches(4), waiting=told.append)
    assert last_lines(acks) == [3, 6, 9, 12]
    assert told == ["away", "away"]


async def test_a_service_that_stays_away_is_given_up_and_what_was_acked_before_counts() -> None:
    service = Service({4: [Unavailable("away")] * 1_000_000})
    acks: list[BatchAck] = []
    with pytest.raises(Unavailable):
        await ImportRun(service.send, timeout_s=0.05).run(batches(4), acks.append)
    assert last_lines(acks) == [3]


async def test_a_batch_with_a_bad_line_is_not_sent_and_those_before_it_are_acked() -> None:
    service = Service()
    acks: list[BatchAck] = []
    with pytest.raises(InvalidEntry) as caught:
        await ImportRun(service.send, timeout_s=60).run(batches(4, bad={2: 1}), acks.append)
    assert last_lines(acks) == [3, 6]
    assert sorted(service.received) == [1, 2, 3, 4, 5, 6]
    assert [p.field for p in caught.value.problems] == ["line 8: summary"]


async def test_bad_lines_are_set_aside_if_that_is_asked_for() -> None:
    service = Service()
    acks = await run(service, batches(3, bad={1: 0}), skip_invalid=True)
    assert sorted(service.received) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert [line.number for ack in acks for line in ack.bad] == [4]


async def test_a_batch_that_holds_only_bad_lines_is_acked_without_being_sent() -> None:
    service = Service()
    acks = await run(service, batches(1, size=1, bad={0: 0}), skip_invalid=True)
    assert service.received == []
    assert [line.number for ack in acks for line in ack.bad] == [1]


async def test_what_only_the_service_refuses_is_named_by_line() -> None:
    service = Service({4: [InvalidEntry((FieldProblem("entries[1].ts", "is odd"),))]})
    with pytest.raises(InvalidEntry) as caught:
        await run(service, batches(2))
    assert [p.field for p in caught.value.problems] == ["line 5: ts"]
    assert sorted(service.received) == [1, 2, 3]


async def test_what_only_the_service_refuses_is_set_aside_and_the_rest_sent() -> None:
    service = Service({4: [InvalidEntry((FieldProblem("entries[1].ts", "is odd"),))]})
    acks = await run(service, batches(2), skip_invalid=True)
    assert sorted(service.received) == [1, 2, 3, 4, 6]
    assert [line.number for ack in acks for line in ack.bad] == [5]


async def test_a_line_that_the_token_may_not_import_is_set_aside_as_well() -> None:
    service = Service(
        {4: [NotAllowed("entries[1].priority pin needs a token of role OWNER", field="entries[1].priority")]}
    )
    acks = await run(service, batches(2), skip_invalid=True)
    assert sorted(service.received) == [1, 2, 3, 4, 6]
    [line] = [line for ack in acks for line in ack.bad]
    assert (line.number, line.problems[0].field) == (5, "priority")


class Occupied(Service):
    """A service where some ids belong to other entries; such a batch is refused whole, and nothing says which line."""

    def __init__(self, taken: set[int]) -> None:
        super().__init__()
        self.taken = taken

    async def send(self, records: Sequence[dict[str, Any]]) -> Sequence[Receipt]:
        if self.taken.intersection(record["n"] for record in records):
            raise EntryConflict("in the journal already with other content", field="id")
        return await super().send(records)


@pytest.mark.parametrize("taken", [{4}, {5, 6}, {4, 5, 6}, {1, 9}])
async def test_lines_with_the_id_of_another_entry_are_named_and_the_others_arrive_once(taken: set[int]) -> None:
    service = Occupied(taken)
    acks = await run(service, batches(3))
    assert last_lines(acks) == [3, 6, 9]
    assert sorted(service.received) == sorted(set(range(1, 10)) - taken)
    assert {line.number for ack in acks for line in ack.taken} == taken
    assert sorted(sent.seq for ack in acks for sent in ack.sent) == sorted(set(range(1, 10)) - taken)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotAllowed("no such crew", field="entries[0].crew_id"), "line 4: crew_id: no such crew"),
        (NotAllowed("the token is for another workspace"), "lines 4 to 6: the token is for another workspace"),
    ],
)
async def test_another_refusal_ends_the_import_and_says_where(error: Exception, said: str) -> None:
    with pytest.raises(type(error)) as caught:
        await run(Service({4: [error]}), batches(2))
    assert getattr(caught.value, "message", "") == said
