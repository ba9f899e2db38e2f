"""Journal queries over real views: SQL and Python must say the same of every entry, whatever is asked."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from support.events import EPOCH_MS, at, entry
from support.views import Node, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed, NotFound, ViewsBehind
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.decode import decode
from crew_journal.services.entries import queries as queries_module
from crew_journal.services.entries.filters import Cursor, EntryFilters, Visible, is_quiet, parse_filters
from crew_journal.services.entries.queries import JournalQueries

ENTRIES = 700
TYPES = ["run.completed", "peer.conversation", "container.metrics", "exec.output_chunk", "brand.new", "llm.call"]
WORDS = [
    "deploy", "deployed", "deployment", "the", "to", "be", "Straße", "STRASSE", "ﬁnal", "final", "Größe", "100%", "x",
    'say "hi"', "back\\slash", "tab\tbed", "\x1c", "\x08", "naïve", "日本語", "a_b", "K", "İ", "may", "November", "2026",
]  # fmt: skip
TOKENS = {
    "owner": Principal(token_id="o", role=Role.OWNER, workspace_id=None),
    "admin": Principal(token_id="a", role=Role.ADMIN, workspace_id="w1"),
    "lead": Principal(token_id="l", role=Role.LEAD, workspace_id="w1", crew_id="c1", agent_id="a1"),
    "agent": Principal(token_id="g", role=Role.AGENT, workspace_id="w2", crew_id="c1", agent_id="a2"),
}


@dataclass
class World:
    node: Node
    queries: JournalQueries
    events: list[EntryRecorded]


def _texts(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    rng = random.Random(7)
    path = tmp_path_factory.mktemp("queries") / "views.duckdb"
    async with node(path, discover_projections()) as made:
        messages = []
        for n in range(ENTRIES):
            payload = rng.choice([{}, {"run_id": f"t{rng.randint(1, 4)}"}, {"run_id": 3, "deep": [{"s": _texts(rng)}]}])
            messages.append(
                at(
                    n + 1,
                    entry(
                        f"e{rng.randrange(10**6)}-{n}",
                        summary="s" + _texts(rng),
                        workspace=rng.choice(["w1", "w1", "w2"]),
                        crew=rng.choice([None, "c1", "c2"]),
                        agent=rng.choice([None, "a1", "a2", "a3"]),
                        entry_type=rng.choice(TYPES),
                        ts_ms=EPOCH_MS + rng.randint(0, 40),  # many equal times, not in the order of arrival
                        severity=rng.choice(["info", "notice", "warn", "error"]),
                        actor_type=rng.choice(["agent", "user", "system"]),
                        actor_id=rng.choice(["t1", "ann", "Ünal"]),
                        trace_id=rng.choice(["t1", "t2", "t3"]),
                        mission_id=rng.choice(["m1", "m2"]),
                        data_subject_id=rng.choice([None, "maria", "Ünal"]),
                        payload=payload,
                    ),
                )
            )
        for start in range(0, ENTRIES, 100):
            await made.host.fold(messages[start : start + 100])
        assert not made.dead.parked
        patch = pytest.MonkeyPatch()
        patch.setattr(queries_module, "_RECENT", 100)  # as in a journal with many more entries
        queries = JournalQueries(made.store, min_seq_wait_s=0.05)
        events = [decode(m.seq, m.subject, m.headers, m.data, m.published_ms) for m in messages]
        yield World(made, queries, [event for event in events if isinstance(event, EntryRecorded)])
        queries.close()
        patch.undo()


def _random_filters(rng: random.Random) -> EntryFilters:
    choices = {
        "crew_id": ["c1", "c2", "zz"],
        "agent_ids": ["a1", "a1,a2", "a3"],
        "mission_id": ["m1"],
        "trace_id": ["t1", "t9"],
        "actor_id": ["ann", "Ünal"],
        "data_subject_id": ["maria", "Ünal", "nobody"],
        "run_id": ["t1", "t3", "ann", "3"],
        "types": ["run.completed", "container.metrics,brand.new"],
        "exclude_types": ["run.completed", "llm.call,x.y"],
        "severities": ["warn,error"],
        "actor_types": ["user"],
        "priorities": ["normal", "high"],
        "since": ["2026-11-18T09:06:40.010Z", "2026-11-18T00:00:00Z"],
        "until": ["2027-01-01T00:00:00Z"],
        "q": [*WORDS, "deploy the", "to be", "final", "strasse", "hi", "GRÖSSE", "k", "0% x", "tab bed", "3", "s"],
    }
    chosen = rng.sample(sorted(choices), rng.choice([0, 1, 1, 2, 3]))
    return parse_filters([(name, rng.choice(choices[name])) for name in chosen])


def _expected(world: World, who: Principal, workspace: str | None, filters: EntryFilters) -> list[EntryRecorded]:
    visible = Visible.to(who, workspace)
    found = [event for event in world.events if visible.shows(event.entry) and filters.matches(event.entry)]
    return sorted(found, key=lambda event: (event.ts_ms, event.entry.id), reverse=True)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 6))])
async def test_paging_shows_every_matching_entry_once_and_count_agrees(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        name = rng.choice(sorted(TOKENS))
        workspace = rng.choice(["w1", "w2"]) if name == "owner" else None
        filters, limit = _random_filters(rng), rng.choice([1, 2, 7, 50, 500])
        expected = [event.entry.id for event in _expected(world, TOKENS[name], workspace, filters)]
        found: list[str] = []
        cursor: Cursor | None = None
        while True:
            page = await world.queries.list(
                TOKENS[name], filters, workspace=workspace, cursor=cursor, limit=limit, min_seq=ENTRIES
            )
            found.extend(entry.id for entry in page.entries)
            assert (page.next_cursor is not None) == (len(page.entries) == limit)
            cursor = page.next_cursor
            if cursor is None or len(found) > 20:
                break
        assert found == expected[: len(found)], (name, workspace, filters, limit)
        assert cursor is not None or len(found) == len(expected)
        counted = await world.queries.count(TOKENS[name], filters, workspace=workspace)
        assert counted.count == len(expected), (name, workspace, filters)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
async def test_a_replay_shows_the_newest_by_arrival_and_counts_what_is_missed(world: World, seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(20):
        filters, after, limit = _random_filters(rng), rng.choice([None, 0, 1, 350, 690, 700]), rng.choice([1, 5, 500])
        replay = await world.queries.replay(TOKENS["admin"], filters, after=after, limit=limit)
        expected = sorted(
            event.seq
            for event in _expected(world, TOKENS["admin"], None, filters)
            if event.seq > (after or 0) and not is_quiet(event.entry.entry_type, filters.types)
        )
        assert list(replay.seqs) == expected[-limit:]
        if replay.seqs:
            some = replay.seqs[:: rng.choice([1, 3])]
            shown = await world.queries.replayed(TOKENS["admin"], some)
            assert [entry.seq for entry in shown] == list(some)
        assert replay.missed == (max(0, len(expected) - limit) if after is not None else 0)
        assert replay.upto == ENTRIES


async def test_an_unknown_id_and_a_foreign_one_are_the_same_error(world: World) -> None:
    foreign = next(e.entry.id for e in world.events if e.workspace_id == "w2")
    messages = []
    for entry_id in (foreign, "e" + "0" * len(foreign[1:])):
        with pytest.raises(NotFound) as missing:
            await world.queries.get(TOKENS["admin"], entry_id)
        messages.append(str(missing.value).replace(entry_id, "ID"))
    assert messages[0] == messages[1]
    found = await world.queries.get(TOKENS["owner"], foreign, workspace="w2")
    assert found.entry.id == foreign


class Behind:
    """Views that fold a batch between the look at their sequence and the read of their rows."""

    def __init__(self, views: Any) -> None:
        self._views = views

    def view_seq(self, *_: str) -> int:
        return 1

    def rows(self, *asked: Any) -> Any:
        return self._views.rows(*asked)


async def test_view_seq_is_never_below_an_entry_that_is_shown(world: World) -> None:
    """Else who asks next for ``min_seq = view_seq`` may be told that the entry he has seen is not there."""
    newest = max(world.events, key=lambda event: event.seq)
    queries = JournalQueries(cast(Any, Behind(world.node.store)))
    owner, workspace = TOKENS["owner"], newest.workspace_id
    found = await queries.get(owner, newest.entry.id, workspace=workspace)
    assert found.view_seq == found.entry.seq == newest.seq
    page = await queries.list(owner, EntryFilters(), workspace=workspace, limit=500)
    assert page.view_seq == max(entry.seq for entry in page.entries)
    queries.close()


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_a_limit_out_of_range_is_refused(world: World, limit: int) -> None:
    with pytest.raises(InvalidQuery, match="limit"):
        await world.queries.list(TOKENS["admin"], EntryFilters(), limit=limit)


async def test_min_seq_beyond_the_views_is_answered_in_time(world: World) -> None:
    with pytest.raises(ViewsBehind):
        await world.queries.count(TOKENS["admin"], EntryFilters(), min_seq=ENTRIES + 1)
    with pytest.raises(InvalidQuery, match="min_seq"):
        await world.queries.count(TOKENS["admin"], EntryFilters(), min_seq=-1)


async def test_no_token_reads_the_system_workspace(world: World) -> None:
    with pytest.raises(InvalidQuery):
        await world.queries.list(TOKENS["owner"], EntryFilters(), workspace="_system")
    with pytest.raises(NotAllowed):
        await world.queries.list(TOKENS["admin"], EntryFilters(), workspace="_system")
    with pytest.raises(NotAllowed):
        await world.queries.count(TOKENS["agent"], EntryFilters(), workspace="w1")
