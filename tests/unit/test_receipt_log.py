"""Every recall leaves a receipt, at none of its expense; none is handed out that the broker would not store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from support.recorder import FakeRecorder

from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.recall.operations import RecallAnswer, RecallRequest
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall import receipts as receipt_log
from crew_journal.services.recall.recall import AnsweredRecall
from crew_journal.services.recall.receipts import ReceiptLog

AGENT = Principal(token_id="t1", role=Role.AGENT, workspace_id="w1", agent_id="a1", crew_id="c1")


@dataclass
class Broker:
    connected: bool = True


@dataclass
class Logged:
    broker: Broker
    journal: FakeRecorder
    log: ReceiptLog


def answered(query: str = "what broke", mean: float = 0.5, asker: Principal = AGENT) -> AnsweredRecall:
    hits: Any = [
        SimpleNamespace(entry_id="e1", score=0.9, confidence=0.8, kind=None),
        SimpleNamespace(entry_id="e2", score=0.1, confidence=None, kind=None),
    ]
    response = RecallAnswer.model_construct(
        confidence=None,
        no_evidence=False,
        receipt=None,
        hits=hits,
        recipe="robust",
        scope="own",
        model="mini",
        degraded=None,
        view_seq=7,
    )
    return AnsweredRecall(asker, "w1", RecallRequest(query=query), RecallScope(ScopeKind.OWN, "a1"), response, mean)


@pytest.fixture
async def logged() -> AsyncIterator[Logged]:
    broker, journal = Broker(), FakeRecorder()
    log = ReceiptLog(journal, lambda: broker.connected)
    await log.start()
    yield Logged(broker, journal, log)
    await log.stop()


async def test_a_receipt_is_the_id_of_an_entry_that_says_what_was_shown_to_whom(logged: Logged) -> None:
    receipt = logged.log.record(answered(), ["e1"])
    assert receipt is not None
    assert await logged.log.flush()
    assert logged.journal.recorded["w1", receipt].model_dump() == {
        "query": "what broke", "scope": "own", "crew_id": "c1", "agent_id": "a1", "recipe": "robust", "model": "mini",
        "hit_ids": ("e1", "e2"), "mean_cosine": 0.5, "scores": (0.9, 0.1), "confidences": (0.8, None), "mode": "search",
        "floor": None, "rendered": ("e1",), "asked_by": "t1", "chunks": (), "view_seq": 7,
        "asked": {"k": 5, "role": Role.AGENT},
    }  # fmt: skip
    assert logged.journal.said[0]["agent_id"] == "a1"


async def test_what_an_owner_asks_about_an_agent_is_not_shown_to_that_agent(logged: Logged) -> None:
    """DESIGN §7: an entry is visible to the agent and the crew it bears; a query may name what they are not to know."""
    owner = Principal(token_id="t0", role=Role.OWNER, workspace_id="w1")
    logged.log.record(answered("did a1 leak the key", asker=owner), None)
    await logged.log.flush()
    [search] = logged.journal.recorded.values()
    assert (search.agent_id, search.scope) == ("a1", "own"), "models are compared in the scope it was asked in"  # type: ignore[attr-defined]  # of MemorySearched
    assert (logged.journal.said[0]["agent_id"], logged.journal.said[0]["crew_id"]) == (None, None)


async def test_every_recall_is_recorded_however_fast_they_come(logged: Logged) -> None:
    receipts = [logged.log.record(answered(), None) for _ in range(3 * receipt_log.GROUP)]
    assert None not in receipts
    assert await logged.log.flush()
    assert {name for _, name in logged.journal.recorded} == set(receipts)


async def test_a_cosine_a_hair_above_one_is_one(logged: Logged) -> None:
    logged.log.record(answered(mean=1.0000002), None)
    await logged.log.flush()
    assert logged.journal.recorded.popitem()[1].mean_cosine == 1.0  # type: ignore[attr-defined]  # of MemorySearched


async def test_there_is_no_receipt_while_the_broker_is_away(logged: Logged) -> None:
    logged.broker.connected = False
    assert logged.log.record(answered(), None) is None
    assert logged.log.figures().refused == 1
    logged.broker.connected = True
    assert logged.log.record(answered(), None) is not None


async def test_a_receipt_that_was_handed_out_outlives_an_outage_and_none_is_handed_out_meanwhile(
    logged: Logged,
) -> None:
    receipt = logged.log.record(answered(), None)
    logged.journal.away = True
    assert not await logged.log.flush()
    assert (logged.log.figures().pending, logged.log.figures().error) == (1, "no ack")
    assert logged.log.record(answered(), None) is None, "the broker is connected, but it does not store"
    logged.journal.away = False
    assert await logged.log.flush()
    assert {name for _, name in logged.journal.recorded} == {receipt}
    assert logged.log.record(answered(), None) is not None


async def test_a_lost_ack_is_no_second_receipt(logged: Logged) -> None:
    logged.log.record(answered(), None)
    logged.journal.loses_acks = True
    assert not await logged.log.flush()
    logged.journal.loses_acks = False
    assert await logged.log.flush()
    assert len(logged.journal.recorded) == 1


async def test_a_receipt_that_is_asked_for_is_published_at_once(logged: Logged, monkeypatch: Any) -> None:
    monkeypatch.setattr(receipt_log, "LINGER_S", 3_600.0)
    receipt = logged.log.record(answered(), None)
    assert receipt is not None
    assert logged.log.hurry(receipt)
    async with asyncio.timeout(60):
        while logged.log.hurry(receipt):  # noqa: ASYNC110  # the log sets no event
            await asyncio.sleep(0)
    assert not logged.log.hurry("r_unknown")


async def test_a_full_queue_hands_out_no_receipts_instead_of_growing(monkeypatch: Any) -> None:
    monkeypatch.setattr(receipt_log, "QUEUE", 5)
    log = ReceiptLog(FakeRecorder(), lambda: True)  # never started: nothing takes from the queue
    assert [log.record(answered(), None) is None for _ in range(7)] == [False] * 5 + [True] * 2
