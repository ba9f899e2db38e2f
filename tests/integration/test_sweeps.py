"""Ticks on a real broker with a clock of our own: caught up once and in order, by one node or by two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from support.stack import DEADLINE_S, Stack, running_stack, until

from crew_journal.schemas.core.errors import InvalidEntry, NotAllowed, Unavailable
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.core.timestamps import DAY_MS, from_ms, to_ms
from crew_journal.schemas.sweeps.events import SweepFinished
from crew_journal.schemas.sweeps.rules import ALL_SWEEPS, HEALTH
from crew_journal.services.journal.intake.append import Recorder
from crew_journal.services.sweeps.scheduler import FAILED, Sweeps
from crew_journal.services.sweeps.use_cases import SweepNow

A_DAY = sum(DAY_MS // sweep.schedule.period_ms for sweep in ALL_SWEEPS)
"""Ticks of a workspace."""

_TICKS = """SELECT payload->>'sweep', payload->>'due' FROM journal_entries
    WHERE workspace_id = ? AND entry_type = 'sweep.ticked' AND control ORDER BY seq"""
_DONE = """SELECT payload->>'due', (payload->'counts'->>'decayed')::INT FROM journal_entries
    WHERE workspace_id = ? AND entry_type = 'sweep.finished' AND control ORDER BY seq"""


class Clock:
    """The time of day that a test chooses; begins today at noon, after every nightly sweep."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def stack(tmp_path) -> AsyncIterator[Stack]:  # type: ignore[no-untyped-def]
    async with running_stack(tmp_path) as running:
        yield running


async def begin(stack: Stack, *workspaces: str) -> Clock:
    """Workspaces with an entry each, and everything due until tomorrow noon ticked."""
    async with stack.client() as client:
        for workspace in workspaces:
            entry = {"workspace_id": workspace, "entry_type": "peer.escalation", "summary": "the parser broke"}
            receipt = await client.append(entry)
    await stack.store.wait_for(receipt.seq, DEADLINE_S)
    clock = Clock()
    await keeper(stack, clock).check()
    return clock


def keeper(stack: Stack, clock: Clock) -> Sweeps:
    return Sweeps(replace(stack.shared, clock=clock), poll_s=0.01)


def ticks(stack: Stack, workspace: str, sweep: str | None = None) -> list[tuple[str, str]]:
    found = [(str(name), str(due)[:16]) for name, due in stack.store.rows(_TICKS, [workspace])]
    return [tick for tick in found if sweep in (None, tick[0])]


async def test_a_downtime_of_days_is_caught_up_once_and_in_order(stack: Stack) -> None:
    clock = await begin(stack, "w1")
    before = len(ticks(stack, "w1"))
    day = clock.now
    clock.now += timedelta(days=3)
    restarted = keeper(stack, clock)
    assert await restarted.check() == 3 * A_DAY
    caught_up = ticks(stack, "w1")[before:]
    dues = [due for _, due in caught_up]
    assert dues == sorted(dues)
    nights = [f"{day + timedelta(days=n):%Y-%m-%d}T03:00" for n in (1, 2, 3)]
    assert [due for sweep, due in caught_up if sweep == "decay"] == nights
    assert await restarted.check() == 0
    assert await keeper(stack, clock).check() == 0
    assert len(ticks(stack, "w1")) == before + 3 * A_DAY


async def test_a_sweep_on_request_before_the_catching_up_passes_over_no_missed_day(stack: Stack) -> None:
    clock = await begin(stack, "w1", "w2")
    before = len(ticks(stack, "w1"))
    day = clock.now
    clock.now += timedelta(days=3)
    restarted = keeper(stack, clock)
    node = replace(stack.shared, clock=clock)
    node.put(Sweeps, restarted)
    now = SweepNow(node, wait_s=0.2)
    with pytest.raises(Unavailable):  # no reactor here works it off
        await now.run("w1", HEALTH)
    nights = [f"{day + timedelta(days=n):%Y-%m-%d}T03:30" for n in (1, 2, 3)]
    await restarted.check()
    found = ticks(stack, "w1")[before:]
    assert [due for sweep, due in found if sweep == "health"] == [*nights, f"{clock.now:%Y-%m-%dT%H:%M}"]
    assert [due for _, due in found] == sorted(due for _, due in found)
    assert len(found) == 3 * A_DAY + 1


async def test_a_year_away_is_bounded_to_the_newest_of_each_sweep(stack: Stack) -> None:
    clock = await begin(stack, "w1")
    before = len(ticks(stack, "w1"))
    clock.now += timedelta(days=365)
    assert await keeper(stack, clock).check() == len(ALL_SWEEPS) * 31
    decays = [due for sweep, due in ticks(stack, "w1")[before:] if sweep == "decay"]
    assert decays[-1] == f"{clock.now:%Y-%m-%d}T03:00"
    assert len(decays) == 31


async def test_two_nodes_keep_time_and_the_journal_has_one_tick(stack: Stack) -> None:
    clock = await begin(stack, "w1", "w2")
    for day in range(3):
        clock.now += timedelta(days=1)
        await asyncio.gather(keeper(stack, clock).check(), keeper(stack, clock).check())
        for workspace in ("w1", "w2"):
            found = ticks(stack, workspace)
            assert len(found) == len(set(found))
            assert len([due for sweep, due in found if sweep == "decay" and due > f"{clock.now:%Y-%m-%d}"]) == 1, day
    assert len(stack.store.rows("SELECT * FROM memory_sweeps WHERE workspace_id = 'w1'")) == len(ALL_SWEEPS)


async def test_a_sweep_that_is_due_and_asked_for_at_the_same_millisecond_has_one_tick(stack: Stack) -> None:
    clock = await begin(stack, "w1")
    clock.now = (clock.now + timedelta(days=1)).replace(hour=3, minute=30, second=0, microsecond=0)
    await keeper(stack, clock).check()
    before = ticks(stack, "w1", "health")
    asked = SweepNow(replace(stack.shared, clock=clock), wait_s=0.2)
    with pytest.raises(Unavailable):  # no reactor here works it off
        await asked.run("w1", HEALTH)
    assert before[-1] == ("health", f"{clock.now:%Y-%m-%dT%H:%M}")
    assert ticks(stack, "w1", "health") == before


async def test_a_decay_is_finished_with_the_rows_its_fold_went_over(stack: Stack) -> None:
    clock = await begin(stack, "w1")
    clock.now += timedelta(days=2)
    await keeper(stack, clock).check()
    done = [(str(due)[:16], count) for due, count in stack.store.rows(_DONE, ["w1"])]
    assert done[-1] == (f"{clock.now:%Y-%m-%d}T03:00", 0)  # no vector in this stack
    shown = keeper(stack, clock).figures("w1")["sweeps"]
    decay = next(sweep for sweep in shown if sweep["sweep"] == "decay")
    assert decay["due"] == decay["finished_due"]
    assert decay["counts"] == {"decayed": 0}


async def test_only_administrators_see_why_a_sweep_failed(stack: Stack) -> None:
    """A reason may name the address of a model's server; an AGENT's status says that something fails, not where."""
    clock = await begin(stack, "w1")
    due = f"{clock.now:%Y-%m-%d}T12:00:00.000Z"
    failed = SweepFinished(sweep="index", due=due, error="Ollama at http://10.0.0.7:11434 cannot be reached")
    done = await cast(Recorder, stack.services.journal).record("w1", failed, summary="index sweep broken off")
    await stack.store.wait_for(done.seq, DEADLINE_S)

    def errors(reasons: bool) -> set[str]:
        shown = keeper(stack, clock).figures("w1", reasons=reasons)["sweeps"]
        return {sweep["error"] for sweep in shown if sweep["error"]}

    assert errors(reasons=True) == {failed.error}
    assert errors(reasons=False) == {FAILED}


async def test_a_new_workspaces_first_tick_is_the_first_due_after_its_first_entry(stack: Stack) -> None:
    await begin(stack, "w1")
    async with stack.client() as client:
        receipt = await client.append({"workspace_id": "w9", "entry_type": "run.completed", "summary": "built"})
    await stack.store.wait_for(receipt.seq, DEADLINE_S)
    [(began_ms,)] = stack.store.rows("SELECT published_ms FROM journal_entries WHERE workspace_id = 'w9'")
    clock = Clock()
    clock.now = from_ms(began_ms) + timedelta(days=1)  # in which each hour of the day comes once, whatever it is now
    await keeper(stack, clock).check()
    [(_, due)] = ticks(stack, "w9", "decay")
    assert began_ms < to_ms(datetime.fromisoformat(f"{due}Z")) <= to_ms(clock.now)
    assert ticks(stack, "_system") == []


async def test_a_taken_id_stops_no_sweep(stack: Stack) -> None:
    """An agent can foresee the id of a tick; it may not use it any more, but a journal of before may have it."""
    clock = await begin(stack, "w1")
    clock.now += timedelta(days=1)
    token = await stack.token(Role.AGENT, "w1", agent="a1", crew="c1")
    foreseen = keeper(stack, clock)
    due = (await foreseen._due(to_ms(clock.now)))[0]
    from crew_journal.schemas.core.ids import derived_id

    squatted = derived_id("sweep", 1, f"w1/{due.sweep}/{due.due_ms}")
    async with stack.client(token.plaintext) as client:
        with pytest.raises(InvalidEntry, match="only the service"):
            await client.append({"id": squatted, "entry_type": "run.completed", "summary": "mine"})
    other = SweepFinished(sweep="index", due="2026-01-01T00:00:00.000Z")
    taken = await cast(Recorder, stack.services.journal).record(
        "w1", other, summary="another decision", entry_id=squatted
    )
    await stack.store.wait_for(taken.seq, DEADLINE_S)
    assert await foreseen.check() == A_DAY
    assert len(ticks(stack, "w1", due.sweep)) == len(set(ticks(stack, "w1", due.sweep)))
    assert await foreseen.check() == 0


async def test_in_the_background_it_goes_on_by_itself(stack: Stack) -> None:
    clock = await begin(stack, "w1")
    sweeps = keeper(stack, clock)
    await sweeps.start()
    before = len(ticks(stack, "w1", "decay"))
    clock.now += timedelta(days=1)
    await until(lambda: len(ticks(stack, "w1", "decay")) == before + 1)
    await sweeps.stop()


async def test_a_sweep_can_be_run_at_once_by_administrators_of_its_workspace(stack: Stack) -> None:
    await begin(stack, "w1", "w2")
    admin = await stack.token(Role.ADMIN, "w1")
    agent = await stack.token(Role.AGENT, "w1", agent="a1", crew="c1")
    async with stack.client(admin.plaintext) as client:
        done = await client.sweep("decay")
        assert (done.workspace_id, done.sweep) == ("w1", "decay")
        assert stack.store.view_seq("importance") >= done.seq
        assert ticks(stack, "w1", "decay")[-1][1] == done.due[:16]
        with pytest.raises(NotAllowed):
            await client.sweep("decay", workspace_id="w2")
    async with stack.client(agent.plaintext) as client:
        with pytest.raises(NotAllowed):
            await client.sweep("decay")
    async with stack.http() as http:
        assert (await http.post("/v1/admin/sweeps", json={"sweep": "dust"})).status_code == 422
