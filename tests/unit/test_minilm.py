"""MiniLM in numpy against its definition, computed here a second time and in float64."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from support.embedders import as_vector, check_embedder_behaviour, cosine
from support.minilm import minilm_cache
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]  # ships no annotations
from tokenizers import Tokenizer

from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_encoder import (
    FEW_ROWS,
    MAX_WORD_PIECES,
    Gelu,
    Linear,
    MiniLmEncoder,
    Norm,
    batches,
)
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.core.errors import EmbedderModelMissing, EmbedderUnavailable

Doubles = npt.NDArray[np.float64]

TEXTS = [
    "The deployment of the billing crew failed at 03:12.",
    "Who approved it?",
    "Escalation: the keeper denied network egress to an unknown host, and the mission stopped.",
]


@pytest.fixture(scope="module")
def model() -> Path:
    return minilm_cache() / MODEL_ID


@pytest.fixture(scope="module")
def encoder(model: Path) -> MiniLmEncoder:
    return MiniLmEncoder(model)


@pytest.fixture
async def embedder(model: Path) -> AsyncIterator[MiniLmEmbedder]:
    made = MiniLmEmbedder(model.parent)
    yield made
    await made.close()


def reference_vector(model: Path, text: str) -> Doubles:
    """BERT as published, one text, float64, head by head, with `math.erf`."""
    tensors = {name: value.astype(np.float64) for name, value in load_file(model / "model.safetensors").items()}
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    ids = tokenizer.encode(text).ids

    def norm(x: Doubles, name: str) -> Doubles:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
        return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])

    def dense(x: Doubles, name: str) -> Doubles:
        return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])

    erf = np.vectorize(math.erf)
    x: Doubles = tensors["embeddings.word_embeddings.weight"][ids]
    x = x + tensors["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + tensors["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for number in range(6):
        layer = f"encoder.layer.{number}"
        q, k, v = (dense(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for head in range(12):
            columns = slice(32 * head, 32 * head + 32)
            weights = np.exp(q[:, columns] @ k[:, columns].T / math.sqrt(32))
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, columns])
        attended = dense(np.concatenate(heads, axis=1), f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = dense(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def test_vectors_equal_an_independent_float64_forward_pass(model: Path, encoder: MiniLmEncoder) -> None:
    found = encoder.encode(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        expected = reference_vector(model, text)
        assert float(vector.astype(np.float64) @ expected) > 1 - 1e-6
        assert float(np.abs(vector - expected).max()) < 2e-6


def test_a_long_text_equals_the_reference_too_which_goes_through_the_blocks_for_many_rows(
    model: Path, encoder: MiniLmEncoder
) -> None:
    text = " ".join(TEXTS * 8)
    assert len(encoder.word_pieces(text)) == MAX_WORD_PIECES
    assert float(encoder.encode([text])[0].astype(np.float64) @ reference_vector(model, text)) > 1 - 1e-6


def test_a_vector_does_not_depend_on_its_batch(encoder: MiniLmEncoder) -> None:
    texts = [" ".join(TEXTS[: 1 + n % 3] * (1 + n % 5)) + f" {n}" for n in range(12)]
    together = encoder.encode(texts)
    backwards = encoder.encode(texts[::-1])[::-1]
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert float(np.abs(together - alone).max()) < 2e-6
    assert float(np.abs(together - backwards).max()) < 2e-6


def test_text_beyond_256_word_pieces_changes_nothing(encoder: MiniLmEncoder) -> None:
    # 254 words of one piece each, [CLS] and [SEP]
    full = " ".join(["memory"] * 254)
    longer, shorter = encoder.encode([full + " something else entirely " * 50, " ".join(["memory"] * 252) + " crew"])
    exact = encoder.encode([full])[0]
    assert len(encoder.word_pieces(full)) == MAX_WORD_PIECES
    assert float(np.abs(longer - exact).max()) < 1e-6
    assert float(np.abs(shorter - exact).max()) > 1e-3


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "🙂" * 500, "‮abc", "\ud800 lone surrogate"])
async def test_odd_texts_have_a_vector(embedder: MiniLmEmbedder, text: str) -> None:
    vector = as_vector((await embedder.embed_documents([text]))[0])
    assert abs(float(np.linalg.norm(vector)) - 1.0) < 1e-5


def test_gelu_is_within_1e7_of_its_definition_or_the_last_bit_of_a_larger_result() -> None:
    x = np.concatenate([np.linspace(-9, 9, 400_001), [-1e4, -100.0, 0.0, 1e-30, 100.0, 1e4]]).astype(np.float32)
    expected = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()])
    found = x.copy()
    Gelu()(found)
    error = np.abs(found - expected)
    assert float(error[expected < 1].max()) < 1e-7
    assert float((error[expected >= 1] / expected[expected >= 1]).max()) < np.finfo(np.float32).eps


def test_layer_norm_and_dense_blocks_equal_their_definitions() -> None:
    numbers = np.random.default_rng(7)
    weight = numbers.standard_normal((96, 40)).astype(np.float32)
    bias = numbers.standard_normal(96).astype(np.float32)
    for rows in (1, 15, 16, 17, FEW_ROWS, FEW_ROWS + 1, 300):
        x = numbers.standard_normal((rows, 40)).astype(np.float32)
        assert np.allclose(Linear(weight, bias)(x), x.astype(np.float64) @ weight.T + bias, atol=2e-5)
        y = (5 * x + 3).astype(np.float32)
        expected = (y - y.mean(axis=1, keepdims=True)) / y.std(axis=1, keepdims=True)
        Norm(np.ones(40, np.float32), np.zeros(40, np.float32))(y)
        assert np.allclose(y, expected, atol=2e-5)


@given(st.lists(st.integers(1, 256), max_size=60), st.integers(1, 512))
def test_batches_hold_every_text_once_and_keep_the_limit(lengths: list[int], limit: int) -> None:
    groups = list(batches(lengths, limit))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or sum(lengths[index] for index in group) <= limit


def test_loading_pins_blas_to_one_thread(encoder: MiniLmEncoder) -> None:
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert pools
    assert {pool["num_threads"] for pool in pools} == {1}
    square = np.ones((1500, 1500), dtype=np.float32)
    encoder.encode(["warm"])
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(8):
        square @ square
    # two threads would use twice the wall time in CPU; other threads of the test run are idle
    assert time.process_time() - cpu < 1.5 * (time.perf_counter() - wall)


async def test_minilm_keeps_the_promises_of_the_port(embedder: MiniLmEmbedder) -> None:
    await check_embedder_behaviour(embedder)
    assert embedder.model_id == "all-MiniLM-L6-v2"
    assert embedder.dim == 384


async def test_the_port_and_the_synchronous_call_agree(embedder: MiniLmEmbedder) -> None:
    vectors = await embedder.embed_documents(TEXTS)
    for vector, row in zip(vectors, embedder.encode(TEXTS), strict=True):
        assert cosine(vector, row.astype("<f4").tobytes()) > 1 - 1e-6


async def test_a_query_overtakes_documents_that_came_before_it(embedder: MiniLmEmbedder) -> None:
    await embedder.probe()
    documents = asyncio.ensure_future(embedder.embed_documents([f"{' '.join(TEXTS * 4)} {n}" for n in range(40)]))
    await asyncio.sleep(0)  # lets the documents be submitted
    queries = await asyncio.gather(*(embedder.embed_query(f"who failed {n}?") for n in range(5)))
    assert len(queries) == 5
    assert not documents.done()
    assert len(await documents) == 40


async def test_the_event_loop_runs_on_while_documents_are_embedded(embedder: MiniLmEmbedder) -> None:
    documents = asyncio.ensure_future(embedder.embed_documents([" ".join(TEXTS)] * 64))
    turns = 0
    while not documents.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100  # one or two, if it were blocked


async def test_a_cancelled_batch_is_dropped_and_the_next_call_is_answered(embedder: MiniLmEmbedder) -> None:
    await embedder.probe()
    abandoned = asyncio.ensure_future(embedder.embed_documents([f"{' '.join(TEXTS * 5)} {n}" for n in range(2_000)]))
    await asyncio.sleep(0)
    abandoned.cancel()
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    # 2,000 texts of 250 word pieces would take three minutes
    async with asyncio.timeout(60):
        assert len(await embedder.embed_documents(["still there"])) == 1


async def test_concurrent_callers_get_their_own_vectors(embedder: MiniLmEmbedder) -> None:
    texts = [f"{TEXTS[n % 3]} {n}" for n in range(12)]
    answers = await asyncio.gather(*(embedder.embed_documents([text]) for text in texts))
    for text, (vector,) in zip(texts, answers, strict=True):
        assert cosine(vector, embedder.encode([text])[0].astype("<f4").tobytes()) > 1 - 1e-6


async def test_without_weights_the_error_names_the_command_and_goes_away_once_they_are_there(
    tmp_path: Path, model: Path
) -> None:
    embedder = MiniLmEmbedder(tmp_path)
    with pytest.raises(EmbedderModelMissing) as caught:
        await embedder.embed_query("anyone?")
    assert "embedder install minilm" in caught.value.hint
    (tmp_path / MODEL_ID).symlink_to(model)
    await embedder.probe()
    await embedder.close()


async def test_a_closed_embedder_says_so_and_its_thread_is_gone(model: Path) -> None:
    embedder = MiniLmEmbedder(model.parent)
    await embedder.probe()
    waiting = asyncio.ensure_future(embedder.embed_documents([f"{' '.join(TEXTS * 5)} {n}" for n in range(200)]))
    await asyncio.sleep(0)
    await embedder.close()
    with pytest.raises(EmbedderUnavailable):
        await waiting
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("too late")
    assert "minilm" not in {thread.name for thread in threading.enumerate()}
