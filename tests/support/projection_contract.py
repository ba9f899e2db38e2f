"""The laws of every projection; ``test_projections.py`` holds each discovered one to them, and a broken host to failing.

replayed in one batch = incremental = redelivered = crashed before the commit and resumed: equal digests, equal parkings.
Each projection is folded alone in a file of its own, through ``support.ownership``, which refuses every table but its own.
Tidying at the end must change no digest.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from hypothesis import strategies as st
from support.deliveries import Cut, deliveries
from support.strategies import journals
from support.views import DeadLetters, node

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.host import Host, Tidying
from crew_journal.consumers.projection import Projection


class Crash(BaseException):
    """The process dies: no handler of the host may survive it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of a stream: the view's digest and who was parked."""

    digest: str
    parked: frozenset[tuple[str, int, int]]


class _Dying:
    """A connection whose process dies before or right after its first COMMIT."""

    def __init__(self, con: duckdb.DuckDBPyConnection, crash: str) -> None:
        self._con = con
        self._crash = crash

    def execute(self, sql: str, *args):  # type: ignore[no-untyped-def]
        if sql != "COMMIT":
            return self._con.execute(sql, *args)
        if self._crash == "after commit":
            self._con.execute(sql)
        raise Crash

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self._con, name)


def _let_die(host: Host, crash: str) -> None:
    write = host.store.write

    async def dying(work):  # type: ignore[no-untyped-def]
        return await write(lambda con: work(_Dying(con, crash)))

    host.store.write = dying  # type: ignore[method-assign]


async def _fold(projection: type[Projection], cuts: Sequence[Cut], path: Path) -> Outcome:
    dead = DeadLetters()
    remaining = list(cuts)
    while True:
        async with node(path, [projection()], dead) as live:
            while remaining:
                cut = remaining.pop(0)
                if cut.crash:
                    _let_die(live.host, cut.crash)
                    try:
                        await live.host.fold(cut.messages)
                    except Crash:
                        break  # the file is closed without the commit and opened again
                    continue  # all of it lay below the checkpoint: there was nothing to lose
                await live.host.fold(cut.messages)
            else:
                assert not live.host.laggards, live.host.status()
                [found] = live.digests().values()
                await Tidying(live.host).tidy()
                assert [found] == list(live.digests().values()), "tidying changed rows"
                return Outcome(found, frozenset(dead.names()))


def outcome(projection: type[Projection], cuts: Sequence[Cut]) -> Outcome:
    """Fold deliveries into a fresh file."""
    with tempfile.TemporaryDirectory(prefix="crew-contract-") as folder:
        return asyncio.run(_fold(projection, cuts, Path(folder) / "views.duckdb"))


def check(projection: type[Projection], data: st.DataObject, max_messages: int) -> None:
    """Hold a projection to the laws on one drawn stream."""
    stream: list[RawMessage] = data.draw(journals(max_messages))
    expected = outcome(projection, [Cut(stream)])
    ways = {
        "incremental": deliveries(stream),
        "redelivered": deliveries(stream, repeats=True),
        "crashed": deliveries(stream, crashes=True),
    }
    for way, strategy in ways.items():
        found = outcome(projection, data.draw(strategy, label=way))
        assert found == expected, f"{projection.name} {way}: {found} is not {expected}"


def broken_law(projection: type[Projection], stream: Sequence[RawMessage], expected: Outcome) -> str | None:
    """The first law that a host breaks on one fixed stream, None if it keeps them all."""
    singles = [[message] for message in stream]
    ways = {
        "replayed": [Cut(stream)],
        "incremental": [Cut(single) for single in singles],
        "redelivered": [Cut(stream[max(0, end - 2) : end]) for end in range(1, len(stream) + 1)],
        "crashed before the commit": [Cut(singles[0]), Cut(stream[1:], "before commit"), Cut(stream[1:])],
        "crashed after the commit": [Cut(singles[0]), Cut(stream[1:], "after commit"), Cut(stream[1:])],
    }
    return next((way for way, cuts in ways.items() if outcome(projection, cuts) != expected), None)
