"""Recalls are logged now and then, and never at a recall's expense."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from support.recorder import FakeRecorder

from crew_journal.schemas.operations.recall import RecallAnswer, RecallRequest
from crew_journal.schemas.principal import Principal, Role
from crew_journal.services.memory import search_log
from crew_journal.services.memory.search_log import SearchLog
from crew_journal.services.query.hot.scope import Scope, ScopeKind
from crew_journal.services.query.recall import Answered

AGENT = Principal(token_id="t1", role=Role.AGENT, workspace_id="w1", agent_id="a1", crew_id="c1")


class Clock:
    now = datetime(2026, 11, 21, 9, tzinfo=UTC)

    def __call__(self):
        return self.now


def answered(workspace="w1", query="what broke", mean=0.5, hits=("e1", "e2"), asker=AGENT):
    response = RecallAnswer.model_construct(
        receipt="r", hits=[SimpleNamespace(entry_id=hit) for hit in hits], recipe="robust", scope="own", model="mini",  # type: ignore[arg-type]  # what the log reads of a hit
        confidence=0.5, no_evidence=False, degraded=None, view_seq=7,
    )  # fmt: skip
    return Answered(asker, workspace, RecallRequest(query=query), Scope(ScopeKind.OWN, "a1"), response, mean)


@pytest.fixture
async def logged():
    clock, journal = Clock(), FakeRecorder()
    log = SearchLog(journal, clock=clock)
    await log.start()
    yield clock, journal, log
    await log.stop()


async def settle(log, number):
    async with asyncio.timeout(60):
        while log.figures().logged + log.figures().dropped < number:  # noqa: ASYNC110
            await asyncio.sleep(0)  # nobody sets an event


async def test_a_recall_is_logged_with_what_models_are_compared_on(logged):
    _, journal, log = logged
    log.observe(answered())
    await settle(log, 1)
    [search] = journal.recorded.values()
    assert search.model_dump() == {
        "query": "what broke", "scope": "own", "crew_id": "c1", "agent_id": "a1", "recipe": "robust", "model": "mini",
        "hit_ids": ("e1", "e2"), "mean_cosine": 0.5,
    }  # fmt: skip
    assert journal.said[0]["agent_id"] == "a1"


async def test_what_an_owner_asks_about_an_agent_is_not_shown_to_that_agent(logged):
    """DESIGN §7: an entry is visible to the agent and the crew it bears; a query may name what they are not to know."""
    _, journal, log = logged
    owner = Principal(token_id="t0", role=Role.OWNER, workspace_id="w1")
    log.observe(answered(query="did a1 leak the key", asker=owner))
    await settle(log, 1)
    [search] = journal.recorded.values()
    assert (search.agent_id, search.scope) == ("a1", "own"), "models are compared in the scope it was asked in"
    assert (journal.said[0]["agent_id"], journal.said[0]["crew_id"]) == (None, None)


async def test_at_most_one_a_second_and_workspace(logged):
    clock, journal, log = logged
    for _ in range(10):
        log.observe(answered())
        log.observe(answered("w2"))
    clock.now += timedelta(seconds=1)
    log.observe(answered(query="again"))
    await settle(log, 3)
    assert sorted((workspace, search.query) for (workspace, _), search in journal.recorded.items()) == [
        ("w1", "again"), ("w1", "what broke"), ("w2", "what broke"),
    ]  # fmt: skip


async def test_a_clock_that_is_set_back_does_not_end_the_log(logged):
    clock, journal, log = logged
    log.observe(answered())
    clock.now -= timedelta(hours=1)
    log.observe(answered(query="an hour earlier"))
    log.observe(answered(query="and at once"))
    await settle(log, 2)
    assert [search.query for search in journal.recorded.values()] == ["what broke", "an hour earlier"]


async def test_a_cosine_a_hair_above_one_is_one(logged):
    _, journal, log = logged
    log.observe(answered(mean=1.0000002))
    await settle(log, 1)
    assert journal.recorded.popitem()[1].mean_cosine == 1.0


async def test_while_the_broker_is_away_recalls_are_dropped_and_the_figures_say_so(logged):
    clock, journal, log = logged
    journal.away = True
    log.observe(answered())
    await settle(log, 1)
    assert (log.figures().dropped, log.figures().error) == (1, "no ack")
    journal.away = False
    clock.now += timedelta(seconds=2)
    log.observe(answered())
    await settle(log, 2)
    assert (log.figures().logged, log.figures().error) == (1, None)


async def test_a_full_queue_drops_instead_of_growing():
    clock = Clock()
    log = SearchLog(FakeRecorder(), clock=clock)  # never started: nothing takes from the queue
    for number in range(search_log.QUEUE + 50):
        log.observe(answered(f"w{number}"))
    assert log.figures().dropped == 50
