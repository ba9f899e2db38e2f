"""When a request is sent again."""

from __future__ import annotations

import json

import pytest

from crew_journal.schemas.errors import BrokerUnavailable, CrewJournalError, StorageFull, Unavailable, ViewsBehind
from crew_journal.services.client.core import ATTEMPTS, exchange
from crew_journal.services.client.wire import Outcome, Reply, Request


def refused(kind: type[CrewJournalError]) -> Reply:
    return Reply(503, json.dumps({"title": kind.title, "status": 503, "detail": "not now"}).encode())


def times_sent(outcome: Outcome, expected: type[CrewJournalError]) -> int:
    steps = exchange(Request("POST", "/v1/journal"))
    asked: list[Request] = []

    def until_it_gives_up() -> None:
        step = next(steps)
        while True:
            if isinstance(step, Request):
                asked.append(step)
            step = steps.send(outcome if isinstance(step, Request) else None)

    with pytest.raises(expected):
        until_it_gives_up()
    return len(asked)


def test_a_service_that_is_not_ready_is_asked_again() -> None:
    assert times_sent(refused(Unavailable), Unavailable) == ATTEMPTS


@pytest.mark.parametrize("kind", [BrokerUnavailable, StorageFull, ViewsBehind])
def test_what_the_service_has_waited_for_is_not_waited_for_again(kind: type[CrewJournalError]) -> None:
    assert times_sent(refused(kind), kind) == 1
