"""A leaf with a journal of its own and its hub: apart, together again, interrupted, and after an erasure at the hub."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.running import running_node

from crew_journal.schemas.core.errors import Unavailable
from crew_journal.services.cli import leaf
from crew_journal.services.cli.leaf import STATE_FILE, Leaf
from crew_journal.services.client import AsyncCrewJournal

DEADLINE_S = 30.0
SIZES = (1_200, pytest.param(5_000, marks=pytest.mark.nightly))
"""Entries of each side while they are apart; more than two pages and two batches."""


@dataclass
class Pair:
    """A laptop, its hub, and the client of the hub's token."""

    laptop: AsyncCrewJournal
    hub: AsyncCrewJournal
    token: AsyncCrewJournal
    folder: Path

    def leaf(self) -> Leaf:
        """A leaf as after a start of the laptop."""
        return Leaf(self.laptop, self.token, self.folder / STATE_FILE, "the hub", "default")


@asynccontextmanager
async def pair(folder: Path, **rights: Any) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(folder / name)) for name in ("laptop", "hub")]
        laptop, hub = [
            await stack.enter_async_context(AsyncCrewJournal(node.http_url, token=node.owner_token)) for node in nodes
        ]
        made = await hub.create_token(workspace_id="default", **(rights or {"role": "ADMIN"}))
        token = await stack.enter_async_context(AsyncCrewJournal(nodes[1].http_url, token=made.token))
        yield Pair(laptop, hub, token, folder)


async def written(side: AsyncCrewJournal, texts: list[str], agent: str = "ada", crew: str = "red") -> int:
    fields = {"entry_type": "note", "agent_id": agent, "crew_id": crew, "actor_type": "agent"}
    entries = [{**fields, "summary": text} for text in texts]
    seq = 0
    for begin in range(0, len(entries), 500):
        seq = (await side.append_batch(entries[begin : begin + 500]))[-1].seq
    await side.list(min_seq=seq, limit=1)
    return seq


async def notes(side: AsyncCrewJournal) -> list[str]:
    """The notes of a side in its order, as far as its views have folded them."""
    found: list[str] = []
    seq = 0
    while True:
        page = (await side.list(types=["note"], limit=500, after_seq=seq)).entries
        found += [str(entry.summary) for entry in page]
        if len(page) < 500:
            return found
        seq = page[-1].seq


async def both_have(pair: Pair, expected: set[str]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for side in (pair.laptop, pair.hub):
            while len(found := await notes(side)) < len(expected):  # noqa: ASYNC110  # the views may be behind
                await asyncio.sleep(0.05)
            assert Counter(found) == Counter(expected), "each once"


@pytest.mark.parametrize("each", SIZES)
async def test_a_leaf_that_was_cut_off_is_whole_after_it_and_nothing_is_there_twice(
    tmp_path: Path, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf, "AT_ONCE", 500)
    async with pair(tmp_path) as both:
        here = [f"laptop {number}" for number in range(each)]
        there = [f"hub {number}" for number in range(each)]
        await written(both.laptop, here)
        await written(both.hub, there, "bob")
        done = await both.leaf().exchange()
        assert (done.sent, done.taken, done.refused) == (each, each, 0)
        await both_have(both, {*here, *there})
        assert [text for text in await notes(both.hub) if text in set(here)] == here, "in the order of the laptop"

        assert await both.leaf().exchange() == type(done)(), "at rest, after a restart, too"


async def test_a_leaf_that_was_killed_before_it_noted_anything_stores_nothing_twice(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await written(both.laptop, ["from here"])
        await written(both.hub, ["from there"], "bob")
        await both.leaf().exchange()
        (tmp_path / STATE_FILE).unlink()
        done = await both.leaf().exchange()
        assert (done.sent, done.taken, done.refused) == (0, 0, 0)
        await both_have(both, {"from here", "from there"})


async def test_documents_come_together_and_a_conflict_loses_no_text(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        crew: dict[str, Any] = {"tier": "CREW", "scope": "crew", "crew_id": "red"}

        async def texts() -> tuple[str, str]:
            return tuple([(await side.document_read(**crew)).content for side in (both.laptop, both.hub)])  # type: ignore[return-value]

        await both.laptop.document_write(**crew, mode="append", content="- deploy on Mondays\n")
        leaf = both.leaf()
        await leaf.exchange()
        assert await texts() == ("- deploy on Mondays\n",) * 2

        await both.laptop.document_write(**crew, mode="append", content="- from the train\n")
        await both.hub.document_write(**crew, mode="append", content="- from the office\n")
        assert (await leaf.exchange()).conflicts == 0
        assert await texts() == ("- deploy on Mondays\n- from the office\n- from the train\n",) * 2

        await both.laptop.document_write(**crew, mode="replace", content="- deploy on Tuesdays\n")
        await both.hub.document_write(**crew, mode="replace", content="- deploy on Fridays\n")
        assert (await leaf.exchange()).conflicts == 1
        assert await texts() == ("- deploy on Fridays\n",) * 2
        for side in (both.laptop, both.hub):
            versions = (await side.document_versions(**crew)).versions
            kept = [(await side.document_read(**crew, version=version.seq)).content for version in versions]
            assert "- deploy on Tuesdays\n" in kept
        assert (await leaf.exchange()).documents == 0, "at rest"


async def test_a_document_that_both_sides_began_by_appending_has_the_lines_of_both(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        log: dict[str, Any] = {"tier": "daily", "key": "2026-11-29", "agent_id": "ada"}
        topic: dict[str, Any] = {"tier": "topics", "key": "deploy", "scope": "crew", "crew_id": "red"}
        for side, text in ((both.laptop, "from the train"), (both.hub, "from the office")):
            await side.document_write(**log, mode="append", content=text)
            await side.document_write(**log, mode="append", content=f"more {text}")
            await side.document_write(**topic, mode="replace", content=text)
        assert (await both.leaf().exchange()).conflicts == 1, "of the topic, which was not appended to"
        for side in (both.laptop, both.hub):
            lines = (await side.document_read(**log)).content.splitlines()
            assert lines == ["from the office", "more from the office", "from the train", "more from the train"]
            assert (await side.document_read(**topic)).content == "from the office"


async def test_a_leaf_at_rest_asks_each_side_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as both:
        await written(both.laptop, ["from here"])
        leaf = both.leaf()
        caplog.set_level(logging.INFO, "httpx")

        async def asked() -> int:
            caplog.clear()
            await leaf.exchange()
            return sum(record.name == "httpx" for record in caplog.records)

        async with asyncio.timeout(DEADLINE_S):
            while await asked() != 2:  # what the passes before wrote is folded
                pass
        await written(both.hub, ["from there"], "bob")
        assert await asked() > 2
        await both_have(both, {"from here", "from there"})


async def test_what_the_hub_erases_is_erased_here_and_an_older_hub_erases_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await written(both.laptop, ["the kiln is hot", "the code is quartz"])
        leaf = both.leaf()
        await leaf.exchange()
        await both_have(both, {"the kiln is hot", "the code is quartz"})
        gone = next(entry for entry in (await both.hub.list(types=["note"])).entries if "quartz" in str(entry.summary))
        begun = await both.hub.forget("asked by Ana", ids=(gone.id,), workspace_id="default")
        async with asyncio.timeout(DEADLINE_S):
            while (await both.hub.erasure(str(begun.erasure_id))).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (await leaf.exchange()).erased == 1
            while await notes(both.laptop) != ["the kiln is hot"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await leaf.exchange()).erased == 0

        # the hub is replaced by an older copy, which has erased one entry of its own: that is no reason to erase five here
        await written(both.laptop, [f"kept {number}" for number in range(5)])
        await leaf.exchange()
    async with pair(tmp_path / "other") as other:
        await written(other.hub, ["of the other hub"])
        begun = await other.hub.forget("asked", ids=[(await other.hub.list(types=["note"])).entries[0].id])
        async with asyncio.timeout(DEADLINE_S):
            while (await other.hub.erasure(str(begun.erasure_id))).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with (
            running_node(tmp_path / "laptop") as node,
            AsyncCrewJournal(node.http_url, token=node.owner_token) as again,
        ):
            mistaken = Leaf(again, other.token, tmp_path / STATE_FILE, "the hub", "default")
            assert (await mistaken.exchange()).erased == 0
            assert len(await notes(again)) == 6


async def test_the_token_of_the_hub_decides_what_passes(tmp_path: Path) -> None:
    async with pair(tmp_path, role="LEAD", agent_id="ada", crew_id="red") as both:
        await written(both.laptop, ["by ada"])
        await written(both.laptop, ["by eve"], "eve", "green")
        await written(both.hub, ["of the crew"], "bob")
        await written(both.hub, ["of another crew"], "zed", "blue")
        done = await both.leaf().exchange()
        assert (done.sent, done.refused) == (1, 1)
        async with asyncio.timeout(DEADLINE_S):
            while "by ada" not in (there := await notes(both.hub)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert set(there) == {"by ada", "of the crew", "of another crew"}
            while "of the crew" not in (here := await notes(both.laptop)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert set(here) == {"by ada", "by eve", "of the crew"}


async def test_without_the_hub_a_pass_ends_and_the_next_goes_on(tmp_path: Path) -> None:
    async with running_node(tmp_path / "laptop") as node, AsyncExitStack() as stack:
        laptop = await stack.enter_async_context(AsyncCrewJournal(node.http_url, token=node.owner_token))
        nobody = await stack.enter_async_context(AsyncCrewJournal("http://127.0.0.1:9", token="cj_none"))
        await written(laptop, ["offline"])
        with pytest.raises(Unavailable):
            await Leaf(laptop, nobody, tmp_path / STATE_FILE, "the hub", "default").exchange()
