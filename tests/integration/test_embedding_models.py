"""A second model beside the first on a whole node: added, filled, switched to, switched back, dropped, added again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.embedding import until
from support.minilm import minilm_cache
from support.nats import nats_binary
from support.ollama_server import OllamaServer

from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.errors import (
    CrewJournalError,
    EmbedderError,
    InvalidQuery,
    ModelInUse,
    NotAllowed,
    NotFound,
    Unavailable,
)
from crew_journal.schemas.events.control import MemorySearched
from crew_journal.schemas.settings import EmbedderKind, Settings
from crew_journal.schemas.subjects import JOURNAL_STREAM, control_subject
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.connection import connect
from crew_journal.services.memory import models
from crew_journal.services.query.hot_cache import HotCache
from crew_journal.services.runtime import Runtime

RED, BLUE = "red-embed", "blue-embed"


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer(models=(RED, BLUE), dim=32) as started:
        yield started


class Journal:
    """A running node, its client, and what tests ask of both."""

    def __init__(self, runtime: Runtime, client: AsyncCrewJournal) -> None:
        self.runtime, self.client = runtime, client

    async def escalate(self, first: int, count: int) -> None:
        words = ("valve", "pump", "gauge", "pipe", "boiler")
        await self.client.append_batch(
            [
                {
                    "id": f"esc-{n}",
                    "entry_type": "peer.escalation",
                    "severity": "warn",
                    "summary": f"number {n}: the {words[n % len(words)]} of room {n} is stuck",
                }
                for n in range(first, first + count)
            ]
        )

    async def model(self, name: str) -> Mapping[str, Any]:
        found = (await self.client.embedding_models())["models"]
        return next((one for one in found if one["model"] == name), {})

    async def until_model(self, name: str, holds: Callable[[Mapping[str, Any]], bool], what: str) -> Mapping[str, Any]:
        last: list[Mapping[str, Any]] = []

        async def check() -> bool:
            last.append(await self.model(name))
            return holds(last[-1])

        await until(check, f"{name}: {what}")
        return last[-1]

    async def until_vectors(self, name: str, count: int) -> None:
        await self.until_model(name, lambda one: one.get("vectors") == count, f"{count} vectors")

    async def top(self, query: str = "the valve is stuck") -> tuple[str | None, str | None]:
        """The model of the answer and what is wrong with it."""
        answer = await self.client.recall(query, k=3, recipe="robust")
        assert answer.hits
        return answer.model, answer.degraded

    async def log_query(self, query: str, number: int) -> int:
        """A recall as the search log records it."""
        broker = await self.client.broker()
        connection = await connect(broker.url, broker.user, broker.password, "test")
        try:
            body = {
                "id": f"search-{number}",
                "ts": "2026-11-21T09:30:00.000Z",
                "summary": "recalled",
                "payload": {"query": query, "scope": "workspace", "recipe": "robust"},
            }
            subject = control_subject("default", MemorySearched.ENTRY_TYPE)
            return (await connection.jetstream().publish(subject, json.dumps(body).encode())).seq
        finally:
            await connection.close()

    async def durables(self) -> set[str]:
        broker = await self.client.broker()
        connection = await connect(broker.url, broker.user, broker.password, "test")
        try:
            found = await connection.jetstream().consumers_info(JOURNAL_STREAM)
            return {one.name for one in found if one.name.startswith("embed-")}
        finally:
            await connection.close()

    async def verified(self) -> bool:
        async for record in self.client.verify():
            if "result" in record:
                return bool(record["result"]["equal"])
        return False


@asynccontextmanager
async def running(data_dir: Path, server: OllamaServer, embedder: EmbedderKind = "ollama") -> AsyncIterator[Journal]:
    settings = Settings(
        data_dir=data_dir,
        http="127.0.0.1:0",
        embedder=embedder,
        ollama_host=server.url,
        ollama_model=RED,
        cache_dir=minilm_cache().parent,
        durability="interval",
        nats_server=nats_binary().path,
    )
    runtime = Runtime(settings)
    await runtime.start()
    try:
        async with AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client:
            yield Journal(runtime, client)
    finally:
        await runtime.stop()


async def test_a_model_is_added_filled_switched_to_and_back_dropped_and_filled_anew(
    tmp_path: Path, server: OllamaServer
) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 12)
        await journal.until_vectors(RED, 12)
        added = await journal.client.add_model(BLUE)
        assert (added["model"], added["changed"], added["dim"]) == (BLUE, True, 32)
        assert (await journal.client.add_model(BLUE))["changed"] is False
        await journal.until_vectors(BLUE, 12)
        assert await journal.top() == (RED, None)

        switched = await journal.client.activate_model(BLUE, reason="it is better")
        assert (switched["changed"], switched["former"], switched["missing"]) == (True, RED, 0)
        assert await journal.top() == (BLUE, None)
        await journal.escalate(12, 3)  # both go on being filled
        await journal.until_vectors(RED, 15)
        await journal.until_vectors(BLUE, 15)

        assert (await journal.client.activate_model(RED))["former"] == BLUE
        assert await journal.top() == (RED, None)
        with pytest.raises(ModelInUse, match="the default"):
            await journal.client.drop_model(RED)
        assert len(await journal.durables()) == 2
        assert (await journal.client.drop_model(BLUE, "it is not"))["changed"] is True
        gone = await journal.model(BLUE)
        assert (gone["state"], gone["vectors"], gone["filled"], gone["missing"]) == ("dropped", 0, False, None)

        async def one_durable_is_left() -> bool:
            return len(await journal.durables()) == 1

        await until(one_durable_is_left, "the end of the dropped model's durable")
        with pytest.raises(NotFound, match="dropped"):
            await journal.client.activate_model(BLUE)
        await journal.client.add_model(BLUE)  # well within the broker's window for repeats
        await journal.until_vectors(BLUE, 15)
        assert await journal.verified()


async def test_a_restart_in_the_middle_of_filling_goes_on_where_it_was(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 150)
        await journal.until_vectors(RED, 150)
        await journal.client.add_model(BLUE)
        await journal.until_model(BLUE, lambda one: one.get("vectors", 0) >= 1, "a first vector")
    half = sum(len(seen.inputs) for seen in server.embed_requests if seen.body["model"] == BLUE)
    async with running(tmp_path, server) as journal:
        await journal.until_vectors(BLUE, 150)
        await journal.client.activate_model(BLUE)
        assert await journal.top() == (BLUE, None)
        assert await journal.verified()
    asked = sum(len(seen.inputs) for seen in server.embed_requests if seen.body["model"] == BLUE)
    assert half >= 1
    assert asked <= 150 + 64 + 10, "what was filled before the restart was filled again"


async def test_a_switch_outlives_a_restart_whatever_kind_the_setting_names(
    tmp_path: Path, server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        await journal.client.activate_model(BLUE)
    async with running(tmp_path, server, "minilm") as journal:
        assert await journal.top() == (BLUE, None)
        status = await journal.client.status()
        assert (status["embedder"]["kind"], status["embedder"]["model"]) == ("ollama", BLUE)
        assert {one["model"] for one in status["reactors"] if one["name"].startswith("embed@")} == {RED, BLUE}


async def test_the_embedded_model_is_filled_beside_one_of_ollamas(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 5)
        added = await journal.client.add_model("minilm")
        assert (added["model"], added["dim"]) == (MODEL_ID, 384)
        await journal.until_vectors(MODEL_ID, 5)
        server.stop()  # what is active needs no server
        await journal.client.activate_model("minilm")
        assert await journal.top("which valve is stuck?") == (MODEL_ID, None)
        status = await journal.client.status()
        assert (status["embedder"]["kind"], status["embedder"]["mode"]) == ("minilm", "vector")
    server.start()
    async with running(tmp_path, server) as journal:
        assert await journal.top("which valve is stuck?") == (MODEL_ID, None)
        await journal.client.activate_model(RED)
        assert await journal.top("which valve is stuck?") == (RED, None)


async def test_one_workspace_recalls_with_a_model_of_its_own(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.client.append_batch(
            [{"workspace_id": "acme", "entry_type": "peer.escalation", "summary": "the valve of acme is stuck"}]
        )
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 4)
        await journal.client.activate_model(BLUE, workspace_id="acme")
        assert (await journal.top())[0] == RED
        assert (await journal.client.recall("the valve", workspace_id="acme")).model == BLUE
        with pytest.raises(ModelInUse, match="acme"):
            await journal.client.drop_model(BLUE)
        assert (await journal.client.status(workspace_id="acme"))["embeddings"]["model"] == BLUE

        admin = await journal.client.create_token(role="ADMIN", workspace_id="acme")
        async with AsyncCrewJournal(journal.runtime.http_url, admin.token) as acme:
            shown = {one["model"]: one for one in (await acme.embedding_models())["models"]}
            assert (shown[RED]["vectors"], shown[BLUE]["vectors"]) == (1, 1)
            assert "active_in" not in shown[RED]
            with pytest.raises(NotAllowed):
                await acme.add_model("another")
            with pytest.raises(NotAllowed):
                await acme.drop_model(RED)
            with pytest.raises(NotAllowed):
                await acme.activate_model(RED, workspace_id="default")
            with pytest.raises(NotFound):
                await acme.activate_model("nobody-fills-this")
            assert (await acme.activate_model(RED))["former"] == BLUE
        assert (await journal.client.recall("the valve", workspace_id="acme")).model == RED


async def test_a_model_that_is_not_there_or_does_not_work_is_refused_and_nothing_is_recorded(
    tmp_path: Path, server: OllamaServer
) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.until_vectors(RED, 3)
        before = (await journal.client.status())["stream"]["head"]
        with pytest.raises(NotFound, match="no embedding model absent") as missing:
            await journal.client.add_model("absent")
        assert "ollama pull absent" in missing.value.hint
        with pytest.raises(InvalidQuery, match="no name"):
            await journal.client.add_model("two words")
        with pytest.raises(NotFound, match="no such model"):
            await journal.client.drop_model("absent")
        server.fail("server-error")
        with pytest.raises((EmbedderError, Unavailable), match="500"):
            await journal.client.add_model(BLUE)
        server.fail("ok")
        server.stop()
        with pytest.raises((EmbedderError, Unavailable), match="cannot be reached"):
            await journal.client.add_model(BLUE)
        server.start()
        assert (await journal.client.status())["stream"]["head"] == before
        assert (await journal.top())[0] == RED


async def test_a_model_that_fails_while_it_is_filled_leaves_the_first_one_alone(
    tmp_path: Path, server: OllamaServer
) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        server.models = (RED,)  # somebody removed it
        await journal.escalate(3, 3)
        await journal.until_vectors(RED, 6)
        told = await journal.until_model(
            BLUE, lambda one: (one["outcome"] or {}).get("error") == "EmbedderModelMissing", "what is wrong with it"
        )
        assert told["filling"]["state"] == "waiting"
        assert await journal.top() == (RED, None)
        status = await journal.client.status()
        assert status["embedder"]["mode"] == "vector"
        assert status["embedder"]["beside"][0]["mode"] == "vector-degraded"
        server.models = (RED, BLUE)
        await journal.until_vectors(BLUE, 6)


async def test_a_model_that_changed_its_width_is_not_added_again(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
    server.dim = 48
    async with running(tmp_path, server) as journal:
        await journal.escalate(3, 1)
        told = await journal.until_model(
            BLUE, lambda one: bool(one["filling"] and one["filling"]["last_error"]), "what is wrong with it"
        )
        assert "48 dimensions, the journal has 32" in told["filling"]["last_error"]
        await journal.client.drop_model(BLUE)
        added = await journal.client.add_model(BLUE)
        assert added["dim"] == 48
        await journal.until_vectors(BLUE, 4)


async def test_two_models_are_compared_on_logged_queries_and_nothing_changes(
    tmp_path: Path, server: OllamaServer
) -> None:
    async with running(tmp_path, server) as journal:
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
        server.biased = BLUE  # it now likes other directions for queries alone, so the two must differ
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
        server.models = (RED,)
        with pytest.raises(CrewJournalError, match="no embedding model blue"):
            await collected(journal, RED, BLUE)
        assert await journal.top() == (RED, None)


async def collected(journal: Journal, one: str, other: str, **given: object) -> list[dict[str, Any]]:
    return [record async for record in journal.client.compare_models(one, other, **given)]


async def test_an_activation_that_is_recorded_is_answered_however_long_its_vectors_take_to_read(
    tmp_path: Path, server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large index that is being loaded holds the reading up; that is no reason to call what is decided a failure."""
    async with running(tmp_path, server) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        monkeypatch.setattr(models, "SETTLE_TIMEOUT_S", 0.01)
        monkeypatch.setattr(HotCache, "settled", lambda _self: asyncio.Event().wait())
        switched = await journal.client.activate_model(BLUE)
        assert (switched["changed"], switched["former"]) == (True, RED)


async def test_queries_during_switches_over_http_never_fail(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server) as journal:
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


async def test_a_node_that_is_not_to_embed_says_so(tmp_path: Path, server: OllamaServer) -> None:
    async with running(tmp_path, server, "none") as journal:
        with pytest.raises(CrewJournalError, match="embeds nothing"):
            await journal.client.add_model(BLUE)
        assert (await journal.client.embedding_models())["models"] == []
