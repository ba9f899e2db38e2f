"""The dense arm over many vectors: what it finds by one bit a dimension is what it finds by every cosine."""

from __future__ import annotations

import numpy as np
import pytest
from support.recall import index_of, recorded, vector_fact

from crew_journal.services.index import vectors as index_vectors
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import Sketch, VectorMatrix
from crew_journal.services.recall import arms
from crew_journal.services.recall.arms import search_dense

DIM, COUNT, TOPICS = 128, 1_200, 60
EVERYTHING = RecallScope(ScopeKind.WORKSPACE)


@pytest.fixture(scope="module")
def index() -> HotIndex:
    """Entries about topics: a vector is near to those of its topic."""
    rng = np.random.default_rng(5)
    topics = rng.standard_normal((TOPICS, DIM))
    entries = [recorded(seq, f"entry {seq}") for seq in range(1, COUNT + 1)]
    values = topics[rng.integers(0, TOPICS, COUNT)] + 0.4 * rng.standard_normal((COUNT, DIM))
    return index_of(entries, [vector_fact(entry, value.tolist()) for entry, value in zip(entries, values, strict=True)])


def found(index: HotIndex, query: np.ndarray, depth: int) -> list[int]:
    docs: list[int] = search_dense(index, index.scoped(EVERYTHING), query, depth).lane.docs.tolist()
    return docs


def test_dense_arm_with_sketches_finds_the_nearest_entries(index: HotIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    assert index.vectors is not None
    queries = index.vectors.vectors[::40]
    exact = [found(index, query, 5) for query in queries]
    monkeypatch.setattr(arms, "SKETCHED_FROM", COUNT)
    monkeypatch.setattr(index_vectors, "SKETCHED_FROM", COUNT)
    asked: list[int] = []
    sketched = arms._search_sketched
    monkeypatch.setattr(arms, "_search_sketched", lambda *given: asked.append(1) or sketched(*given))
    assert [found(index, query, 5) for query in queries] == exact
    assert len(asked) == len(queries)


def test_sketch_of_few_vectors_is_not_made(index: HotIndex) -> None:
    assert index.vectors is not None
    assert index.vectors.sketch is None


def test_estimated_cosine_is_near_to_the_cosine(index: HotIndex) -> None:
    assert index.vectors is not None
    rows = index.vectors.vectors
    cosines = rows @ rows[0]
    estimated = Sketch(rows).cosines(rows[0])
    assert abs(float(np.corrcoef(cosines, estimated)[0, 1])) > 0.75
    assert int(np.argmax(estimated)) == 0


def test_sketch_follows_vectors_that_are_added_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_vectors, "SKETCHED_FROM", 4)
    rng = np.random.default_rng(2)
    values = rng.standard_normal((8, DIM)).astype("<f4")
    matrix = VectorMatrix("m")
    for doc in range(6):
        matrix.put(doc, values[doc].tobytes(), doc + 1)
    assert matrix.sketch is not None
    matrix.put(6, values[6].tobytes(), 7)
    matrix.put(2, values[7].tobytes(), 8)
    sketch = matrix.sketch
    assert sketch is not None
    assert len(sketch) == 7
    assert int(np.argmax(sketch.cosines(matrix.vectors[6]))) == 6
    assert int(np.argmax(sketch.cosines(matrix.vectors[2]))) == 2
