"""The file of the views, changed while its node was stopped: the start or `verify` finds it and names view, table and row.

Views follow from the journal, so a change of theirs is never a change of the journal: no verdict says that it lost anything,
and a rebuild repairs them.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from support.damages import VIEWS
from support.running import running_node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.admission import AdmissionView
from crew_journal.consumers.host.rebuild import DigestedView
from crew_journal.schemas.core.table import Table
from crew_journal.services.client import AsyncCrewJournal

DEADLINE_S: Final = 30.0
GONE: Final = "Ana's badge word is heron"
GONE_TEXT: Final = b"word is heron at the quarry"
LONG_AGO: Final = "2026-01-05T10:00:00Z"
FULL: Final = 60
"""Tamperings of the nightly run."""


async def _lived(owner: AsyncCrewJournal, ada: AsyncCrewJournal, name: str) -> str:
    """Messages of every family; returns the id of an entry that may be erased."""
    first = await ada.remember(f"The pump of the {name} crane is green")
    gone = await ada.remember(f"{GONE} at the {name}")
    for number in range(6):
        await ada.remember(f"Visit {number} of the {name} kiln took {number + 3} minutes")
    await ada.remember(f"The pump of the {name} crane is red", supersedes=(first.entry_id,))
    for number in range(2):
        await ada.document_write("AGENT", "append", f"- The {name} winch is old, {number}.\n")
        await ada.add_drawer("yard", f"{name} {number}", f"ada keeps the papers of the {name} winch in room {number}.")
        await owner.kg_add(f"{name} winch {number}", "is_kept_by", "ada", workspace_id="acme")
        await owner.add_lesson(f"Look at the {name} winch first, case {number}", crew_id="red", workspace_id="acme")
        kept = await ada.remember(f"The {name} valve is shut, {number}")
        done = await owner.set_priority(kept.entry_id, "pin", reason="asked", workspace_id="acme", min_seq=kept.seq)
    await ada.recall(f"pump of the {name} crane", min_seq=done.seq)
    return gone.entry_id


async def _live_on(data: Path, name: str, erased: str | None = None) -> str:
    """Start, live, erase an entry and archive others if one is given, and stop; returns an entry that may be erased."""
    async with running_node(data) as node, AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        made = await owner.create_token("AGENT", workspace_id="acme", agent_id="ada", crew_id="red")
        async with AsyncCrewJournal(node.http_url, token=made.token) as ada:
            gone = await _lived(owner, ada, name)
        if erased is not None:
            old = {"entry_type": "exec.output_chunk", "workspace_id": "acme", "crew_id": "red", "ts": LONG_AGO}
            await owner.append_batch([{**old, "summary": f"chunk {number}"} for number in range(12)])
            swept = await owner.sweep("compaction", workspace_id="acme")
            assert swept.counts["entries_archived"] == 12
            begun = await owner.forget("asked", ids=(erased,), workspace_id="acme")
            async with asyncio.timeout(DEADLINE_S):
                while (  # noqa: ASYNC110
                    await owner.erasure(str(begun.erasure_id), workspace_id="acme", min_seq=begun.seq)
                ).state != "completed":
                    await asyncio.sleep(0.02)
        done = await owner.append({"entry_type": "run.completed", "summary": "done", "workspace_id": "acme"})
        await owner.count(workspace_id="acme", min_seq=done.seq)
    return gone


@dataclass(frozen=True)
class Copies:
    """Data directories of stopped nodes: before more was written, after it, after an erasure, and of another node."""

    older: Path
    newer: Path
    erased: Path
    foreign: Path


@pytest.fixture(scope="module")
async def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    folder = tmp_path_factory.mktemp("copies")
    made = Copies(*(folder / name for name in ("older", "newer", "erased", "foreign")))
    await _live_on(made.older, "harbour")
    shutil.copytree(made.older, made.newer)
    gone = await _live_on(made.newer, "quarry")
    shutil.copytree(made.newer, made.erased)
    await _live_on(made.erased, "mill", gone)
    await _live_on(made.foreign, "foreign")
    return made


def _copy(copied: Path, data: Path, views: Path | None = None) -> Path:
    """A data directory, with the views of another one if that is given."""
    shutil.copytree(copied, data)
    if views is not None:
        shutil.copy(views / VIEWS, data / VIEWS)
    return data


@dataclass
class Report:
    """What a start and `verify` say.

    Attributes:
        status: The node's status after the start.
        result: The result of `verify`.
        rebuilt: The same after a rebuild, if the views differed.
    """

    status: dict[str, Any]
    result: dict[str, Any]
    rebuilt: dict[str, Any] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return bool(self.result["equal"])

    @property
    def differing(self) -> set[tuple[str, str]]:
        """View and table of each difference."""
        return {
            (view["projection"], table)
            for view in self.result["projections"]
            if not view["equal"]
            for table in view["differing"]
        }

    @property
    def rows(self) -> list[tuple[str, dict[str, str]]]:
        """Table and key of each row that is named."""
        return [(row["table"], row["key"]) for view in self.result["projections"] for row in view["differences"]]

    def is_of_views_alone(self) -> bool:
        """Whether nothing is said about the journal itself."""
        lost = self.result["journal"]
        return (
            self.status["ready"]
            and not self.status["journal_damage"]["trouble"]
            and not (lost["missing"] or lost["known_entries"] or lost["views_kept"])
        )


async def _last(records: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = [record async for record in records][-1]["result"]
    return found


async def _report(data: Path) -> Report:
    async with running_node(data) as node, AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        found = Report(await owner.status(), await _last(owner.verify()))
        if not found.equal:
            await _last(owner.rebuild())
            found.rebuilt = await _last(owner.verify())
    return found


Row = tuple[Any, ...]


@dataclass(frozen=True)
class Tampered:
    """A change: in which view and table, and the names of the rows that it leaves different."""

    kind: str
    view: str
    table: Table[Any]
    rows: Sequence[dict[str, str]]

    def is_named_by(self, report: Report) -> bool:
        """Whether the report names every row, by each column of its key that the table has."""
        return (self.view, str(self.table)) in report.differing and all(
            any(
                table == str(self.table) and key and all(row[name] == value for name, value in key.items())
                for table, key in report.rows
            )
            for row in self.rows
        )


def _other(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((1, 1_000))
    if isinstance(value, float):
        return value + 0.5
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    return f"{value}x"


def _texts(table: Table[Any], row: Row) -> dict[str, str]:
    values = zip((column.name for column in table.columns), row, strict=True)
    return {name: (value.hex() if isinstance(value, bytes) else str(value))[:200] for name, value in values}


def _tables(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, Table[Any], list[tuple[int, Row]]]]:
    """View, table and rows of every table that has two rows."""
    views: list[DigestedView] = [AdmissionView(), *discover_projections()]
    for view in views:
        for table in view.tables:
            if table.digested:
                found = con.execute(f'SELECT rowid, {table.names} FROM "{table}"').fetchall()
                rows = [(rowid, tuple(row)) for rowid, *row in found]
                if len({row for _, row in rows}) > 1:
                    yield view.name, table, rows


Change = Callable[[duckdb.DuckDBPyConnection, str, Table[Any], list[tuple[int, Row]], random.Random], Tampered]


def _set(con: duckdb.DuckDBPyConnection, table: Table[Any], rowid: int, place: int, value: Any) -> None:
    con.execute(f'UPDATE "{table}" SET {table.columns[place].name} = ? WHERE rowid = ?', [value, rowid])


def edited(
    con: duckdb.DuckDBPyConnection, view: str, table: Table[Any], rows: list[tuple[int, Row]], draw: random.Random
) -> Tampered:
    rowid, row = draw.choice(rows)
    place = draw.choice([place for place, value in enumerate(row) if value is not None])
    value = _other(row[place], draw)
    _set(con, table, rowid, place, value)
    return Tampered("edited", view, table, [_texts(table, _with(row, place, value))])


def removed(
    con: duckdb.DuckDBPyConnection, view: str, table: Table[Any], rows: list[tuple[int, Row]], draw: random.Random
) -> Tampered:
    rowid, row = draw.choice(rows)
    con.execute(f'DELETE FROM "{table}" WHERE rowid = ?', [rowid])
    return Tampered("removed", view, table, [_texts(table, row)])


def doubled(
    con: duckdb.DuckDBPyConnection, view: str, table: Table[Any], rows: list[tuple[int, Row]], draw: random.Random
) -> Tampered:
    rowid, row = draw.choice(rows)
    con.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ?', [rowid])
    return Tampered("doubled", view, table, [_texts(table, row)])


def swapped(
    con: duckdb.DuckDBPyConnection, view: str, table: Table[Any], rows: list[tuple[int, Row]], draw: random.Random
) -> Tampered:
    """The values of a column in two rows whose other columns differ: otherwise only the order would change."""
    pairs = [
        (place, one, other)
        for place in range(len(table.columns))
        for one in draw.sample(rows, min(5, len(rows)))
        for other in draw.sample(rows, min(5, len(rows)))
        if one[1][place] != other[1][place] and _with(one[1], place, None) != _with(other[1], place, None)
    ]
    if not pairs:
        return edited(con, view, table, rows, draw)
    place, one, other = draw.choice(pairs)
    left = []
    for mine, theirs in ((one, other), (other, one)):
        _set(con, table, mine[0], place, theirs[1][place])
        left.append(_texts(table, _with(mine[1], place, theirs[1][place])))
    return Tampered("swapped", view, table, left)


def _with(row: Row, place: int, value: Any) -> Row:
    return (*row[:place], value, *row[place + 1 :])


CHANGES: Final[tuple[Change, ...]] = (edited, removed, doubled, swapped)


def _tamper(data: Path, draw: random.Random, count: int, first: int = 0) -> list[Tampered]:
    """Change that many tables of the file, each in one of the four ways."""
    with duckdb.connect(str(data / VIEWS)) as con:
        tables = list(_tables(con))
        chosen = enumerate(draw.sample(tables, min(count, len(tables))), first)
        return [CHANGES[number % len(CHANGES)](con, *found, draw) for number, found in chosen]


def _check(done: Sequence[Tampered], report: Report) -> None:
    assert report.is_of_views_alone(), (done, report)
    for one in done:
        assert one.is_named_by(report), (one, report.rows)
    assert report.differing == {(one.view, str(one.table)) for one in done}
    assert report.rebuilt["equal"]


def _check_put_aside(report: Report, reason: str) -> None:
    assert reason in report.status["views_put_aside"]["reason"]
    assert report.equal, report.result
    assert report.is_of_views_alone(), report


async def test_twenty_tampered_tables_are_found_at_once_each_with_its_rows_and_a_rebuild_repairs_them(
    copies: Copies, tmp_path: Path
) -> None:
    data = _copy(copies.erased, tmp_path / "data")
    _check(_tamper(data, random.Random(32), 20), await _report(data))


async def test_an_old_copy_of_the_views_is_folded_on_and_shows_nothing_that_was_erased_since(
    copies: Copies, tmp_path: Path
) -> None:
    data = _copy(copies.erased, tmp_path / "data", copies.newer)
    assert GONE_TEXT in (data / VIEWS).read_bytes()
    report = await _report(data)
    assert report.equal, report.result
    assert report.is_of_views_alone()
    assert [path.name for path in data.glob(f"{VIEWS}*") if GONE_TEXT in path.read_bytes()] == []


async def test_an_old_copy_of_the_views_that_was_edited_is_found(copies: Copies, tmp_path: Path) -> None:
    data = _copy(copies.newer, tmp_path / "data", copies.older)
    done = _tamper(data, random.Random(1), 1)
    _check(done, await _report(data))


async def test_a_truncated_file_is_put_aside_and_folded_again(copies: Copies, tmp_path: Path) -> None:
    data = _copy(copies.newer, tmp_path / "data")
    os.truncate(data / VIEWS, int((data / VIEWS).stat().st_size * 0.95))
    _check_put_aside(await _report(data), "damaged")


async def test_the_file_of_another_node_is_put_aside_as_foreign_and_the_journal_is_whole(
    copies: Copies, tmp_path: Path
) -> None:
    data = _copy(copies.newer, tmp_path / "data", copies.foreign)
    _check_put_aside(await _report(data), "another journal")


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_60_tamperings_of_the_views_are_found_each_alone(copies: Copies, tmp_path: Path) -> None:
    for seed in range(FULL):
        draw, kind = random.Random(seed), seed % (len(CHANGES) + 3)
        if kind == len(CHANGES):
            data = _copy(copies.newer, tmp_path / str(seed))
            os.truncate(data / VIEWS, draw.randrange((data / VIEWS).stat().st_size))
            _check_put_aside(await _report(data), "damaged")
        elif kind == len(CHANGES) + 1:
            data = _copy(copies.erased, tmp_path / str(seed), copies.foreign)
            _check_put_aside(await _report(data), "another journal")
        else:
            older = kind > len(CHANGES)
            data = _copy(copies.newer, tmp_path / str(seed), copies.older if older else None)
            done = _tamper(data, draw, 1, draw.randrange(len(CHANGES)) if older else kind)
            _check(done, await _report(data))
        shutil.rmtree(data)
