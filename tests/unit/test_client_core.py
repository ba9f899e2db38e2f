"""When a request is sent again."""

from __future__ import annotations

import httpx
import pytest

from crew_journal.schemas.core.errors import (
    BrokerUnavailable,
    CrewJournalError,
    EntryTooLarge,
    StorageFull,
    Unavailable,
    ViewsBehind,
)
from crew_journal.services.client import AsyncCrewJournal, CrewJournal, core
from crew_journal.services.client.core import ATTEMPTS, pause_before


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "FIRST_PAUSE_S", 0.0)


class Service:
    """Refuses every request, or none after the first if it recovers."""

    def __init__(self, kind: type[Exception], *, recovers: bool = False) -> None:
        self._kind = kind
        self._recovers = recovers
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self._recovers and self.asked > 1:
            return httpx.Response(200, json={"count": 3, "view_seq": 7})
        if not issubclass(self._kind, CrewJournalError):
            raise self._kind("refused")
        return httpx.Response(503, json={"title": self._kind.title, "status": 503, "detail": "not now"})

    def client(self) -> CrewJournal:
        client = CrewJournal("http://127.0.0.1:1", "cj_x")
        client._http = httpx.Client(base_url="http://service", transport=httpx.MockTransport(self))
        return client


@pytest.mark.parametrize("kind", [Unavailable, httpx.ConnectError])
def test_a_service_that_is_not_ready_is_asked_again(kind: type[Exception]) -> None:
    service = Service(kind)
    with pytest.raises(Unavailable):
        service.client().count()
    assert service.asked == ATTEMPTS
    assert Service(kind, recovers=True).client().count().count == 3


async def test_the_client_for_asyncio_asks_again_as_well() -> None:
    service = Service(httpx.ConnectError, recovers=True)
    client = AsyncCrewJournal("http://127.0.0.1:1", "cj_x")
    client._http = httpx.AsyncClient(base_url="http://service", transport=httpx.MockTransport(service))
    assert (await client.count()).count == 3


@pytest.mark.parametrize("kind", [BrokerUnavailable, StorageFull, ViewsBehind])
def test_what_the_service_has_waited_for_is_not_waited_for_again(kind: type[CrewJournalError]) -> None:
    service = Service(kind)
    with pytest.raises(kind):
        service.client().count()
    assert service.asked == 1


def test_what_may_not_be_done_twice_is_sent_once() -> None:
    service = Service(httpx.ConnectError)
    with pytest.raises(Unavailable, match="ConnectError"):
        service.client().create_token(role="ADMIN")
    assert service.asked == 1


def test_the_pauses_between_all_tries_outlast_a_restart_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(core, "_JITTER", 0.0)
    assert sum(pause_before(attempt) for attempt in range(1, ATTEMPTS)) == pytest.approx(3.1)


def test_a_body_that_the_service_would_refuse_for_its_size_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "MAX_BATCH_BYTES", 1_000)
    service = Service(Unavailable)
    with pytest.raises(EntryTooLarge, match="of 1000 bytes"):
        service.client().document_write(tier="AGENT", mode="append", content="x" * 1_000)
    with pytest.raises(EntryTooLarge, match="of 1000 bytes"):
        service.client().append_batch([{"entry_type": "note.written", "summary": "x" * 1_000}])
    assert service.asked == 0
