"""Switching recall to another model's vectors while queries and writes go on: none fails, none mixes, none stalls.

The vectors are such that mixing shows: under either model alone another entry comes first than where the query's vector is
of one model and the entries' of the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control, entry, vector
from support.recall import ANALYZER, ChosenEmbedder
from support.stack import until
from support.views import Node, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.messages import RawMessage
from crew_journal.schemas.events.control import ControlPayload, EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.schemas.principal import Principal, Role
from crew_journal.services.query import hot_cache, hot_switch
from crew_journal.services.query.hot_index import HotIndex
from crew_journal.services.query.hot_load import load
from crew_journal.services.query.hot_vectors import read_matrix
from crew_journal.services.query.recall import RecallService
from crew_journal.services.query.requests import RecallRequest, RecallResponse
from crew_journal.services.query.vector_matrix import VectorMatrix

OWNER = Principal(token_id="t", role=Role.OWNER, workspace_id=None)
X, Y, Z, W = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)
QUERY: Mapping[str, Sequence[float]] = {"red": X, "blue": Y}
ENTRIES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "red": {"of_red": X, "of_blue": Z, "of_a_mixture": Y},
    "blue": {"of_red": W, "of_blue": Y, "of_a_mixture": X},
}
FIRST = {"red": "of_red", "blue": "of_blue"}


class Switching:
    """A node with two models."""

    def __init__(self, made: Node, service: RecallService, embedders: Mapping[str, ChosenEmbedder]) -> None:
        self.store, self.host, self.service, self.embedders = made.store, made.host, service, embedders
        self.seq = 0

    async def fold(self, *messages: OutgoingMessage) -> int:
        raw: list[RawMessage] = [at(self.seq + i, message) for i, message in enumerate(messages, 1)]
        self.seq = raw[-1].seq
        await self.host.fold(raw)
        return self.seq

    async def decide(self, payload: ControlPayload, workspace: str = "_system") -> None:
        await self.fold(control(payload, f"n{self.seq + 1}", workspace=workspace))

    async def activate(self, model: str, workspace: str = "_system") -> None:
        await self.decide(EmbeddingsActivated(model=model, embedder="ollama", dim=4), workspace)

    async def remember(self, entry_id: str, vectors: Mapping[str, Sequence[float]]) -> None:
        seq = await self.fold(entry(entry_id, summary="about a colour", entry_type="peer.escalation"))
        await self.fold(*(vector(entry_id, entry_seq=seq, model=m, values=v) for m, v in vectors.items()))

    async def recall(self, query: str = "which colour", recipe: str = "dense", k: int = 3) -> RecallResponse:
        return await self.service.recall(OWNER, RecallRequest(query=query, recipe=recipe, k=k, workspace_id="w1"))


@asynccontextmanager
async def switching(path: Path, background: int = 0) -> AsyncIterator[Switching]:
    async with node(path / "views.duckdb", discover_projections()) as made:
        embedders = {model: ChosenEmbedder({}, model=model) for model in QUERY}
        for model, embedder in embedders.items():
            embedder.default = QUERY[model]
        service = RecallService(
            made.store,
            embedders.get,
            analyzer=ANALYZER,
            budget_bytes=256 << 20,
            clock=lambda: datetime.fromtimestamp(EPOCH_MS / 1000 + 60, UTC),
            embed_timeout_s=60,  # no slow machine lets a query's vector be given up
        )
        at_work = Switching(made, service, embedders)
        try:
            await at_work.activate("red")
            for entry_id in FIRST.values():
                await at_work.remember(entry_id, {model: ENTRIES[model][entry_id] for model in QUERY})
            await at_work.remember("of_a_mixture", {model: ENTRIES[model]["of_a_mixture"] for model in QUERY})
            for n in range(background):
                await at_work.remember(f"far_{n}", {"red": W, "blue": Z})
            yield at_work
        finally:
            service.close()


def check(answer: RecallResponse) -> str:
    """The model of an answer, once it is certain that query and vectors were of it."""
    assert answer.model is not None
    assert answer.degraded is None
    assert answer.hits[0].entry_id == FIRST[answer.model], f"{answer.model} met other vectors"
    return answer.model


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
            for n in range(12):
                model = "blue" if n % 2 == 0 else "red"
                await at_work.activate(model)
                await at_work.service.settled()
                enough = len(seen) + 20
                await until(lambda enough=enough: len(seen) >= enough)  # type: ignore[misc]
                if n % 4 == 3:  # without anything at hand it is read again
                    index = await at_work.service._cache.get("w1")
                    index.forget_standby()
            done.set()

        async with asyncio.timeout(60):
            await asyncio.gather(switch(), write(), *(ask(name) for name in range(4)))
        changes = sum(one != other for one, other in pairwise(seen))
        assert set(seen) == {"red", "blue"}
        assert changes >= 12


async def test_until_the_new_vectors_are_read_queries_go_on_with_the_former_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with switching(tmp_path) as at_work:
        assert check(await at_work.recall()) == "red"
        go_on = asyncio.Event()
        loop = asyncio.get_running_loop()
        read = hot_switch.read_matrix

        def held(*args):  # type: ignore[no-untyped-def]
            made = read(*args)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return made

        monkeypatch.setattr(hot_switch, "read_matrix", held)
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
        read, release_reading = cache._read, asyncio.Event()

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

        monkeypatch.setattr(cache, "_read", held_reading)
        monkeypatch.setattr(hot_cache, "load", held_loading)
        await at_work.activate("blue")
        cache._slots["w1"].behind = True
        asked = asyncio.create_task(cache.get("w1", at_work.seq + 1))
        await loaded.wait()
        await at_work.activate("red")
        release_loading.set()
        assert await asked is not former
        release_reading.set()
        async with asyncio.timeout(20):
            await cache.settled()
        assert (await cache.get("w1")).model == "red"
        assert check(await at_work.recall()) == "red"


async def test_a_model_that_was_dropped_and_added_again_is_asked_for_its_queries_anew(tmp_path: Path) -> None:
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


async def test_a_model_that_is_activated_with_other_dimensions_is_asked_anew(tmp_path: Path) -> None:
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
        calls = red.calls
        await at_work.recall()
        assert red.calls == calls + 1


async def test_switching_back_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        await at_work.activate("blue")
        await at_work.service.settled()
        await at_work.remember("later", {"red": X, "blue": Z})
        monkeypatch.setattr(hot_switch, "read_matrix", None)
        await at_work.activate("red")
        answer = await at_work.recall()
        assert answer.model == "red"
        assert {hit.entry_id for hit in answer.hits[:2]} == {"of_red", "later"}


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
            async with asyncio.timeout(10):
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


async def test_a_dropped_model_leaves_no_vectors_in_memory(tmp_path: Path) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        await at_work.activate("blue")
        await at_work.service.settled()
        await at_work.decide(EmbeddingsDropped(model="red"))
        index = await at_work.service._cache.get("w1")
        assert index.matrix_of("red") is None
        await at_work.activate("red")  # it counts again, and has no vectors yet
        await at_work.service.settled()
        answer = await at_work.recall()
        assert (answer.model, answer.hits) == ("red", [])


async def test_an_index_that_followed_switches_and_drops_holds_the_vectors_of_one_loaded_afterwards(
    tmp_path: Path,
) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        for step in ("blue", "red", "blue", "drop red", "red", "remember", "blue"):
            if step == "drop red":
                await at_work.decide(EmbeddingsDropped(model="red"))
            elif step == "remember":
                await at_work.remember("later", {"red": Z, "blue": Y})
            else:
                await at_work.activate(step)
            await at_work.service.settled()
            followed = await at_work.service._cache.get("w1")
            loaded = load(at_work.store, "w1")
            assert followed.model == loaded.model
            assert followed.vectors is not None
            assert loaded.vectors is not None
            docs = np.arange(len(loaded), dtype=np.int32)
            for one in (followed.vectors, loaded.vectors):
                assert one.model == loaded.model
            mine, theirs = followed.vectors.rows_of(docs), loaded.vectors.rows_of(docs)
            assert ((mine >= 0) == (theirs >= 0)).all()
            assert (followed.vectors.vectors[mine[mine >= 0]] == loaded.vectors.vectors[theirs[theirs >= 0]]).all()


async def test_switching_and_switching_back_with_ten_thousand_vectors_takes_under_a_second(tmp_path: Path) -> None:
    count, width = 10_000, 384
    async with switching(tmp_path) as at_work:
        drawn = np.random.default_rng(5).standard_normal((count, width)).astype("<f4")
        for first in range(0, count, 500):
            part = range(first, first + 500)
            base = at_work.seq
            await at_work.fold(*(entry(f"b{n}", summary="bulk", entry_type="peer.escalation") for n in part))
            facts = [
                vector(f"b{n}", entry_seq=base + 1 + n - first, model=model, values=drawn[n])
                for model in ("wide", "wider")
                for n in part
            ]
            await at_work.fold(*facts)
        await at_work.activate("wide")
        await at_work.recall(recipe="lexical", query="bulk")
        index = await at_work.service._cache.get("w1")
        took = {}
        for step, model in (("there", "wider"), ("back", "wide")):
            began = time.perf_counter()
            await at_work.activate(model)
            await at_work.service.settled()
            took[step] = time.perf_counter() - began
            assert await at_work.service._cache.get("w1") is index, "the index was loaded anew"
            assert index.model == model
            assert index.vectors is not None
            assert len(index.vectors) == count
        print({step: f"{1_000 * seconds:.0f} ms" for step, seconds in took.items()})
        assert took["there"] < 5.0
        assert took["back"] < 1.0


STEPS = st.lists(
    st.one_of(
        st.just(("remember",)),
        st.tuples(st.just("vector"), st.integers(0, 5), st.sampled_from(["red", "blue"]), st.integers(0, 3)),
        st.tuples(st.just("refuse"), st.integers(0, 5), st.sampled_from(["red", "blue"])),
        st.tuples(st.just("activate"), st.sampled_from(["red", "blue"]), st.sampled_from(["_system", "w1", "w2"])),
        st.tuples(st.just("add"), st.sampled_from(["red", "blue"])),
        st.tuples(st.just("drop"), st.sampled_from(["red", "blue"])),
        st.tuples(st.just("turns"), st.integers(1, 6)),
        st.just(("settle",)),
        st.just(("forget",)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_whatever_is_decided_in_whatever_order_the_vectors_in_memory_are_those_of_a_load(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        async with switching(tmp_path_factory.mktemp("v")) as at_work:
            cache = at_work.service._cache
            await cache.get("w1")
            seqs: list[int] = []
            for number, step in enumerate(steps):
                if step[0] == "remember":
                    seqs.append(await at_work.fold(entry(f"m{number}", entry_type="peer.escalation")))
                elif step[0] in ("vector", "refuse") and seqs:
                    place = step[1] % len(seqs)
                    values = () if step[0] == "refuse" else (X, Y, Z, W)[step[3]]
                    await at_work.fold(vector(f"s{place}", entry_seq=seqs[place], model=step[2], values=values))
                elif step[0] == "activate":
                    await at_work.activate(step[1], step[2])
                elif step[0] == "add":
                    await at_work.decide(EmbeddingsAdded(model=step[1], embedder="ollama"))
                elif step[0] == "drop":
                    await at_work.decide(EmbeddingsDropped(model=step[1]))
                elif step[0] == "turns":
                    for _ in range(step[1]):
                        await asyncio.sleep(0)
                elif step[0] == "settle":
                    await cache.settled()
                elif step[0] == "forget":
                    (await cache.get("w1")).forget_standby()
            await at_work.fold(entry("last"))
            async with asyncio.timeout(20):
                await cache.settled()
            followed, loaded = await cache.get("w1", at_work.seq), load(at_work.store, "w1")
            assert followed.model == loaded.model
            for model in (matrix.model for matrix in followed.matrices()):
                held = followed.matrix_of(model)
                assert held is not None
                fresh = read_matrix(at_work.store, "w1", model, loaded.documents.seq)
                assert vectors_of(held, len(loaded)) == vectors_of(fresh, len(loaded))

    asyncio.run(run())


def vectors_of(matrix: VectorMatrix, documents: int) -> list[tuple[int, list[float]]]:
    """Document and vector of each row that counts."""
    rows = matrix.rows_of(np.arange(documents, dtype=np.int32))
    assert sorted(matrix.doc[rows[rows >= 0]].tolist()) == np.flatnonzero(rows >= 0).tolist()
    return [(doc, matrix.vectors[row].tolist()) for doc, row in enumerate(rows.tolist()) if row >= 0]
