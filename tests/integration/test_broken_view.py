"""A view with a bug, dropped into a real node: the journal comes to rest, status says why, a fixed version settles all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.embedding import until
from support.running import running_node

from crew_journal.consumers import entries as family
from crew_journal.schemas.core.errors import RefusedByOneView
from crew_journal.schemas.operate.operations import DeadLetter
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

VIEW = '''
"""Sums what entries cost."""
from typing import ClassVar, NamedTuple

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.table import Seq, Table

class CostRow(NamedTuple):
    seq: Seq
    usd: float | None

ENTRY_COSTS = Table("entry_costs", CostRow, "costs")

class Costs:
    name: ClassVar = "costs"
    version: ClassVar = 1
    tables: ClassVar = (ENTRY_COSTS,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch, tx):
        for event in batch.entries:
            tx.add(ENTRY_COSTS, [CostRow(event.seq, event.entry.payload["usd"])])

PROJECTION = Costs
'''
FIXED = VIEW.replace('payload["usd"]', 'payload.get("usd")').replace("ClassVar = 1", "ClassVar = 2")


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Put a text in place of the view's file, as an operator does between two runs."""
    folder = tmp_path / "entries"
    folder.mkdir()
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(folder)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def put(text: str) -> None:
        sys.modules.pop("crew_journal.consumers.entries.costs_fold", None)
        (folder / "costs_fold.py").write_text(text)
        importlib.invalidate_caches()

    yield put
    sys.modules.pop("crew_journal.consumers.entries.costs_fold", None)
    monkeypatch.delattr(family, "costs_fold", raising=False)


def client_of(node: Runtime) -> AsyncCrewJournal:
    return AsyncCrewJournal(node.http_url, token=node.owner_token)


async def status_once(journal: AsyncCrewJournal, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The first status of which it holds."""
    seen: dict[str, Any] = {}

    async def held() -> bool:
        seen.update(await journal.status())
        return holds(seen)

    await until(held, what)
    return seen


def is_suspended(status: dict[str, Any]) -> bool:
    """Whether ``costs`` is out and all others have folded what there is."""
    out = [lag["projection"] for lag in status["folding"]["laggards"] if lag["error"]]
    others = {view["seq"] for name, view in status["projections"].items() if name != "costs"}
    return out == ["costs"] and others == {status["stream"]["head"]}


def is_well(status: dict[str, Any]) -> bool:
    """Whether all views are level, and no letter waits."""
    return not status["folding"]["laggards"] and not status["dead_letters"]["parked"]


async def test_a_view_that_fails_on_every_entry_neither_fills_the_journal_nor_stops_the_others(
    tmp_path: Path, costs: Callable[[str], None]
) -> None:
    costs(VIEW)
    data = tmp_path / "data"
    async with running_node(data) as node, client_of(node) as journal:
        await journal.append_batch(
            [{"entry_type": "note", "summary": f"note {n}", "agent_id": "ada"} for n in range(3)]
        )
        status = await status_once(journal, is_suspended, "the view is suspended")
        [lag] = status["folding"]["laggards"]
        assert lag["since"]
        assert "the parking recorded at" in lag["error"]
        parked = [letter for letter in await _letters(journal, state="parked") if letter.projection == "costs"]
        assert parked
        with pytest.raises(RefusedByOneView, match="only costs failed to fold"):
            await journal.retry_dead_letter(parked[0].seq)
    async with running_node(data) as node, client_of(node) as journal:  # as each command does that finds no `up`
        await status_once(journal, is_suspended, "the view is suspended again")
        assert {letter.seq for letter in await _letters(journal, state="parked")} == {letter.seq for letter in parked}
    costs(FIXED)
    async with running_node(data) as node, client_of(node) as journal:
        status = await status_once(journal, is_well, "the fixed view has folded what the other could not")
        assert status["projections"]["costs"]["version"] == 2
        assert {letter.seq for letter in await _letters(journal, state="folded")} == {letter.seq for letter in parked}
        assert await _letters(journal, state="parked") == ()
        assert [record async for record in journal.verify()][-1]["result"]["equal"]


async def _letters(journal: AsyncCrewJournal, **asked: Any) -> tuple[DeadLetter, ...]:
    return (await journal.dead_letters(**asked)).dead_letters
