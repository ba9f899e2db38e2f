"""Switching recall to another model's vectors while queries and writes go on: none fails, none mixes, none stalls."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.events import entry
from support.stack import until
from support.switching import W, Y, Z, check, switching

from crew_journal.schemas.models.events import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from crew_journal.services.index import entry_slot
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.take import load
from crew_journal.services.index.vectors import VectorMatrix, read_matrix


async def test_queries_during_switches_never_fail_and_never_mix_models(tmp_path: Path) -> None:
    async with switching(tmp_path, background=30) as at_work:
        seen: list[str] = []
        done = asyncio.Event()

        async def ask(name: int) -> None:
            asked = 0
            while not done.is_set():
                asked += 1  # a new text each time: its vector has to be made, so the switch may fall in between
                seen.append(check(await at_work.recall(f"colour {name} {asked}")))

        async def write() -> None:
            n = 0
            while not done.is_set():
                n += 1
                await at_work.fold(entry(f"noise_{n}", entry_type="run.completed", summary="something else"))

        async def switch() -> None:
            await until(lambda: bool(seen))
            for n in range(6):
                model = "blue" if n % 2 == 0 else "red"
                await at_work.activate(model)
                await at_work.service.settled()
                enough = len(seen) + 20
                await until(lambda enough=enough: len(seen) >= enough)  # type: ignore[misc]
                if n % 4 == 3:  # without anything at hand it is read again
                    index = await at_work.service._cache.get("w1")
                    index.forget_standby()
            done.set()

        async with asyncio.timeout(300):
            await asyncio.gather(switch(), write(), *(ask(name) for name in range(4)))
        changes = sum(one != other for one, other in pairwise(seen))
        assert set(seen) == {"red", "blue"}
        assert changes >= 6


async def test_until_the_new_vectors_are_read_queries_go_on_with_the_former_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with switching(tmp_path) as at_work:
        assert check(await at_work.recall()) == "red"
        go_on = asyncio.Event()
        loop = asyncio.get_running_loop()
        read = read_matrix

        def held(*args):  # type: ignore[no-untyped-def]
            made = read(*args)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return made

        monkeypatch.setattr(entry_slot, "read_matrix", held)
        await at_work.activate("blue")
        for n in range(3):
            assert check(await at_work.recall(f"meanwhile {n}")) == "red"
        await at_work.remember("later", {"red": Z, "blue": Y})  # committed after the matrix was read
        go_on.set()
        await at_work.service.settled()
        answer = await at_work.recall("and now")
        assert answer.model == "blue"
        assert {hit.entry_id for hit in answer.hits[:2]} == {"of_blue", "later"}


async def test_a_query_embedded_before_the_switch_is_embedded_again(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        slow, called, release = at_work.embedders["red"], asyncio.Event(), asyncio.Event()
        embed = slow.embed_query

        async def held(text: str) -> bytes:
            called.set()
            await release.wait()
            return await embed(text)

        slow.embed_query = held  # type: ignore[method-assign]
        asked = asyncio.create_task(at_work.recall("asked before, answered after"))
        await called.wait()
        await at_work.activate("blue")
        await at_work.service.settled()
        release.set()
        assert check(await asked) == "blue"


async def test_an_index_loaded_while_the_former_one_is_switched_meets_the_active_model_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with switching(tmp_path) as at_work:
        cache = at_work.service.indexes
        former = await cache.get("w1")
        slot = cache.slot("w1")
        assert slot is not None
        read, release_reading = slot.read_matrix, asyncio.Event()

        async def held_reading(*args: Any) -> VectorMatrix:
            await release_reading.wait()
            return await read(*args)

        loaded, release_loading = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def held_loading(*args: Any) -> HotIndex:
            made = load(*args)
            loop.call_soon_threadsafe(loaded.set)
            asyncio.run_coroutine_threadsafe(release_loading.wait(), loop).result()
            return made

        monkeypatch.setattr(slot, "read_matrix", held_reading)
        monkeypatch.setattr(entry_slot, "load", held_loading)
        await at_work.activate("blue")
        slot.behind = True
        asked = asyncio.create_task(cache.get("w1", at_work.seq + 1))
        await loaded.wait()
        await at_work.activate("red")
        release_loading.set()
        assert await asked is not former
        release_reading.set()
        async with asyncio.timeout(120):
            await cache.settled()
        assert (await cache.get("w1")).model == "red"
        assert check(await at_work.recall()) == "red"


async def test_a_model_that_was_dropped_and_added_again_embeds_queries_again(tmp_path: Path) -> None:
    """It may be another model of the same name: a vector of the former one means nothing beside its vectors."""
    async with switching(tmp_path) as at_work:
        red = at_work.embedders["red"]
        check(await at_work.recall())
        await at_work.activate("blue")
        await at_work.activate("red")
        await at_work.service.settled()
        check(await at_work.recall())
        assert red.calls == 1, "a switch forgets nothing"
        await at_work.decide(EmbeddingsDropped(model="red"))
        await at_work.decide(EmbeddingsAdded(model="red", embedder="ollama"))
        await at_work.activate("red")
        await at_work.service.settled()
        red.default = W
        await at_work.remember("anew", {"red": W})
        assert [hit.entry_id for hit in (await at_work.recall()).hits] == ["anew"]
        assert red.calls == 2


async def test_a_model_that_is_activated_with_other_dimensions_embeds_queries_again(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        await at_work.recall()
        await at_work.decide(EmbeddingsActivated(model="red", embedder="ollama", dim=3))
        await at_work.recall()
        assert at_work.embedders["red"].calls == 2


async def test_a_query_vector_under_way_while_its_model_is_dropped_is_not_remembered(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        red, called, release = at_work.embedders["red"], asyncio.Event(), asyncio.Event()
        embed = red.embed_query

        async def held(text: str) -> bytes:
            called.set()
            await release.wait()
            return await embed(text)

        red.embed_query = held  # type: ignore[method-assign]
        asked = asyncio.create_task(at_work.recall())
        await called.wait()
        await at_work.decide(EmbeddingsDropped(model="red"))
        await at_work.decide(EmbeddingsAdded(model="red", embedder="ollama"))
        await at_work.activate("red")
        await at_work.service.settled()
        release.set()
        await asked
        await at_work.service.settled()
        calls = red.calls
        await at_work.recall()
        assert red.calls == calls + 1


async def test_decisions_right_behind_each_other_end_at_the_last_one(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        cache = at_work.service._cache
        for n in range(40):  # the next one falls on every moment of the switch before it, the last included
            (await cache.get("w1")).forget_standby()
            await at_work.activate("blue")
            for _ in range(n % 8):
                await asyncio.sleep(0)
            await at_work.activate("red" if n % 3 else "blue")
            async with asyncio.timeout(120):
                await cache.settled()
            assert cache.model_of("w1") == ("red" if n % 3 else "blue")
            check(await at_work.recall(f"after {n}"))


async def test_one_workspace_switches_and_the_others_stay(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        await at_work.activate("blue", "w2")
        await at_work.service.settled()
        assert check(await at_work.recall()) == "red"
        await at_work.activate("blue", "w1")
        await at_work.service.settled()
        assert check(await at_work.recall()) == "blue"


async def test_settled_waits_for_an_index_that_was_read_before_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with switching(tmp_path) as at_work:
        read, go_on = threading.Event(), threading.Event()

        def held(*args: Any) -> HotIndex:
            index = load(*args)
            read.set()
            go_on.wait()
            return index

        monkeypatch.setattr(entry_slot, "load", held)
        asked = asyncio.create_task(at_work.recall())
        await asyncio.to_thread(read.wait)
        await at_work.activate("blue")
        settled = asyncio.create_task(at_work.service.settled())
        await asyncio.sleep(0)
        assert not settled.done()
        go_on.set()
        await asked
        await settled
        assert check(await at_work.recall()) == "blue"
