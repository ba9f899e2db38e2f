"""What an index holds in memory after models were switched, dropped and added: what a load would find, and no more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import entry, vector
from support.switching import W, X, Y, Z, check, switching

from crew_journal.schemas.models.events import EmbeddingsAdded, EmbeddingsDropped
from crew_journal.services.index import entry_slot
from crew_journal.services.index.take import load
from crew_journal.services.index.vectors import VectorMatrix, read_matrix


async def test_switching_back_to_a_model_loads_no_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(tmp_path) as at_work:
        check(await at_work.recall())
        await at_work.activate("blue")
        await at_work.service.settled()
        await at_work.remember("later", {"red": X, "blue": Z})
        monkeypatch.setattr(entry_slot, "read_matrix", None)
        await at_work.activate("red")
        answer = await at_work.recall()
        assert answer.model == "red"
        assert {hit.entry_id for hit in answer.hits[:2]} == {"of_red", "later"}


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
        assert (answer.model, answer.hits) == ("red", ())


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
            began = time.process_time()  # of a clock on the wall, a slow disk takes most
            await at_work.activate(model)
            await at_work.service.settled()
            took[step] = time.process_time() - began
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


@settings(max_examples=max(3, settings.default.max_examples // 10), suppress_health_check=list(HealthCheck))
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
            async with asyncio.timeout(120):
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
