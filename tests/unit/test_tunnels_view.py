"""The fold of explicit tunnels, and the formula of their strength."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import at, control
from support.views import DeadLetters, node

from crew_journal.consumers.palace.tunnels_fold import TunnelsProjection
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.palace.events import TunnelCreated, TunnelDeleted, TunnelEnd, TunnelFollowed
from crew_journal.schemas.palace.rules import Use, followed, strength_at, tunnel_id
from crew_journal.schemas.palace.tables import TUNNELS

HOUR = 3_600_000
DAY = 24 * HOUR
ID = tunnel_id(("team", "storage"), ("user", "diet"))


def created(label: str = "") -> TunnelCreated:
    ends = {"source": TunnelEnd(wing="team", room="storage"), "target": TunnelEnd(wing="user", room="diet")}
    return TunnelCreated(tunnel_id=ID, label=label, **ends)


async def folded(path: Path, *payloads: ControlPayload) -> list[tuple]:
    messages = [at(seq, control(payload, f"n{seq}", workspace="w1")) for seq, payload in enumerate(payloads, 1)]
    async with node(path / "views.duckdb", [TunnelsProjection()], DeadLetters()) as live:
        await live.host.fold(messages)
        return live.host.store.rows(f"SELECT label, round(strength, 2), follow_count FROM {TUNNELS}")


async def test_creating_a_tunnel_again_sets_its_label_and_keeps_its_strength(tmp_path: Path) -> None:
    once = TunnelFollowed(tunnel_ids=(ID, ID))
    assert await folded(tmp_path, created("a"), once, created("b")) == [("b", 1.05, 1)]


async def test_a_deleted_tunnel_is_gone_and_begins_at_one_when_it_is_made_again(tmp_path: Path) -> None:
    gone = TunnelDeleted(tunnel_id=ID)
    assert await folded(tmp_path, created(), TunnelFollowed(tunnel_ids=(ID,)), gone, created("c")) == [("c", 1.0, 0)]


async def test_following_a_tunnel_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    assert await folded(tmp_path, TunnelFollowed(tunnel_ids=(ID,)), TunnelDeleted(tunnel_id=ID)) == []


def test_a_tunnel_has_one_id_in_both_directions_and_another_one_for_other_names() -> None:
    assert tunnel_id(("user", "diet"), ("team", "storage")) == ID
    assert len({tunnel_id(("a", "b/c"), ("d", "e")), tunnel_id(("a/b", "c"), ("d", "e")), ID}) == 3


@pytest.mark.parametrize(
    ("use", "now_ms", "strength"),
    [
        (Use(1.0, 1.0, 0), 0, 1.0),
        (Use(1.0, 1.0, 0), DAY, math.exp(-1)),
        (Use(2.0, 2.0, 0), DAY, 2 * math.exp(-0.5)),
        (Use(5.0, 1.0, 0), 365 * DAY, 0.05),
        (Use(1.0, 1.0, DAY), 0, 1.0),
    ],
)
def test_strength_decays_with_the_days_since_and_never_below_the_floor(use: Use, now_ms: int, strength: float) -> None:
    assert strength_at(use, now_ms) == pytest.approx(strength)


def test_only_followings_an_hour_apart_make_a_tunnel_more_stable() -> None:
    burst = followed(Use(1.0, 1.0, 0), HOUR - 1)
    assert burst == (1.05, 1.0, HOUR - 1)
    assert followed(burst, 2 * HOUR - 1).stability == pytest.approx(1.1)


@given(st.lists(st.integers(0, 40 * DAY), max_size=200))
def test_strength_stays_between_the_floor_and_five(times: list[int]) -> None:
    use = Use(1.0, 1.0, 0)
    for now in sorted(times):
        use = followed(use, now)
        assert 0.05 <= strength_at(use, now + HOUR) <= strength_at(use, now) <= 5.0
