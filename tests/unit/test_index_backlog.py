"""What an index sweep leaves to the embed reactor: what it accounts for, or everything from the first unsettled on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from crew_journal.consumers.models import missing_reactor as index_backlog
from crew_journal.consumers.models.missing_reactor import Backlog, backlog_of
from crew_journal.consumers.reacting.pull import Remaining

PUT_OFF = frozenset({11, 14})


async def backlog(
    monkeypatch: pytest.MonkeyPatch, seen: Iterable[Remaining], unsettled: frozenset[int] | None
) -> Backlog:
    """The backlog where the broker says so, one after the other."""
    answers = iter(seen)

    async def remaining(_client: Any, _durable: str) -> Remaining:
        return next(answers)

    monkeypatch.setattr(index_backlog, "remaining", remaining)
    monkeypatch.setattr(index_backlog, "PAUSE_S", 0.0)
    client: Any = None
    return await backlog_of(client, "embed-v1", lambda _durable: unsettled)


@pytest.mark.parametrize("unsettled", [None, frozenset(), PUT_OFF], ids=["elsewhere", "none", "stale"])
async def test_a_durable_that_is_done_or_gone_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, unsettled: frozenset[int] | None
) -> None:
    for done in (Remaining(), Remaining(acked=20, delivered=20)):
        assert await backlog(monkeypatch, [done], unsettled) == Backlog()


async def test_what_the_reactor_accounts_for_is_left_to_it_and_all_else_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Remaining(acked=10, delivered=20, unacked=2)
    assert await backlog(monkeypatch, [left], PUT_OFF) == Backlog(None, PUT_OFF)
    stale = frozenset({3, 10, 21})
    assert await backlog(monkeypatch, [left], PUT_OFF | stale) == Backlog(None, PUT_OFF), "others settled these"


async def test_what_was_never_delivered_is_left_to_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Remaining(acked=10, delivered=20, unacked=2, to_come=5)
    assert await backlog(monkeypatch, [left], PUT_OFF) == Backlog(21, PUT_OFF)


@pytest.mark.parametrize(
    ("left", "unsettled"),
    [
        (Remaining(acked=10, delivered=20, unacked=2), None),
        (Remaining(acked=10, delivered=20, unacked=2), frozenset()),
        (Remaining(acked=10, delivered=20, unacked=3), PUT_OFF),
        (Remaining(acked=10, delivered=20, unacked=2, waiting=2), PUT_OFF),
        (Remaining(acked=10, delivered=10, to_come=4), PUT_OFF),
    ],
    ids=["elsewhere", "nothing held", "one more unacked", "somebody else draws", "not begun"],
)
async def test_where_it_does_not_account_for_everything_all_from_the_first_unsettled_on_is_left(
    monkeypatch: pytest.MonkeyPatch, left: Remaining, unsettled: frozenset[int] | None
) -> None:
    assert await backlog(monkeypatch, [left] * 9, unsettled) == Backlog(11)


async def test_an_ack_on_its_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    on_its_way = Remaining(acked=10, delivered=20, unacked=3, waiting=1)
    settled = Remaining(acked=10, delivered=20, unacked=2, waiting=1)
    assert await backlog(monkeypatch, [on_its_way, on_its_way, settled], PUT_OFF) == Backlog(None, PUT_OFF)
