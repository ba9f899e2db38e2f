"""When sweeps are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crew_journal.consumers.discovery import discover_projections, discover_reactors
from crew_journal.consumers.reacting.sweeping import SweepReactor
from crew_journal.schemas.core.timestamps import format_ms, to_ms
from crew_journal.schemas.sweeps.events import SweepTicked
from crew_journal.schemas.sweeps.operations import SweepRequest
from crew_journal.schemas.sweeps.rules import ALL_SWEEPS, DECAY, MOST_MISSED, due_times

SCHEDULES = {sweep.name: sweep.schedule for sweep in ALL_SWEEPS}
INSTANTS = st.integers(0, 4_000_000_000_000)


def ms(*when: int) -> int:
    return to_ms(datetime(*when, tzinfo=UTC))  # type: ignore[arg-type]  # at most to the second


def test_sweeps_are_due_nightly_or_every_six_hours_each_at_its_own_time() -> None:
    span = ms(2026, 11, 21, 2, 59), ms(2026, 11, 22, 3, 30)
    shown = {name: [format_ms(due)[8:16] for due in due_times(schedule, *span)] for name, schedule in SCHEDULES.items()}
    assert shown == {
        "compaction": ["21T03:00", "22T03:00"],
        "decay": ["21T03:00", "22T03:00"],
        "health": ["21T03:30", "22T03:30"],
        "index": ["21T06:00", "21T12:00", "21T18:00", "22T00:00"],
        "peer_cards": ["21T04:00"],
        "operators": ["21T05:00"],
        "reflection": ["21T05:00"],
        "consolidation": ["21T07:00", "21T13:00", "21T19:00", "22T01:00"],
    }


@given(st.sampled_from(sorted(SCHEDULES)), INSTANTS, st.lists(INSTANTS, min_size=1, max_size=5))
def test_looking_often_finds_what_looking_once_finds(sweep: str, start: int, looks: list[int]) -> None:
    at, found = start, []
    for look in sorted(look for look in looks if look >= start):
        found += due_times(SCHEDULES[sweep], at, look, most=10**9)
        at = found[-1] if found else start
    once = due_times(SCHEDULES[sweep], start, max([start, *looks]), most=10**9)
    assert found == once
    assert found == sorted(set(found))


@given(st.sampled_from(sorted(SCHEDULES)), INSTANTS, INSTANTS)
def test_what_is_due_lies_after_the_last_and_not_after_now_and_is_bounded_to_the_newest(
    sweep: str, after: int, until: int
) -> None:
    found = due_times(SCHEDULES[sweep], after, until)
    assert all(after < due <= until for due in found)
    assert len(found) <= MOST_MISSED
    assert due_times(SCHEDULES[sweep], found[-1], until) == [] if found else until - after < 86_400_000


def test_every_sweep_but_the_folded_decay_has_one_reactor_and_names_views_that_exist() -> None:
    makers = [getattr(factory, "__self__", None) for factory in discover_reactors().values()]
    sweeping = [maker for maker in makers if isinstance(maker, type) and issubclass(maker, SweepReactor)]
    assert len({sweep.name for sweep in ALL_SWEEPS}) == len(ALL_SWEEPS)
    assert {view for sweep in ALL_SWEEPS for view in sweep.views} <= {part.name for part in discover_projections()}
    assert sorted([DECAY.name, *(maker.sweep.name for maker in sweeping)]) == sorted(SCHEDULES)


def test_a_tick_and_the_operation_accept_the_declared_sweeps_and_no_other() -> None:
    for sweep in ALL_SWEEPS:
        assert SweepTicked(sweep=sweep.name, due="2026-11-21T00:00:00Z").sweep == sweep.name
        if sweep.on_request:
            assert SweepRequest(sweep=sweep.name).sweep == sweep.name
        else:
            with pytest.raises(ValidationError):
                SweepRequest(sweep=sweep.name)
    with pytest.raises(ValidationError):
        SweepTicked(sweep="spring", due="2026-11-21T00:00:00Z")
