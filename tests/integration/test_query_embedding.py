"""The vector of a query: embedded once, late ones kept for the next recall, a model that hangs left alone for a while."""

from __future__ import annotations

import asyncio
import gc

from support.events import control, entry, vector
from support.recall import MODEL, ChosenEmbedder
from support.recalling import MINI, recalling
from support.stack import until

from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.services.index import query_embedding
from crew_journal.services.index.query_embedding import QueryEmbedder


async def test_a_query_is_embedded_once_and_a_hanging_model_is_left_alone_for_a_while():
    embedder = ChosenEmbedder({"q": (1.0, 0.0, 0.0)})
    other = ChosenEmbedder({}, model="other")
    queries = QueryEmbedder({MODEL: embedder, "other": other}.get, timeout_s=0.05)
    first = await queries.embed("q", MODEL)
    assert first is not None
    assert await queries.embed("q", MODEL) is first
    assert embedder.calls == 1
    embedder.hangs = True
    assert await queries.embed("new", MODEL) is None
    assert await queries.embed("newer", MODEL) is None
    assert embedder.calls == 2
    assert await queries.embed("q", MODEL) is first
    beside = await queries.embed("new", "other")
    assert beside is not None
    assert beside.model == "other"


class LateEmbedder(ChosenEmbedder):
    """Answers a query when it is let."""

    def __init__(self) -> None:
        super().__init__({})
        self.let: dict[str, asyncio.Event] = {}
        self.given_up: list[str] = []

    async def embed_query(self, text: str) -> bytes:
        try:
            await self.let.setdefault(text, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.given_up.append(text)
            raise
        return await super().embed_query(text)


async def test_a_vector_that_comes_too_late_for_its_recall_serves_the_next(monkeypatch):
    monkeypatch.setattr(query_embedding, "PAUSE_AFTER_TIMEOUT_S", 0.0)
    embedder, told = LateEmbedder(), []
    queries = QueryEmbedder({MODEL: embedder}.get, 0.05, lambda *said: told.append(said))
    assert await queries.embed("q", MODEL) is None
    embedder.let["q"].set()
    await until(lambda: queries.remembered("q", MODEL) is not None)
    assert await queries.embed("q", MODEL) is not None
    assert embedder.calls == 1
    assert told == [(MODEL, 0.05)]
    embedder.let["other"] = asyncio.Event()
    embedder.let["other"].set()
    assert await queries.embed("other", MODEL) is not None
    assert told == [(MODEL, 0.05), (MODEL, None)]


async def test_of_late_calls_only_the_newest_go_on(monkeypatch):
    monkeypatch.setattr(query_embedding, "PAUSE_AFTER_TIMEOUT_S", 0.0)
    embedder = LateEmbedder()
    queries = QueryEmbedder({MODEL: embedder}.get, timeout_s=0.01)
    for text in ("first", "second", "third", "third"):
        assert await queries.embed(text, MODEL) is None
    await until(lambda: embedder.given_up == ["first"])
    queries.close()
    await until(lambda: embedder.given_up == ["first", "second", "third"])


async def test_a_late_call_is_not_joined_once_its_model_may_be_another_one(tmp_path, monkeypatch):
    monkeypatch.setattr(query_embedding, "PAUSE_AFTER_TIMEOUT_S", 0.0)
    async with recalling(tmp_path, embed_timeout_s=0.05) as at_work:
        await at_work.fold(
            MINI,
            entry("e1", summary="the parser broke", entry_type="peer.escalation"),
            vector("e1", entry_seq=2, model="mini"),
        )
        at_work.embedder.hangs = True
        assert (await at_work.recall(query="zebra")).degraded == "lexical-only"
        again = EmbeddingsActivated(model="mini", embedder="ollama", dim=3)
        await at_work.fold(control(again, "n2", workspace="w1"))
        await at_work.service.settled()
        at_work.embedder.hangs = False
        assert (await at_work.recall(query="zebra", min_seq=at_work.seq)).degraded is None


async def test_a_call_that_somebody_waits_for_is_not_given_up_because_others_went_away():
    embedder = LateEmbedder()
    queries = QueryEmbedder({MODEL: embedder}.get, timeout_s=60)
    waiting = asyncio.create_task(queries.embed("asked twice", MODEL))
    await until(lambda: len(embedder.let) == 1)
    for calls, text in enumerate(("asked twice", "second", "third", "fourth"), 1):
        gone = asyncio.create_task(queries.embed(text, MODEL))
        await asyncio.sleep(0)  # it waits, too
        await until(lambda wanted=calls: len(embedder.let) == wanted)
        gone.cancel()
        await asyncio.wait([gone])
    await until(lambda: embedder.given_up == ["second"])
    embedder.let["asked twice"].set()
    assert await waiting is not None
    queries.close()


async def test_a_late_call_that_fails_is_no_ones_unseen_exception(monkeypatch):
    unseen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    embedder = LateEmbedder()
    embedder.fails = True
    queries = QueryEmbedder({MODEL: embedder}.get, timeout_s=0.01)
    assert await queries.embed("q", MODEL) is None
    embedder.let["q"].set()
    await until(lambda: embedder.calls == 1)
    await asyncio.sleep(0)
    gc.collect()
    assert unseen == []


async def test_no_embedder_at_all_is_degraded_too():
    assert await QueryEmbedder(lambda _: None).embed("q", MODEL) is None
    assert await QueryEmbedder(lambda _: None).embed("q", None) is None
