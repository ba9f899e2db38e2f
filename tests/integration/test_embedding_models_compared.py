"""Two models on a whole node: compared on logged queries, and switched while queries go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.embedding import until
from support.ollama_server import OllamaServer
from support.two_models import BLUE, RED, Journal, running

from crew_journal.schemas.core.errors import CrewJournalError, NotFound
from crew_journal.services.index.entry_slot import EntryIndexes
from crew_journal.services.models import use_cases as models


async def test_two_models_are_compared_on_logged_queries_and_nothing_changes(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 20)
        await journal.until_vectors(RED, 20)
        with pytest.raises(NotFound, match="no vectors of blue"):
            await collected(journal, RED, BLUE)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 20)
        with pytest.raises(NotFound, match="no recall was logged"):
            await collected(journal, RED, BLUE)
        assert await journal.top("the valve is stuck") == (RED, None)  # the service logs it, the first of its second

        async def logged() -> bool:
            try:
                return bool(await collected(journal, RED, RED))
            except NotFound:
                return False

        await until(logged, "the recall in the log")
        for number, query in enumerate(["which pump", "the valve is stuck"]):
            seq = await journal.log_query(query, number)
        await journal.client.count(min_seq=seq)
        two_models.biased = BLUE  # it now likes other directions for queries alone, so the two must differ
        *progress, last = await collected(journal, RED, BLUE, k=5, recipe="dense")
        report = last["result"]
        assert progress[-1] == {"done": 2, "total": 2}
        assert (report["models"], report["queries"], report["recipe"]) == ([RED, BLUE], 2, "dense")
        assert report["coverage"][BLUE] == {"vectors": 20, "refused": 0, "missing": 0, "embeddable": 20}
        assert 0.0 <= report["rank_biased_overlap"] < 1.0
        assert report["most_different"][0]["query"] in {"the valve is stuck", "which pump"}
        same = (await collected(journal, RED, RED, k=5))[-1]["result"]
        assert (same["jaccard"], same["rank_biased_overlap"], same["same_first"]) == (1.0, 1.0, 1.0)
        assert (await journal.top())[0] == RED
        two_models.models = (RED,)
        with pytest.raises(CrewJournalError, match="no embedding model blue"):
            await collected(journal, RED, BLUE)
        assert await journal.top() == (RED, None)


async def collected(journal: Journal, one: str, other: str, **given: object) -> list[dict[str, Any]]:
    return [record async for record in journal.client.compare_models(one, other, **given)]


async def test_an_activation_that_is_recorded_is_answered_however_long_its_vectors_take_to_read(
    tmp_path: Path, two_models: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large index that is being loaded holds the reading up; that is no reason to call what is decided a failure."""
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        monkeypatch.setattr(models, "SETTLE_TIMEOUT_S", 0.01)
        monkeypatch.setattr(EntryIndexes, "settled", lambda _self: asyncio.Event().wait())
        switched = await journal.client.activate_model(BLUE)
        assert (switched.changed, switched.former) == (True, RED)


async def test_queries_during_switches_over_http_never_fail(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 10)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(RED, 10)
        await journal.until_vectors(BLUE, 10)
        seen: set[str | None] = set()
        done = asyncio.Event()

        async def ask(name: int) -> None:
            asked = 0
            while not done.is_set():
                asked += 1
                model, degraded = await journal.top(f"the valve, asked {asked} times by {name}")
                assert degraded is None
                seen.add(model)

        async def switch() -> None:
            try:
                for n in range(8):
                    await journal.client.activate_model(RED if n % 2 else BLUE)
                    assert (await journal.top())[0] == (RED if n % 2 else BLUE)
            finally:
                done.set()

        await asyncio.gather(switch(), *(ask(name) for name in range(3)))
        assert seen == {RED, BLUE}
