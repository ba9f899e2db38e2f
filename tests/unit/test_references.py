"""What counts as having reached a prompt, once each, for whom; and that no outage counts twice or without bound."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from support.recorder import FakeRecorder

from crew_journal.schemas.errors import InvalidQuery, NotFound
from crew_journal.schemas.events.memory import MemoryReferenced
from crew_journal.schemas.operations.recall import UsedAnswer
from crew_journal.schemas.principal import Principal, Role
from crew_journal.services.memory import references
from crew_journal.services.memory.references import RECEIPT_TTL_S, ReferenceLog

AGENT = Principal(token_id="t1", role=Role.AGENT, workspace_id="w1", agent_id="a1", crew_id="c1")
OTHER = AGENT.model_copy(update={"token_id": "t2", "agent_id": "a2"})
LEAD = Principal(token_id="t3", role=Role.LEAD, workspace_id="w1", agent_id="boss", crew_id="c1")
ADMIN = Principal(token_id="t4", role=Role.ADMIN, workspace_id="w1")
STRANGER = Principal(token_id="t5", role=Role.ADMIN, workspace_id="w2")
OWNER = Principal(token_id="t6", role=Role.OWNER, workspace_id=None)


class Clock:
    def __init__(self):
        self.now = datetime(2026, 11, 21, 9, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def journal():
    return FakeRecorder()


@pytest.fixture
def log(journal, clock):
    return ReferenceLog(journal, clock=clock)


def counted(journal):
    total = Counter()
    for (workspace, _), payload in journal.recorded.items():
        assert isinstance(payload, MemoryReferenced)
        total.update({(workspace, one.entry_id): one.count for one in payload.entries})
    return dict(total)


async def test_what_reached_a_prompt_is_counted_and_nothing_else(log, journal):
    """[TRAP] contract §5: the whole over-fetched lane was stamped, not what reached the prompt."""
    log.offer(AGENT, "w1", "r1", ["e1", "e2", "e3"])
    log.offer(AGENT, "w1", "r2", ["e1", "e9"])
    assert log.used(AGENT, "r1", ["e1", "e3"]) == UsedAnswer(receipt="r1", counted=2, already=False)
    assert await log.flush()
    assert counted(journal) == {("w1", "e1"): 1, ("w1", "e3"): 1}


async def test_a_receipt_counts_once_and_says_so_the_second_time(log, journal):
    log.offer(AGENT, "w1", "r1", ["e1", "e2"])
    log.used(AGENT, "r1", ["e1"])
    assert log.used(AGENT, "r1") == UsedAnswer(receipt="r1", counted=0, already=True)
    await log.flush()
    assert counted(journal) == {("w1", "e1"): 1}


async def test_an_entry_used_by_several_recalls_counts_for_each(log, journal):
    for receipt in ("r1", "r2", "r3"):
        log.offer(AGENT, "w1", receipt, ["e1"])
        log.used(AGENT, receipt)
    await log.flush()
    assert counted(journal) == {("w1", "e1"): 3}
    assert len(journal.recorded) == 1


@pytest.mark.parametrize("who", [OTHER, LEAD, STRANGER])
async def test_a_receipt_is_for_who_asked_and_unknown_to_others(log, who):
    log.offer(AGENT, "w1", "r1", ["e1"])
    with pytest.raises(NotFound) as refused:
        log.used(who, "r1")
    with pytest.raises(NotFound) as unknown:
        log.used(who, "r2")
    assert refused.value.message.replace("r1", "r2") == unknown.value.message
    assert log.used(AGENT, "r1").counted == 1


@pytest.mark.parametrize("who", [ADMIN, OWNER])
async def test_an_administrator_may_speak_for_an_agent(log, who):
    log.offer(AGENT, "w1", "r1", ["e1"])
    assert log.used(who, "r1").counted == 1


async def test_an_agent_may_not_use_an_administrators_receipt(log):
    log.offer(ADMIN, "w1", "r1", ["e1"])
    with pytest.raises(NotFound):
        log.used(AGENT, "r1")


async def test_an_entry_the_recall_did_not_return_is_refused_and_nothing_is_counted(log, journal):
    log.offer(AGENT, "w1", "r1", ["e1"])
    with pytest.raises(InvalidQuery, match="e2"):
        log.used(AGENT, "r1", ["e1", "e2"])
    assert log.used(AGENT, "r1", ["e1", "e1"]).counted == 1
    await log.flush()
    assert counted(journal) == {("w1", "e1"): 1}


async def test_a_receipt_ends_after_its_time(log, clock):
    log.offer(AGENT, "w1", "r1", ["e1"])
    clock.now += timedelta(seconds=RECEIPT_TTL_S)
    with pytest.raises(NotFound, match="60 minutes"):
        log.used(AGENT, "r1")
    assert log.figures().receipts == 0


async def test_receipts_are_bounded_by_the_ids_they_hold_and_the_oldest_go_first(log, monkeypatch):
    monkeypatch.setattr(references, "MAX_RECEIPT_ENTRIES", 10)
    for number in range(100):
        log.offer(AGENT, "w1", f"r{number}", ["e1", "e2", "e3", "e4"])
    assert log.figures().receipts == 2
    assert log.used(AGENT, "r99").counted == 4
    assert log.used(AGENT, "r98").counted == 4


async def test_whoever_recalls_in_a_loop_pushes_out_its_own_receipts_only(log, monkeypatch):
    monkeypatch.setattr(references, "MAX_RECEIPT_ENTRIES", 20)
    log.offer(OTHER, "w1", "colleague's", ["e1", "e2"])
    log.offer(STRANGER, "w2", "stranger's", ["e1", "e2"])
    for number in range(100):
        log.offer(AGENT, "w1", f"r{number}", ["e1", "e2", "e3", "e4"])
    assert log.used(OTHER, "colleague's").counted == 2
    assert log.used(STRANGER, "stranger's").counted == 2
    assert log.used(AGENT, "r99").counted == 4
    with pytest.raises(NotFound):
        log.used(AGENT, "r90")


async def test_many_tokens_of_one_workspace_push_out_none_of_another(log, monkeypatch):
    monkeypatch.setattr(references, "MAX_RECEIPT_ENTRIES", 20)
    for number in range(2):
        log.offer(STRANGER, "w2", f"s{number}", ["e1", "e2"])
    for number in range(100):
        log.offer(AGENT.model_copy(update={"token_id": f"t-{number}"}), "w1", f"r{number}", ["e1"])
    assert [log.used(STRANGER, f"s{number}").counted for number in range(2)] == [2, 2]
    assert log.used(ADMIN, "r99").counted == 1


async def test_workspaces_that_a_token_of_all_names_are_one_share(log, monkeypatch):
    monkeypatch.setattr(references, "MAX_RECEIPT_ENTRIES", 20)
    log.offer(AGENT, "w1", "mine", ["e1", "e2", "e3"])
    for number in range(100):
        log.offer(OWNER, f"invented-{number}", f"r{number}", ["e1"])
    assert log.used(AGENT, "mine").counted == 3


async def test_used_and_expired_receipts_give_their_room_back(log, clock, monkeypatch):
    monkeypatch.setattr(references, "MAX_RECEIPT_ENTRIES", 20)
    for number in range(10):
        log.offer(AGENT, "w1", f"r{number}", ["e1", "e2"])
        log.used(AGENT, f"r{number}", ["e1"])
    log.offer(OTHER, "w1", "r0", ["e1"])
    assert log.figures().receipts == 10
    clock.now += timedelta(seconds=RECEIPT_TTL_S)
    log.offer(AGENT, "w1", "next", [])
    assert log.figures().receipts == 1


async def test_a_lost_ack_is_no_second_count(log, journal):
    log.offer(AGENT, "w1", "r1", ["e1"])
    log.used(AGENT, "r1")
    journal.loses_acks = True
    assert not await log.flush()
    journal.loses_acks = False
    log.offer(AGENT, "w1", "r2", ["e1"])
    log.used(AGENT, "r2")
    assert await log.flush()
    assert counted(journal) == {("w1", "e1"): 2}
    assert log.figures().pending == 0


async def test_an_outage_keeps_counts_and_says_so(log, journal):
    journal.away = True
    log.offer(AGENT, "w1", "r1", ["e1", "e2"])
    log.used(AGENT, "r1")
    assert not await log.flush()
    assert log.figures().pending == 2
    assert log.figures().error == "no ack"
    journal.away = False
    assert await log.flush()
    assert counted(journal) == {("w1", "e1"): 1, ("w1", "e2"): 1}
    assert log.figures().error is None


async def test_an_outage_cannot_fill_memory_and_what_is_lost_is_counted(log, journal, monkeypatch):
    monkeypatch.setattr(references, "MAX_PENDING_ENTRIES", 7)
    journal.away = True
    for number in range(20):
        log.offer(AGENT, "w1", f"r{number}", [f"e{number}", f"f{number}"])
        log.used(AGENT, f"r{number}")
        await log.flush()
    assert log.figures().pending == 7
    assert log.figures().dropped == 33
    journal.away = False
    assert await log.flush()
    assert sum(counted(journal).values()) == 7


async def test_a_batch_holds_at_most_a_thousand_entries_of_one_workspace(log, journal):
    for number in range(60):
        log.offer(OWNER, f"w{number % 2}", f"r{number}", [f"e{number}-{i}" for i in range(50)])
        log.used(OWNER, f"r{number}")
    assert await log.flush()
    sizes = Counter({name: len(payload.entries) for name, payload in journal.recorded.items()})
    assert sorted(sizes.values()) == [500, 500, 1_000, 1_000]
    assert len(counted(journal)) == 3_000


async def test_a_full_batch_is_published_before_its_time_and_the_rest_at_the_end(journal, clock):
    log = ReferenceLog(journal, clock=clock, flush_every_s=3_600)
    await log.start()
    for number in range(21):
        log.offer(ADMIN, "w1", f"r{number}", [f"e{number}-{i}" for i in range(50)])
        log.used(ADMIN, f"r{number}")
        if number == 19:
            while not journal.recorded:  # noqa: ASYNC110 - the log sets no event
                await asyncio.sleep(0)
            assert len(counted(journal)) == 1_000
    await log.stop()
    assert len(counted(journal)) == 1_050
