"""The Ollama adapter against a real HTTP server that fails in every way a model server can."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import numpy as np
import pytest
from support.embedders import as_vector, check_embedder_behaviour
from support.ollama_server import Failure, OllamaServer, reference_vector

from crew_journal.consumers.adapters.ollama import OllamaEmbedder, prefixes_of
from crew_journal.schemas.errors import (
    EmbedderBadAnswer,
    EmbedderError,
    EmbedderInputRejected,
    EmbedderModelMissing,
    EmbedderUnavailable,
)


@pytest.fixture
async def embedder(server: OllamaServer) -> AsyncIterator[OllamaEmbedder]:
    made = OllamaEmbedder(server.url)
    yield made
    await made.close()


async def test_ollama_keeps_the_promises_of_the_port(embedder: OllamaEmbedder) -> None:
    await check_embedder_behaviour(embedder)
    assert embedder.model_id == "nomic-embed-text"
    assert embedder.dim == 768


async def test_the_dimension_is_unknown_until_the_first_answer(embedder: OllamaEmbedder) -> None:
    assert embedder.dim is None
    await embedder.probe()
    assert embedder.dim == 768


async def test_vectors_are_the_servers_normalised(embedder: OllamaEmbedder) -> None:
    (vector,) = await embedder.embed_documents(["the crew deployed"])
    expected = np.array(reference_vector("the crew deployed"))
    assert np.allclose(as_vector(vector), expected / np.linalg.norm(expected), atol=1e-6)


async def test_documents_and_queries_get_the_models_own_prefixes(
    server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    await embedder.embed_documents(["a fact"])
    await embedder.embed_query("a question")
    assert server.embedded == ["search_document: a fact", "search_query: a question"]


def test_prefixes_go_by_the_name_without_namespace_and_tag_and_others_have_none() -> None:
    assert prefixes_of("nomic-embed-text:v1.5") == prefixes_of("someone/nomic-embed-text:latest")
    assert prefixes_of("nomic-embed-text").query == "search_query: "
    assert prefixes_of("mxbai-embed-large").document == ""
    assert prefixes_of("all-minilm") == prefixes_of("bge-m3:567m")
    assert prefixes_of("all-minilm").query == ""


async def test_an_input_is_cut_to_4096_bytes_between_characters(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    await embedder.embed_documents(["🙂" * 2_000, "a" * 4_096, "short"])
    sent = server.embedded
    assert [len(text.encode()) for text in sent] == [4_093, 4_096, len("search_document: short")]
    assert set(sent[0].removeprefix("search_document: ")) <= {"🙂"}


async def test_many_texts_travel_in_batches_of_64(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    texts = [f"text {n}" for n in range(150)]
    vectors = await embedder.embed_documents(texts)
    assert [len(seen.inputs) for seen in server.embed_requests] == [64, 64, 22]
    expected = np.array(reference_vector("text 149"))
    assert np.allclose(as_vector(vectors[149]), expected / np.linalg.norm(expected), atol=1e-6)


async def test_no_texts_ask_nothing(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    assert await embedder.embed_documents([]) == []
    assert server.requests == []


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("model-missing", EmbedderModelMissing),
        ("server-error", EmbedderUnavailable),
        ("wrong-count", EmbedderBadAnswer),
        ("half-answer", EmbedderBadAnswer),
        ("not-json", EmbedderBadAnswer),
        ("nan", EmbedderBadAnswer),
        ("nan-error", EmbedderBadAnswer),
        ("zero", EmbedderBadAnswer),
        ("wrong-dimension", EmbedderBadAnswer),
    ],
)
async def test_each_failure_has_its_error_and_is_over_when_the_server_is_well_again(
    server: OllamaServer, embedder: OllamaEmbedder, failure: Failure, expected: type[EmbedderError]
) -> None:
    await embedder.probe()
    server.fail(failure)
    for call in (embedder.embed_documents(["one", "two"]), embedder.embed_query("three"), embedder.probe()):
        with pytest.raises(EmbedderError) as caught:
            await call
        assert type(caught.value) is expected
    server.fail("ok")
    assert len(await embedder.embed_documents(["one", "two"])) == 2


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, "invalid model name", EmbedderModelMissing),
        (501, "this model does not support embeddings", EmbedderModelMissing),
        (400, "the input length exceeds the context length", EmbedderInputRejected),
        (500, "the input length exceeds the context length", EmbedderInputRejected),
        (413, "too large", EmbedderInputRejected),
        (401, "who are you?", EmbedderUnavailable),
        (405, "another service", EmbedderUnavailable),
        (429, "too many", EmbedderUnavailable),
        (503, "server busy", EmbedderUnavailable),
    ],
)
async def test_status_and_text_tell_whose_fault_it_is(
    server: OllamaServer, embedder: OllamaEmbedder, status: int, text: str, expected: type[EmbedderError]
) -> None:
    server.answers = (status, text)
    with pytest.raises(EmbedderError, match=text.replace("?", r"\?")) as caught:
        await embedder.embed_query("hello")
    assert type(caught.value) is expected


async def test_a_missing_model_names_the_command_that_gets_it(server: OllamaServer) -> None:
    embedder = OllamaEmbedder(server.url, "mxbai-embed-large")
    with pytest.raises(EmbedderModelMissing, match="mxbai-embed-large") as caught:
        await embedder.probe()
    assert "ollama pull mxbai-embed-large" in caught.value.hint
    await embedder.close()


async def test_a_refused_input_is_not_the_environments_fault(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    server.rejected = "poison"
    with pytest.raises(EmbedderInputRejected):
        await embedder.embed_documents(["fine", "a poison text"])
    assert len(await embedder.embed_documents(["fine"])) == 1


async def test_a_stopped_server_is_unavailable_and_used_again_when_it_is_back(
    server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    await embedder.probe()
    server.stop()
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable) as caught:
            await embedder.probe()
    assert "ollama serve" in caught.value.hint
    server.start()
    await embedder.probe()


async def test_a_server_that_dies_during_a_call_is_unavailable(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_query("hello"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    server.stop()
    with pytest.raises(EmbedderUnavailable):
        await call


async def test_a_slow_server_runs_into_the_time_out(server: OllamaServer) -> None:
    embedder = OllamaEmbedder(server.url, timeout_s=0.2)
    server.fail("slow")
    with pytest.raises(EmbedderUnavailable, match=r"within 0\.2 s"):
        await embedder.embed_query("hello")
    server.fail("ok")
    await embedder.close()


async def test_a_batch_has_more_time_than_one_text(server: OllamaServer) -> None:
    embedder = OllamaEmbedder(server.url, timeout_s=0.05)
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_documents([f"text {n}" for n in range(20)]))
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("one text is out of time")
    assert not call.done()
    server.fail("ok")
    assert len(await call) == 20
    await embedder.close()


async def test_a_socket_that_accepts_and_says_nothing_runs_into_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        embedder = OllamaEmbedder(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        with pytest.raises(EmbedderUnavailable):
            await embedder.probe()
        await embedder.close()


async def test_the_callers_cancellation_stays_a_cancellation(server: OllamaServer, embedder: OllamaEmbedder) -> None:
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_query("hello"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.fail("ok")
    await embedder.probe()


async def test_the_dimension_of_an_activated_model_is_enforced_from_the_first_answer(server: OllamaServer) -> None:
    embedder = OllamaEmbedder(server.url, dim=384)
    with pytest.raises(EmbedderBadAnswer, match="768"):
        await embedder.probe()
    await embedder.close()


async def test_the_environment_decides_neither_the_host_nor_a_proxy(
    server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    embedder = OllamaEmbedder(f"127.0.0.1:{server.port}")
    await embedder.probe()
    await embedder.close()


@pytest.mark.parametrize("host", ["http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999"])
async def test_a_host_that_is_no_address_is_named(host: str) -> None:
    with pytest.raises(EmbedderUnavailable, match="is not a valid address"):
        OllamaEmbedder(host)
