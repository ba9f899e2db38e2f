"""The adapters of Ollama and of OpenAI-compatible servers against a real HTTP server that fails in every way it can."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from support.embedders import as_vector, check_embedder_behaviour
from support.ollama_server import Failure, OllamaServer, reference_vector

from crew_journal.consumers.adapters import served
from crew_journal.consumers.adapters.ollama import OllamaEmbedder
from crew_journal.consumers.adapters.served import Endpoint, OpenAiEmbedder, ServedEmbedder, prefixes_of
from crew_journal.schemas.core.errors import (
    EmbedderBadAnswer,
    EmbedderError,
    EmbedderInputRejected,
    EmbedderModelMissing,
    EmbedderUnavailable,
)

NOMIC = "nomic-embed-text"
KEY = "sk-secret"
Make = Callable[..., ServedEmbedder]


def ollama(url: str, **given: Any) -> ServedEmbedder:
    return OllamaEmbedder(url, NOMIC, **given)


def endpoint(url: str, **given: Any) -> ServedEmbedder:
    return OpenAiEmbedder(Endpoint(url, KEY), NOMIC, **given)


@pytest.fixture(params=[ollama, endpoint])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param  # type: ignore[no-any-return]  # typed by pytest as Any


@pytest.fixture
async def embedder(server: OllamaServer, make: Make) -> AsyncIterator[ServedEmbedder]:
    made = make(server.url)
    yield made
    await made.close()


async def test_an_embedder_keeps_the_promises_of_the_port(embedder: ServedEmbedder) -> None:
    await check_embedder_behaviour(embedder)
    assert embedder.dim == 768


async def test_a_model_of_the_endpoint_has_another_name_than_that_of_ollama(server: OllamaServer) -> None:
    there = endpoint(server.url)
    await there.probe()
    await there.close()
    assert (ollama(server.url).model_id, there.model_id) == (NOMIC, f"openai/{NOMIC}")
    [seen] = server.embed_requests
    assert (seen.path, seen.authorization) == ("/v1/embeddings", f"Bearer {KEY}")
    assert (seen.body["model"], seen.body["encoding_format"]) == (NOMIC, "float")


async def test_the_dimension_is_unknown_until_the_first_answer(embedder: ServedEmbedder) -> None:
    assert embedder.dim is None
    await embedder.probe()
    assert embedder.dim == 768


async def test_vectors_are_the_servers_normalised(embedder: ServedEmbedder) -> None:
    (vector,) = await embedder.embed_documents(["the crew deployed"])
    expected = np.array(reference_vector("the crew deployed"))
    assert np.allclose(as_vector(vector), expected / np.linalg.norm(expected), atol=1e-6)


async def test_documents_and_queries_get_the_models_own_prefixes(
    server: OllamaServer, embedder: ServedEmbedder
) -> None:
    await embedder.embed_documents(["a fact"])
    await embedder.embed_query("a question")
    assert server.embedded == ["search_document: a fact", "search_query: a question"]


def test_prefixes_are_chosen_by_the_name_without_namespace_and_tag() -> None:
    assert prefixes_of("nomic-embed-text:v1.5") == prefixes_of("someone/nomic-embed-text:latest")
    assert prefixes_of("nomic-embed-text").query == "search_query: "
    assert prefixes_of("mxbai-embed-large").document == ""
    assert prefixes_of("all-minilm") == prefixes_of("bge-m3:567m")
    assert prefixes_of("all-minilm").query == ""


async def test_an_input_is_cut_to_4096_bytes_between_characters(server: OllamaServer, embedder: ServedEmbedder) -> None:
    await embedder.embed_documents(["🙂" * 2_000, "a" * 4_096, "short"])
    sent = server.embedded
    assert [len(text.encode()) for text in sent] == [4_093, 4_096, len("search_document: short")]
    assert set(sent[0].removeprefix("search_document: ")) <= {"🙂"}


async def test_many_texts_travel_in_batches_of_64(server: OllamaServer, embedder: ServedEmbedder) -> None:
    texts = [f"text {n}" for n in range(150)]
    vectors = await embedder.embed_documents(texts)
    assert [len(seen.inputs) for seen in server.embed_requests] == [64, 64, 22]
    expected = np.array(reference_vector("text 149"))
    assert np.allclose(as_vector(vectors[149]), expected / np.linalg.norm(expected), atol=1e-6)


async def test_no_texts_send_no_request(server: OllamaServer, embedder: ServedEmbedder) -> None:
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
        ("zero", EmbedderBadAnswer),
        ("wrong-dimension", EmbedderBadAnswer),
    ],
)
async def test_each_failure_has_its_error_and_is_over_when_the_server_is_well_again(
    server: OllamaServer, embedder: ServedEmbedder, failure: Failure, expected: type[EmbedderError]
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
        (500, "failed to encode response: json: unsupported value: NaN", EmbedderBadAnswer),
    ],
)
async def test_status_and_text_of_ollama_tell_whose_fault_it_is(
    server: OllamaServer, status: int, text: str, expected: type[EmbedderError]
) -> None:
    embedder = ollama(server.url)
    server.answers = (status, text)
    with pytest.raises(EmbedderError, match="NaN" if "NaN" in text else re.escape(text)) as caught:
        await embedder.embed_query("hello")
    assert type(caught.value) is expected
    await embedder.close()


@pytest.mark.parametrize(
    ("status", "expected", "hint"),
    [
        (400, EmbedderInputRejected, ""),
        (413, EmbedderInputRejected, ""),
        (404, EmbedderModelMissing, "whether the server has nomic-embed-text"),
        (401, EmbedderUnavailable, "CREW_JOURNAL_EMBED_API_KEY"),
        (403, EmbedderUnavailable, "CREW_JOURNAL_EMBED_API_KEY"),
        (301, EmbedderUnavailable, "the URL"),
        (429, EmbedderUnavailable, "log"),
        (500, EmbedderUnavailable, "log"),
    ],
)
async def test_the_status_of_an_endpoint_tells_what_to_do_and_no_error_shows_the_key(
    server: OllamaServer, status: int, expected: type[EmbedderError], hint: str
) -> None:
    embedder = endpoint(server.url)
    server.answers = (status, f"not with {KEY}")
    with pytest.raises(EmbedderError, match=str(status)) as caught:
        await embedder.embed_query("hello")
    assert type(caught.value) is expected
    assert hint in caught.value.hint
    assert KEY not in str(caught.value)
    await embedder.close()


@pytest.mark.parametrize("status", [429, 503])
async def test_an_endpoint_that_asks_to_wait_is_not_asked_until_then(
    server: OllamaServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    embedder = endpoint(server.url)
    server.answers, server.retry_after = (status, "too many"), "3600"
    monkeypatch.setattr(served, "LONGEST_WAIT_S", 600.0)
    with pytest.raises(EmbedderUnavailable, match="too many"):
        await embedder.embed_query("hello")
    for _ in range(3):
        with pytest.raises(EmbedderUnavailable, match=r"asks to wait for (600|599) s"):
            await embedder.probe()
    assert len(server.embed_requests) == 1
    await embedder.close()


@pytest.mark.parametrize("retry_after", ["0", "Wed, 21 Oct 2099 07:28:00 GMT", "soon"])
async def test_a_wait_that_is_no_number_of_seconds_is_left_to_the_caller(
    server: OllamaServer, retry_after: str
) -> None:
    embedder = endpoint(server.url)
    server.answers, server.retry_after = (429, "too many"), retry_after
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("hello")
    server.answers = None
    await embedder.probe()
    await embedder.close()


async def test_vectors_of_an_endpoint_are_ordered_by_their_index(server: OllamaServer) -> None:
    embedder = endpoint(server.url)
    texts = ["one", "two", "three"]
    in_order = await embedder.embed_documents(texts)
    server.fail("reversed")
    assert await embedder.embed_documents(texts) == in_order
    server.fail("wrong-index")
    with pytest.raises(EmbedderBadAnswer, match="not a valid answer of /embeddings"):
        await embedder.embed_documents(texts)
    await embedder.close()


async def test_an_endpoint_without_a_url_names_the_setting() -> None:
    embedder = OpenAiEmbedder(Endpoint(), "text-embedding-3-small")
    with pytest.raises(EmbedderUnavailable) as caught:
        await embedder.probe()
    assert "CREW_JOURNAL_EMBED_BASE_URL" in caught.value.hint
    await embedder.close()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_url_of_an_endpoint_may_lack_its_version(server: OllamaServer, path: str) -> None:
    embedder = endpoint(f"{server.url}{path}")
    await embedder.probe()
    await embedder.close()


async def test_a_missing_model_names_the_command_that_gets_it(server: OllamaServer) -> None:
    embedder = OllamaEmbedder(server.url, "mxbai-embed-large")
    with pytest.raises(EmbedderModelMissing, match="mxbai-embed-large") as caught:
        await embedder.probe()
    assert "ollama pull mxbai-embed-large" in caught.value.hint
    await embedder.close()


async def test_a_refused_input_is_not_the_environments_fault(server: OllamaServer, embedder: ServedEmbedder) -> None:
    server.rejected = "poison"
    with pytest.raises(EmbedderInputRejected):
        await embedder.embed_documents(["fine", "a poison text"])
    assert len(await embedder.embed_documents(["fine"])) == 1


async def test_a_stopped_server_is_unavailable_and_used_again_when_it_is_back(
    server: OllamaServer, embedder: ServedEmbedder
) -> None:
    await embedder.probe()
    server.stop()
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable) as caught:
            await embedder.probe()
    assert "start it" in caught.value.hint
    server.start()
    await embedder.probe()


async def test_a_server_that_dies_during_a_call_is_unavailable(server: OllamaServer, embedder: ServedEmbedder) -> None:
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_query("hello"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    server.stop()
    with pytest.raises(EmbedderUnavailable):
        await call


async def test_a_slow_server_runs_into_the_time_out(server: OllamaServer, make: Make) -> None:
    embedder = make(server.url, timeout_s=0.2)
    server.fail("slow")
    with pytest.raises(EmbedderUnavailable, match=r"within 0\.2 s"):
        await embedder.embed_query("hello")
    server.fail("ok")
    await embedder.close()


async def test_a_batch_has_more_time_than_one_text(server: OllamaServer, make: Make) -> None:
    embedder = make(server.url, timeout_s=0.05)
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_documents([f"text {n}" for n in range(20)]))
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("one text is out of time")
    assert not call.done()
    server.fail("ok")
    assert len(await call) == 20
    await embedder.close()


async def test_a_socket_that_accepts_and_never_answers_times_out(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        embedder = make(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        with pytest.raises(EmbedderUnavailable):
            await embedder.probe()
        await embedder.close()


async def test_the_callers_cancellation_stays_a_cancellation(server: OllamaServer, embedder: ServedEmbedder) -> None:
    server.fail("slow")
    call = asyncio.ensure_future(embedder.embed_query("hello"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.fail("ok")
    await embedder.probe()


async def test_the_dimension_of_an_activated_model_is_enforced_from_the_first_answer(
    server: OllamaServer, make: Make
) -> None:
    embedder = make(server.url, dim=384)
    with pytest.raises(EmbedderBadAnswer, match="768"):
        await embedder.probe()
    await embedder.close()


async def test_the_environment_decides_neither_the_host_nor_a_proxy(
    server: OllamaServer, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    embedder = make(f"127.0.0.1:{server.port}")
    await embedder.probe()
    await embedder.close()


@pytest.mark.parametrize("host", ["http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999"])
async def test_a_host_that_is_no_address_is_named(host: str, make: Make) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"is not a valid (address|URL)"):
        make(host)
