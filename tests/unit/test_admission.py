"""The identity index: the first entry of an id is canonical, whatever the batches and however large the index."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.events import at, entry
from support.views import node

from crew_journal.consumers.host import admission
from crew_journal.consumers.host.admission import IdentityIndex
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.decode import decode


def event(seq: int, entry_id: str, summary: str = "text", workspace: str = "w1") -> EntryRecorded:
    message = at(seq, entry(entry_id, summary=summary, workspace=workspace))
    decoded = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
    assert isinstance(decoded, EntryRecorded)
    return decoded


def test_the_first_of_an_id_is_canonical_and_stays_so_when_it_comes_again() -> None:
    index = IdentityIndex()
    first, other = event(1, "a"), event(2, "a", "other text")
    assert index.admit([first, other]) == [None, (1, first.content)]
    assert index.admit([first]) == [None]
    assert index.admit([event(3, "a")]) == [(1, first.content)]


def test_an_index_that_met_a_later_one_first_learns_the_earlier() -> None:
    index = IdentityIndex()
    later, earlier = event(5, "a"), event(2, "a", "other text")
    assert index.admit([later]) == [None]
    assert index.admit([earlier]) == [None]
    assert index.admit([later]) == [(2, earlier.content)]


def test_ids_are_unique_within_a_workspace_not_across() -> None:
    index = IdentityIndex()
    assert index.admit([event(1, "a"), event(2, "a", workspace="w2")]) == [None, None]
    found = index.find("w2", "a")
    assert found is not None
    assert found.seq == 2
    assert index.find("w3", "a") is None


def test_merged_arrays_answer_like_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TAIL_ENTRIES", 16)
    index, rng = IdentityIndex(), random.Random(7)
    seen: dict[str, int] = {}
    for start in range(1, 300, 9):
        batch = [event(seq, f"e{rng.randrange(120)}") for seq in range(start, start + 9)]
        for one, verdict in zip(batch, index.admit(batch), strict=True):
            first = seen.setdefault(one.entry.id, one.seq)
            assert (verdict is None) == (first == one.seq)
            assert verdict is None or verdict[0] == first
    assert len(index) == len(seen)
    wanted = [("w1", f"e{n}") for n in rng.sample(range(200), 200)]
    assert index.find_all(wanted) == [index.find(*one) for one in wanted]
    assert index.find_all([]) == []
    for name, seq in seen.items():
        found = index.find("w1", name)
        assert found is not None
        assert found.seq == seq


def test_keys_that_share_their_first_half_are_distinguished() -> None:
    index = IdentityIndex()
    mine, other = event(1, "a"), event(2, "b")
    twin = EntryRecorded(
        3, other.entry, other.ts_ms, False, mine.identity[:8] + other.identity[8:], other.content, 0, 1
    )
    index.admit([mine, other])
    index._merge()
    assert index.admit([twin]) == [None]
    index._merge()
    assert index.admit([mine, twin]) == [None, None]


async def test_the_index_is_the_same_after_a_restart(tmp_path: Path) -> None:
    stream = [at(1, entry("e1")), at(2, entry("e2")), at(3, entry("e1", summary="other"))]
    async with node(tmp_path / "v.duckdb", []) as live:
        await live.host.fold(stream)
        before = [live.host.identities.find("w1", name) for name in ("e1", "e2", "e3")]
        assert live.dead.names() == {("admission", 1, 3)}
        assert "1" in live.dead.parked[0].reason
    async with node(tmp_path / "v.duckdb", []) as live:
        assert [live.host.identities.find("w1", name) for name in ("e1", "e2", "e3")] == before
        assert live.host.checkpoint == 3
