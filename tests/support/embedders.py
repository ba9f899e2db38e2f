"""What every embedder must do, whichever it is: one behaviour suite, run on each of them."""

from __future__ import annotations

import asyncio

import numpy as np
import numpy.typing as npt

from crew_journal.schemas.core.ports import Embedder


def as_vector(data: bytes) -> npt.NDArray[np.float32]:
    """A vector as it crosses the port."""
    return np.frombuffer(data, dtype="<f4")


def cosine(left: bytes, right: bytes) -> float:
    """Of two vectors that are L2-normalised."""
    return float(as_vector(left).astype(np.float64) @ as_vector(right).astype(np.float64))


async def check_embedder_behaviour(embedder: Embedder) -> None:
    """Assert the port's promises."""
    await embedder.probe()
    texts = ["the billing crew rolled back", "a question of the night shift", "ünïcödé 東京 🙂", "x" * 20_000, ""]
    vectors = await embedder.embed_documents(texts)
    dim = embedder.dim
    assert dim is not None
    assert len(vectors) == len(texts)
    for vector in vectors:
        assert len(vector) == 4 * dim
        assert abs(float(np.linalg.norm(as_vector(vector))) - 1.0) < 1e-5
    again = await asyncio.gather(*(embedder.embed_documents([text]) for text in texts))
    for alone, together in zip(again, vectors, strict=True):
        assert cosine(alone[0], together) > 1 - 1e-5
    query = await embedder.embed_query("what did the billing crew roll back?")
    assert len(query) == 4 * dim
    assert cosine(query, vectors[0]) > cosine(query, vectors[1])
    assert await embedder.embed_documents([]) == []
    assert isinstance(embedder, Embedder)
